"""What a client is made of: what the session needs of each part, and no more.

The session joins them; ``assemble`` makes those of the product, tests put in-memory
counterparts here.
"""

import asyncio
import secrets
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

from curtilage.client.answer import AnswerEvent, Delta
from curtilage.client.audit.recorder import SaveTranscript
from curtilage.client.audit.trail import AuditTrail
from curtilage.client.conversation.kept import KeptConversations
from curtilage.client.errors import FailureReason, LocalUnavailableError
from curtilage.client.health import Detectors
from curtilage.client.local.catalogue import KnownModel, by_digest
from curtilage.client.query import Query
from curtilage.client.remote.cover import CoverSettings
from curtilage.client.remote.draining import MAX_RUNNING, TIMER, Timer
from curtilage.client.remote.enclave import FIRST_EVENT_S, Notify, Transport
from curtilage.client.remote.keys import KeyMirror, KeyStore, RandomBelow, Sleep
from curtilage.client.routing.router import Router
from curtilage.client.routing.trace import TraceLine
from curtilage.policy.decision.decide import Inspection
from curtilage.policy.decision.permit import HousePermit, PermitDesk
from curtilage.policy.document.model import Policy
from curtilage.policy.signing import Currency

if TYPE_CHECKING:  # optional steps, which are not imported until a query needs them
    from curtilage.client.consent import Consents
    from curtilage.client.queue.deferred_store import DeferredStore


class Inspects(Protocol):
    """What the session needs of the detectors."""

    async def ainspect(self, query: Query) -> Inspection:
        """Return everything found in a query; a failure is a finding too."""
        ...

    def close(self) -> None:
        """Stop the detectors."""
        ...


class AnswersLocally(Protocol):
    """What the session needs of the local model."""

    @property
    def model_id(self) -> str:
        """The model's name for people."""
        ...

    @property
    def context_tokens(self) -> int | None:
        """How long question and answer may be together; None: not known."""
        ...

    @property
    def digests(self) -> tuple[str, str | None] | None:
        """SHA-256 of its file and, once it is loaded, of its chat template, hex.

        None: there is none.
        """
        ...

    def generate(
        self, query: Query, *, signals: bool = False
    ) -> AsyncGenerator[AnswerEvent]:
        """Answer a query on this machine.

        Args:
            query: what is asked.
            signals: tell of each token how sure the model was, for who judges.

        Raises:
            LocalUnavailableError: it cannot.
        """
        ...

    async def close(self) -> None:
        """Free the model."""
        ...


class AsksInHouse(Protocol):
    """What the session needs of a server in the house."""

    @property
    def model_id(self) -> str:
        """The model's name for people."""
        ...

    @property
    def digest(self) -> bytes:
        """What a permit for this server names, 32 bytes."""
        ...

    def generate(
        self, permit: HousePermit, query: Query
    ) -> AsyncGenerator[AnswerEvent]:
        """Ask it.

        Raises:
            HouseUnavailableError: it cannot answer, or did not.
        """
        ...

    async def close(self) -> None:
        """Close every connection."""
        ...


House = Callable[[PermitDesk, Callable[[], int]], AsksInHouse]
"""Makes the door to a server, for a desk and a clock in milliseconds."""


class UnavailableLocal:
    """Stands where a local model would: says why there is none.

    Attributes:
        reason: what is missing and what to do.
        model_id: stands where a model's name would.
        context_tokens: nothing that anybody could exceed.
        digests: nothing that runs.
    """

    model_id = "none"
    context_tokens: int | None = None
    digests: tuple[str, str | None] | None = None

    def __init__(self, reason: str) -> None:
        self.reason = reason

    async def generate(
        self, query: Query, *, signals: bool = False
    ) -> AsyncGenerator[AnswerEvent]:
        """Refuse.

        Raises:
            LocalUnavailableError: always.
        """
        del query, signals
        for _ in ():  # makes this a generator, like a model's
            yield Delta(text="")
        raise LocalUnavailableError(self.reason)

    async def close(self) -> None:
        """Do nothing."""


def _utc_now() -> datetime:
    return datetime.now(UTC)


def known_model(local: AnswersLocally) -> KnownModel | None:
    """Return what the catalogue has of a local model; None: it is not in it."""
    return None if local.digests is None else by_digest(local.digests[0])


def demonstrates(local: AnswersLocally) -> bool:
    """Return whether a local model only shows that the path works."""
    known = known_model(local)
    return known is not None and known.demonstration


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientParts:
    """What a client is made of; tests put in-memory counterparts here.

    Attributes:
        policy: what may go where.
        inspector: the detectors.
        local: the local model; where there is none, ``UnavailableLocal``.
        transport: the way to the relay, or None: everything stays.
        keys: the enclave's key and what the policy demands of it.
        audit: where each step is recorded; what cannot be recorded does not leave.
        absent: why there is no ``transport``, where there is none.
        mirror: an independent copy of the enclave's key list, if the policy
            names one.
        cover: when to send cover requests, if the policy asks for any.
        advice: what a person should know of the configuration.
        first_s: how long to wait for an enclave's answer to begin.
        most_running: how many sealed exchanges may run at a time.
        clock: the time, aware UTC.
        timer: what the pace of answers is measured by.
        sleep: waits for the time at which the enclave's key is renewed.
        below: randomness of that time.
        notify: takes what the person at this machine should know, such as that its
            clock is off; never a word of a query.
        save_transcript: saves exchanges, to prove one later.
        houses: the way to each server in the house, by the id of its tier.
        router: chooses among those who may answer; None: what may leave leaves.
        trace: writes a line about a query that was routed; called in a thread.
        parameters: of the local model, about; 0: not known.
        home_model: says which rolled-out model of this machine would answer now, as
            ``Provenance``; empty: none is rolled out.
        consents: asks a person what the policy wants asked; None: nobody can be.
        queue: where questions wait that nobody can answer just now, if any may.
        kept: where the conversations that stayed are known after a restart; None: they
            are not. The session closes it.
        detectors: says how the detectors' process is.
        currency: the policy's signature, where one is demanded.
    """

    policy: Policy
    inspector: Inspects
    local: AnswersLocally
    transport: Transport | None
    keys: KeyStore
    audit: AuditTrail
    absent: FailureReason = FailureReason.NOT_CONFIGURED
    mirror: KeyMirror | None = None
    cover: CoverSettings | None = None
    advice: str | None = None
    first_s: float = FIRST_EVENT_S
    most_running: int = MAX_RUNNING
    clock: Callable[[], datetime] = _utc_now
    timer: Timer = TIMER
    sleep: Sleep = asyncio.sleep
    below: RandomBelow = secrets.randbelow
    notify: Notify | None = None
    save_transcript: SaveTranscript | None = None
    houses: Mapping[str, House] = field(default_factory=dict[str, House])
    router: Router | None = None
    trace: Callable[[TraceLine], object] | None = None
    parameters: int = 0
    home_model: Callable[[], str] = str
    consents: "Consents | None" = None
    queue: "DeferredStore | None" = None
    kept: KeptConversations | None = None
    detectors: Callable[[], Detectors] = Detectors
    currency: Currency | None = None

    @property
    def demonstration(self) -> bool:
        """Whether the local model only shows that the path works."""
        return demonstrates(self.local)

    def now_ms(self) -> int:
        """Return the time of permits, in milliseconds since 1970."""
        return int(self.clock().timestamp() * 1000)
