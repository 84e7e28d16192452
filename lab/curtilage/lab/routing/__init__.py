"""What calibrates, certifies and judges the router: arithmetic on graded questions.

Pure: lines and figures in, values out. It knows the router's estimator and verifier,
and no command.
"""
