"""The relay: sees who asks, not what; shares no code with anyone.

Knows addresses, sizes and sealed bytes. May not open one: it imports no other part and
no cryptography of ours.
"""
