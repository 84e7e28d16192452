"""The shared dependencies of all requests, assembled once."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from curtilage.enclave_server.answer.pacing import LOOP_TIMER, Timer
from curtilage.enclave_server.answer.run import AnswersChallenges, AnswersChat
from curtilage.enclave_server.config import Limits
from curtilage.enclave_server.ohttp.chat import ChatLimits
from curtilage.enclave_server.ohttp.gateway import Terms
from curtilage.enclave_server.ohttp.keys import KeyRing, Published
from curtilage.enclave_server.telemetry import Counters, Reason
from curtilage.wire.shaping import TransportParameters


class PublishesBundle(Protocol):
    """Holds the current bundle; see ``bundle.BundleKeeper``.

    Attributes:
        failing: whether the last renewal failed.
    """

    failing: bool

    def published(self, now: datetime) -> Published | None:
        """Return what may be served now; None once it has expired."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestContext:
    """Everything that a request may need.

    Attributes:
        keys: HPKE keys, shared with the keeper that rotates them.
        bundles: the current bundle.
        model: answers.
        model_name: the model's public name.
        counters: counts events.
        limits: every bound.
        chat_limits: bounds of one chat request.
        transport: how answers are shaped; that of the loaded release.
        clock: aware UTC.
        timer: the clock of frames.
        challenges: answers challenges, or None.
        failing: returns why no engine answers at the moment, or None.
        sweep: called after each exchange, to collect reference cycles: a request must
            not remain in one until the next collection. Our own objects form none,
            and the tests check them without it.
    """

    keys: KeyRing
    bundles: PublishesBundle
    model: AnswersChat
    model_name: str
    counters: Counters
    limits: Limits
    chat_limits: ChatLimits
    transport: TransportParameters
    clock: Callable[[], datetime]
    timer: Timer = LOOP_TIMER
    challenges: AnswersChallenges | None = None
    failing: Callable[[], Reason | None] = lambda: None
    sweep: Callable[[], object] = lambda: None

    def terms(self, now: datetime) -> Terms:
        """Return the values that decide about a request that is opened now."""
        challenges, transport = self.challenges, self.transport
        return Terms(
            chat=self.chat_limits,
            transport=transport,
            now=now,
            challenge_bucket=(
                None if challenges is None else challenges.shape(transport).bucket
            ),
        )
