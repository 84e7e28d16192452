"""The Merkle tree over an audit log's lines (RFC 6962, section 2.1).

A checkpoint signs the tree's root, so that one record can be shown to be in
the log without the others. The hashes are those of ``attest.tlog``, and so is
the check of an inclusion proof.
"""

from collections.abc import Sequence
from typing import Final

from curtilage.attest.tlog import hash_children, hash_leaf

MAX_LEVELS: Final = 63
"""Levels of the largest tree that a record number can address."""


class Frontier:
    """The roots of the whole subtrees that a tree of some size consists of.

    One per bit that is set in the size, largest first; from them the root and
    every later tree follow, without the leaves.

    Args:
        size: number of leaves.
        roots: the subtrees' roots, 32 bytes each.

    Raises:
        ValueError: there are not as many roots as the size has bits set.
    """

    def __init__(self, size: int = 0, roots: Sequence[bytes] = ()) -> None:
        if size < 0 or len(roots) != size.bit_count():
            raise ValueError("as many roots as the size has bits set")
        self._size = size
        self._roots = list(roots)

    @property
    def size(self) -> int:
        """Number of leaves."""
        return self._size

    @property
    def roots(self) -> tuple[bytes, ...]:
        """The subtrees' roots, largest subtree first."""
        return tuple(self._roots)

    def push(self, line: bytes) -> None:
        """Add a line as the next leaf."""
        self.push_hash(hash_leaf(line))

    def push_hash(self, leaf_hash: bytes) -> None:
        """Add the next leaf by its hash."""
        node, merged = leaf_hash, self._size
        while merged & 1:
            node = hash_children(self._roots.pop(), node)
            merged >>= 1
        self._roots.append(node)
        self._size += 1

    def root(self) -> bytes:
        """Return the tree's root hash.

        Raises:
            ValueError: the tree has no leaf; RFC 6962 has a hash for that,
                but an empty log is none of ours.
        """
        if not self._roots:
            raise ValueError("an empty tree has no root")
        *larger, node = self._roots
        for root in reversed(larger):
            node = hash_children(root, node)
        return node

    def copy(self) -> "Frontier":
        """Return the same state, to go on from separately."""
        return Frontier(self._size, self._roots)


class Tree:
    """Every hash of a tree, for proofs; 64 bytes a leaf."""

    def __init__(self, leaf_hashes: Sequence[bytes]) -> None:
        self._levels = [list(leaf_hashes)]
        while len(self._levels[-1]) > 1:
            self._levels.append(_parents(self._levels[-1]))

    def inclusion(self, index: int) -> tuple[bytes, ...]:
        """Return the path of one leaf, the leaf's sibling first (2.1.1).

        Raises:
            IndexError: there is no such leaf.
        """
        if not 0 <= index < len(self._levels[0]):
            raise IndexError("index is outside of the tree")
        path: list[bytes] = []
        for level in self._levels[:-1]:
            sibling = index ^ 1
            # The last node of an odd level goes up as it is: it has no sibling.
            if sibling < len(level):
                path.append(level[sibling])
            index >>= 1
        return tuple(path)


def _parents(level: Sequence[bytes]) -> list[bytes]:
    pairs = zip(level[::2], level[1::2], strict=False)
    parents = [hash_children(left, right) for left, right in pairs]
    return parents + list(level[len(level) & ~1 :])
