"""Does everybody get the same keys? What one client can see of that.

A key list that is made for one client marks all that the client seals, however
sound the evidence is. Three things are held against it here, all by the digest
of the list, since evidence is renewed and signatures are malleable: an
independent copy, where the policy names one; what this client saw for the same
window; and the order of windows, which only moves forward.

What this cannot see: without a mirror, a list of its own for each client whose
window is new. Windows may overlap, since keys do when they rotate, and a
restarted enclave begins a new one at once.

The log that the release stands in is held to what it showed before, too: see
``log_history``.
"""

import hashlib
import hmac
from typing import Final

from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.verified_key import VerifiedKey

REMEMBERED: Final = 64
"""Windows kept in mind: more than two weeks of them at six hours each."""

_STEP: Final = "key consistency"


class MirrorSilentError(RefusedError):
    """The mirror gave nothing to compare, so nothing was compared."""


class KeyHistory:
    """The key lists that this client has seen, by the start of their window."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: dict[float, str] = {}

    def check(self, key: VerifiedKey) -> None:
        """Take note of a verified list, if it fits what was seen before.

        A list that was seen before fits; so does the first one of a window that
        begins later than all that were seen.

        Raises:
            RefusedError: ``key_inconsistent``; nothing is taken note of.
        """
        # By the start of the window: one enclave has one list for each, and evidence
        # over the same list is renewed again and again within it.
        begins = key.not_before.timestamp()
        seen = self._seen.get(begins)
        if seen is not None and seen != key.key_configs_digest:
            raise _inconsistent("another key list for the same window")
        if seen is not None:
            return
        # Old windows come to an end. One that appears afterwards, with a list that was
        # not seen while it ran, was made for somebody.
        if self._seen and begins < max(self._seen):
            raise _inconsistent("a key list that was never seen, of a window gone by")
        self._seen[begins] = key.key_configs_digest
        while len(self._seen) > REMEMBERED:
            del self._seen[min(self._seen)]


def compare_with_mirror(key: VerifiedKey, mirrored: bytes) -> None:
    """Refuse a list that an independent copy does not confirm.

    Args:
        key: verified.
        mirrored: the list that the mirror serves.

    Raises:
        RefusedError: ``key_inconsistent``.
    """
    # The bytes and not what they mean: two lists that mean the same can still tell two
    # clients apart, by their order or by an entry that nobody uses.
    digest = hashlib.sha256(mirrored).hexdigest()
    if not hmac.compare_digest(digest, key.key_configs_digest):
        raise _inconsistent("the mirror serves another key list")


def mirror_silent() -> MirrorSilentError:
    """Return the refusal for a mirror that gives no list."""
    return MirrorSilentError(
        RefusalCode.KEY_INCONSISTENT, "the mirror gave no key list", step=_STEP
    )


def _inconsistent(detail: str) -> RefusedError:
    return RefusedError(RefusalCode.KEY_INCONSISTENT, detail, step=_STEP)
