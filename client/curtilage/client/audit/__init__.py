"""The audit trail: a hash chain of the decisions about queries.

It holds digests, classes and routes, never a text. It must not import detection, the
local model or the connection to the enclave.
"""
