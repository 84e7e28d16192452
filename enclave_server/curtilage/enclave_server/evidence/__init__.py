"""Our own evidence: the report that binds our keys, the release, the bundle of both.

Verifies its own bundle as a client would before it serves. Sees no question.
"""
