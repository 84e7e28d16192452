"""Development tools: emulated evidence and a development log.

Not part of any release. Nothing made here proves isolation; all certificates are
labelled "emulated", and no production policy accepts them.
"""
