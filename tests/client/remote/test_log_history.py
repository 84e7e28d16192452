"""A release log that forks or shrinks between two bundles, also across restarts."""

import stat
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.evidence_json import encode_bundle
from curtilage.attest.log.heads import MAX_HEADS, HeadHistory, TreeHead
from curtilage.attest.log.tree import Tree, hash_leaf
from curtilage.client.remote import log_history as log_memory
from curtilage.client.remote.key_store import KeyStore
from curtilage.client.remote.log_history import (
    LogHistory,
    LogHistoryFiles,
    LogView,
    SeenLog,
    log_name,
    parse_seen_log,
)
from curtilage.transparency.files import locked
from support.memory_enclave import NOW, deployment

LATER = NOW + timedelta(minutes=1)
TREE = Tree([hash_leaf(bytes([number])) for number in range(9)])
OTHER = Tree([hash_leaf(bytes([number])) for number in range(9, 18)])
KEY = b"k" * 32


def head(size: int, tree: Tree = TREE) -> TreeHead:
    return TreeHead(origin="log.example", size=size, root=tree.root(size))


def view(proof: int, anchor: int, time: int, tree: Tree = TREE) -> LogView:
    smaller, larger = sorted((proof, anchor))
    return LogView(
        proof=head(proof, tree),
        anchor=head(anchor, tree),
        consistency=tree.consistency(smaller, larger) if smaller != larger else (),
        time=time,
    )


def detail(call: Callable[[], object]) -> str:
    with pytest.raises(RefusedError) as caught:
        call()
    assert caught.value.code is RefusalCode.PROOF_INVALID
    return caught.value.detail


def test_a_log_that_grows_is_accepted() -> None:
    memory = SeenLog().taken(view(2, 4, 100)).taken(view(2, 7, 200))
    assert (memory.time, memory.size) == (200, 7)
    # Evidence of another enclave, a little older: nothing is wrong with it.
    again = memory.taken(view(3, 4, 150))
    assert (again.time, again.size) == (200, 7)
    assert [each.size for each in again.heads.heads] == [2, 3, 4, 7]


def test_a_log_that_is_smaller_later_is_refused() -> None:
    memory = SeenLog().taken(view(2, 7, 200))
    assert "shrunk" in detail(lambda: memory.taken(view(2, 4, 201)))
    assert "shrunk" in detail(lambda: memory.taken(view(2, 8, 199)))
    assert memory.taken(view(2, 4, 199)).size == 7


def test_a_log_that_is_smaller_in_the_same_second_is_refused() -> None:
    memory = SeenLog().taken(view(2, 7, 200))
    assert "shrunk" in detail(lambda: memory.taken(view(2, 4, 200)))
    assert memory.taken(view(2, 8, 200)).size == 8


def test_two_memories_of_which_one_saw_less_later_are_not_one_log() -> None:
    large, small = (SeenLog().taken(view(2, *at)) for at in ((7, 200), (4, 201)))
    assert "shrunk" in detail(lambda: large.joined(small))
    assert "shrunk" in detail(lambda: small.joined(large))
    same_second = SeenLog().taken(view(2, 4, 200))
    assert same_second.joined(large) == large.joined(same_second)


def test_a_second_root_of_one_size_is_refused() -> None:
    memory = SeenLog().taken(view(2, 4, 100))
    assert "forked" in detail(lambda: memory.taken(view(4, 9, 200, OTHER)))


def test_two_heads_of_a_bundle_that_are_no_one_log_are_refused() -> None:
    mixed = replace(view(4, 7, 100), proof=head(4, OTHER))
    detail(lambda: SeenLog().taken(mixed))


def test_a_stored_history_is_read_again() -> None:
    memory = SeenLog().taken(view(2, 7, 200))
    assert parse_seen_log(memory.encode()) == memory
    assert parse_seen_log(SeenLog().encode()) == SeenLog()


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[]", SeenLog().encode().replace(b"v1", b"v2")], ids=repr
)
def test_an_unreadable_history_is_not_forgotten(data: bytes, tmp_path: Path) -> None:
    (tmp_path / f"log-{log_name(KEY)}.json").write_bytes(data)
    book = LogHistory(LogHistoryFiles(tmp_path))
    assert "cannot be read" in detail(lambda: book.check(KEY, view(2, 4, 100)))


def test_a_log_is_known_by_its_key(tmp_path: Path) -> None:
    book = LogHistory(LogHistoryFiles(tmp_path))
    book.check(KEY, view(2, 4, 100))()
    book.check(b"l" * 32, view(2, 4, 100, OTHER))()
    assert len(list(tmp_path.glob("*.json"))) == 2


def test_a_refused_bundle_is_not_remembered(tmp_path: Path) -> None:
    book = LogHistory(LogHistoryFiles(tmp_path))
    book.check(KEY, view(2, 4, 100))
    assert list(tmp_path.iterdir()) == []
    book.check(KEY, view(2, 4, 100, OTHER))()


def test_a_history_is_private(tmp_path: Path) -> None:
    LogHistory(LogHistoryFiles(tmp_path)).check(KEY, view(2, 4, 100))()
    modes = {
        path.suffix: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()
    }
    assert modes == {".json": 0o600, ".lock": 0o600}


def test_two_clients_with_one_directory_remember_together(tmp_path: Path) -> None:
    first, second = (LogHistory(LogHistoryFiles(tmp_path)) for _ in range(2))
    first.check(KEY, view(2, 4, 100))()
    second.check(KEY, view(2, 5, 100))()
    first.check(KEY, view(2, 6, 100))()
    kept = LogHistoryFiles(tmp_path).load(log_name(KEY))
    assert [each.size for each in kept.heads.heads] == [2, 4, 5, 6]
    assert "forked" in detail(lambda: second.check(KEY, view(6, 9, 200, OTHER)))


