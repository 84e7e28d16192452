"""The local model: questions that stay at home are answered here.

Imports no way out: nothing of ``remote``, nothing of the wire, no network module.
Models are downloaded by a command of their own, never for a query.
"""
