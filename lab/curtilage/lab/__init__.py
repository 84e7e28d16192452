"""The laboratory: measures detectors, a policy and the router on data of your own.

Comes with the source tree and not with the product. It knows the product; nothing of
the product imports it.
"""
