"""Merkle trees word for word as RFC 6962, section 2.1, defines them.

Slow, recursive and independent of ``curtilage.attest.log.tree``, so that the two can
be compared.
"""

import hashlib
from collections.abc import Sequence


def naive_root(leaves: Sequence[bytes]) -> bytes:
    """MTH(D[n])."""
    if not leaves:
        return hashlib.sha256().digest()
    if len(leaves) == 1:
        return hashlib.sha256(b"\0" + leaves[0]).digest()
    k = _largest_power_below(len(leaves))
    return hashlib.sha256(
        b"\1" + naive_root(leaves[:k]) + naive_root(leaves[k:])
    ).digest()


def naive_path(m: int, leaves: Sequence[bytes]) -> list[bytes]:
    """PATH(m, D[n])."""
    if len(leaves) == 1:
        return []
    k = _largest_power_below(len(leaves))
    if m < k:
        return [*naive_path(m, leaves[:k]), naive_root(leaves[k:])]
    return [*naive_path(m - k, leaves[k:]), naive_root(leaves[:k])]


def naive_consistency(m: int, leaves: Sequence[bytes]) -> list[bytes]:
    """PROOF(m, D[n])."""
    return _subproof(m, leaves, whole=True)


def _subproof(m: int, leaves: Sequence[bytes], *, whole: bool) -> list[bytes]:
    if m == len(leaves):
        return [] if whole else [naive_root(leaves)]
    k = _largest_power_below(len(leaves))
    if m <= k:
        return [*_subproof(m, leaves[:k], whole=whole), naive_root(leaves[k:])]
    return [*_subproof(m - k, leaves[k:], whole=False), naive_root(leaves[:k])]


def _largest_power_below(n: int) -> int:
    k = 1
    while k * 2 < n:
        k *= 2
    return k
