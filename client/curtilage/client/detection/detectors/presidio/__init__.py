"""Presidio's only door: its analyzer with our recognizers, and nothing it would fetch.

Runs in the detectors' process. Knows no policy and no other detector.
"""
