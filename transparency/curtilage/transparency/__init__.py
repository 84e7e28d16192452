"""A release log in a folder: publishing, witnessing, proving and auditing.

For publishers and auditors, not for who asks. Knows the formats of ``attest.log`` and
files; sees no query and no key that opens one.
"""
