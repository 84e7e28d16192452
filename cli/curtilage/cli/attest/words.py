"""Shared text output of the evidence commands."""

import textwrap
from collections.abc import Iterable
from datetime import datetime
from typing import Final

from curtilage.attest.claims import CpuClaims, Detail, DeviceClaims
from curtilage.attest.clock import ClockSuspectedError
from curtilage.attest.errors import RefusalCode, RefusedError, Step
from curtilage.cli.attest.refusals import MEANINGS
from curtilage.cli.attest.verdict_json import named, refusal_object
from curtilage.cli.terminal import err, out, out_json

CLOCK: Final = (
    "Likely cause: the clock. The evidence is valid for the time at which it was "
    "made, and no other step failed. Set this machine's clock, or give the right time "
    "with `--at`; if the clock is right, the evidence served is old."
)
_LONG: Final = 40


def steps_text(steps: Iterable[Step]) -> str:
    """Return the checks as lines: number, outcome, name and detail."""
    listed = tuple(steps)
    width = max((len(step.name) for step in listed), default=0)
    return "\n".join(
        f"{step.number:>3}  {'pass' if step.passed else 'FAIL'}  "
        f"{step.name:<{width}}  {step.detail}".rstrip()
        for step in listed
    )


def claims_text(claims: CpuClaims | DeviceClaims) -> str:
    """Return the evidence's claims, one per line."""
    fields: dict[str, Detail] = {}
    if isinstance(claims, CpuClaims):
        fields |= {
            f"register {name}": value for name, value in claims.registers.items()
        }
        fields |= {
            "report data": claims.bound.hex(),
            "platform": claims.platform or "-",
        }
    else:
        fields |= {"nonce": claims.nonce.hex()}
    fields |= {name.replace("_", " "): value for name, value in claims.details.items()}
    lines: list[str] = []
    for name, value in fields.items():
        text = ", ".join(value) if isinstance(value, tuple) else str(value)
        # A detail may be a whole certificate chain; ``--json`` has all of it.
        shown = text if len(text) <= _LONG else f"{text[:_LONG]}…"
        lines.append(f"     {name}: {shown}")
    return "\n".join(lines)


def print_refusal(
    kind: str, refusal: RefusedError, *, at: datetime, as_json: bool, node: str = ""
) -> None:
    """Print the checks that ran, the refusal, and its explanation.

    Args:
        kind: ``evidence`` or ``bundle``.
        refusal: the refusal with its failed step.
        at: time of verification.
        as_json: print one JSON object instead.
        node: the node of a pool.
    """
    if as_json:
        out_json(refusal_object(kind, refusal, at=at) | named(node))
        return
    out(steps_text(refusal.steps))
    # The checks go to standard output and the refusal to standard error, so that a
    # script's log shows the refusal in any case.
    err(f"REFUSED: {refusal.code.value} ({refusal.detail})")
    if isinstance(refusal, ClockSuspectedError):
        err(textwrap.fill(CLOCK, 80))
    err(meaning_text(refusal.code))


def meaning_text(code: RefusalCode) -> str:
    """Return the explanation of a refusal, and what to do."""
    meaning, what_now = MEANINGS[code]
    return textwrap.fill(f"{meaning} {what_now}", 80)
