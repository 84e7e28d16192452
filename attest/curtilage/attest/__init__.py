"""Evidence: what it is, how it binds a key, and why it was believed.

Knows evidence, rules and the time, which are given to it. Opens nothing and asks no
vendor; may not know policies, inference or any party.
"""
