"""How commands talk to a person or a program: two streams and four exit codes."""

import argparse
import json
import sys
from collections.abc import Generator
from contextlib import contextmanager
from time import monotonic
from typing import Final

DONE: Final = 0
REFUSED: Final = 1
WRONG_USE: Final = 2
COULD_NOT: Final = 3

EXIT_CODES: Final = (
    "exit: 0 done, 1 refused by policy, 2 wrong use, 3 could not, 130 interrupted"
)
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
    """Add one command whose ``--help`` says what it does and shows how."""
    return commands.add_parser(
        name,
        help=summary,
        description=text,
        epilog=f"example:\n{_indented(example)}\n\n{EXIT_CODES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def out(text: str, *, end: str = "\n") -> None:
    """Write to standard output: what was asked for."""
    sys.stdout.write(text + end)
    sys.stdout.flush()


def err(text: str, *, end: str = "\n") -> None:
    """Write to standard error: what a person may want to know."""
    sys.stderr.write(text + end)
    sys.stderr.flush()


def out_json(value: object) -> None:
    """Write one JSON value and a newline to standard output."""
    out(json.dumps(value, ensure_ascii=False))


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
        err(f"\r{title}: {monotonic() - started:.1f} s   ")


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())
