"""``curtilage release``: commands for publishers, witnesses and auditors of releases.

Reads flags and files for ``curtilage.transparency``; handles no query.
"""
