"""A sequential test for a decline of quality; it may be evaluated after every grade.

A router is tuned once, and its models and questions change. An ordinary test that is
repeated after every grade rejects sooner or later, whatever is true. An e-process does
not: while answers are as good as promised, its expectation is at most 1, so the
probability that it ever reaches ``1 / alpha`` is at most ``alpha`` (Ville's
inequality), however often it is evaluated.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import exp, log
from typing import Final

from curtilage.client.errors import UsageError

ALPHA: Final = 0.01
# Small bets find a slow decline, large ones a fast one. The mean of processes with
# expectation 1 also has expectation 1, so no choice has to be made beforehand.
BETS: Final = (0.1, 0.2, 0.4)
_LARGEST_LOG: Final = 700.0  # e to its power is still finite


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """The evidence against the promised quality.

    Attributes:
        promised: the least share of good answers that is expected: the lower bound of
            the calibration. With its mean, the alarm would find the sample's own error.
        graded: number of grades so far.
        logs: the logarithm of each bet's process.
    """

    promised: float
    graded: int = 0
    logs: tuple[float, ...] = (0.0,) * len(BETS)

    def __post_init__(self) -> None:
        """Refuse a promise that no grades can contradict.

        Raises:
            UsageError: it is not between 0 and 1.
        """
        if not 0 < self.promised < 1:
            raise UsageError("the promised share of good answers is between 0 and 1")

    @property
    def evidence(self) -> float:
        """The mean capital of the bets, which began with 1; 100 is an alarm."""
        return sum(exp(min(each, _LARGEST_LOG)) for each in self.logs) / len(BETS)

    def alarm(self, alpha: float = ALPHA) -> bool:
        """Return whether quality sank.

        The probability that this is ever wrong is at most ``alpha``.
        """
        return self.evidence >= 1 / alpha

    def after(self, grades: Iterable[float]) -> "Drift":
        """Return the evidence after more grades, oldest first.

        Args:
            grades: 1 for a good answer, 0 for a bad one, or between.

        Raises:
            UsageError: a grade is not between 0 and 1.
        """
        odds = self.promised / (1 - self.promised)
        logs, graded = list(self.logs), self.graded
        for grade in grades:
            if not 0 <= grade <= 1:
                raise UsageError("a grade lies between 0 and 1")
            # Fair at the promised quality: on average, bad answers win as much as good
            # ones lose. Logarithms, since the product of many factors would overflow.
            for place, bet in enumerate(BETS):
                logs[place] += log(1 + bet * ((1 - grade) * odds - grade))
            graded += 1
        return Drift(promised=self.promised, graded=graded, logs=tuple(logs))


def first_alarm(
    promised: float, grades: Iterable[float], alpha: float = ALPHA, *, least: int = 1
) -> int | None:
    """Return the number of grades until the first alarm; None: there is none.

    Args:
        promised: as ``Drift``.
        grades: as ``Drift.after``.
        alpha: as ``Drift.alarm``.
        least: an alarm before this number of grades is ignored.

    Raises:
        UsageError: as ``Drift``.
    """
    drift = Drift(promised=promised)
    for grade in grades:
        drift = drift.after((grade,))
        if drift.graded >= least and drift.alarm(alpha):
            return drift.graded
    return None
