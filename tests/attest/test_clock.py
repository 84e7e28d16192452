"""A clock that is days off is the likely cause, but only where all else holds."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from curtilage.attest import clock
from curtilage.attest.clock import LEAST_FAST, ClockSuspectedError, suspect_clock
from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.evidence import EvidenceBundle
from curtilage.attest.evidence_json import encode_bundle
from curtilage.attest.expectations import Expectations
from curtilage.attest.verify import VerifiedKey, verify

DAY, HOUR = timedelta(days=1), timedelta(hours=1)
Suspect = Callable[..., RefusedError]


@pytest.fixture
def suspect(expectations: Expectations) -> Suspect:
    """Verify a bundle at a time at which it is refused; return what is said."""

    def refused(bundle: EvidenceBundle, now: datetime) -> RefusedError:
        data = encode_bundle(bundle)
        with pytest.raises(RefusedError) as caught:
            verify(data, expectations, now=now)
        said = suspect_clock(caught.value, data, expectations, now=now)
        assert (said.code, said.step) == (caught.value.code, caught.value.step)
        assert said.steps == caught.value.steps
        assert said.detail.startswith(caught.value.detail)
        return said

    return refused


@pytest.fixture
def ends(bundle: EvidenceBundle, expectations: Expectations, now: datetime) -> datetime:
    key = verify(encode_bundle(bundle), expectations, now=now)
    return key.expires_at


@pytest.mark.parametrize(
    ("late", "words"),
    [
        (DAY, "24 hours fast"),
        (3 * DAY + HOUR, "3 days fast"),
        (400 * DAY, "400 days fast"),
        (9000 * DAY, "9000 days fast"),
    ],
)
def test_a_clock_that_is_days_fast_is_suspected(
    suspect: Suspect,
    bundle: EvidenceBundle,
    ends: datetime,
    late: timedelta,
    words: str,
) -> None:
    said = suspect(bundle, ends + late)
    assert isinstance(said, ClockSuspectedError)
    assert said.code is RefusalCode.STALE
    # No signed time proves that a clock is fast, and nothing here says that it is.
    assert f"likely {words}, or " in said.detail


@pytest.mark.parametrize(
    ("early", "words"),
    [
        (5 * DAY, "5 days slow"),
        (3 * HOUR, "3 hours slow"),
        (timedelta(minutes=20), "20 minutes slow"),
        (9000 * DAY, "9000 days slow"),
    ],
)
def test_a_clock_that_is_slow_is_suspected(
    suspect: Suspect,
    bundle: EvidenceBundle,
    now: datetime,
    early: timedelta,
    words: str,
) -> None:
    said = suspect(bundle, now - early)
    assert isinstance(said, ClockSuspectedError)
    assert said.code is RefusalCode.NOT_YET_VALID
    assert said.detail.endswith(f" likely {words}")


def test_evidence_that_was_not_renewed_is_no_wrong_clock(
    suspect: Suspect, bundle: EvidenceBundle, ends: datetime
) -> None:
    for late in (timedelta(), HOUR, LEAST_FAST - timedelta(seconds=1)):
        assert type(suspect(bundle, ends + late)) is RefusedError


def other_keys(bundle: EvidenceBundle) -> EvidenceBundle:
    return replace(bundle, receipt_public_key=bytes(32))


def moved(bundle: EvidenceBundle) -> EvidenceBundle:
    """Dated otherwise by who carries it; the enclave signed another window."""
    back = 10 * 86_400
    return replace(
        bundle, not_before=bundle.not_before - back, not_after=bundle.not_after - back
    )


def of_the_far_future(bundle: EvidenceBundle) -> EvidenceBundle:
    return replace(bundle, not_before=2**62, not_after=2**62 + 3600)


@pytest.mark.parametrize("change", [other_keys, moved, of_the_far_future])
@pytest.mark.parametrize("off", [-30 * DAY, 30 * DAY])
def test_evidence_that_would_not_hold_at_its_own_time_is_no_wrong_clock(
    suspect: Suspect,
    bundle: EvidenceBundle,
    now: datetime,
    change: Callable[[EvidenceBundle], EvidenceBundle],
    off: timedelta,
) -> None:
    """Or a forger of evidence could have people turn back their clocks."""
    assert type(suspect(change(bundle), now + off)) is RefusedError


def test_only_what_time_can_explain_is_looked_at_again(
    bundle: EvidenceBundle,
    expectations: Expectations,
    now: datetime,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried: list[datetime] = []

    def count(data: bytes, expected: Expectations, *, now: datetime) -> VerifiedKey:
        tried.append(now)
        return verify(data, expected, now=now)

    monkeypatch.setattr(clock, "verify", count)
    data = encode_bundle(bundle)
    for code in RefusalCode:
        refusal = RefusedError(code, "a detail")
        tried.clear()
        said = suspect_clock(refusal, data, expectations, now=now + 30 * DAY)
        assert bool(tried) == (code in clock.TIME_CODES)
        assert (said is not refusal) == (code in clock.TIME_CODES)


def test_an_invalid_bundle_has_no_time(
    expectations: Expectations, now: datetime
) -> None:
    refusal = RefusedError(RefusalCode.STALE, "the window has ended")
    assert suspect_clock(refusal, b"{}", expectations, now=now) is refusal


def test_the_refusal_keeps_its_kind_when_it_is_copied() -> None:
    """As the client does, so that no frame is kept with it."""
    error = ClockSuspectedError(RefusalCode.STALE, "a detail", step="a step")
    copy = type(error)(error.code, error.detail, step=error.step, steps=error.steps)
    assert isinstance(copy, ClockSuspectedError)
