"""nginx as the relay: its configuration is generated from the relay's own.

Knows the rules of ``relay.forward`` and nginx's syntax. Starts nothing.
"""
