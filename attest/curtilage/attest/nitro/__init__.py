"""AWS Nitro Enclaves: the attestation document and its verification.

Knows the document's layout and its certificates. Opens no device: who obtains a
document is another program.
"""
