"""Which encapsulated requests were seen before; pure state, one set per key.

A request is known by its encapsulated key ``enc``, which HPKE binds into the
secret: other bytes for the same request do not open. The set lives exactly as
long as its keys, is shared by all of them, and it never evicts: an attacker who
fills it gains refusals, not a replay.
"""

import hashlib

_MARK_BYTES = 16


class ReplaySet:
    """The requests opened under one pair of keys.

    Args:
        capacity: how many are remembered; afterwards all are refused.
    """

    __slots__ = ("_capacity", "_seen")

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._seen: set[bytes] = set()

    @property
    def is_full(self) -> bool:
        """Tell whether no further request can be admitted."""
        return len(self._seen) >= self._capacity

    @property
    def is_nearly_full(self) -> bool:
        """Tell whether nine tenths are taken: time for other keys."""
        return len(self._seen) >= self._capacity - self._capacity // 10

    def admit(self, enc: bytes) -> bool:
        """Check and insert in one step; False when seen before or full.

        Call it after opening only: an ``enc`` that opened nothing is anybody's.
        """
        mark = hashlib.sha256(enc).digest()[:_MARK_BYTES]
        if mark in self._seen or self.is_full:
            return False
        self._seen.add(mark)
        return True

    def clear(self) -> None:
        """Forget everything; only once nothing can be opened any more."""
        self._seen.clear()
        self._capacity = 0
