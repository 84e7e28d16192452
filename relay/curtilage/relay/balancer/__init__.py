"""A header-only balancer in front of many relays, or of many enclaves.

Knows names, addresses and the syntax of nginx and Envoy. Starts nothing; the
generated configuration reads no content, keeps no log and sends no request twice.
"""
