"""Cover requests, so that silence does not reveal that a query was kept local."""

from collections.abc import Sequence
from contextlib import suppress

from curtilage.client.answering.attempt import Case
from curtilage.client.errors import (
    AnswererError,
    EnclaveError,
    OnPremisesUnavailableError,
)
from curtilage.client.remote.cover import CoverTraffic
from curtilage.client.remote.enclave import Enclave
from curtilage.client.remote.reasons import Unmet
from curtilage.policy.document.model import Policy


class Covering:
    """Has a cover request sent for a query of which nothing was sent."""

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
