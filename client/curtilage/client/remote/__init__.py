"""The connection to the enclave: the only folder that may seal, and the only sender.

It receives what ``policy.decision`` allowed and nothing else of a query. It must not
import detection, the local model or the audit trail.
"""
