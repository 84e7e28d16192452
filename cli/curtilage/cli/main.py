"""The command line: finds the command, runs it, turns errors into exit codes."""

import argparse
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.metadata import version

from curtilage.cli import ask, decide, demo, evaluate, explain, models, serve
from curtilage.cli.attest import command as attest
from curtilage.cli.audit import command as audit
from curtilage.cli.policy import command as policy
from curtilage.cli.release import command as release
from curtilage.cli.terminal import (
    COULD_NOT,
    EXIT_CODES,
    REFUSED,
    WRONG_USE,
    err,
)
from curtilage.client.errors import (
    BlockedError,
    ClientError,
    ConfigError,
    UsageError,
)
from curtilage.policy.errors import PolicyError
from curtilage.sandbox.wall import no_network

OFFLINE = frozenset({"decide", "explain", "evaluate", "policy", "audit"})
"""Commands that see texts, or what was decided of them, and need nobody."""
INTERRUPTED = 130  # as shells say: 128 and the number of SIGINT
DESCRIPTION = """\
Answer at home what must stay at home; ask an attested enclave the rest.

Every question is classified on this machine. What the policy calls regulated is
answered by the local model and never leaves. The rest goes, sealed, through a relay
that sees who asks but not what, to an enclave that sees what is asked but not who."""
EXAMPLE = """\
examples:
  curtilage demo
  curtilage ask
  curtilage ask - < letter.txt
  curtilage serve --relay https://relay.example/ward
  curtilage explain - < letter.txt
"""


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of every command."""
    parser = argparse.ArgumentParser(
        prog="curtilage",
        description=DESCRIPTION,
        epilog=f"{EXAMPLE}\n{EXIT_CODES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--version", action="version", version=f"curtilage {version('curtilage')}"
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for module in (
        demo,
        ask,
        serve,
        decide,
        explain,
        evaluate,
        policy,
        audit,
        models,
        attest,
        release,
    ):
        module.add(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; return the exit status.

    Without ``argv`` it is the program that runs: then a command that needs no
    network loses it, for good, before it reads anything.

    0 done, 1 refused by policy, 2 wrong use, 3 could not, 130 interrupted.
    """
    if None in (sys.stdin, sys.stdout, sys.stderr):
        return WRONG_USE  # a closed standard stream: there is nobody to talk to
    _refuse_core_dumps()
    # A library's remark on a served certificate is no message to anybody.
    warnings.filterwarnings("ignore", module=r"curtilage\.attest\.")
    arguments = build_parser().parse_args(argv)
    if argv is None and arguments.command in OFFLINE:
        for layer in no_network().missing:
            err(f"this command needs no network, and could not give it up: {layer}")
    try:
        return _run(arguments)
    except OSError as error:  # a reader that went away, a full disk
        return _cannot_write(error)
    except KeyboardInterrupt:
        return INTERRUPTED


def _run(arguments: argparse.Namespace) -> int:
    run: Callable[[argparse.Namespace], int] = arguments.run
    try:
        return run(arguments)
    except BlockedError as error:
        return _stop(error, REFUSED)
    except (UsageError, ConfigError, PolicyError) as error:
        return _stop(error, WRONG_USE)
    except ClientError as error:
        return _stop(error, COULD_NOT)


def _refuse_core_dumps() -> None:
    """Keep questions out of a core file, where the system can be told so."""
    if sys.platform != "win32":
        import resource  # noqa: PLC0415 - not on every system

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _cannot_write(error: OSError) -> int:
    """Say it where that can still be said; never end in a traceback."""
    with suppress(OSError):
        if not isinstance(error, BrokenPipeError):
            err(f"curtilage: {error.strerror or 'input or output failed'}")
    # What is still buffered would fail again when the interpreter ends.
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    return COULD_NOT


def _stop(error: Exception, status: int) -> int:
    err(f"curtilage: {error}")
    return status
