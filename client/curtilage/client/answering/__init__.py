"""The way of a query: ``pipeline`` first, then the classes of ``tiers``.

Nothing here can widen what was decided, and nothing here seals: that is ``remote``.
"""
