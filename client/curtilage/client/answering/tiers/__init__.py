"""The tiers that can answer: a class for each kind, all with the same interface.

``answer(attempt, way, query, status)`` yields an answer. ``way`` is the permission that
the decision gave for this kind of tier; the local model needs none. A further kind is a
way in ``client.route``, a class here, and a case in ``pipeline``.
"""
