"""The stapler: fetches the vendors' endorsements of a machine, outside the enclave.

A separate process that the server never imports and never talks to: it writes files,
which the evidence process reads. Nothing that it fetches is trusted here; the verifier
of the evidence verifies it, so a stapler can cause evidence to be refused, but never to
be accepted.
"""
