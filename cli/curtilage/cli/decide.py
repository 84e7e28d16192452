"""``curtilage decide``: print where each of many queries may be sent."""

import sys

from curtilage.cli.decide_lines import decide_lines
from curtilage.cli.declared import Arguments
from curtilage.cli.start import config_from, warn_of_signature
from curtilage.cli.terminal import DONE, err, err_again, out_bytes, progress
from curtilage.client.detection.checked import CheckedInspector
from curtilage.client.detection.side_by_side import SideBySide, cores
from curtilage.client.errors import UsageError

SHOWN_EVERY = 1000
MOST_UNREAD = 20


def run(arguments: Arguments) -> int:
    """Decide every line."""
    if not arguments.jsonl:
        raise UsageError("--jsonl is required: JSON lines on standard input")
    config = config_from(arguments)
    policy = config.policy
    warn_of_signature(config.currency)

    def start() -> CheckedInspector:
        return CheckedInspector.start(policy, config.currency)

    with progress("starting detectors"):
        inspector = SideBySide(start, count=cores())
    if inspector.advice is not None:
        err(inspector.advice)
    # On a terminal, the lines themselves show the progress.
    shown = sys.stderr.isatty() and not sys.stdout.isatty()
    unread = _Unread()
    try:
        decided = decide_lines(
            sys.stdin.buffer, policy, inspector, unread=unread.report
        )
        for number, line in enumerate(decided, start=1):
            out_bytes(line)
            if shown and number % SHOWN_EVERY == 0:
                err_again(f"{number} lines")
        if shown:
            err("")
        unread.end()
    finally:
        # Also after an error: the detectors are processes of their own, and would stay.
        inspector.close()
    return DONE


class _Unread:
    """Reports unreadable lines: the first ones by number, then a count."""

    def __init__(self) -> None:
        self._count = 0

    def report(self, number: int, problem: str) -> None:
        """Report one line."""
        self._count += 1
        # A file in a wrong encoding would otherwise fill the terminal with one message
        # per line.
        if self._count <= MOST_UNREAD:
            err(f"line {number}: {problem}; it is kept local (uncertain.undecodable)")

    def end(self) -> None:
        """Report the number of lines that were not named."""
        if self._count > MOST_UNREAD:
            err(f"{self._count} lines could not be read, and are kept local")
