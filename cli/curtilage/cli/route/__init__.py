"""``curtilage route``: what routing would choose, what it gives, and whether it pays.

Reads traces and graded questions; only ``compare`` asks a model.
"""
