"""The Merkle tree of a transparency log (RFC 6962 and RFC 9162, section 2.1).

Hashes, roots, inclusion and consistency proofs: made from leaf hashes, and
verified from nothing but sizes, roots and the proof itself. Knows no log, no
signature and no file.
"""

import hashlib
from collections.abc import Sequence
from typing import Final

from curtilage.attest.errors import RefusalCode, RefusedError

HASH_BYTES: Final = 32
MAX_LEVELS: Final = 63
"""Levels of the largest tree that a leaf's number can address."""
# "The hash of an empty list is the hash of an empty string" (RFC 6962, 2.1).
EMPTY_ROOT: Final = hashlib.sha256(b"").digest()


def hash_leaf(leaf: bytes) -> bytes:
    """Return a leaf's hash (RFC 6962, section 2.1)."""
    # 0x00 for leaves and 0x01 for nodes: without, an inner node's two hashes could be
    # presented as a leaf, and prove that something is in the log which never was
    # ("second preimage", RFC 6962, section 2.1).
    return hashlib.sha256(b"\x00" + leaf).digest()


def hash_children(left: bytes, right: bytes) -> bytes:
    """Return an inner node's hash (RFC 6962, section 2.1)."""
    return hashlib.sha256(b"\x01" + left + right).digest()


def root_from_inclusion(
    *, index: int, size: int, leaf_hash: bytes, hashes: Sequence[bytes]
) -> bytes:
    """Compute the root that a proof leads to (RFC 9162, section 2.1.3.2).

    Raises:
        RefusedError: ``proof_invalid``: too many hashes, or too few, or an index
            that the tree does not have.
    """
    # Outside of the tree the walk below would end early, and lead to a root all the
    # same.
    if not 0 <= index < size:
        raise _refused("index is outside of the tree")
    node, last, root = index, size - 1, leaf_hash
    for sibling in hashes:
        # At the root with a hash left over. A longer proof for the same leaf would be a
        # second proof of another shape.
        if last == 0:
            raise _refused("too many hashes")
        # A right child, or the last node of a level that has no sibling: the hash
        # is on its left.
        if node & 1 or node == last:
            root = hash_children(sibling, root)
            # A subtree at the right edge that is not full: it moves up through levels
            # without a sibling.
            while node and not node & 1:
                node, last = node >> 1, last >> 1
        else:
            root = hash_children(root, sibling)
        node, last = node >> 1, last >> 1
    # Not at the root yet: the hash so far is some inner node, whose tree is not the
    # checkpoint's.
    if last != 0:
        raise _refused("too few hashes")
    return root


def verify_consistency(
    first_size: int,
    first_root: bytes,
    second_size: int,
    second_root: bytes,
    hashes: Sequence[bytes],
) -> None:
    """Refuse unless the first tree is the beginning of the second.

    The algorithm of RFC 9162, section 2.1.4.2. Of two trees of one size the roots
    must be equal, an empty tree is the beginning of any, and in both cases there
    is nothing to prove: the proof is empty.

    Args:
        first_size: leaves of the earlier tree.
        first_root: its root, 32 bytes.
        second_size: leaves of the later tree.
        second_root: its root, 32 bytes.
        hashes: the consistency proof, as ``Tree.consistency`` makes it.

    Raises:
        RefusedError: ``proof_invalid``.
    """
    # The caller sorts; a log that shrinks has forgotten something.
    if not 0 <= first_size <= second_size:
        raise _refused("the log has shrunk")
    if first_size in {0, second_size}:
        expected = second_root if first_size else EMPTY_ROOT
        # Nothing to prove, so the proof must be empty: its bytes would not be checked.
        if hashes or first_root != expected:
            raise _refused("the log has forked")
        return
    # Both roots come out of the same hashes. Only a tree that begins with the other one
    # can give both.
    reached = _roots_from_consistency(first_size, second_size, first_root, hashes)
    if reached != (first_root, second_root):
        raise _refused("the log has forked")


