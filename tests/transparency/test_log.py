import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.mldsa import MLDSA44PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.log.note import Checkpoint, TrustedLog, verify_checkpoint
from curtilage.attest.log.tiles import MAX_ENTRY_BYTES, tiles_of
from curtilage.attest.log.tree import EMPTY_ROOT, Tree, hash_leaf
from curtilage.transparency import log as release_log
from curtilage.transparency.errors import FileError, HeldError
from curtilage.transparency.files import KEY_INSIDE, locked, replace_file, write_key
from curtilage.transparency.log import (
    LogFolder,
    add_cosignatures,
    create_log,
    hash_tiles,
    open_log,
)
from support.naive_tree import naive_root
from support.release_logs import NOW, ORIGIN, KeptLog
from support.tile_paths import parse_path


@pytest.fixture
def log(tmp_path: Path) -> KeptLog:
    return KeptLog(tmp_path)


def head(log: KeptLog) -> Checkpoint:
    trusted = TrustedLog(origin=ORIGIN, key=log.key, witnesses=())
    return verify_checkpoint(log.folder.checkpoint(), trusted)


def refused(call: Callable[[], object]) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        call()
    return caught.value


def entries(count: int, start: int = 0) -> list[bytes]:
    return [f"leaf {number}".encode() for number in range(start, start + count)]


def files(path: Path) -> dict[str, bytes]:
    return {
        str(each.relative_to(path)): each.read_bytes()
        for each in sorted(path.rglob("*"))
        if each.is_file()
    }


# --- a new log ------------------------------------------------------------------


def test_a_new_log_is_empty_and_signed(log: KeptLog) -> None:
    assert (head(log).size, head(log).root) == (0, EMPTY_ROOT)
    assert list(files(log.path)) == ["checkpoint"]


def test_the_key_is_private_and_elsewhere(log: KeptLog) -> None:
    for path in (log.key_path, log.head_path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "PRIVATE" in log.key_path.read_text()
    for data in files(log.path).values():
        assert b"PRIVATE" not in data


@pytest.mark.parametrize("place", ["served/log.pem", "served/keys/log.pem"])
def test_a_key_in_the_served_folder_is_refused(tmp_path: Path, place: str) -> None:
    with pytest.raises(FileError, match=KEY_INSIDE):
        create_log(tmp_path / "served", ORIGIN, tmp_path / place)
    assert not (tmp_path / place).exists()


def test_a_key_that_leads_into_the_served_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "served").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "served")
    with pytest.raises(FileError, match=KEY_INSIDE):
        create_log(tmp_path / "served", ORIGIN, tmp_path / "link" / "log.pem")


def test_a_key_moved_into_the_served_folder_is_refused(log: KeptLog) -> None:
    inside = log.path / "log.pem"
    log.key_path.rename(inside)
    with (
        pytest.raises(FileError, match=KEY_INSIDE),
        open_log(log.path, inside),
    ):
        pass


def test_a_log_is_begun_once(log: KeptLog, tmp_path: Path) -> None:
    with pytest.raises(FileError, match="already"):
        create_log(log.path, ORIGIN, tmp_path / "other.pem")
    # And one key keeps one log: its last signature is remembered next to it.
    with pytest.raises(FileError, match="already"):
        create_log(tmp_path / "second", ORIGIN, log.key_path)
    assert not (tmp_path / "second/checkpoint").exists()


@pytest.mark.parametrize("origin", ["", "a b", "a+b", "a\nb"])
def test_an_origin_is_one_word(tmp_path: Path, origin: str) -> None:
    with pytest.raises(FileError, match="origin"):
        create_log(tmp_path / "served", origin, tmp_path / "log.pem")


def test_a_key_that_is_there_is_used(tmp_path: Path) -> None:
    key = Ed25519PrivateKey.generate()
    write_key(tmp_path / "log.pem", key)
    signer = create_log(tmp_path / "served", ORIGIN, tmp_path / "log.pem")
    assert signer.public.public_key == key.public_key().public_bytes_raw()


# --- adding ---------------------------------------------------------------------


def test_leaves_are_added_in_order(log: KeptLog) -> None:
    first = log.add(b"a", b"b", b"c")
    assert (first.indices, first.size, first.fresh) == ((0, 1, 2), 3, 3)
    second = log.add(b"d", b"b")
    assert (second.indices, second.size, second.fresh) == ((3, 1), 4, 1)
    assert head(log).root == naive_root([b"a", b"b", b"c", b"d"])
    assert log.folder.entry(3, 4) == b"d"


