"""``curtilage deploy``: writes the files of a deployment.

Knows addresses, measurements and public keys of logs. It makes private keys and writes
them for their owner alone; it never reads a question, and never connects.
"""
