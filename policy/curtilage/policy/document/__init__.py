"""The policy file: read, checked, and turned into values.

The only door to YAML and pydantic. Decides nothing.
"""
