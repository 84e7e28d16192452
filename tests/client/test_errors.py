"""A failure that is kept for later: the same, without where it came from."""

from datetime import UTC, datetime

import pytest

from curtilage.client.errors import (
    AnswererError,
    DateRefusedError,
    DraftRejectedError,
    EnclaveError,
    FailureReason,
    HouseUnavailableError,
    LocalUnavailableError,
)
from curtilage.client.local.model import LocalModelMemoryError

FAILURES = [
    DraftRejectedError(),
    LocalUnavailableError("the engine is gone"),
    LocalModelMemoryError(2**30, 2**20),
    HouseUnavailableError(FailureReason.HOUSE_BUSY, code="429", retry_after_s=4),
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
