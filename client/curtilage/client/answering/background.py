"""Work that no answer waits for: probes of a failing enclave, and cover requests."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from time import monotonic
from typing import Final

from curtilage.client.answering.attempt import Case
from curtilage.client.answering.observer import Observer
from curtilage.client.errors import (
    AnswererError,
    EnclaveError,
    OnPremisesUnavailableError,
)
from curtilage.client.parts import ClientParts
from curtilage.client.remote.cover import CoverTraffic
from curtilage.client.remote.enclave import Enclave
from curtilage.client.remote.reasons import Unmet
from curtilage.client.routing.router import Following
from curtilage.policy.decision.tiers import TierKind
from curtilage.policy.document.model import Policy

LOOK_S: Final = 30.0
"""Seconds between two probes of a failing enclave for which no breaker is open."""


class Background:
    """The tasks that no answer waits for; closing the session does."""

    def __init__(self) -> None:
        # The event loop only has weak references to its tasks: without this set, one
        # could be collected before it ends.
        self._running: set[asyncio.Task[object]] = set()

    def run(self, work: Coroutine[None, None, object]) -> asyncio.Task[object]:
        """Run a task."""
        task = asyncio.ensure_future(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def settle(self) -> None:
        """Wait until all have ended."""
        await asyncio.gather(*self._running, return_exceptions=True)

    def close(self) -> None:
        """Cancel those that still run."""
        for task in self._running:
            task.cancel()


class Probes:
    """Finds out whether the enclave can be reached."""

    def __init__(
        self,
        parts: ClientParts,
        enclave: Enclave | None,
        observer: Observer,
        background: Background,
        *,
        reachable: Callable[[], object] | None = None,
    ) -> None:
        self._router = parts.router
        self._enclave = enclave
        self._observer = observer
        self._background = background
        self._reachable = reachable
        self._running = set[asyncio.Task[object]]()
        self._looked_s: float | None = None
        self._attested = [
            each.id
            for each in parts.policy.rulebook.tiering.tiers
            if each.kind is TierKind.ATTESTED
        ]

    async def look(self) -> None:
        """Probe: the first time, and then while the enclave fails.

        Every ``LOOK_S``, and as soon as its breaker permits an attempt.
        """
        enclave = self._enclave
        # A probe that runs already will find out, and a half-open breaker only lets one
        # pass.
        if enclave is None or self._running:
            return
        # A broken answer counts as a failure but opens no breaker by itself, so that
        # breakers alone would never cause a probe.
        failing = not self._observer.failing.keys().isdisjoint(self._attested)
        looked_s = self._looked_s
        due = looked_s is None or (failing and monotonic() - looked_s >= LOOK_S)
        if self._router is not None:
            for probe in self._router.probes(first=due):
                await self._probed(enclave, probe)
        elif due:
            with suppress(EnclaveError):
                await self._found(enclave)
        if due:
            self._looked_s = monotonic()

    def begin(self) -> None:
        """Begin the probes that are due, next to the queries."""
        if self._enclave is None or self._router is None:
            return
        for probe in self._router.probes():
            task = self._background.run(self._probed(self._enclave, probe))
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    def stop(self) -> None:
        """Cancel running probes."""
        for probe in self._running:
            probe.cancel()

    async def _probed(self, enclave: Enclave, probe: Following) -> None:
        # ``probe`` is the inner one: it has to record the error before that is
        # suppressed.
        with suppress(EnclaveError), probe:
            await self._found(enclave)
            probe.there()
            if self._reachable is not None:
                self._reachable()

    async def _found(self, enclave: Enclave) -> None:
        """Probe, and note the result; raises if the enclave is not reached."""
        try:
            await enclave.probe()
        except EnclaveError as error:
            # All attested tiers are reached through one ``Enclave``, so they fail
            # together.
            for tier in self._attested:
                self._observer.missed(tier, error.reason)
            raise
        for tier in self._attested:
            self._observer.there(tier)


class Covering:
    """Has a cover request sent for a query of which nothing was sent.

    Silence would reveal that a query was kept local.
    """

    def __init__(
        self, policy: Policy, traffic: CoverTraffic | None, enclave: Enclave | None
    ) -> None:
        self._policy = policy
        self._traffic = traffic
        self._enclave = enclave

    def unless_sent(self, case: Case, failures: Sequence[AnswererError]) -> None:
        """Cover a query if none of the failed attempts sent anything or covered it."""
        # An ``Unmet`` requirement stops an attempt before anything is sealed, so an
        # observer has seen no request for it.
        sent = any(
            isinstance(each, EnclaveError) and not isinstance(each.reason, Unmet)
            for each in failures
        )
        # The on-premises tier covers a query before it asks its server. A second cover
        # request would show that one query had two attempts.
        covered = any(isinstance(each, OnPremisesUnavailableError) for each in failures)
        if not sent and not covered:
            self.of(case)

    def of(self, case: Case) -> None:
        """Cover a query.

        One that is too large could not have been sent, whatever it says.
        """
        policy = self._policy
        decision = case.recorder.decision
        if policy.transport.cover is not None and not policy.wants_cover(decision):
            return
        if self._traffic is None or self._enclave is None or case.payload is None:
            return
        with suppress(EnclaveError):
            self._traffic.answered_here(self._enclave.size_class(case.payload))
