"""Runs inside the image, with the standard library alone."""
