"""What the commands on evidence have in common: how they tell a person."""

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
    "Likely cause: the clock. All of this evidence holds at the time for which it was "
    "made, and no other step failed. Set this machine's clock, or give the right time "
    "with `--at`; if the clock is right, old evidence is served."
)
_LONG: Final = 40


def steps_text(steps: Iterable[Step]) -> str:
    """Lay the checks out as lines, number, outcome, name and detail."""
    listed = tuple(steps)
    width = max((len(step.name) for step in listed), default=0)
    return "\n".join(
        f"{step.number:>3}  {'pass' if step.passed else 'FAIL'}  "
        f"{step.name:<{width}}  {step.detail}".rstrip()
        for step in listed
    )


def claims_text(claims: CpuClaims | DeviceClaims) -> str:
    """Lay out what the evidence says, one line each."""
    told: dict[str, Detail] = {}
    if isinstance(claims, CpuClaims):
        told |= {f"register {name}": value for name, value in claims.registers.items()}
        told |= {
            "signed for us": claims.bound.hex(),
            "platform": claims.platform or "-",
        }
    else:
        told |= {"nonce": claims.nonce.hex()}
    told |= {name.replace("_", " "): value for name, value in claims.details.items()}
    return "\n".join(f"     {name}: {_short(value)}" for name, value in told.items())


def tell_refusal(
    kind: str, refusal: RefusedError, *, at: datetime, as_json: bool, node: str = ""
) -> None:
    """Tell each check that ran, what was refused, and what that means.

    Args:
        kind: ``evidence`` or ``bundle``: what was to be verified.
        refusal: the one step that did not hold.
        at: as of when.
        as_json: one object for a program instead.
        node: of a pool, whose it is.
    """
    if as_json:
        out_json(refusal_object(kind, refusal, at=at) | named(node))
        return
    out(steps_text(refusal.steps))
    err(f"REFUSED: {refusal.code.value} ({refusal.detail})")
    if isinstance(refusal, ClockSuspectedError):
        err(textwrap.fill(CLOCK, 80))
    err(meaning_text(refusal.code))


def meaning_text(code: RefusalCode) -> str:
    """Say what a refusal means, and what can be done."""
    meaning, what_now = MEANINGS[code]
    return textwrap.fill(f"{meaning} {what_now}", 80)


def _short(value: Detail) -> str:
    text = ", ".join(value) if isinstance(value, tuple) else str(value)
    return text if len(text) <= _LONG else f"{text[:_LONG]}…"
