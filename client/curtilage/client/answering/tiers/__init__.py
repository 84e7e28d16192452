"""The tiers that can answer: a class for each kind, all with the same interface.

``answer(attempt, way, status)`` yields an answer. ``way`` is the permission that the
decision gave for this kind of tier, so that no tier can be asked without its own; the
local model needs none.
"""
