"""Evidence: what it is, how it binds a key, and why it was believed."""
