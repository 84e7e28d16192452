from contextlib import AbstractContextManager
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.log.heads import (
    MAX_HEADS,
    MAX_ORIGINS,
    HeadHistory,
    TreeHead,
    parse_history,
)
from curtilage.attest.log.note import Checkpoint
from curtilage.attest.log.tree import Tree, hash_leaf

TREE = Tree([hash_leaf(bytes([number])) for number in range(40)])
OTHER = Tree([hash_leaf(bytes([number, 1])) for number in range(40)])


def head(size: int, tree: Tree = TREE, origin: str = "a") -> TreeHead:
    return TreeHead(origin=origin, size=size, root=tree.root(size))


def refused(
    code: RefusalCode = RefusalCode.PROOF_INVALID,
) -> AbstractContextManager[object]:
    return pytest.raises(RefusedError, match=f"^{code}: ")


def test_heads_are_remembered() -> None:
    history = HeadHistory().seen(head(3), head(7)).seen(head(3))
    assert history.heads == (head(3), head(7))
    assert HeadHistory().heads == ()


def test_a_checkpoint_is_a_head() -> None:
    checkpoint = Checkpoint(origin="a", size=3, root=TREE.root(3), cosigned={})
    assert TreeHead.of(checkpoint) == head(3)


def test_another_root_of_one_size_is_a_fork() -> None:
    history = HeadHistory().seen(head(3))
    with refused():
        history.seen(head(3, OTHER))
    # Another log may well have another root at that size.
    assert history.seen(head(3, OTHER, "b")).roots["b"]
    assert history.heads == (head(3),), "a history does not change"


def test_two_heads_are_linked_by_a_proof_in_either_order() -> None:
    proof = TREE.consistency(3, 7)
    for first, second in ((3, 7), (7, 3)):
        history = HeadHistory().linked(head(first), head(second), proof)
        assert history.heads == (head(3), head(7))
    assert HeadHistory().linked(head(5), head(5), ()).heads == (head(5),)


def test_a_proof_that_does_not_hold_is_refused() -> None:
    history = HeadHistory()
    with refused():
        history.linked(head(3), head(7, OTHER), OTHER.consistency(3, 7))
    with refused():
        history.linked(head(3), head(7), ())
    with refused():
        history.linked(head(3), head(3, OTHER), ())
    with refused():
        history.linked(head(3), head(7, origin="b"), TREE.consistency(3, 7))


def test_a_link_is_compared_with_what_was_seen_before() -> None:
    history = HeadHistory().seen(head(7, OTHER))
    with refused():
        history.linked(head(3), head(7), TREE.consistency(3, 7))


def test_the_largest_heads_are_kept() -> None:
    heads = [TreeHead(origin="a", size=size, root=bytes(32)) for size in range(300)]
    history = HeadHistory().seen(*heads)
    assert [each.size for each in history.heads] == list(range(300 - MAX_HEADS, 300))


def test_the_log_that_was_just_seen_is_kept() -> None:
    history = HeadHistory()
    for number in range(MAX_ORIGINS + 2):
        history = history.seen(head(3, origin=str(number)))
    assert len(history.roots) == MAX_ORIGINS
    assert str(MAX_ORIGINS + 1) in history.roots


@given(
    st.dictionaries(
        st.text(st.characters(codec="utf-8"), min_size=1, max_size=60),
        st.dictionaries(
            st.integers(0, 2**63 - 1),
            st.binary(min_size=32, max_size=32),
            min_size=1,
            max_size=5,
        ),
        max_size=MAX_ORIGINS,
    )
)
def test_a_stored_history_is_read_back(roots: dict[str, dict[int, bytes]]) -> None:
    history = HeadHistory(roots)
    assert parse_history(history.encode()) == history


def test_the_largest_history_can_be_read_back() -> None:
    heads = [
        TreeHead(origin=str(log) + "\u00e9" * 127, size=2**62 + size, root=bytes(32))
        for log in range(MAX_ORIGINS)
        for size in range(MAX_HEADS)
    ]
    history = HeadHistory().seen(*heads)
    assert parse_history(history.encode()).heads == history.heads
    assert len(history.heads) == MAX_ORIGINS * MAX_HEADS


GOOD = HeadHistory().seen(head(3)).encode()


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", RefusalCode.MALFORMED),
        (GOOD[:-1], RefusalCode.MALFORMED),
        (GOOD.replace(b"v1", b"v2"), RefusalCode.UNSUPPORTED_VERSION),
        (GOOD.replace(b'"size":3', b'"size":-3'), RefusalCode.MALFORMED),
        (GOOD.replace(b'"size"', b'"sizes"'), RefusalCode.MALFORMED),
        (GOOD.replace(b'"root":"', b'"root":"AAAA'), RefusalCode.TOO_LARGE),
        (HeadHistory({"a": {1: b"short"}}).encode(), RefusalCode.MALFORMED),
        (b" " * (1024 * 1024 + 1), RefusalCode.TOO_LARGE),
    ],
    ids=["empty", "cut", "version", "size", "key", "long", "short", "huge"],
)
def test_a_damaged_history_is_refused(data: bytes, code: RefusalCode) -> None:
    with refused(code):
        parse_history(data)


def test_a_stored_fork_is_refused() -> None:
    entry = GOOD[GOOD.index(b'{"origin"') : GOOD.index(b"]")]
    other = HeadHistory().seen(replace(head(3), root=bytes(32))).encode()
    fork = other[other.index(b'{"origin"') : other.index(b"]")]
    with refused():
        parse_history(GOOD.replace(entry, entry + b"," + fork))
