"""Routing: estimates how hard a query is, and chooses among the permitted tiers.

The policy's permissions come first, as a mask; nothing here can widen it. A wrong
estimate costs quality, time or money, never privacy.
"""
