"""Calibrates, certifies and judges the router: arithmetic on graded questions.

These functions are pure: they take lines and figures and return values. They import the
router's estimator and verifier, and no command.
"""
