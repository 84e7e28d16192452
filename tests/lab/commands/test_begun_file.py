"""What an interrupted run leaves: whole lines, used once, by a run that is alike."""

import json
import os
from pathlib import Path

import pytest

from curtilage.client.errors import ConfigError, UsageError
from curtilage.lab.commands.begun_file import KEPT, USED_AGAIN, Begun, begun

HOW: dict[str, object] = {"model": "a", "max_tokens": 9}
CANARY = "canary-52d0"


def text_of(value: dict[str, object]) -> str | None:
    text = value.get("text")
    return text if isinstance(text, str) else None


def line(text: str) -> bytes:
    return json.dumps({"text": text}).encode() + b"\n"


def leave(wanted: Path, *texts: str) -> Path:
    """Leave what a run leaves that is interrupted."""
    with begun(wanted, HOW, text_of, str) as run:
        for text in texts:
            run.append(line(text))
        return run.path


def test_what_was_left_is_taken_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    leave(tmp_path / "out", CANARY, CANARY, "b")
    with begun(tmp_path / "out", HOW, text_of, str) as run:
        assert run.found == 3
        taken = [run.take(CANARY) for _ in range(3)]
        assert taken == [CANARY, CANARY, None]
        assert run.take("never asked") is None
        run.remove()
    assert not list(tmp_path.iterdir())
    said = capsys.readouterr().err
    assert f"3 answers {USED_AGAIN}" in said
    assert CANARY not in said


def test_a_line_of_another_kind_is_named_and_kept(tmp_path: Path) -> None:
    path = leave(tmp_path / "out", "a")
    path.write_bytes(path.read_bytes() + b'{"text": 7}\n')
    before = path.read_bytes()
    with (
        pytest.raises(UsageError, match="line 3: "),
        begun(tmp_path / "out", HOW, text_of, str),
    ):
        pass
    assert path.read_bytes() == before


def test_no_link_is_followed(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"")
    (tmp_path / "out.partial").symlink_to(other)
    with (
        pytest.raises(ConfigError, match=r"out\.partial"),
        begun(tmp_path / "out", HOW, text_of, str),
    ):
        pass
    assert other.read_bytes() == b""


def interrupt(wanted: Path, how: dict[str, object], *texts: str) -> None:
    def answered(run: Begun[str]) -> None:
        for text in texts:
            run.append(line(text))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), begun(wanted, how, text_of, str) as run:
        answered(run)


def test_a_run_that_answered_nothing_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    interrupt(tmp_path / "out", HOW)
    assert not list(tmp_path.iterdir())
    assert capsys.readouterr().err == ""


def test_a_run_that_found_answers_keeps_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    interrupt(tmp_path / "out", HOW, "a")
    assert KEPT in capsys.readouterr().err
    interrupt(tmp_path / "out", HOW)
    with begun(tmp_path / "out", HOW, text_of, str) as run:
        assert run.found == 1


@pytest.mark.parametrize("torn", [b"", b'{"text": "a'])
def test_a_run_that_was_killed_before_its_first_answer_is_in_nobodys_way(
    tmp_path: Path, torn: bytes
) -> None:
    path = leave(tmp_path / "out")
    path.write_bytes(path.read_bytes() + torn)
    with begun(tmp_path / "out", {**HOW, "model": "b"}, text_of, str) as run:
        assert run.found == 0
        run.append(line("b"))
    assert len(path.read_bytes().splitlines()) == 2
    with begun(tmp_path / "out", {**HOW, "model": "b"}, text_of, str) as run:
        assert run.take("b") == "b"


def refused(wanted: Path, said: str) -> None:
    with pytest.raises(ConfigError, match=said), begun(wanted, HOW, text_of, str):
        pass


def test_a_file_that_others_may_read_is_closed_to_them(tmp_path: Path) -> None:
    path = leave(tmp_path / "out", "a")
    path.chmod(0o666)
    with begun(tmp_path / "out", HOW, text_of, str) as run:
        assert run.found == 1
        assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_of_another_account_gets_no_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out.partial"
    path.write_bytes(b"")
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
    refused(tmp_path / "out", "another account")
    assert path.read_bytes() == b""


def test_a_file_with_a_second_name_gets_no_answers(tmp_path: Path) -> None:
    path = tmp_path / "out.partial"
    path.write_bytes(b"")
    (tmp_path / "second").hardlink_to(path)
    refused(tmp_path / "out", "second name")
    assert path.read_bytes() == b""


def test_a_pipe_in_its_place_is_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "out.partial")
    refused(tmp_path / "out", "out.partial: not an ordinary file")
