"""The evidence process: talks to the TEE's device, and to nobody else.

Another process than the server's: knows no key that opens a question, no question, and
no network.
"""
