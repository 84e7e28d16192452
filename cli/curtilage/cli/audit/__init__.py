"""``curtilage audit``: the trail verified, shown, proved and exported.

Reads ``curtilage.client.audit.writer``; loses the network before it opens a record.
"""
