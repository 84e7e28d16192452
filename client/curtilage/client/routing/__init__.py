"""Where a query that may leave should be answered: its estimate, and who reads it.

What policy permits comes before all of this, as a mask; nothing here can widen it. A
wrong estimate costs quality, time or money, never privacy.
"""
