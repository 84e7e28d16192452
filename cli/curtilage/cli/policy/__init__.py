"""``curtilage policy``: check, explain, compare, test, sign and report a policy.

Handles files and messages; ``curtilage.policy`` interprets policies. Gives up the
network before it reads a text.
"""
