"""Reads the failure reasons of stored queries: the only place that knows every tier's.

Knows their names only: no tier can be asked through this.
"""

from collections.abc import Mapping
from typing import Final

from curtilage.client.errors import AttemptFailure, FailureReason
from curtilage.client.local.reasons import LocalFailure
from curtilage.client.on_premises.reasons import OnPremisesFailure
from curtilage.client.remote.reasons import EnclaveFailure, Unmet

REASONS: Final[Mapping[str, FailureReason]] = {
    reason.value: reason
    for tier in (AttemptFailure, LocalFailure, OnPremisesFailure, EnclaveFailure, Unmet)
    for reason in tier
}
"""Every failure reason, by its word."""

_OLD, _NEW = "house_", "on_premises_"


def reason_named(word: object) -> FailureReason:
    """Return the reason that a stored word names.

    Raises:
        ValueError: there is none of that name.
    """
    found = None
    if isinstance(word, str):
        # Version 0.1 queued queries under the old prefix.
        new = _NEW + word.removeprefix(_OLD) if word.startswith(_OLD) else word
        found = REASONS.get(new)
    if found is None:
        raise ValueError(f"{word!r} is not a valid failure reason")
    return found
