"""The enclave server: sees a request's content but not the client; stores nothing.

Knows its own keys, a request while it answers it, and that a relay sent it. Contains no
policy and no detector, and writes no request anywhere.
"""
