"""Failures: kept for later without their frames, their words, and read back."""

from datetime import UTC, datetime

import pytest

from curtilage.client.chat.answer import Answerer
from curtilage.client.errors import (
    AnswererError,
    AttemptFailure,
    EnclaveError,
    FailureReason,
    OnPremisesUnavailableError,
)
from curtilage.client.failure_texts import FAILURE_TEXTS
from curtilage.client.local.model import LocalModelMemoryError
from curtilage.client.local.reasons import (
    DraftRejectedError,
    LocalFailure,
    LocalModelError,
)
from curtilage.client.on_premises.reasons import OnPremisesFailure
from curtilage.client.queue.reasons import REASONS, reason_named
from curtilage.client.remote.reasons import DateRefusedError, EnclaveFailure, Unmet

FAILURES = [
    DraftRejectedError(),
    LocalModelError("the engine is gone"),
    LocalModelMemoryError(2**30, 2**20),
    OnPremisesUnavailableError(OnPremisesFailure.BUSY, code="429", retry_after_s=4),
    EnclaveError(EnclaveFailure.BUSY, code="busy", retry_after_s=4),
    DateRefusedError(datetime(2026, 1, 1, tzinfo=UTC)),
]


@pytest.mark.parametrize("failure", FAILURES, ids=lambda each: type(each).__name__)
def test_a_failure_is_kept_whole_and_without_its_frames(failure: AnswererError) -> None:
    try:
        raise failure from ValueError("a cause")
    except AnswererError as raised:
        kept = raised.alone()
    assert kept is not failure
    assert type(kept) is type(failure)
    assert (str(kept), vars(kept)) == (str(failure), vars(failure))
    assert (kept.__traceback__, kept.__context__, kept.__cause__) == (None, None, None)


def test_every_reason_has_words_and_every_sentence_a_reason() -> None:
    """The only test of these words: all others assert reasons."""
    assert REASONS.keys() == FAILURE_TEXTS.keys()
    assert all(FAILURE_TEXTS.values())
    assert "this machine's clock" in FAILURE_TEXTS["clock_suspected"]
    assert str(EnclaveError(EnclaveFailure.BUSY)) == FAILURE_TEXTS["busy"]


def test_no_two_tiers_name_a_reason_alike() -> None:
    tiers = (AttemptFailure, LocalFailure, OnPremisesFailure, EnclaveFailure, Unmet)
    assert sum(len(tier) for tier in tiers) == len(REASONS)
    assert set(FailureReason.__subclasses__()) == set(tiers)


def test_a_stored_reason_is_read() -> None:
    for word, reason in REASONS.items():
        assert reason_named(word) is reason


def test_reasons_that_an_older_version_queued_are_read() -> None:
    for reason in OnPremisesFailure:
        old = reason.value.replace("on_premises_", "house_")
        assert reason_named(old) is reason
    assert Answerer("house") is Answerer.ON_PREMISES


@pytest.mark.parametrize(
    "word", ["house_unknown", "house_busy_", "BUSY", "", 7, None, []]
)
def test_a_stored_word_that_is_no_reason_is_refused(word: object) -> None:
    with pytest.raises(ValueError, match="not a valid"):
        reason_named(word)
