"""Explanations: decisions, differences and sections in words that people can check.

Takes values and returns text. Nothing depends on the result.
"""
