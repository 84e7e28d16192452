"""Consistency checks on key lists: does every client get the same keys?

A key list made for one client marks everything that the client seals, however sound the
evidence is. Three checks are made here, all by the digest of the list, since evidence
is renewed and signatures are malleable: against an independent copy, if the policy
names one; against the list that this client saw for the same window; and the order of
windows, which only moves forward.

Not detected without a mirror: a separate list for each client whose window is new.
Windows may overlap, since keys do when they rotate, and a restarted enclave begins a
new one at once.

The log that contains the release is also checked against its history: see
``log_history``.
"""

import hashlib
import hmac
from typing import Final

from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.verified_key import VerifiedKey

REMEMBERED: Final = 64
"""Windows remembered: more than two weeks of them at six hours each."""

_STEP: Final = "key consistency"


class MirrorSilentError(RefusedError):
    """The mirror returned nothing to compare, so nothing was compared."""


class KeyHistory:
    """The key lists that this client has seen, by the start of their window."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: dict[float, str] = {}

    def check(self, key: VerifiedKey) -> None:
        """Record a verified list, if it is consistent with the lists seen before.

        Consistent are a list that was seen before, and the first list of a window that
        begins later than all that were seen.

        Raises:
            RefusedError: ``key_inconsistent``; nothing is recorded.
        """
        # By the start of the window: an enclave has one list for each, and evidence for
        # the same list is renewed repeatedly within it.
        begins = key.not_before.timestamp()
        seen = self._seen.get(begins)
        if seen is not None and seen != key.key_configs_digest:
            raise _inconsistent("another key list for the same window")
        if seen is not None:
            return
        # A list that appears after its window ended, and was not seen during it, may
        # have been made for a single client.
        if self._seen and begins < max(self._seen):
            raise _inconsistent("a key list that was never seen, of a past window")
        self._seen[begins] = key.key_configs_digest
        while len(self._seen) > REMEMBERED:
            del self._seen[min(self._seen)]


def compare_with_mirror(key: VerifiedKey, mirrored: bytes) -> None:
    """Refuse a list that differs from the independent copy.

    Args:
        key: verified.
        mirrored: the list that the mirror serves.

    Raises:
        RefusedError: ``key_inconsistent``.
    """
    # Compare bytes, not meaning: two lists with one meaning can still distinguish two
    # clients, by their order or by an unused entry.
    digest = hashlib.sha256(mirrored).hexdigest()
    if not hmac.compare_digest(digest, key.key_configs_digest):
        raise _inconsistent("the mirror serves another key list")


def mirror_silent() -> MirrorSilentError:
    """Return the refusal for a mirror that returns no list."""
    return MirrorSilentError(
        RefusalCode.KEY_INCONSISTENT, "the mirror returned no key list", step=_STEP
    )


def _inconsistent(detail: str) -> RefusedError:
    return RefusedError(RefusalCode.KEY_INCONSISTENT, detail, step=_STEP)
