"""A failure that is kept for later: the same, without where it came from."""

from datetime import UTC, datetime

import pytest

from curtilage.client.answer import Answerer
from curtilage.client.errors import (
    AnswererError,
    DateRefusedError,
    DraftRejectedError,
    EnclaveError,
    FailureReason,
    LocalUnavailableError,
    OnPremisesUnavailableError,
)
from curtilage.client.local.model import LocalModelMemoryError

FAILURES = [
    DraftRejectedError(),
    LocalUnavailableError("the engine is gone"),
    LocalModelMemoryError(2**30, 2**20),
    OnPremisesUnavailableError(
        FailureReason.ON_PREMISES_BUSY, code="429", retry_after_s=4
    ),
    EnclaveError(FailureReason.BUSY, code="busy", retry_after_s=4),
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


def test_reasons_that_an_older_version_queued_are_read() -> None:
    for reason in FailureReason:
        if reason.value.startswith("on_premises_"):
            old = reason.value.replace("on_premises_", "house_")
            assert FailureReason(old) is reason
    with pytest.raises(ValueError, match="not a valid"):
        FailureReason("house_unknown")
    assert Answerer("house") is Answerer.ON_PREMISES
