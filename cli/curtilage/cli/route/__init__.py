"""``curtilage route``: what routing would choose, and what it achieved.

Reads texts and traces. The other commands are in the laboratory; ``parser`` has their
flags too.
"""
