"""The evidence process: talks to the TEE's device, and to nothing else.

It is separate from the server: it has no key that opens requests, no request, and no
network.
"""
