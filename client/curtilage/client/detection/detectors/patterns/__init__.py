"""Identifiers and secrets as rules: a pattern, what checks it, what confirms it.

Linear-time matching only (RE2), since texts are hostile. Runs in the detectors'
process.
"""
