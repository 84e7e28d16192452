"""The stapler: fetches what the vendors say of a machine, outside the enclave.

A process of its own that the server never imports and never talks to: it writes
files, which the evidence process reads. Nothing that it fetches is believed here;
whoever verifies the evidence verifies it, so a stapler can be the reason that
evidence is refused, and never that it is accepted.
"""
