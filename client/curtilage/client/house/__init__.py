"""A server in the organisation's own network, which the policy trusts with its data.

The one place where a text goes out of this process unsealed: to the address and the
key that the policy names, with a permit for exactly this text and this server. Knows
nothing of sealing, of the relay or of evidence.
"""
