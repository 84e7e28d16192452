"""Readers of the evidence that other private-inference services publish.

Pure: bytes in, what there is to verify out. Every module here knows the layout of one
service's document; ``curtilage.attest`` does the verifying, with the reader's policy.
Which claim of whom is checked, and which is only stated, is in ``published``.
"""
