"""Budget for retries and hedges, as a share of first attempts.

Pure; routing has one for all tiers, and the enclave's client has one if there is no
routing.
"""

from typing import Final

RETRY_PERMILLE: Final = 100
HEDGE_PERMILLE: Final = 50
_ONE: Final = 1000


class Budget:
    """Limits one kind of attempts (retries, hedges) to a share of others.

    One for all tiers: with one for each, a failure of all tiers would use all of them.

    Args:
        permille: share of the attempts that earn.
        reserve: available before anything was earned.
        most: largest amount that can accumulate.
    """

    def __init__(self, permille: int, *, reserve: int = 0, most: int = 10) -> None:
        self._permille = permille
        self._most = _ONE * most
        self._saved = _ONE * reserve

    @property
    def left(self) -> int:
        """Number of attempts available now."""
        return self._saved // _ONE

    def earn(self) -> None:
        """Count a first attempt."""
        self._saved = min(self._most, self._saved + self._permille)

    def take(self) -> bool:
        """Take one if available; return whether it was."""
        if self._saved < _ONE:
            return False
        self._saved -= _ONE
        return True
