"""Measurements: ratios against a peer in the same run, never a timed test."""
