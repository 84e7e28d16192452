"""``curtilage policy``: check, explain, compare, test, sign and report a policy.

Knows documents and words; what a policy means, ``curtilage.policy`` says. Loses the
network before it reads a text.
"""
