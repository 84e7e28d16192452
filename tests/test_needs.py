"""The table of what tests need: each row is of something, and no test needs more."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support import needs

HERE = Path(__file__).resolve().parent
TRIED = """\
import socket
def test_connects() -> None:
    with socket.socket() as way:
        try:
            way.connect(("127.0.0.1", 9))
        except OSError:
            pass
def test_keeps_to_itself() -> None:
    pass
"""


@pytest.mark.parametrize("marker", needs.NEEDS)
def test_every_row_is_of_something(marker: str) -> None:
    for row in needs.rows(needs.NEEDS[marker]):
        place, _, name = row.partition("::")
        path = HERE / place
        assert path.is_file() if name or row.endswith(".py") else path.is_dir(), row
        assert not name or f"def {name}(" in path.read_text("utf-8"), row


@pytest.mark.parametrize("marker", needs.NEEDS)
def test_no_row_is_within_another_and_all_are_in_order(marker: str) -> None:
    rows = list(needs.rows(needs.NEEDS[marker]))
    assert rows == sorted(set(rows))
    for row in rows:
        path = HERE / row.partition("::")[0]
        outer = path if "::" in row else path.parent
        assert marker not in needs.of_file(outer), row


def test_a_test_without_its_marker_is_reported() -> None:
    watch = needs.Watch()
    watch.note("socket.bind", ())
    watch.begin(frozenset())
    watch.note("open", ())
    assert watch.end() == []
    watch.begin(frozenset({"timing"}))
    watch.note("socket.bind", ())
    watch.note("socket.bind", ())
    watch.note(needs.MEASURED, ())
    assert watch.end() == [f"socket.bind {needs.UNMARKED} 'process'"]
    watch.begin(frozenset({"process"}))
    watch.note("socket.bind", ())
    watch.note(needs.MEASURED, ())
    assert watch.end() == [f"{needs.MEASURED} {needs.UNMARKED} 'timing'"]


def test_such_a_test_fails_though_it_hid_what_it_did(tmp_path: Path) -> None:
    (tmp_path / "test_tried.py").write_text(TRIED)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "conftest"]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", "--rootdir", tmp_path, tmp_path],
        env={**os.environ, "PYTHONPATH": str(HERE)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "2 passed, 1 error" in done.stdout
    assert f"socket.connect {needs.UNMARKED} 'process'" in done.stdout
