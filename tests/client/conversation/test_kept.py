"""The table of kept conversations: private, and closed where anything is lost."""

import errno
import os
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from curtilage.client.conversation import kept as module
from curtilage.client.conversation.kept import (
    KEY_NAME,
    LOST,
    MAX_CALLERS,
    TABLE_NAME,
    UNSAVED,
    KeptConversations,
)

ONE, OTHER = b"1" * 32, b"2" * 32


def filled(folder: Path) -> Path:
    """One conversation of one caller, on the disk."""
    table = KeptConversations(folder)
    table.add(b"ward", ONE)
    table.kept_content(b"ward", 1_700_000_000)
    assert table.close()
    return folder


def everything(folder: Path) -> bytes:
    return b"".join(each.read_bytes() for each in sorted(folder.iterdir()))


def test_a_row_is_there_after_a_restart(tmp_path: Path) -> None:
    table = KeptConversations(filled(tmp_path / "a" / "b"))
    assert table.advice is None
    assert table.holds([OTHER, ONE])
    assert not table.holds([OTHER])
    assert not table.holds([])
    assert not any(map(table.forgot, (b"ward", b"new", None)))
    assert table.count() == 1


def test_another_process_is_seen(tmp_path: Path) -> None:
    one, other = KeptConversations(tmp_path), KeptConversations(tmp_path)
    one.add(b"ward", ONE)
    assert one.holds([ONE])
    assert not other.holds([ONE])
    one.save()
    assert other.holds([ONE])


