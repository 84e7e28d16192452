"""The local model: questions that stay at home are answered here.

Imports no way out: nothing of ``remote``, nothing of the wire. Models are downloaded by
``download`` alone, for a command of its own and never for a query.
"""
