"""Files of ours: private, replaced in one step, locked."""

import fcntl
import math
import os
import re
import stat
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from threading import Thread

import pytest

from curtilage.client.errors import ConfigError
from curtilage.client.system.files import (
    NOT_ORDINARY,
    data_folder,
    folder_digest,
    locked,
    make_private_folder,
    open_private,
    open_unshared,
    state_folder,
    write_private_atomically,
)


@pytest.mark.parametrize(
    ("folder", "variable", "usual"),
    [
        (data_folder, "XDG_DATA_HOME", "/home/me/.local/share/curtilage"),
        (state_folder, "XDG_STATE_HOME", "/home/me/.local/state/curtilage"),
    ],
)
@pytest.mark.parametrize("system", ["linux", "darwin"])
def test_folders_are_where_earlier_versions_put_them(
    folder: Callable[[], Path],
    variable: str,
    usual: str,
    system: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.platform", system)
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv(variable, "/named")
    assert folder() == Path("/named/curtilage")
    # The specification requires relative paths to be ignored.
    for unusable in ("named", ""):
        monkeypatch.setenv(variable, unusable)
        assert folder() == Path(usual)
    monkeypatch.delenv(variable)
    assert folder() == Path(usual)


def test_a_file_is_there_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "key"
    with write_private_atomically(path) as file:
        file.write(b"secret")
    assert path.read_bytes() == b"secret"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_every_folder_that_is_made_is_for_its_owner_alone(tmp_path: Path) -> None:
    there = tmp_path / "home"
    there.mkdir()
    there.chmod(0o755)
    made = [there / ".local", there / ".local/state", there / ".local/state/curtilage"]
    before = os.umask(0o022)
    try:
        make_private_folder(made[-1])
        make_private_folder(made[-1])
    finally:
        os.umask(before)
    assert [mode_of(each) for each in made] == [0o700] * 3
    assert mode_of(there) == 0o755


def test_a_file_in_the_place_of_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state").write_bytes(b"")
    with pytest.raises(OSError, match=r"exists|directory"):
        make_private_folder(tmp_path / "state")
    with pytest.raises(OSError, match="directory"):
        make_private_folder(tmp_path / "state" / "curtilage")


def write_half(path: Path) -> None:
    with write_private_atomically(path) as file:
        file.write(b"new")
        raise OSError("the disk is full")


def test_what_breaks_off_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_bytes(b"old")
    with pytest.raises(OSError, match="full"):
        write_half(path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="link"):
        open_private(tmp_path / "link", os.O_WRONLY | os.O_CREAT)
    assert not (tmp_path / "elsewhere").exists()


def test_a_file_of_another_account_is_not_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "answers"
    path.write_bytes(b"theirs")
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
    with pytest.raises(PermissionError, match="another account"):
        open_unshared(path, os.O_RDWR)


def test_a_file_with_a_second_name_is_not_opened(tmp_path: Path) -> None:
    path = tmp_path / "answers"
    path.write_bytes(b"")
    (tmp_path / "second").hardlink_to(path)
    with pytest.raises(OSError, match="second name"):
        open_unshared(path, os.O_RDWR)


@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_RDWR])
def test_a_pipe_is_neither_opened_nor_waited_for(tmp_path: Path, flags: int) -> None:
    os.mkfifo(tmp_path / "answers")
    with pytest.raises(OSError, match=re.escape(NOT_ORDINARY)):
        open_unshared(tmp_path / "answers", flags)


def test_what_lies_in_the_place_of_the_new_file_is_not_written_into(
    tmp_path: Path,
) -> None:
    left = tmp_path / ".key.new"
    left.write_bytes(b"left")
    left.chmod(0o666)
    with left.open("rb") as reader, write_private_atomically(tmp_path / "key") as file:
        file.write(b"secret")
        file.flush()
        assert reader.read() == b"left"
    assert mode_of(tmp_path / "key") == 0o600
    assert (tmp_path / "key").read_bytes() == b"secret"


def test_a_lock_keeps_others_out_until_it_is_let_go(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with (
        locked(path, math.inf),
        pytest.raises(TimeoutError, match="another"),
        locked(path, 0),
    ):
        pass
    with locked(path, 0):
        pass
    assert mode_of(path) == 0o600


def test_a_lock_is_the_kernels(tmp_path: Path) -> None:
    # An older version of this program takes it in this way.
    path = tmp_path / "lock"
    path.write_bytes(b"kept")
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(TimeoutError, match="another"), locked(path, 0.01):
            pass
    with locked(path, 0), path.open("rb") as file, pytest.raises(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert path.read_bytes() == b"kept"


def test_another_thread_may_release_a_lock(tmp_path: Path) -> None:
    held = ExitStack()
    held.enter_context(locked(tmp_path / "lock", 0))
    thread = Thread(target=held.close)
    thread.start()
    thread.join()
    with locked(tmp_path / "lock", 0):
        pass


def test_a_lock_makes_no_folder(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), locked(tmp_path / "absent" / "lock", 0):
        pass
    assert not (tmp_path / "absent").exists()


def test_a_lock_is_not_taken_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "target").touch()
    (tmp_path / "lock").symlink_to(tmp_path / "target")
    with pytest.raises(OSError, match="symbolic links"), locked(tmp_path / "lock", 0):
        pass


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    path = tmp_path / "tree"
    (path / "b" / "c").mkdir(parents=True)
    (path / "b.txt").write_bytes(b"one")
    (path / "b" / "c" / "é.bin").write_bytes(b"two")
    (path / "B").write_bytes(b"")
    return path


def test_digest_is_what_the_documented_command_prints(tree: Path) -> None:
    command = (
        "find . -type f -printf '%P\\0' | LC_ALL=C sort -z | "
        "xargs -0 sha256sum | sha256sum"
    )
    assert command.replace(" | xargs", " |\n            xargs") in str(
        folder_digest.__doc__
    )
    done = subprocess.run(
        ["/bin/sh", "-c", command], cwd=tree, check=True, capture_output=True
    )
    assert done.stdout.decode().split()[0] == folder_digest(tree)


@pytest.mark.parametrize("change", ["content", "name", "more", "fewer"])
def test_digest_changes_with_the_folder(tree: Path, change: str) -> None:
    before = folder_digest(tree)
    if change == "content":
        (tree / "B").write_bytes(b"x")
    elif change == "name":
        (tree / "B").rename(tree / "C")
    elif change == "more":
        (tree / "b" / "new").write_bytes(b"")
    else:
        (tree / "B").unlink()
    assert folder_digest(tree) != before


def test_digest_refuses_links(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").write_bytes(b"x")
    (tree / "link").symlink_to(tmp_path / "outside")
    with pytest.raises(ConfigError, match="link"):
        folder_digest(tree)
