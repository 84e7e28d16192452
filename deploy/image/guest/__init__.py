"""Runs inside the image, with only the standard library."""
