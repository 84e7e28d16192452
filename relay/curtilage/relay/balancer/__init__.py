"""A header-only balancer in front of many relays, or of many enclaves.

Knows names and addresses; the configurations are ``templates/balancer.*``. Starts
nothing; what is generated reads no content, keeps no log and sends no request twice.
"""