def test_two_clients_at_once_do_not_both_believe_two_logs(tmp_path: Path) -> None:
    first, second = (LogHistory(LogHistoryFiles(tmp_path)) for _ in range(2))
    keep = first.check(KEY, view(2, 5, 100))
    keep_other = second.check(KEY, view(5, 5, 101, OTHER))
    keep()
    assert "forked" in detail(keep_other)
    kept = LogHistoryFiles(tmp_path).load(log_name(KEY))
    assert kept == SeenLog().taken(view(2, 5, 100))
    second.check(KEY, view(2, 5, 100))()


def test_a_client_that_cannot_have_the_lock_still_remembers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_memory, "LOCK_S", 0.0)
    (tmp_path / f"log-{log_name(KEY)}.lock").touch(0o600)
    book = LogHistory(LogHistoryFiles(tmp_path))
    with locked(tmp_path / f"log-{log_name(KEY)}.lock"):
        book.check(KEY, view(2, 4, 100))()
    assert "forked" in detail(lambda: book.check(KEY, view(4, 9, 200, OTHER)))
    assert not list(tmp_path.glob("*.json"))


def test_as_many_trees_as_are_kept_can_be_read_again(tmp_path: Path) -> None:
    heads = [
        TreeHead(origin="log.example/a", size=size, root=bytes([size % 256]) * 32)
        for size in range(1, 2 * MAX_HEADS)
    ]
    memory = SeenLog(heads=HeadHistory().seen(*heads), time=1, size=2 * MAX_HEADS)
    files = LogHistoryFiles(tmp_path)
    files.add("00" * 8, memory)
    assert files.load("00" * 8) == memory
    assert len(memory.heads.heads) == MAX_HEADS


def test_without_its_directory_a_client_still_remembers(tmp_path: Path) -> None:
    book = LogHistory(LogHistoryFiles(tmp_path / "absent"))
    book.check(KEY, view(2, 4, 100))()
    assert "forked" in detail(lambda: book.check(KEY, view(4, 9, 200, OTHER)))
    assert not (tmp_path / "absent").exists()


# --- whole bundles -----------------------------------------------------------


def bundle(leaves: tuple[bytes, ...], time: datetime) -> bytes:
    ours = deployment()
    whole = (*leaves, ours.manifest) if ours.manifest not in leaves else leaves
    log = replace(ours.log, leaves=whole)
    there = replace(ours, log=log, index=whole.index(ours.manifest), now=time)
    return encode_bundle(there.bundle())


def key_store(folder: Path | None = None) -> KeyStore:
    kept = None if folder is None else LogHistoryFiles(folder)
    return KeyStore(expectations=deployment().expectations(), logs=LogHistory(kept))


def test_a_log_that_shrank_between_two_bundles_is_refused() -> None:
    small, large = (b"a",), (b"a", b"b", b"c", b"d")
    enclaves = key_store()
    assert enclaves.accept(bundle(large, NOW), NOW).emulated
    with pytest.raises(RefusedError) as refused:
        enclaves.accept(bundle(small, LATER), LATER)
    assert refused.value.code is RefusalCode.PROOF_INVALID
    assert key_store().accept(bundle(small, LATER), LATER).emulated


def test_a_bundle_that_names_an_earlier_time_hides_no_shrinking() -> None:
    """The time in the anchor is the enclave's choice; the witnesses' is not."""
    enclaves = key_store()
    first = enclaves.accept(bundle((b"a", b"b", b"c", b"d"), NOW), NOW)
    ours = deployment()
    log = replace(ours.log, leaves=(b"a", ours.manifest))
    there = replace(ours, log=log, index=1, now=LATER)
    unsigned = there.unsigned_bundle()
    claimed = int(first.anchor_time.timestamp()) - 1
    early = replace(unsigned, anchor=replace(unsigned.anchor, time=claimed))
    with pytest.raises(RefusedError) as refused:
        enclaves.accept(encode_bundle(there.attest(early)), LATER)
    assert "shrunk" in refused.value.detail


def test_a_witness_of_the_future_does_not_lock_the_log() -> None:
    """Its clock runs ahead by a year; what is larger tomorrow has not shrunk."""
    enclaves, ours = key_store(), deployment()
    ahead = NOW + timedelta(days=365)
    unsigned = ours.unsigned_bundle()
    note = ours.log.checkpoint(ahead)
    early = replace(unsigned, anchor=replace(unsigned.anchor, checkpoint=note))
    assert enclaves.accept(encode_bundle(ours.attest(early)), NOW).emulated
    grown = (*ours.log.leaves, b"more")
    assert enclaves.accept(bundle(grown, LATER), LATER).emulated
    with pytest.raises(RefusedError):
        enclaves.accept(bundle((b"a",), LATER), LATER)


def test_a_restart_forgets_nothing_of_the_log(tmp_path: Path) -> None:
    large = (b"a", b"b", b"c")
    assert key_store(tmp_path).accept(bundle(large, NOW), NOW).emulated
    for other in ((b"a",), (b"x", b"y", b"z")):
        with pytest.raises(RefusedError) as refused:
            key_store(tmp_path).accept(bundle(other, LATER), LATER)
        assert refused.value.code is RefusalCode.PROOF_INVALID
    assert key_store(tmp_path).accept(bundle(large, LATER), LATER).emulated
