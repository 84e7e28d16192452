import hashlib
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.log.tree import (
    EMPTY_ROOT,
    Frontier,
    Tree,
    hash_children,
    hash_leaf,
    root_from_inclusion,
    verify_consistency,
)
from support.naive_tree import naive_consistency, naive_path, naive_root

SIZES = st.integers(1, 70)


def leaves(size: int) -> list[bytes]:
    return [str(number).encode() for number in range(size)]


def tree(size: int) -> Tree:
    return Tree([hash_leaf(leaf) for leaf in leaves(size)])


def refused(call: Callable[[], object]) -> str:
    with pytest.raises(RefusedError) as caught:
        call()
    assert caught.value.code is RefusalCode.PROOF_INVALID
    return caught.value.detail


# --- hashes and roots ---------------------------------------------------------


def test_leaf_and_node_hashes_differ() -> None:
    assert hash_leaf(b"") == hashlib.sha256(b"\0").digest()
    assert hash_children(b"a", b"b") == hashlib.sha256(b"\1ab").digest()


def test_the_empty_tree_has_the_root_of_rfc_6962() -> None:
    assert hashlib.sha256(b"").digest() == EMPTY_ROOT == Tree([]).root()
    assert tree(3).root(0) == EMPTY_ROOT


@given(SIZES)
def test_the_root_is_that_of_rfc_6962(size: int) -> None:
    frontier = Frontier()
    for leaf in leaves(size):
        frontier.push(leaf)
    assert frontier.root() == naive_root(leaves(size)) == tree(size).root()
    assert len(frontier.roots) == size.bit_count()


@given(SIZES, st.data())
def test_a_tree_knows_its_earlier_roots(size: int, data: st.DataObject) -> None:
    earlier = data.draw(st.integers(0, size))
    assert tree(size).root(earlier) == naive_root(leaves(earlier))


@given(st.integers(1, 40), st.integers(0, 30))
def test_a_frontier_goes_on_without_its_leaves(size: int, more: int) -> None:
    whole = Frontier()
    for leaf in leaves(size):
        whole.push(leaf)
    resumed = Frontier(size, whole.roots)
    copied = resumed.copy()
    for leaf in leaves(size + more)[size:]:
        resumed.push(leaf)
    assert resumed.root() == naive_root(leaves(size + more))
    assert (copied.size, copied.root()) == (size, whole.root())


# --- inclusion ----------------------------------------------------------------


@given(SIZES, st.data())
def test_a_path_leads_to_the_root(size: int, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, size - 1))
    earlier = data.draw(st.integers(index + 1, size))
    path = tree(size).inclusion(index, earlier)
    assert list(path) == naive_path(index, leaves(earlier))
    reached = root_from_inclusion(
        index=index,
        size=earlier,
        leaf_hash=hash_leaf(leaves(size)[index]),
        hashes=path,
    )
    assert reached == naive_root(leaves(earlier))


def _reaches(index: int, size: int, path: Sequence[bytes], leaf: bytes) -> bytes:
    return root_from_inclusion(
        index=index, size=size, leaf_hash=hash_leaf(leaf), hashes=path
    )


def _reached(index: int, size: int, path: Sequence[bytes]) -> bytes | None:
    try:
        return _reaches(index, size, path, leaves(size)[index])
    except RefusedError:
        return None


@given(st.integers(2, 70), st.data())
def test_a_changed_path_leads_elsewhere_or_nowhere(
    size: int, data: st.DataObject
) -> None:
    index = data.draw(st.integers(0, size - 1))
    path = list(tree(size).inclusion(index))
    place = data.draw(st.integers(0, len(path) - 1))
    changed = data.draw(
        st.sampled_from(
            [
                path[:place] + path[place + 1 :],
                [*path[:place], bytes(32), *path[place:]],
                [*path[:place], bytes(32), *path[place + 1 :]],
            ]
        )
    )
    assert _reached(index, size, changed) != tree(size).root()


@pytest.mark.parametrize(("index", "size"), [(-1, 3), (3, 3), (0, 0)])
def test_an_index_outside_of_the_tree_is_refused(index: int, size: int) -> None:
    assert "index" in refused(lambda: _reaches(index, size, (), b""))


def test_a_path_has_exactly_its_length() -> None:
    path = tree(5).inclusion(1)
    assert "few" in refused(lambda: _reaches(1, 5, path[:-1], b"1"))
    assert "many" in refused(lambda: _reaches(1, 5, [*path, bytes(32)], b"1"))


# --- consistency --------------------------------------------------------------


@given(st.integers(1, 70), st.data())
def test_a_consistency_proof_is_that_of_rfc_6962(
    size: int, data: st.DataObject
) -> None:
    second = data.draw(st.integers(1, size))
    first = data.draw(st.integers(1, second))
    proof = tree(size).consistency(first, second)
    assert list(proof) == naive_consistency(first, leaves(second))
    verify_consistency(
        first, naive_root(leaves(first)), second, naive_root(leaves(second)), proof
    )


