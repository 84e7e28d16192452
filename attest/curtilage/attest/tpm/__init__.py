"""TPM 2.0 quotes: their layout, their registers, their verification.

Knows the structures of the TPM library specification and the key it is given; which key
may be trusted is for whoever calls. Opens no device.
"""
