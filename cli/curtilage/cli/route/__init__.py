"""``curtilage route``: what routing would choose, and what it gave.

Reads texts and traces. Its other commands are in the laboratory; ``parser`` describes
them as well.
"""
