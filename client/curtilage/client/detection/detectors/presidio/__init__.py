"""Presidio's analyzer with our recognizers, and without its downloads.

The only package that imports Presidio. Runs in the detectors' process. Knows no policy
and no other detector.
"""
