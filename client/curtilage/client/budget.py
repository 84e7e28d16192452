"""How much may be tried twice: retries and hedges, as a share of first attempts.

Pure; routing keeps one for all tiers, and the enclave's client one where nothing is
routed.
"""

from typing import Final

RETRY_PERMILLE: Final = 100
HEDGE_PERMILLE: Final = 50
_ONE: Final = 1000


class Budget:
    """A share of something that some others may be: retries, hedges of attempts.

    One for all tiers: with one for each, a failure of all would be answered by as many.

    Args:
        permille: of what is earned.
        reserve: what may be taken before anything was earned.
        most: what can be saved up.
    """

    def __init__(self, permille: int, *, reserve: int = 0, most: int = 10) -> None:
        self._permille = permille
        self._most = _ONE * most
        self._saved = _ONE * reserve

    @property
    def left(self) -> int:
        """How many may be taken now."""
        return self._saved // _ONE

    def earn(self) -> None:
        """Note a first attempt."""
        self._saved = min(self._most, self._saved + self._permille)

    def take(self) -> bool:
        """Take one, if there is."""
        if self._saved < _ONE:
            return False
        self._saved -= _ONE
        return True
