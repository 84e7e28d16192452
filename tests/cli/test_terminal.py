import json
import os
import pty
import re
import unicodedata
from collections.abc import Callable, Generator
from functools import cache
from pathlib import Path

import pytest

from curtilage.cli import terminal
from curtilage.cli.terminal import (
    HowFar,
    err,
    err_again,
    out,
    out_bytes,
    out_json,
    progress,
    with_marks,
)

COMMANDS = Path(terminal.__file__).parent
DEMO = Path(__file__).parents[2] / "dev" / "curtilage_dev" / "demo.py"
# It sets the title and the clipboard, clears the screen and imitates our output.
ATTACK = (
    "\x1b]0;owned\x07 \x1b]52;c;ZXZpbA==\x07 \x1b[2J\x1b[H\x9b31m \x00\b\r \x7f"
    "\u202egnp.\u2066x\u2069 \u200f\u061c \ufeff\u200b\u00ad \u2028 \U000e0041 "
    "[answered locally, by the local model]"
)
LEFT = "\n\t\u200c\u200d"  # joiners: Persian, and emoji made of several
# Format characters that are drawn: signs around or before numbers.
DRAWN = (
    frozenset("\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2")
    | {
        chr(code)
        for first, last in [(0x110BD, 0x110CD), (0x13430, 0x1345F), (0x1BCA0, 0x1BCA3)]
        for code in range(first, last + 1)
    }
    | {chr(code) for code in range(0x1D173, 0x1D17B)}
)
Shown = Callable[[Callable[[], None]], str]


@cache
def controls() -> frozenset[str]:
    every = frozenset(map(chr, range(0x110000)))
    kinds = {"Cc", "Cf", "Cs", "Zl", "Zp"}
    return frozenset(c for c in every if unicodedata.category(c) in kinds) - {*LEFT}


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Generator[Shown]:
    """Return the bytes that a terminal receives."""
    reader, writer = pty.openpty()
    with os.fdopen(writer, "w", encoding="utf-8", newline="") as stream:

        def show(write: Callable[[], None]) -> str:
            with monkeypatch.context() as patch:
                patch.setattr("sys.stdout", stream)
                patch.setattr("sys.stderr", stream)
                write()
            stream.write("<end>")
            stream.flush()
            data = b""
            while not data.endswith(b"<end>"):
                data += os.read(reader, 1 << 16)
            # The terminal itself turns "\n" into "\r\n".
            return data.decode().replace("\r\n", "\n").removesuffix("<end>")

        yield show
    os.close(reader)


def obeyed(text: str) -> frozenset[str]:
    return controls() & set(text)


@pytest.mark.parametrize("write", [out, err], ids=["out", "err"])
def test_half_a_character_is_written_to_a_pipe_as_its_mark(
    write: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    path = tmp_path / "pipe"
    with path.open("w", encoding="utf-8") as stream:  # strict, as standard output is
        monkeypatch.setattr("sys.stdout", stream)
        monkeypatch.setattr("sys.stderr", stream)
        write(f"a\ud800b {ATTACK}")
    assert path.read_text("utf-8") == f"a\\ud800b {ATTACK}\n".replace("\r", "\n")


def test_half_a_character_in_json_is_the_same_when_it_is_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path, value = tmp_path / "pipe", {"id": "\udfff\ud800é"}
    with path.open("w", encoding="utf-8") as stream:
        monkeypatch.setattr("sys.stdout", stream)
        out_json(value)
    assert json.loads(path.read_bytes()) == value


@pytest.mark.parametrize("write", [out, err], ids=["out", "err"])
def test_a_terminal_is_shown_marks(write: Callable[[str], None], shown: Shown) -> None:
    text = shown(lambda: write(ATTACK))
    assert obeyed(text) == frozenset()
    assert r"\u001b]0;owned\u0007 \u001b]52;c;ZXZpbA==\u0007" in text
    assert r"\u202egnp." in text
    assert r"\udb40\udc41" in text


def test_an_answer_in_pieces_is_shown_as_the_whole(shown: Shown) -> None:
    def pieces() -> None:
        for character in ATTACK:
            out(character, end="")

    assert shown(pieces) == with_marks(ATTACK)


def test_json_on_a_terminal_stays_the_same_value(shown: Shown) -> None:
    text = shown(lambda: out_json({"text": ATTACK}))
    assert obeyed(text) == frozenset()
    # Two escapes of one character decode to one character again.
    assert json.loads(text) == {"text": ATTACK}


def test_bytes_on_a_terminal_are_shown_as_text(shown: Shown) -> None:
    text = shown(lambda: out_bytes(ATTACK.encode() + b"\xff\n"))
    assert obeyed(text) == frozenset()
    assert text.endswith("\\udcff\n")


def test_ordinary_text_is_shown_as_it_is(shown: Shown) -> None:
    text = "Señor Müller, 東京, עברית, \u0645\u06cc\u200c\u062e, 👩\u200d⚕️\tx\ny\n"
    assert shown(lambda: out(text, end="")) == text


def test_a_line_of_progress_shows_marks(shown: Shown) -> None:
    text = shown(lambda: err_again("model\x1b]0;x\x07"))
    assert text == r"{}model\u001b]0;x\u0007".format("\r\x1b[K")


def test_how_long_it_took_is_shown_on_the_same_line(shown: Shown) -> None:
    def wait() -> None:
        with progress("starting"):
            pass

    assert re.fullmatch("starting …\r\x1b\\[Kstarting: [0-9.]+ s\n", shown(wait))


@pytest.mark.parametrize("logged", [False, True])
def test_without_a_terminal_a_line_comes_every_ten_seconds_where_it_is_wanted(
    logged: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = iter([0.0, 9.9, 10.0, 15.0, 20.1])
    monkeypatch.setattr(terminal, "monotonic", lambda: next(clock))
    far = HowFar(logged=logged)
    for number in range(1, 5):
        far.show(f"{number} of 4", last=number == 4)
    assert capsys.readouterr().err == ("2 of 4\n4 of 4\n" if logged else "")


def test_a_pipe_gets_what_was_written(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    out(ATTACK)
    out_bytes(b"\x1b\xff")
    assert capfdbinary.readouterr().out == ATTACK.encode() + b"\n\x1b\xff"


def test_every_control_of_unicode_is_marked() -> None:
    assert obeyed(with_marks("".join(sorted(controls() - DRAWN)))) == frozenset()


@pytest.mark.parametrize(
    "file", [*sorted(COMMANDS.rglob("*.py")), DEMO], ids=lambda path: path.name
)
def test_only_one_place_writes_to_the_standard_streams(file: Path) -> None:
    if file.name != "terminal.py":
        text = file.read_text("utf-8")
        assert not re.search(r"std(out|err)\.(write|buffer)|\bprint\(", text)
