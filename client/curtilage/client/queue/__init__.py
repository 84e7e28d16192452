"""The queue: queries that no tier could answer, sealed and kept for a limited time.

Only used if the policy permits it. Knows the queries, why each failed and when to retry
them; must not know any tier, nor any way out: each retry is decided anew.
"""
