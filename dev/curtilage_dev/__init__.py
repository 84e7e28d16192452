"""Development tools: emulated evidence and a log of its own.

Not part of any release. Nothing made here proves isolation; all of it says
"emulated" in its certificates, and no production policy accepts it.
"""
