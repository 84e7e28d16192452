"""TPM 2.0 quotes: their layout, their registers, their verification.

Implements the structures of the TPM library specification; the caller supplies the key
and decides whether to trust it. Opens no device.
"""
