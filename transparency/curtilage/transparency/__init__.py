"""A release log in a folder: who publishes, who witnesses, who proves, who audits.

For publishers and auditors, not for who asks. Knows the formats of ``attest.log`` and
files; sees no query and no key that opens one.
"""
