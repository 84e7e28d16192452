"""Brings every compose file up for real, on bare Debian and without a registry."""
