"""NVIDIA GPUs in confidential mode: SPDM measurements, device identity, verification.

Knows a report's bytes and its certificates; never calls a service of the vendor, since
a token of theirs would be somebody else's word.
"""
