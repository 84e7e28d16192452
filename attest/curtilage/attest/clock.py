"""Detects refusals that a wrong clock likely caused; a hint, not a verdict.

A clock that is fast makes all evidence look old; one that is slow makes it look as if
it were of the future. No signed time proves that a clock is fast: a relay that holds
newer evidence back looks the same. But where all steps hold at the time for which the
evidence was made, only the time is in question, and the clock is the likely cause.
"""

from datetime import datetime, timedelta
from typing import Final

from curtilage.attest.bundle_checks import moment
from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.evidence_json import parse_bundle
from curtilage.attest.expectations import Expectations
from curtilage.attest.verify import verify

TIME_CODES: Final = frozenset(
    {
        RefusalCode.STALE,
        RefusalCode.NOT_YET_VALID,
        RefusalCode.CHECKPOINT_STALE,
        RefusalCode.CRL_EXPIRED,
        RefusalCode.COLLATERAL_EXPIRED,
        RefusalCode.EXPIRED_ENDORSEMENT,
    }
)
"""The refusals that another time can explain."""
LEAST_FAST: Final = timedelta(days=1)
"""Evidence that ended less than a day ago was more likely not renewed."""
_HOUR_S: Final = 3600
_DAY_S: Final = 86_400


class ClockSuspectedError(RefusedError):
    """Evidence was refused only for its time, and the clock is the likely cause.

    Its code, step and steps are those of the refusal; ``detail`` says how far off the
    clock is likely to be.
    """


def suspect_clock(
    refusal: RefusedError, bundle: bytes, expectations: Expectations, *, now: datetime
) -> RefusedError:
    """Return the refusal, as a ``ClockSuspectedError`` where another time explains it.

    The bundle is verified once or twice more, at times that it names itself. The result
    is not trusted: a bundle that passes there is still refused.

    Args:
        refusal: why ``verify`` refused.
        bundle: what it refused.
        expectations: what it was verified against.
        now: the time at which it was refused.
    """
    if refusal.code not in TIME_CODES:
        return refusal
    try:
        named = parse_bundle(bundle)
    except RefusedError:
        return refusal
    # When it was made, or, where an endorsement is newer than that, its last second.
    for seconds in (max(named.not_before, named.anchor.time), named.not_after - 1):
        then = moment(seconds)
        try:
            key = verify(bundle, expectations, now=then)
        except RefusedError:
            continue
        if now < then:
            off = f"likely {_span(then - now)} slow"
        elif now - key.expires_at >= LEAST_FAST:
            off = (
                f"likely {_span(now - key.expires_at)} fast, or old evidence is served"
            )
        else:
            return refusal
        return ClockSuspectedError(
            refusal.code,
            f"{refusal.detail}; all of it holds as of {then:%Y-%m-%d %H:%M} UTC: the "
            f"clock is {off}",
            step=refusal.step,
            steps=refusal.steps,
        )
    return refusal


def _span(time: timedelta) -> str:
    seconds = int(time.total_seconds())
    for unit, name in ((_DAY_S, "days"), (_HOUR_S, "hours")):
        if seconds >= 2 * unit:
            return f"{seconds // unit} {name}"
    return f"{max(seconds // 60, 1)} minutes"