def test_a_leaf_that_is_there_changes_nothing(log: KeptLog) -> None:
    log.add(b"a")
    before = files(log.path)
    again = log.add(b"a", b"a")
    assert (again.indices, again.size, again.fresh) == ((0, 0), 1, 0)
    assert files(log.path) == before


@pytest.mark.parametrize("steps", [(255, 1), (256,), (250, 10), (300, 300), (513, 1)])
def test_every_tile_is_that_of_the_specification(
    log: KeptLog, steps: tuple[int, ...]
) -> None:
    size = 0
    for count in steps:
        log.add(*entries(count, size))
        size += count
    tree = log.folder.tree(head(log))
    assert tree.root() == Tree([hash_leaf(each) for each in entries(size)]).root()
    served = set(files(log.path)) - {"checkpoint"}
    assert {tile.path for tile in tiles_of(size)} <= served
    for path in served:
        parse_path(path)
    # A partial tile goes once the full one is there.
    assert not any(path.startswith("tile/0/000.p") for path in served if size >= 256)


@given(st.lists(st.integers(1, 3), min_size=1, max_size=6))
def test_tiles_of_a_growing_tree_are_those_of_the_whole(counts: list[int]) -> None:
    hashes = [hash_leaf(each) for each in entries(sum(counts))]
    written: dict[str, bytes] = {}
    size = 0
    for count in counts:
        size += count
        made = hash_tiles(hashes[:size], size - count)
        written |= {tile.path: data for tile, data in made}
    for tile, data in hash_tiles(hashes, 0):
        assert written[tile.path] == data


def test_a_bundle_can_be_read_from_the_full_one_later(log: KeptLog) -> None:
    log.add(*entries(5))
    early = head(log)
    log.add(*entries(300, 5))
    assert log.folder.tree(early).root() == early.root
    assert log.folder.entry(4, 5) == b"leaf 4"


def test_a_leaf_is_at_most_65535_bytes(log: KeptLog) -> None:
    log.add(bytes(MAX_ENTRY_BYTES))
    before = files(log.path)
    error = refused(lambda: log.add(b"ok", bytes(MAX_ENTRY_BYTES + 1)))
    assert error.code is RefusalCode.TOO_LARGE
    assert files(log.path) == before


# --- append-only ----------------------------------------------------------------


def damage_files(log: KeptLog) -> list[Path]:
    return [path for path in sorted(log.path.rglob("*")) if path.is_file()]


def test_a_changed_file_is_noticed_before_anything_is_written(log: KeptLog) -> None:
    log.add(*entries(300))
    for path in damage_files(log):
        good = path.read_bytes()
        for bad in (good[:-1] + bytes([good[-1] ^ 1]), good[:-1], good + b"\0", b""):
            path.write_bytes(bad)
            before = files(log.path)
            with pytest.raises((RefusedError, FileError)):
                log.add(b"more")
            assert files(log.path) == before, path
        path.write_bytes(good)
    assert log.add(b"more").size == 301


def test_a_missing_file_is_noticed(log: KeptLog) -> None:
    log.add(*entries(300))
    for path in damage_files(log):
        good = path.read_bytes()
        path.unlink()
        with pytest.raises((RefusedError, FileError)):
            log.add(b"more")
        path.write_bytes(good)


def test_a_leaf_that_was_exchanged_is_noticed(log: KeptLog) -> None:
    """Leaf and its hash, both: only the checkpoint knows better."""
    log.add(b"aaaa", b"bbbb")
    bundle = log.path / "tile/entries/000.p/2"
    bundle.write_bytes(bundle.read_bytes().replace(b"aaaa", b"cccc"))
    assert refused(lambda: log.add(b"x")).detail.startswith("leaf 0 is not")
    tile = log.path / "tile/0/000.p/2"
    tile.write_bytes(hash_leaf(b"cccc") + hash_leaf(b"bbbb"))
    assert "root" in refused(lambda: log.add(b"x")).detail


def test_a_folder_that_was_set_back_is_refused(log: KeptLog, tmp_path: Path) -> None:
    log.add(b"a")
    shutil.copytree(log.path, tmp_path / "yesterday")
    log.add(b"b")
    shutil.rmtree(log.path)
    shutil.copytree(tmp_path / "yesterday", log.path)
    error = refused(lambda: log.add(b"c"))
    assert error.code is RefusalCode.PROOF_INVALID
    assert "rolled back" in error.detail
    assert log.folder.checkpoint() == (tmp_path / "yesterday/checkpoint").read_text()


def test_a_checkpoint_alone_that_was_set_back_is_put_right(
    log: KeptLog, tmp_path: Path
) -> None:
    """As after a crash: everything that was signed is there."""
    log.add(b"a")
    earlier = log.folder.checkpoint()
    log.add(b"b")
    log.folder.checkpoint_path.write_text(earlier)
    assert log.add(b"c").size == 3
    assert head(log).root == naive_root([b"a", b"b", b"c"])
    del tmp_path


