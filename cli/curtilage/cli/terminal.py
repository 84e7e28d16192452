"""Output of all commands: standard streams and exit codes.

Only this module writes to the streams. Much of the output comes from elsewhere (an
answer, a manifest, a log's name), and control characters in it could set a terminal's
title, fill the clipboard or overwrite earlier output. So on a terminal every control
character is escaped. A file or a pipe gets the characters unchanged, as with other
tools; its readers have to handle them. Only lone surrogates, which UTF-8 cannot
encode, are escaped there too.
"""

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

SHOWN_AFTER_S: Final = 2.0
SHOWN_EVERY_S: Final = 0.5
_MEBIBYTE: Final = 1 << 20
LOGGED_EVERY_S: Final = 10.0
EXIT_CODES: Final = (
    "exit: 0 done, 1 refused by policy, 2 usage error, 3 could not, 130 interrupted"
)
# Control characters except tab and line feed, lone surrogates, bidirectional controls
# and invisible characters. Joiners are kept: scripts and emoji need them.
_OBEYED: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e"
    "\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufeff\uffa0"
    "\ufff0-\ufffb\U000e0000-\U000e0fff]"
)
_HALVES: Final = re.compile("[\ud800-\udfff]")


def out(text: str, *, end: str = "\n") -> None:
    """Write a result to standard output."""
    _write(sys.stdout, text + end)


def err(text: str, *, end: str = "\n") -> None:
    """Write a message for people to standard error."""
    _write(sys.stderr, text + end)


def out_bytes(data: bytes) -> None:
    """Write bytes to standard output; on a terminal, decoded and escaped."""
    if sys.stdout.isatty():
        # Bytes of a payload may hold control characters, too. On a terminal they must
        # go through the same escaping as text.
        out(data.decode("utf-8", "surrogateescape"), end="")
        return
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def err_again(text: str, *, end: str = "") -> None:
    """Replace the last line of standard error, which is a terminal."""
    # The only control sequence that reaches a terminal is this program's own; file
    # names and counts in ``text`` are escaped.
    sys.stderr.write(f"\r\x1b[K{with_marks(text)}{end}")
    sys.stderr.flush()


def out_json(value: object) -> None:
    """Write one JSON value and a newline to standard output."""
    out(json.dumps(value, ensure_ascii=False))


def plural(count: int, noun: str) -> str:
    """Return a noun in singular or plural: ``1 question``, ``2 questions``."""
    return noun if count == 1 else f"{noun}s"


def time_text(time: datetime) -> str:
    """Return a time as RFC 3339 in UTC, to the second."""
    return f"{time.astimezone(UTC).replace(microsecond=0, tzinfo=None).isoformat()}Z"


def unix_text(seconds: int) -> str:
    """Return Unix seconds as RFC 3339; a number if beyond the calendar."""
    try:
        return time_text(datetime.fromtimestamp(seconds, UTC))
    except (OverflowError, ValueError, OSError):
        return str(seconds)


def with_marks(text: str) -> str:
    r"""Return a text with every character that controls a terminal escaped.

    The escapes are JSON's (``\u001b``), so a JSON value keeps its meaning. Each
    character is escaped alone, so it does not matter how a text is split.
    """
    return _OBEYED.sub(_mark, text)


def _mark(match: re.Match[str]) -> str:
    # JSON escapes characters beyond U+FFFF as two surrogates.
    units = match[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def _write(stream: TextIO, text: str) -> None:
    marked = with_marks(text) if stream.isatty() else _HALVES.sub(_mark, text)
    stream.write(marked)
    # Pieces of an answer end in the middle of a line, and would otherwise wait in the
    # buffer.
    stream.flush()


class HowFar:
    """Progress line of a long task.

    Shows nothing for the first two seconds.

    Args:
        logged: without a terminal, write a line every ten seconds, for tasks of
            minutes that run unattended; otherwise nothing is written there.
    """

    def __init__(self, *, logged: bool = False) -> None:
        self._started = monotonic()
        self._shown = sys.stderr.isatty()
        self._written = 0.0 if self._shown else self._started
        self._logged = logged

    def show(self, text: str, *, last: bool) -> None:
        """Replace the line; the last update ends it."""
        now = monotonic()
        if not self._shown:
            if self._logged and now - self._written >= LOGGED_EVERY_S:
                err(text)
                self._written = now
            return
        # A line that flickers for half a second only distracts.
        if now - self._started < SHOWN_AFTER_S:
            return
        if last:
            err_again(text, end="\n")
        elif now - self._written >= SHOWN_EVERY_S:
            err_again(text)
            self._written = now

    def hashed(self, name: str, done: int, total: int) -> None:
        """Show how much of a file is hashed."""
        text = f"{name}: {done / _MEBIBYTE:,.0f} of {total / _MEBIBYTE:,.0f} MiB"
        self.show(text, last=done == total)


@contextmanager
def progress(title: str) -> Generator[None]:
    """Show what is running, and how long it took; on a terminal only."""
    # In a log file, a line that is overwritten would be two lines and control
    # characters.
    if not sys.stderr.isatty():
        yield
        return
    started = monotonic()
    err(f"{title} …", end="")
    try:
        yield
    finally:
        err_again(f"{title}: {monotonic() - started:.1f} s", end="\n")
