"""The formats of a transparency log: notes, keys, trees, tiles, proofs, manifests.

Knows bytes, public keys and sizes; who publishes, who witnesses and what a policy asks
come as arguments. Fetches nothing and remembers nothing.
"""
