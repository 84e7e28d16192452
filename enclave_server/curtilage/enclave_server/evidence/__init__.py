"""Our own evidence: the report that binds our keys, the release, and their bundle.

Verifies its own bundle as a client would before serving it. Sees no request.
"""
