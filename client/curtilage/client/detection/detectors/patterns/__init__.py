"""Identifiers and secrets as rules: a pattern, what checks it, what confirms it.

Linear-time matching only (RE2), since texts are hostile. Knows no
policy and no model; runs in the detectors' process alone.
"""