def test_another_history_under_the_same_key_is_refused(
    log: KeptLog, tmp_path: Path
) -> None:
    """Somebody signed elsewhere with a copy of the key: a fork in the making."""
    log.add(b"a")
    other = tmp_path / "other"
    shutil.copytree(log.path, other / "served")
    shutil.copy(log.key_path, other / "log.pem")
    shutil.copy(log.head_path, other / "log.pem.head")
    with open_log(other / "served", other / "log.pem") as copy:
        copy.add([b"x"])
    log.add(b"b")
    for count in (1, 2):  # of the same size, then larger
        shutil.rmtree(log.path)
        shutil.copytree(other / "served", log.path)
        error = refused(lambda: log.add(b"c"))
        assert "somewhere else" in error.detail
        with (
            pytest.raises(RefusedError, match="somewhere else"),
            open_log(log.path, log.key_path, adopt=True),
        ):
            pass
        with open_log(other / "served", other / "log.pem") as copy:
            copy.add([f"y{count}".encode()])


def test_the_last_signed_head_must_be_known(log: KeptLog) -> None:
    log.add(b"a")
    log.head_path.unlink()
    with pytest.raises(FileError, match="--adopt"):
        log.add(b"b")
    with open_log(log.path, log.key_path, adopt=True) as writer:
        assert writer.add([b"b"]).size == 2
    assert log.add(b"c").size == 3


def test_a_folder_that_was_set_back_is_not_adopted(
    log: KeptLog, tmp_path: Path
) -> None:
    """To adopt it would be to sign a second tree of a size that was signed."""
    log.add(b"a")
    shutil.copytree(log.path, tmp_path / "yesterday")
    log.add(b"b")
    shutil.rmtree(log.path)
    shutil.copytree(tmp_path / "yesterday", log.path)
    with (
        pytest.raises(RefusedError, match="rolled back"),
        open_log(log.path, log.key_path, adopt=True),
    ):
        pass


def test_an_older_head_is_adopted_where_the_folder_continues_it(log: KeptLog) -> None:
    log.add(b"a")
    older = log.head_path.read_text()
    log.add(b"b")
    log.head_path.write_text(older)
    assert "somewhere else" in refused(lambda: log.add(b"c")).detail
    with open_log(log.path, log.key_path, adopt=True) as writer:
        assert writer.size == 2
    assert log.add(b"c").size == 3


def test_a_log_whose_beginning_was_cut_short_is_adopted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    served, key = tmp_path / "served", tmp_path / "log.pem"
    write_key(key, Ed25519PrivateKey.generate())
    monkeypatch.setattr(release_log, "create_file", crash)
    with pytest.raises(KeyboardInterrupt):
        create_log(served, ORIGIN, key)
    with pytest.raises(FileError, match="--adopt"), open_log(served, key):
        pass
    with open_log(served, key, adopt=True) as writer:
        assert writer.add([b"a"]).size == 1


def test_a_damaged_folder_is_not_adopted(log: KeptLog) -> None:
    log.add(b"a")
    log.head_path.unlink()
    (log.path / "tile/entries/000.p/1").write_bytes(b"\0\1b")
    with (
        pytest.raises(RefusedError, match=r"\bleaf 0\b"),
        open_log(log.path, log.key_path, adopt=True),
    ):
        pass
    assert not log.head_path.exists()


def test_another_key_cannot_write(log: KeptLog, tmp_path: Path) -> None:
    write_key(tmp_path / "other.pem", Ed25519PrivateKey.generate())
    shutil.copy(log.head_path, tmp_path / "other.pem.head")
    with (
        pytest.raises(RefusedError) as caught,
        open_log(log.path, tmp_path / "other.pem"),
    ):
        pass
    assert caught.value.code is RefusalCode.UNSIGNED


# --- crashes --------------------------------------------------------------------


class CrashError(Exception):
    """The power went."""


