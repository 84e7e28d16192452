"""The local model, which answers questions on this device.

It must not import any network code: nothing of ``remote``, nothing of the wire. Only
``download`` fetches models, for a command of its own and never for a query.
"""
