import os
import pty
import re
import sys
from collections.abc import Callable, Generator
from io import BytesIO, TextIOWrapper

import pytest

from curtilage.cli import main as cli
from curtilage.cli.options import CUT_BY_TERMINAL, NO_TEXT, text_from
from curtilage.client.errors import UsageError

END = b"\n\x04"  # what Ctrl-D sends
Typed = Callable[[bytes], str]


def piped(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(data)))


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Generator[Typed]:
    """Return the text read while a person types at a terminal."""
    keyboard, terminal = pty.openpty()
    with os.fdopen(terminal, "r") as stream:

        def read(keys: bytes) -> str:
            os.write(keyboard, keys)
            with monkeypatch.context() as patch:
                patch.setattr(sys, "stdin", stream)
                return text_from([])

        yield read
    os.close(keyboard)


def test_words_are_one_text() -> None:
    assert text_from(["What", "is - HIV?"]) == "What is - HIV?"


def test_a_dash_and_a_text_are_wrong_use() -> None:
    with pytest.raises(UsageError, match="no other text"):
        text_from(["-", "HIV?"])


@pytest.mark.parametrize("words", [[], ["-"]], ids=["nothing", "dash"])
def test_without_words_standard_input_is_read(
    words: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    piped("Zoë\nhas HIV\n".encode(), monkeypatch)
    assert text_from(words) == "Zoë\nhas HIV"
    assert capsys.readouterr().err == "", "no prompt without a terminal"


@pytest.mark.parametrize("words", [[], ["-"], [""]], ids=["nothing", "dash", "empty"])
def test_no_text_is_wrong_use(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    piped(b" \n", monkeypatch)
    with pytest.raises(UsageError, match=re.escape(NO_TEXT)):
        text_from(words)


def test_at_a_terminal_the_text_is_asked_for(
    typed: Typed, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "I have HIV.\n\nWhat now?"
    assert typed(text.encode() + END) == text
    assert "Ctrl-D" in capsys.readouterr().err


def test_a_line_that_the_terminal_cut_is_refused(typed: Typed) -> None:
    assert len(typed(b"x" * 4000 + END)) == 4000
    with pytest.raises(UsageError, match=re.escape(CUT_BY_TERMINAL)):
        typed(b"x" * 5000 + END)


@pytest.mark.parametrize(
    "command",
    [["ask"], ["explain"], ["policy", "explain"], ["demo"]],
    ids=" ".join,
)
def test_help_says_who_can_read_an_argument(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        cli.main([*command, "--help"])
    assert "`ps`" in capsys.readouterr().out
