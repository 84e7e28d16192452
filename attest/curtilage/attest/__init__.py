"""Evidence: its format, how it binds a key, and its verification.

Knows evidence, rules and the time, which are given to it. Opens nothing and asks no
vendor; may not know policies, inference or any party.
"""
