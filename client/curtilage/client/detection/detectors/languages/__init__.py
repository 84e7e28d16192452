"""Which language each part of a text is in: proven, never assumed.

Words of the shipped vocabularies decide where they suffice; elsewhere the identifier,
whose only door is here. What is proven to be no covered language stays home. Knows
neither the policy nor a topic, and refuses to guess: whatever is left over is unknown.
"""
