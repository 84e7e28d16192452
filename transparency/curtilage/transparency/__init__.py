"""A release log in a folder: publishing, witnessing, proving and auditing.

For publishers and auditors, not for clients. It knows the formats of ``attest.log`` and
files; it sees no query, and no key that decrypts one.
"""
