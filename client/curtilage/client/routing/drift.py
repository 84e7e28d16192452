"""Whether quality has sunk below what it was: a test that may be looked at any time.

A router is tuned once and wears out. A test that is repeated until it rejects rejects
at last whatever is true; an e-process does not: while answers are as good as promised
its expectation stays at most 1, so that it ever reaches ``1 / alpha`` with probability
``alpha`` at most (Ville's inequality), however often it is looked at.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import exp, log
from typing import Final

from curtilage.client.errors import UsageError

ALPHA: Final = 0.01
# Small bets find a slow decline, large ones a fast one; the mean of processes of
# expectation 1 is one again, so that nobody has to know beforehand.
BETS: Final = (0.1, 0.2, 0.4)
_LARGEST_LOG: Final = 700.0  # e to it is still a number


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """How much speaks against the quality that was promised.

    Attributes:
        promised: the share of good answers that is at least expected: a lower bound
            of calibration, not its mean, or the alarm is one about the sample.
        graded: how many grades were seen.
        logs: the logarithm of each bet's process.
    """

    promised: float
    graded: int = 0
    logs: tuple[float, ...] = (0.0,) * len(BETS)

    def __post_init__(self) -> None:
        """Refuse a promise that no grades can speak against.

        Raises:
            UsageError: it is not between 0 and 1.
        """
        if not 0 < self.promised < 1:
            raise UsageError("the promised share of good answers is between 0 and 1")

    @property
    def evidence(self) -> float:
        """How many times over the bets have won: 1 says nothing, 100 is an alarm."""
        return sum(exp(min(each, _LARGEST_LOG)) for each in self.logs) / len(BETS)

    def alarm(self, alpha: float = ALPHA) -> bool:
        """Tell whether quality sank; wrong with probability ``alpha`` at most, ever."""
        return self.evidence >= 1 / alpha

    def after(self, grades: Iterable[float]) -> "Drift":
        """Return what is known after more grades, oldest first.

        Args:
            grades: 1 for a good answer, 0 for a bad one, or between.

        Raises:
            UsageError: a grade is not.
        """
        odds = self.promised / (1 - self.promised)
        logs, graded = list(self.logs), self.graded
        for grade in grades:
            if not 0 <= grade <= 1:
                raise UsageError("a grade lies between 0 and 1")
            # Fair at the promised quality: good answers lose the bet, bad ones win so
            # much that both even out.
            for place, bet in enumerate(BETS):
                logs[place] += log(1 + bet * ((1 - grade) * odds - grade))
            graded += 1
        return Drift(promised=self.promised, graded=graded, logs=tuple(logs))


def first_alarm(
    promised: float, grades: Iterable[float], alpha: float = ALPHA, *, least: int = 1
) -> int | None:
    """Return after how many grades the alarm rang first; None if it never did.

    Args:
        promised: as ``Drift``.
        grades: as ``Drift.after``.
        alpha: as ``Drift.alarm``.
        least: before so many, nobody listens to it.

    Raises:
        UsageError: as ``Drift``.
    """
    drift = Drift(promised=promised)
    for grade in grades:
        drift = drift.after((grade,))
        if drift.graded >= least and drift.alarm(alpha):
            return drift.graded
    return None