def test_the_files_are_private_and_contain_no_names(tmp_path: Path) -> None:
    usual = os.umask(0)
    try:
        folder = filled(tmp_path / "state" / "curtilage")
    finally:
        os.umask(usual)
    assert {each.name for each in folder.iterdir()} == {
        KEY_NAME,
        TABLE_NAME,
        f"{TABLE_NAME}.lock",
    }
    for each in folder.iterdir():
        assert stat.S_IMODE(each.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700
    # Not even a digest by which two machines could be compared.
    assert b"ward" not in everything(folder)


def remove(*names: str) -> Callable[[Path], None]:
    def removes(folder: Path) -> None:
        for name in names:
            (folder / name).unlink()

    return removes


def overwrite(name: str, data: bytes) -> Callable[[Path], None]:
    def overwrites(folder: Path) -> None:
        (folder / name).write_bytes(data)

    return overwrites


def damage(folder: Path) -> None:
    path = folder / TABLE_NAME
    data = bytearray(path.read_bytes())
    data[4096:8192] = os.urandom(4096)
    path.write_bytes(data)


def swap_check(folder: Path) -> None:
    with sqlite3.connect(folder / TABLE_NAME) as table:
        table.execute("DELETE FROM checks")


@pytest.mark.parametrize(
    "harm",
    [
        remove(KEY_NAME),
        remove(TABLE_NAME),
        overwrite(KEY_NAME, b""),
        overwrite(KEY_NAME, b"00" * 32),
        overwrite(KEY_NAME, b"zz" * 32),
        overwrite(TABLE_NAME, b""),
        overwrite(TABLE_NAME, b"no table" * 4096),
        damage,
        swap_check,
    ],
    ids=[
        "no key",
        "no table",
        "empty key",
        "another key",
        "no hex",
        "empty table",
        "no sqlite",
        "damaged",
        "not ours",
    ],
)
def test_missing_or_damaged_entries_count_as_kept(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    harm(filled(tmp_path))
    for _ in range(3):  # and from then on, until a person removes both files
        table = KeptConversations(tmp_path)
        assert all(map(table.forgot, (b"ward", b"new", None)))
        assert table.advice == LOST
        table.add(b"ward", OTHER)
        assert table.close()
    assert KeptConversations(tmp_path).holds([OTHER])
    remove(KEY_NAME, TABLE_NAME)(tmp_path)
    table = KeptConversations(tmp_path)
    assert not table.forgot(b"ward")
    assert table.advice is None


@pytest.mark.parametrize("step", ["key", "table"])
def test_a_crash_while_lost_files_are_recreated_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Whichever of the two is there then, it does not pass for a first start."""
    remove(KEY_NAME)(filled(tmp_path))

    class Crashed(BaseException):
        """The process ended."""

    def crashes(*_: object) -> None:
        raise Crashed

    name = {"key": "write_private_atomically", "table": "open_private"}[step]
    if step == "key":
        monkeypatch.setattr(module, name, crashes)
    else:
        monkeypatch.setattr(module, "_connected", crashes)
    with pytest.raises(Crashed):
        KeptConversations(tmp_path)
    monkeypatch.undo()
    assert KeptConversations(tmp_path).forgot(b"ward")


def test_files_that_cannot_be_opened_count_as_lost(tmp_path: Path) -> None:
    filled(tmp_path)
    (tmp_path / TABLE_NAME).unlink()
    (tmp_path / TABLE_NAME).mkdir()
    table = KeptConversations(tmp_path)
    assert table.forgot(b"ward")
    assert table.advice == LOST
    table.add(b"ward", ONE)
    assert table.holds([ONE])


def test_a_folder_that_is_closed_to_us_counts_as_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = filled(tmp_path / "state")

    # As another account's folder, or a disk that fails: also for the superuser.
    def closed(path: object, *_: object, **__: object) -> None:
        del path
        raise PermissionError(errno.EACCES, "closed")

    monkeypatch.setattr(module, "make_private_folder", closed)
    monkeypatch.setattr(Path, "lstat", closed)
    table = KeptConversations(folder)
    monkeypatch.undo()
    assert table.advice == LOST
    assert table.forgot(b"ward")


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"precious")
    folder = filled(tmp_path / "state")
    (folder / TABLE_NAME).unlink()
    (folder / TABLE_NAME).symlink_to(target)
    assert KeptConversations(folder).forgot(b"ward")
    assert target.read_bytes() == b"precious"


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    table = KeptConversations(tmp_path / "file" / "state")
    assert table.advice == UNSAVED
    assert not table.forgot(b"ward")
    table.add(b"ward", ONE)
    assert table.holds([ONE])


def test_unwritten_entries_are_known_and_written_later(tmp_path: Path) -> None:
    table = KeptConversations(tmp_path)
    holder = sqlite3.connect(tmp_path / TABLE_NAME, isolation_level=None)
    vars(table)["_table"].execute("PRAGMA busy_timeout = 1")
    holder.execute("BEGIN IMMEDIATE")
    table.add(b"ward", ONE)
    assert not table.save()
    assert table.holds([ONE])
    holder.execute("ROLLBACK")
    holder.close()
    assert table.close()
    assert KeptConversations(tmp_path).holds([ONE])


def test_a_table_that_cannot_be_read_holds_all(tmp_path: Path) -> None:
    table = KeptConversations(tmp_path)
    vars(table)["_table"].close()
    assert table.holds([ONE])
    assert table.forgot(b"ward")
    assert table.content_before(b"ward") > 1e12


def test_room_is_bounded(tmp_path: Path) -> None:
    table = KeptConversations(tmp_path, share=3)
    for caller in range(2 * MAX_CALLERS):
        for number in range(2):
            digest = f"{caller} {number}".encode().ljust(32, b"-")
            table.add(str(caller).encode(), digest)
        table.save()
    assert table.count() <= 3 * (MAX_CALLERS + 1)
    first = [b"0 0".ljust(32, b"-")]
    assert table.holds(first)
    assert not table.forgot(b"0")
    assert table.forgot(b"127")


def test_when_contents_were_kept_is_known_after_a_restart(tmp_path: Path) -> None:
    table = KeptConversations(filled(tmp_path))
    assert table.content_before(b"ward") == 1_700_000_000
    assert table.content_before(b"new") == 1_700_000_000
    # Of this run, the words are known themselves.
    table.add(b"other", OTHER)
    table.kept_content(b"other", 1_800_000_000)
    table.save()
    assert table.content_before(b"other") == 1_700_000_000
    assert table.content_before(b"new") == 1_700_000_000
    command = KeptConversations(tmp_path, lasting=False)
    assert command.content_before(b"ward") == 0
    command.kept_content(b"ward", 1_900_000_000)
    command.close()
    assert KeptConversations(tmp_path).content_before(b"ward") == 1_700_000_000


def test_an_entry_of_one_running_process_is_known_to_the_other(tmp_path: Path) -> None:
    """Both keep in turn, also in one second: neither value hides the other."""
    one, other = KeptConversations(tmp_path), KeptConversations(tmp_path)
    now_s = 1_700_000_000

    def keep(table: KeptConversations, when_s: int) -> None:
        table.kept_content(b"ward", when_s)
        assert table.save()

    keep(one, now_s)
    assert one.content_before(b"ward") == 0
    assert other.content_before(b"ward") == now_s
    # Of another caller nothing was kept, by either.
    assert not any(each.content_before(b"new") for each in (one, other))
    keep(other, now_s)
    assert now_s <= one.content_before(b"ward") <= now_s + 1
    keep(one, now_s + 100)
    assert now_s <= one.content_before(b"ward") <= now_s + 1
    assert other.content_before(b"ward") == now_s + 100
    keep(other, now_s + 200)
    assert other.content_before(b"ward") == now_s + 100
    assert one.content_before(b"ward") == now_s + 200


def test_the_other_value_is_not_lowered_and_does_not_run_ahead(tmp_path: Path) -> None:
    tables = [KeptConversations(tmp_path) for _ in range(3)]
    now_s = 1_700_000_000
    for each in tables * 5:
        each.kept_content(b"ward", now_s)
        assert each.save()
    for each in tables:
        assert now_s <= each.content_before(b"ward") <= now_s + 1
    # A clock that was set back by an hour.
    tables[0].kept_content(b"ward", now_s - 3600)
    assert tables[0].save()
    assert KeptConversations(tmp_path).content_before(b"ward") >= now_s


def test_callers_that_share_a_row_are_seen_from_another_process(tmp_path: Path) -> None:
    one, other = KeptConversations(tmp_path), KeptConversations(tmp_path)
    for caller in range(MAX_CALLERS):
        one.add(str(caller).encode(), ONE)
    one.kept_content(b"late", 1_700_000_000)
    assert one.save()
    assert one.content_before(b"late") == 0
    assert other.content_before(b"late") == 1_700_000_000
    assert other.content_before(b"0") == 0


def test_an_unwritten_loss_is_written_later(tmp_path: Path) -> None:
    """A table that was locked for long: the other process learns of the loss."""
    table, other = KeptConversations(tmp_path, share=1), KeptConversations(tmp_path)
    vars(table)["_table"].execute("PRAGMA busy_timeout = 1")
    holder = sqlite3.connect(tmp_path / TABLE_NAME, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    table.add(b"ward", ONE)
    table.add(b"ward", OTHER)
    table.forget(b"shop")
    assert not table.save()
    assert not any(map(other.forgot, (b"ward", b"shop")))
    holder.execute("ROLLBACK")
    holder.close()
    assert table.save()
    assert all(map(other.forgot, (b"ward", b"shop")))
    assert all(map(KeptConversations(tmp_path).forgot, (b"ward", b"shop")))


def test_it_shows_nothing() -> None:
    table = KeptConversations()
    table.add(b"ward", ONE)
    assert repr(table) == "<KeptConversations: 1>"
