"""The audit trail: what was decided of each query, in a chain that shows each change.

Knows digests, classes and routes, never a text. May not import detection, the local
model or the way to the enclave.
"""
