"""A decision, a difference, an attestation section in words that a person can check.

Reads values and returns text. Nothing depends on what it says.
"""
