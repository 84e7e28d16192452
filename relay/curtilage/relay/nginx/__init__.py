"""nginx as the relay: its configuration is generated from the relay's own.

Knows what nginx cannot do. The configuration itself is ``templates/relay.nginx.conf``.
Starts nothing.
"""
