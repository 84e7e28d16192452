"""The relay: sees the client's address but no content; shares no code with others.

Knows addresses, sizes and sealed bytes, and cannot open one: it imports no other part
and no cryptography of ours.
"""
