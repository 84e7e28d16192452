"""What earlier turns say of a query: which of them stay, and what may be cut away.

Knows turns and everyday words; must not know any way out.
"""
