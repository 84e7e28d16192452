"""X.509 certificates, read once and then plain values: one reader for every vendor.

Also follows chains of NIST P-384 keys to a root. Which roots count, and what an
extension must say, each vendor's folder knows; nothing of theirs is imported here.
"""
