"""The command line: dispatches commands and maps errors to exit codes."""

import os
import sys
import warnings
from collections.abc import Sequence
from contextlib import suppress

from curtilage.cli.declared import Call, completion_is_asked_for, parse
from curtilage.cli.table import root
from curtilage.cli.terminal import COULD_NOT, REFUSED, WRONG_USE, err
from curtilage.client.errors import (
    BlockedError,
    ClientError,
    ConfigError,
    QueuedError,
    UsageError,
)
from curtilage.client.failure_texts import FAILURE_TEXTS
from curtilage.policy.errors import PolicyError
from curtilage.transparency.errors import HeldError, TransparencyError

INTERRUPTED = 130  # as in shells: 128 plus the number of SIGINT


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; return the exit status.

    Without ``argv`` this is the program's own process: a command that needs no
    network then gives it up for good before it reads anything.

    0 done, 1 refused by policy, 2 usage error, 3 could not, 130 interrupted.
    """
    if None in (sys.stdin, sys.stdout, sys.stderr):
        return WRONG_USE  # a standard stream is closed: no message can be shown
    # First of all: a crash while the command line is parsed would already write a
    # question to the disk.
    _refuse_core_dumps()
    # A library's warnings about certificates are not meant for the user.
    warnings.filterwarnings("ignore", module=r"curtilage\.attest\.")
    try:
        # Only in the program's own process: a test or a program that calls ``main`` has
        # not asked for completions.
        if argv is None and completion_is_asked_for():
            from curtilage.cli.completion import complete

            return complete(root)
        call = parse(root, sys.argv[1:] if argv is None else argv)
        # Only in the program's own process, since it cannot be undone: a program that
        # calls ``main`` would lose its network for good.
        if argv is None and call.command.offline:
            _give_up_network()
        return _run(call)
    except OSError as error:  # a closed pipe, a full disk
        # Reported if standard error still works; never a traceback.
        with suppress(OSError):
            if not isinstance(error, BrokenPipeError):
                err(f"curtilage: {error.strerror or 'input or output failed'}")
        # Buffered output would fail again when the interpreter exits.
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        return COULD_NOT
    # Without a traceback, which could show a question.
    except KeyboardInterrupt:
        return INTERRUPTED


def _run(call: Call) -> int:
    # Separate from ``main``: reporting a failure may fail as well (standard error is a
    # closed pipe), and ``main`` handles that OSError. Some of these classes are
    # subclasses of others, so the order of the clauses decides the exit code.
    try:
        return call.command.load()(call.arguments)
    except BlockedError as error:
        return _stop(error, REFUSED)
    # Before ``TransparencyError``, its base class, whose status is 2: a script may try
    # this one again.
    except HeldError as error:
        return _stop(error, COULD_NOT)
    except (UsageError, ConfigError, PolicyError, TransparencyError) as error:
        return _stop(error, WRONG_USE)
    except QueuedError as queued:
        from curtilage.client.queue.deferring import MOST_PAUSE_S

        # The error's own text promises an automatic retry; this process ends.
        here = "" if queued.left else "; nothing of it was sent from this device"
        err(
            f"curtilage: queued: {FAILURE_TEXTS[queued.reason]}{here}\n"
            "it will be retried automatically while `curtilage serve` runs, at least "
            f"every {MOST_PAUSE_S:.0f} s, or by `curtilage queue drain`;\n"
            f"`curtilage queue show {queued.ticket}` then shows the answer"
        )
        return COULD_NOT
    except ClientError as error:
        return _stop(error, COULD_NOT)


def _give_up_network() -> None:
    from curtilage.sandbox.wall import no_network  # for these commands only

    # Reported and not fatal: an old kernel lacks this, and the command itself opens no
    # connection either.
    for layer in no_network().missing:
        err(f"this command needs no network, and could not give it up: {layer}")


def _refuse_core_dumps() -> None:
    """Disable core dumps so that no question ends up in one."""
    if sys.platform != "win32":
        import resource  # not on every system

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _stop(error: Exception, status: int) -> int:
    # The message alone: these errors contain no text of a query, while a traceback
    # could show one.
    err(f"curtilage: {error}")
    return status
