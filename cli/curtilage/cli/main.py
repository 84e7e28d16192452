"""The command line: dispatches commands and maps errors to exit codes."""

import argparse
import importlib.util
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress

from curtilage.cli.parser import build_parser
from curtilage.cli.terminal import (
    COULD_NOT,
    REFUSED,
    WRONG_USE,
    err,
)
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

OFFLINE = frozenset(
    {"decide", "explain", "evaluate", "policy", "audit"}
    | {f"route {each}" for each in ("advise", "answer", "calibrate", "certify")}
    | {f"route {each}" for each in ("explain", "feedback", "stats")}
    | {f"queue {each}" for each in ("drop", "list", "show")}
    | {f"models rollout {each}" for each in ("rollback", "status", "take")}
)
"""Commands that read texts, or decisions about them, and need no network."""
LABORATORY = frozenset(
    {"evaluate"}
    | {f"route {each}" for each in ("advise", "answer", "calibrate", "certify")}
    | {"route compare"}
)
"""Commands of ``curtilage.lab``, which is not part of the product."""
NO_LABORATORY = (
    "needs the laboratory, which is not installed: run `pip install . ./lab` in a "
    "source checkout of this version, or `make setup` there and `.venv/bin/curtilage`"
)
INTERRUPTED = 130  # as in shells: 128 plus the number of SIGINT


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; return the exit status.

    Without ``argv`` this is the program's own process: a command that needs no
    network then gives it up for good before it reads anything.

    0 done, 1 refused by policy, 2 usage error, 3 could not, 130 interrupted.
    """
    if None in (sys.stdin, sys.stdout, sys.stderr):
        return WRONG_USE  # a standard stream is closed: no message can be shown
    _refuse_core_dumps()
    # A library's warnings about certificates are not meant for the user.
    warnings.filterwarnings("ignore", module=r"curtilage\.attest\.")
    arguments = build_parser().parse_args(argv)
    if argv is None and {arguments.command, arguments.called} & OFFLINE:
        from curtilage.sandbox.wall import no_network

        for layer in no_network().missing:
            err(f"this command needs no network, and could not give it up: {layer}")
    try:
        return _run(arguments)
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
    except KeyboardInterrupt:
        return INTERRUPTED


def _run(arguments: argparse.Namespace) -> int:
    # Separate from ``main``: reporting a failure may fail as well (standard error is a
    # closed pipe), and ``main`` handles that OSError. Some of these classes are
    # subclasses of others, so the order of the clauses decides the exit code.
    try:
        return command_of(arguments.called)(arguments)
    except BlockedError as error:
        return _stop(error, REFUSED)
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


def command_of(called: str) -> Callable[[argparse.Namespace], int]:  # noqa: C901, PLR0912, PLR0915 - a table
    """Import a command's modules and return the function that runs it.

    Imported here because ``--help`` needs none of them, and together they take over a
    second. Written out, not derived from the name, so that linters, import contracts
    and readers see what is imported.
    """
    run: Callable[[argparse.Namespace], int]
    match called:
        case "ask":
            from curtilage.cli.ask import run
        case "attest show":
            from curtilage.cli.attest.show import run
        case "attest verify":
            from curtilage.cli.attest.command import run_verify as run
        case "attest verify-evidence":
            from curtilage.cli.attest.verify_evidence import run
        case "audit checkpoint":
            from curtilage.cli.audit.command import run_checkpoint as run
        case "audit export":
            from curtilage.cli.audit.command import run_export as run
        case "audit init":
            from curtilage.cli.audit.command import run_init as run
        case "audit prove":
            from curtilage.cli.audit.command import run_prove as run
        case "audit receipt":
            from curtilage.cli.audit.command import run_receipt as run
        case "audit show-key":
            from curtilage.cli.audit.command import run_show_key as run
        case "audit verify":
            from curtilage.cli.audit.command import run_verify as run
        case "decide":
            from curtilage.cli.decide import run
        case "demo":
            from curtilage.cli.demo import run
        case "explain" | "policy explain":
            from curtilage.cli.explain import run
        case "models add":
            from curtilage.cli.models import run_add as run
        case "models list":
            from curtilage.cli.models import run_list as run
        case "models pull":
            from curtilage.cli.models import run_pull as run
        case "models recommend":
            from curtilage.cli.models import run_recommend as run
        case "models rollout manifest":
            from curtilage.cli.rollout import run_manifest as run
        case "models rollout rollback":
            from curtilage.cli.rollout import run_rollback as run
        case "models rollout status":
            from curtilage.cli.rollout import run_status as run
        case "models rollout take":
            from curtilage.cli.rollout import run_take as run
        case "models verify":
            from curtilage.cli.models import run_verify as run
        case "policy approve":
            from curtilage.cli.policy.approve import run
        case "policy check":
            from curtilage.cli.policy.command import run_check as run
        case "policy diff":
            from curtilage.cli.policy.diff import run
        case "policy keygen":
            from curtilage.cli.policy.sign import run_keygen as run
        case "policy list":
            from curtilage.cli.policy.command import run_list as run
        case "policy list-make":
            from curtilage.cli.policy.list_make import run
        case "policy report":
            from curtilage.cli.policy.report import run
        case "policy sign":
            from curtilage.cli.policy.sign import run_sign as run
        case "policy test":
            from curtilage.cli.policy.test_cases import run
        case "policy verify":
            from curtilage.cli.policy.sign import run_verify as run
        case "queue drain":
            from curtilage.cli.deferred import run_drain as run
        case "queue drop":
            from curtilage.cli.deferred import run_drop as run
        case "queue list":
            from curtilage.cli.deferred import run_list as run
        case "queue show":
            from curtilage.cli.deferred import run_show as run
        case "release audit":
            from curtilage.cli.release.audit import run_audit as run
        case "release log add":
            from curtilage.cli.release.log import run_add as run
        case "release log cosign":
            from curtilage.cli.release.log import run_cosign as run
        case "release log init":
            from curtilage.cli.release.log import run_init as run
        case "release log request":
            from curtilage.cli.release.log import run_request as run
        case "release manifest":
            from curtilage.cli.release.manifest import run_manifest as run
        case "release prove":
            from curtilage.cli.release.check import run_prove as run
        case "release verify":
            from curtilage.cli.release.check import run_verify as run
        case "release witness cosign":
            from curtilage.cli.release.witness import run_cosign as run
        case "release witness init":
            from curtilage.cli.release.witness import run_init as run
        case "route explain":
            from curtilage.cli.route.explain import run
        case "route feedback":
            from curtilage.cli.route.feedback import run
        case "route stats":
            from curtilage.cli.route.stats import run
        case "serve":
            from curtilage.cli.serve import run
        case _ if called in LABORATORY:
            if importlib.util.find_spec("curtilage.lab") is None:
                raise ClientError(f"{called} {NO_LABORATORY}")
            from curtilage.lab.commands.table import command_of as laboratory

            run = laboratory(called)
        case _:
            raise AssertionError(called)  # a test covers every command
    return run


def _refuse_core_dumps() -> None:
    """Disable core dumps so that no question ends up in one."""
    if sys.platform != "win32":
        import resource  # not on every system

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _stop(error: Exception, status: int) -> int:
    err(f"curtilage: {error}")
    return status
