"""Detectors that also check the policy's signature, for one query or many."""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Protocol, Self

from curtilage.client.chat.query import Query
from curtilage.client.detection.inspection import Inspector
from curtilage.client.health import Detectors
from curtilage.policy.decision.decide import Inspection
from curtilage.policy.document.model import Policy
from curtilage.policy.signing import Currency, stale_finding


class InspectsMany(Protocol):
    """The detectors' interface for callers with many queries."""

    def inspect_many(self, queries: Sequence[Query]) -> Iterator[Inspection]:
        """Yield one inspection for each query, in order."""
        ...


def _utc_now() -> datetime:
    return datetime.now(UTC)


class CheckedInspector:
    """The detectors with the policy's signature, which is checked for each query.

    If a policy must be signed but is not, every inspection has an additional finding,
    ``uncertain.stale_policy``. A rule that no policy can omit then keeps the query
    local.

    Args:
        inspector: the detectors.
        currency: the required signature, or None if none is required.
        clock: the time, aware.
    """

    def __init__(
        self,
        inspector: Inspector,
        currency: Currency | None,
        clock: Callable[[], datetime] = _utc_now,
    ) -> None:
        self._inspector = inspector
        self._currency = currency
        self._clock = clock

    @classmethod
    def start(
        cls, policy: Policy, currency: Currency | None, *, spare: bool = False
    ) -> Self:
        """Start the detectors of a policy; takes a few seconds.

        Args:
            policy: determines what is searched for.
            currency: the signature that it must have, or None if none is required.
            spare: keep a second worker warm, which takes the memory of a process.
        """
        return cls(Inspector.start(policy, spare=spare), currency)

    @property
    def advice(self) -> str | None:
        """Advice from the detectors for the user, or None."""
        return self._inspector.advice

    @property
    def condition(self) -> Detectors:
        """The state of the detectors' process."""
        return self._inspector.condition

    @property
    def currency(self) -> Currency | None:
        """The required signature, or None if none is required."""
        return self._currency

    @property
    def problem(self) -> str | None:
        """Why the policy is not current, or None."""
        return None if self._currency is None else self._currency.problem(self._clock())

    def inspect(self, query: Query) -> Inspection:
        """Return everything found in a query; see ``Inspector.inspect``."""
        return self._checked(self._inspector.inspect(query))

    async def ainspect(self, query: Query) -> Inspection:
        """Return the same without blocking the event loop."""
        return self._checked(await self._inspector.ainspect(query))

    def inspect_many(self, queries: Sequence[Query]) -> Iterator[Inspection]:
        """Yield the results of ``inspect``, faster."""
        return map(self._checked, self._inspector.inspect_many(queries))

    def close(self) -> None:
        """Stop the detectors."""
        self._inspector.close()

    def _checked(self, inspection: Inspection) -> Inspection:
        if self.problem is None:
            return inspection
        return inspection.stricter(findings=[stale_finding()])
