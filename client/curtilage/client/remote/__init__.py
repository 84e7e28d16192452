"""The way to the enclave: the only folder that may seal, and the only one to send.

Takes of a query what ``policy.decision`` allowed and nothing else. May not import
detection, the local model or the audit trail.
"""