@pytest.mark.parametrize("after", range(8))
def test_a_crash_leaves_the_old_log_or_the_new_one(
    log: KeptLog, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    """Stop before each file in turn: readers see a whole log, and it goes on."""
    log.add(*entries(255))
    calls = 0

    def failing(path: Path, data: bytes, mode: int = 0o644) -> None:
        nonlocal calls
        if calls == after:
            raise CrashError
        calls += 1
        replace_file(path, data, mode)

    monkeypatch.setattr(release_log, "replace_file", failing)
    try:
        log.add(b"x", b"y")
    except CrashError:
        crashed = True
    else:
        crashed = False
    monkeypatch.undo()
    seen = head(log)
    assert seen.size in ({255, 257} if crashed else {257})
    log.folder.tree(seen)
    assert log.add(b"z").size >= 256
    whole = [*entries(255), b"x", b"y", b"z"]
    expected = {naive_root(whole), naive_root([*entries(255), b"z"])}
    assert head(log).root in expected
    assert crashed == (after < 7), "every file of the change was tried"


# --- two writers ----------------------------------------------------------------


def test_two_writers_lock_each_other_out(log: KeptLog) -> None:
    with open_log(log.path, log.key_path), pytest.raises(HeldError):
        log.add(b"b")
    assert log.add(b"b").size == 1


@pytest.mark.parametrize("held", ["path", "key_path"])
def test_another_process_is_locked_out(log: KeptLog, held: str) -> None:
    path: Path = getattr(log, held)
    program = (
        "import fcntl, os, sys\n"
        "fcntl.flock(os.open(sys.argv[1], os.O_RDONLY), fcntl.LOCK_EX)\n"
        "print('held', flush=True)\nsys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(HeldError):
            log.add(b"b")
        other.communicate(b"")
    assert log.add(b"b").size == 1


def test_a_lock_leaves_nothing_behind(log: KeptLog) -> None:
    before = sorted(files(log.path))
    with locked(log.path):
        assert sorted(files(log.path)) == before


# --- keys -----------------------------------------------------------------------


def test_a_key_that_others_may_read_is_refused(log: KeptLog) -> None:
    log.key_path.chmod(0o640)
    with pytest.raises(FileError, match="chmod 600"):
        log.add(b"a")


def test_a_log_signs_with_ed25519(tmp_path: Path) -> None:
    write_key(tmp_path / "log.pem", MLDSA44PrivateKey.generate())
    with pytest.raises(FileError, match="Ed25519"):
        create_log(tmp_path / "served", ORIGIN, tmp_path / "log.pem")


@pytest.mark.parametrize("data", [b"", b"-----BEGIN PRIVATE KEY-----\n", b"\xff" * 99])
def test_an_invalid_key_is_refused(log: KeptLog, data: bytes) -> None:
    log.key_path.write_bytes(data)
    with pytest.raises(FileError, match="private key"):
        log.add(b"a")


# --- cosignatures ---------------------------------------------------------------


def cosign(log: KeptLog) -> str:
    return log.witness.cosign_folder(log.folder, log.key, now=NOW)


def test_cosignatures_are_put_under_the_checkpoint(log: KeptLog) -> None:
    log.add(b"a")
    witness = log.witness.verifier_key.key
    line = cosign(log)
    for _ in range(2):  # the second time in place of the first
        assert add_cosignatures(log.path, log.key, [witness], line) == ("w.example",)
        assert log.folder.checkpoint().count("w.example") == 1
    trusted = TrustedLog(origin=ORIGIN, key=log.key, witnesses=(witness,))
    checkpoint = verify_checkpoint(log.folder.checkpoint(), trusted)
    assert checkpoint.vouched_time(1) == int(NOW.timestamp())


def test_lines_of_unknown_witnesses_are_left_away(log: KeptLog) -> None:
    before = log.folder.checkpoint()
    assert add_cosignatures(log.path, log.key, [], cosign(log)) == ()
    assert log.folder.checkpoint() == before


def test_a_cosignature_of_another_state_is_refused(log: KeptLog) -> None:
    line = cosign(log)
    log.add(b"a")
    before = log.folder.checkpoint()
    witness = log.witness.verifier_key.key
    error = refused(lambda: add_cosignatures(log.path, log.key, [witness], line))
    assert error.code is RefusalCode.BAD_SIGNATURE
    assert log.folder.checkpoint() == before


@pytest.mark.parametrize("lines", ["", "x", "\n", "— w.example AAAA\n"])
def test_an_invalid_cosignature_is_refused(log: KeptLog, lines: str) -> None:
    witness = log.witness.verifier_key.key
    error = refused(lambda: add_cosignatures(log.path, log.key, [witness], lines))
    assert error.code is RefusalCode.MALFORMED


def test_a_folder_without_a_checkpoint_is_no_log(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="checkpoint"):
        LogFolder(tmp_path).checkpoint()
    (tmp_path / "checkpoint").write_bytes(b"\xff")
    with pytest.raises(FileError, match="UTF-8"):
        LogFolder(tmp_path).checkpoint()
    (tmp_path / "checkpoint").write_bytes(b"x" * (512 * 1024 + 1))
    with pytest.raises(FileError, match="larger than"):
        LogFolder(tmp_path).checkpoint()
