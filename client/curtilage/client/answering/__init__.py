"""Those who may answer are asked: in which order, by which door, and what is shown.

Knows what was decided and what each may be told; decides nothing of that itself, and
seals nothing: that is ``remote``.
"""
