"""Programs that run inside the containers, with Python's standard library alone."""