def _roots_from_consistency(
    first_size: int, second_size: int, first_root: bytes, hashes: Sequence[bytes]
) -> tuple[bytes, bytes]:
    # A first tree of a power of two is a node of the second one, so that its root
    # is not repeated in the proof.
    whole = first_size.bit_count() == 1
    path = [first_root, *hashes] if whole else list(hashes)
    if not hashes:
        raise _refused("too few hashes")
    node, last = first_size - 1, second_size - 1
    while node & 1:
        node, last = node >> 1, last >> 1
    # Two walks in one: hashes on the left belong to both trees, those on the right to
    # the larger alone.
    first = second = path[0]
    for sibling in path[1:]:
        if last == 0:
            raise _refused("too many hashes")
        if node & 1 or node == last:
            first = hash_children(sibling, first)
            second = hash_children(sibling, second)
            while node and not node & 1:
                node, last = node >> 1, last >> 1
        else:
            second = hash_children(second, sibling)
        node, last = node >> 1, last >> 1
    if last != 0:
        raise _refused("too few hashes")
    return first, second


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

    def push(self, leaf: bytes) -> None:
        """Add the next leaf."""
        self.push_hash(hash_leaf(leaf))

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
                ``EMPTY_ROOT``, which a caller must ask for by name.
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
    """Every hash of a tree, for roots and proofs of any size up to its own.

    Args:
        leaf_hashes: in order; 64 bytes of memory a leaf.
    """

    def __init__(self, leaf_hashes: Sequence[bytes]) -> None:
        self._levels = [list(leaf_hashes)]
        while len(self._levels[-1]) > 1:
            # Of whole pairs only: ``_subtree`` joins what is left over.
            pairs = zip(self._levels[-1][::2], self._levels[-1][1::2], strict=False)
            self._levels.append([hash_children(left, right) for left, right in pairs])

    @property
    def size(self) -> int:
        """Number of leaves."""
        return len(self._levels[0])

    @property
    def leaf_hashes(self) -> tuple[bytes, ...]:
        """The leaves' hashes, in order."""
        return tuple(self._levels[0])

    def root(self, size: int | None = None) -> bytes:
        """Return the root of the first ``size`` leaves; of all by default.

        Raises:
            IndexError: there are not so many.
        """
        size = self._bounded(size)
        return self._subtree(0, size) if size else EMPTY_ROOT

    def inclusion(self, index: int, size: int | None = None) -> tuple[bytes, ...]:
        """Return the path of one leaf, the leaf's sibling first (2.1.1).

        Raises:
            IndexError: there is no such leaf in a tree of that size.
        """
        size = self._bounded(size)
        if not 0 <= index < size:
            raise IndexError("index is outside of the tree")
        path: list[bytes] = []
        start, end = 0, size
        while end - start > 1:
            middle = start + _split(end - start)
            if index < middle:
                path.append(self._subtree(middle, end))
                end = middle
            else:
                path.append(self._subtree(start, middle))
                start = middle
        return tuple(reversed(path))

    def consistency(self, first: int, second: int | None = None) -> tuple[bytes, ...]:
        """Return the proof that one tree is the beginning of another (2.1.2).

        Empty where there is nothing to prove: of an empty tree, or of one size.

        Raises:
            IndexError: there are not so many leaves, or the first tree is larger.
        """
        second = self._bounded(second)
        if not 0 <= first <= second:
            raise IndexError("the first tree is larger than the second")
        if first in {0, second}:
            return ()
        path: list[bytes] = []
        start, end = 0, second
        while first != end:
            middle = start + _split(end - start)
            if first <= middle:
                path.append(self._subtree(middle, end))
                end = middle
            else:
                path.append(self._subtree(start, middle))
                start = middle
        # What is left is a node of both trees; the verifier knows it already
        # where it is the whole first tree.
        if start:
            path.append(self._subtree(start, end))
        return tuple(reversed(path))

    def _bounded(self, size: int | None) -> int:
        if size is None:
            return self.size
        if not 0 <= size <= self.size:
            raise IndexError("the tree has not so many leaves")
        return size

    def _subtree(self, start: int, end: int) -> bytes:
        """Return a subtree's root; ``start`` is where RFC 6962 would split."""
        length = end - start
        if length.bit_count() == 1:
            level = length.bit_length() - 1
            return self._levels[level][start >> level]
        middle = start + _split(length)
        return hash_children(self._subtree(start, middle), self._subtree(middle, end))


def _split(length: int) -> int:
    """Return the largest power of two below ``length``, which is at least 2."""
    return 1 << (length - 1).bit_length() - 1


def _refused(detail: str) -> RefusedError:
    return RefusedError(RefusalCode.PROOF_INVALID, detail)
