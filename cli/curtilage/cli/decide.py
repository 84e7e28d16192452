"""``curtilage decide``: where each of many queries may go, and nothing else."""

import argparse
import sys

from curtilage.cli.decide_lines import decide_lines
from curtilage.cli.start import config_from
from curtilage.cli.terminal import (
    DONE,
    err,
    err_again,
    out_bytes,
    progress,
)
from curtilage.client.detection.inspection import CheckedInspector, Inspector
from curtilage.client.detection.side_by_side import SideBySide, cores
from curtilage.client.errors import UsageError

TOLD_EVERY = 1000


def run(arguments: argparse.Namespace) -> int:
    """Decide every line."""
    if not arguments.jsonl:
        raise UsageError("say --jsonl: lines of JSON on standard input")
    config = config_from(arguments)
    policy = config.policy

    def start() -> CheckedInspector:
        # Not by way of ``assemble``: loading what asks takes longer than a decision.
        return CheckedInspector(Inspector.start(policy, spare=False), config.currency)

    with progress("starting detectors"):
        inspector = SideBySide(start, count=cores())
    if inspector.advice is not None:
        err(inspector.advice)
    # Where the lines themselves go to a terminal, they show how far it is.
    shown = sys.stderr.isatty() and not sys.stdout.isatty()
    try:
        decided = decide_lines(sys.stdin.buffer, policy, inspector)
        for number, line in enumerate(decided, start=1):
            out_bytes(line)
            if shown and number % TOLD_EVERY == 0:
                err_again(f"{number} lines")
        if shown:
            err("")
    finally:
        inspector.close()
    return DONE
