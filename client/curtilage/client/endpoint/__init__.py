"""The OpenAI API on loopback, for programs that already support it.

It knows HTTP and the client's ``api``; callers are checked before a body is read. It
knows no enclave and no detector.
"""
