"""``curtilage release``: the commands of who publishes, witnesses and audits releases.

Reads flags and files for ``curtilage.transparency``. Sees no query.
"""
