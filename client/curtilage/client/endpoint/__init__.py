"""The OpenAI API on loopback, for programs that speak it already.

Knows HTTP and the client's ``api``; who may connect is decided before a body is read.
Knows no enclave and no detector.
"""
