"""How commands talk to a person or a program: two streams and four exit codes.

The only place that writes to them. Much of what is written was made elsewhere
(an answer, a manifest, a log's name), and a terminal obeys what it is shown: a
few characters set its title, fill the clipboard or draw over what we said. So on
a terminal every character that is obeyed and not drawn becomes a mark. A file or
a pipe gets each character as it came, as with other tools; what reads it there
has to know what it shows. Only a lone half of a character, which has no form in
UTF-8, becomes a mark there, too.
"""

import argparse
import json
import re
import sys
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from time import monotonic
from typing import Final, TextIO

DONE: Final = 0
REFUSED: Final = 1
WRONG_USE: Final = 2
COULD_NOT: Final = 3

TOLD_AFTER_S: Final = 2.0
TOLD_EVERY_S: Final = 0.5
LOGGED_EVERY_S: Final = 10.0
EXIT_CODES: Final = (
    "exit: 0 done, 1 refused by policy, 2 wrong use, 3 could not, 130 interrupted"
)
# Controls but tab and line feed, a lone half of a character, and what sets a text's
# direction or is not seen at all. Joiners are left: scripts and emoji need them.
_OBEYED: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e"
    "\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufeff\uffa0"
    "\ufff0-\ufffb\U000e0000-\U000e0fff]"
)
_HALVES: Final = re.compile("[\ud800-\udfff]")
# argparse names the type of what add_subparsers() returns nowhere else.
Commands = argparse._SubParsersAction  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


def add_command(
    commands: "Commands[argparse.ArgumentParser]",
    name: str,
    *,
    summary: str,
    text: str,
    example: str,
) -> argparse.ArgumentParser:
    """Add one command whose ``--help`` says what it does and shows how.

    What it parses has ``called``, the words that name the command (``audit verify``).
    """
    lines = "\n".join(f"  {line}" for line in example.splitlines())
    parser = commands.add_parser(
        name,
        help=summary,
        description=text,
        epilog=f"example:\n{lines}\n\n{EXIT_CODES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    # A subcommand's word stands behind its parent's, and overwrites it.
    parser.set_defaults(called=parser.prog.partition(" ")[2])
    return parser


def out(text: str, *, end: str = "\n") -> None:
    """Write to standard output: what was asked for."""
    _write(sys.stdout, text + end)


def err(text: str, *, end: str = "\n") -> None:
    """Write to standard error: what a person may want to know."""
    _write(sys.stderr, text + end)


def out_bytes(data: bytes) -> None:
    """Write bytes to standard output; to a terminal, as the text that they are."""
    if sys.stdout.isatty():
        out(data.decode("utf-8", "surrogateescape"), end="")
        return
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def err_again(text: str, *, end: str = "") -> None:
    """Write over the last line of standard error, a terminal: how far it is."""
    sys.stderr.write(f"\r\x1b[K{with_marks(text)}{end}")
    sys.stderr.flush()


def out_json(value: object) -> None:
    """Write one JSON value and a newline to standard output."""
    out(json.dumps(value, ensure_ascii=False))


def plural(count: int, noun: str) -> str:
    """Return a noun as it stands behind a number: ``1 question``, ``2 questions``."""
    return noun if count == 1 else f"{noun}s"


def time_text(time: datetime) -> str:
    """Write a time as RFC 3339 does, in UTC, to the second."""
    return f"{time.astimezone(UTC).replace(microsecond=0, tzinfo=None).isoformat()}Z"


def unix_text(seconds: int) -> str:
    """Write a time in Unix seconds likewise; one beyond the calendar as a number."""
    try:
        return time_text(datetime.fromtimestamp(seconds, UTC))
    except (OverflowError, ValueError, OSError):
        return str(seconds)


def with_marks(text: str) -> str:
    r"""Return a text with each character that a terminal obeys written out.

    The marks are JSON's (``\u001b``): a JSON value stays what it is. A character
    is marked by itself, so it does not matter how a text was cut into pieces.
    """
    return _OBEYED.sub(_mark, text)


def _mark(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def _write(stream: TextIO, text: str) -> None:
    marked = with_marks(text) if stream.isatty() else _HALVES.sub(_mark, text)
    stream.write(marked)
    stream.flush()


class HowFar:
    """A line that says how far a long piece of work is.

    Says nothing of what takes less than two seconds.

    Args:
        logged: write a line every ten seconds where there is no terminal, for work of
            minutes that is often left to run; else nothing is written there.
    """

    def __init__(self, *, logged: bool = False) -> None:
        self._started = monotonic()
        self._shown = sys.stderr.isatty()
        self._told = 0.0 if self._shown else self._started
        self._logged = logged

    def tell(self, text: str, *, last: bool) -> None:
        """Write over what was told before; the last time, whatever it was, ends it."""
        now = monotonic()
        if not self._shown:
            if self._logged and now - self._told >= LOGGED_EVERY_S:
                err(text)
                self._told = now
            return
        if now - self._started < TOLD_AFTER_S:
            return
        if last:
            err_again(text, end="\n")
        elif now - self._told >= TOLD_EVERY_S:
            err_again(text)
            self._told = now


@contextmanager
def progress(title: str) -> Generator[None]:
    """Say that something takes a moment, and how long it took; on a terminal only."""
    if not sys.stderr.isatty():
        yield
        return
    started = monotonic()
    err(f"{title} …", end="")
    try:
        yield
    finally:
        err_again(f"{title}: {monotonic() - started:.1f} s", end="\n")
