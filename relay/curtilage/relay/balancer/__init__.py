"""A balancer in front of many relays, or of many enclaves, that sees heads alone.

Knows names, addresses and the syntax of nginx and Envoy. Starts nothing; what it
generates reads no content, keeps no log and sends no question twice.
"""