def test_every_pair_of_small_sizes_is_consistent() -> None:
    whole = tree(33)
    for second in range(34):
        for first in range(second + 1):
            verify_consistency(
                first,
                whole.root(first),
                second,
                whole.root(second),
                whole.consistency(first, second),
            )


@given(st.integers(2, 40), st.data())
def test_a_changed_history_is_refused(size: int, data: st.DataObject) -> None:
    """Change one leaf that both trees have: no proof of the new tree holds."""
    first = data.draw(st.integers(1, size - 1))
    place = data.draw(st.integers(0, first - 1))
    changed = leaves(size)
    changed[place] = b"another"
    forked = Tree([hash_leaf(leaf) for leaf in changed])
    proof = forked.consistency(first)
    refused(
        lambda: verify_consistency(
            first, naive_root(leaves(first)), size, forked.root(), proof
        )
    )


@given(st.integers(2, 70), st.data())
def test_a_changed_proof_is_refused(size: int, data: st.DataObject) -> None:
    whole = tree(size)
    first = data.draw(st.integers(1, size - 1))
    proof = list(whole.consistency(first))
    place = data.draw(st.integers(0, len(proof) - 1))
    changed = data.draw(
        st.sampled_from(
            [
                proof[:place] + proof[place + 1 :],
                [*proof[:place], bytes(32), *proof[place:]],
                [*proof[:place], bytes(32), *proof[place + 1 :]],
                [],
                [*proof, proof[-1]],
            ]
        )
    )
    refused(
        lambda: verify_consistency(
            first, whole.root(first), size, whole.root(), changed
        )
    )


@given(
    st.integers(0, 2**63),
    st.integers(0, 2**63),
    st.lists(st.binary(min_size=32, max_size=32), max_size=70),
)
def test_any_hashes_are_refused(first: int, second: int, hashes: list[bytes]) -> None:
    refused(lambda: verify_consistency(first, b"\1" * 32, second, b"\2" * 32, hashes))


def test_a_consistency_proof_has_exactly_its_length() -> None:
    whole = tree(7)
    proof = whole.consistency(3)
    for hashes, said in (
        ((*proof, bytes(32)), "too many"),
        (proof[:-1], "too few"),
        ((), "too few"),
    ):
        detail = refused(
            lambda hashes=hashes: verify_consistency(  # type: ignore[misc]
                3, whole.root(3), 7, whole.root(), hashes
            )
        )
        assert said in detail


def test_a_log_does_not_shrink() -> None:
    whole = tree(5)
    proof = whole.consistency(3)
    assert "shrunk" in refused(
        lambda: verify_consistency(5, whole.root(), 3, whole.root(3), proof)
    )
    assert "shrunk" in refused(
        lambda: verify_consistency(-1, EMPTY_ROOT, 3, whole.root(3), ())
    )


def test_two_roots_of_one_size_are_a_fork() -> None:
    root = tree(4).root()
    verify_consistency(4, root, 4, root, ())
    assert "forked" in refused(lambda: verify_consistency(4, root, 4, bytes(32), ()))
    assert "forked" in refused(lambda: verify_consistency(4, root, 4, root, (root,)))


def test_an_empty_tree_begins_any_other_without_a_proof() -> None:
    root = tree(4).root()
    verify_consistency(0, EMPTY_ROOT, 4, root, ())
    assert "forked" in refused(lambda: verify_consistency(0, bytes(32), 4, root, ()))
    assert "forked" in refused(
        lambda: verify_consistency(0, EMPTY_ROOT, 4, root, (root,))
    )


@pytest.mark.parametrize(("first", "second"), [(2, 7), (4, 7), (3, 4), (3, 9)])
def test_a_proof_does_not_hold_between_other_sizes(first: int, second: int) -> None:
    """Where the tree's shape is another; size and root together are signed."""
    whole = tree(9)
    proof = whole.consistency(3, 7)
    refused(
        lambda: verify_consistency(first, whole.root(3), second, whole.root(7), proof)
    )


def test_impossible_requests_are_refused() -> None:
    with pytest.raises(ValueError, match="no root"):
        Frontier().root()
    with pytest.raises(ValueError, match="bits set"):
        Frontier(3, [bytes(32)])
    for call in (
        lambda: tree(3).inclusion(3),
        lambda: tree(3).inclusion(1, 1),
        lambda: tree(3).root(4),
        lambda: tree(3).root(-1),
        lambda: tree(3).consistency(3, 2),
        lambda: tree(3).consistency(1, 4),
    ):
        with pytest.raises(IndexError):
            call()
