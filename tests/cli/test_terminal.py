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
# It sets the title and the clipboard, clears the screen and draws a line of ours.
ATTACK = (
    "\x1b]0;owned\x07 \x1b]52;c;ZXZpbA==\x07 \x1b[2J\x1b[H\x9b31m \x00\b\r \x7f"
    "\u202egnp.\u2066x\u2069 \u200f\u061c \ufeff\u200b\u00ad \u2028 \U000e0041 "
    "[answered here, by the local model]"
)
LEFT = "\n\t\u200c\u200d"  # joiners: Persian, and emoji made of several
# Drawn, though a format character: signs that stand around or before numbers.
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
    """Return what a terminal is sent while something is written."""
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
            # The terminal itself makes "\r\n" of "\n".
            return data.decode().replace("\r\n", "\n").removesuffix("<end>")

        yield show
    os.close(reader)


def obeyed(text: str) -> frozenset[str]:
    return controls() & set(text)


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
    # Two marks of one character are one character again.
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
