"""``curtilage audit``: verify, query, prove and export the audit trail.

Reads what ``curtilage.client.audit`` wrote; gives up the network before it opens a
record.
"""
