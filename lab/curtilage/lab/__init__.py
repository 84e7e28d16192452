"""The laboratory: measures detectors, a policy and the router on your own data.

It is part of the source tree and not of the product. It imports the product; no module
of the product imports it.
"""
