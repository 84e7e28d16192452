"""``curtilage audit``: the trail verified, shown, proved and exported.

Reads what ``curtilage.client.audit`` wrote; loses the network before it opens a record.
"""
