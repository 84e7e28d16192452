"""The on-premises server, which the policy trusts with the organisation's data.

The only place where a text leaves this process unsealed: to the address and the key
that the policy names, with a permit for exactly this text and this server. It knows
nothing of sealing, of the relay or of evidence.
"""
