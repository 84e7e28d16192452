"""The enclave server: sees what is asked, not who; keeps nothing."""
