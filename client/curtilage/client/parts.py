"""The parts of a client: protocols with what the session needs of each.

The session connects them; ``assemble`` creates the product's, and tests pass in-memory
counterparts.
"""

import asyncio
import secrets
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Protocol

from curtilage.client.audit.recorder import SaveTranscript
from curtilage.client.audit.trail import AuditTrail
from curtilage.client.chat.answer import AnswerEvent, Delta
from curtilage.client.chat.options import RoutingOptions
from curtilage.client.chat.query import Query
from curtilage.client.conversation.kept import KeptConversations
from curtilage.client.errors import FailureReason
from curtilage.client.health import Detectors
from curtilage.client.local.reasons import LocalModelError
from curtilage.client.local.registry.catalogue import KnownModel, by_digest
from curtilage.client.remote.cover import CoverSettings
from curtilage.client.remote.draining import MAX_RUNNING, TIMER, Timer
from curtilage.client.remote.enclave import FIRST_EVENT_S, Notify, Transport
from curtilage.client.remote.key_store import KeyStore
from curtilage.client.remote.keys import KeyMirror, RandomBelow, Sleep
from curtilage.client.remote.reasons import EnclaveFailure
from curtilage.client.routing.router import Router
from curtilage.client.routing.trace import TraceLine
from curtilage.policy.decision.decide import Inspection
from curtilage.policy.decision.permit import OnPremisesPermit, PermitDesk
from curtilage.policy.document.model import Policy
from curtilage.policy.signing import Currency

if TYPE_CHECKING:  # optional steps, which are not imported until a query needs them
    from curtilage.client.consent import Consents
    from curtilage.client.local.named import NamedModels
    from curtilage.client.queue.deferred_store import DeferredStore


NO_NAMED: Final = "there are no local models by name"


class Inspects(Protocol):
    """The detectors, as the session uses them."""

    async def ainspect(self, query: Query) -> Inspection:
        """Return all findings in a query; a failure is a finding too."""
        ...

    def close(self) -> None:
        """Stop the detectors."""
        ...


class AnswersLocally(Protocol):
    """The local model, as the session uses it."""

    @property
    def model_id(self) -> str:
        """The model's name for people."""
        ...

    @property
    def context_tokens(self) -> int | None:
        """Maximum tokens of question and answer together; None: not known."""
        ...

    @property
    def digests(self) -> tuple[str, str | None] | None:
        """SHA-256 of its file and, once it is loaded, of its chat template, hex.

        None: there is no model.
        """
        ...

    def generate(
        self, query: Query, *, signals: bool = False
    ) -> AsyncGenerator[AnswerEvent]:
        """Answer a query on this machine.

        Args:
            query: the query.
            signals: report for each token how certain the model was, for a verifier.

        Raises:
            LocalUnavailableError: it cannot.
        """
        ...

    async def close(self) -> None:
        """Free the model."""
        ...


class AsksOnPremises(Protocol):
    """An on-premises server, as the session uses it."""

    @property
    def model_id(self) -> str:
        """The model's name for people."""
        ...

    @property
    def digest(self) -> bytes:
        """The server's identity in a permit, 32 bytes."""
        ...

    def generate(
        self, permit: OnPremisesPermit, query: Query
    ) -> AsyncGenerator[AnswerEvent]:
        """Ask it.

        Raises:
            OnPremisesUnavailableError: it cannot answer, or did not.
        """
        ...

    async def close(self) -> None:
        """Close every connection."""
        ...


OnPremises = Callable[[PermitDesk, Callable[[], int]], AsksOnPremises]
"""Creates the connection to a server, from a desk and a clock in milliseconds."""


class UnavailableLocal:
    """A placeholder for a missing local model, with the reason.

    Attributes:
        reason: what is missing, and what to do.
        model_id: a placeholder for the model's name.
        context_tokens: a value that no query can exceed.
        digests: of a known model that is not here yet; None: of no model.
    """

    model_id = "none"
    context_tokens: int | None = None
    digests: tuple[str, str | None] | None = None

    def __init__(self, reason: str, *, sha256: str | None = None) -> None:
        self.reason = reason
        self.digests = None if sha256 is None else (sha256, None)

    async def generate(
        self, query: Query, *, signals: bool = False
    ) -> AsyncGenerator[AnswerEvent]:
        """Refuse.

        Raises:
            LocalModelError: always.
        """
        del query, signals
        for _ in ():  # makes this a generator, as a model's method is
            yield Delta(text="")
        raise LocalModelError(self.reason)

    async def close(self) -> None:
        """Do nothing."""


def known_model(local: AnswersLocally) -> KnownModel | None:
    """Return the catalogue's entry of a local model; None: it has none."""
    return None if local.digests is None else by_digest(local.digests[0])


def demonstrates(local: AnswersLocally) -> bool:
    """Return whether a local model only shows that the path works."""
    known = known_model(local)
    return known is not None and known.demonstration


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientParts:
    """The parts of a client; tests pass in-memory counterparts.

    Attributes:
        policy: the policy in force.
        inspector: the detectors.
        local: the local model; if there is none, ``UnavailableLocal``.
        transport: the connection to the relay, or None: everything is kept local.
        keys: the enclave's key, and the policy's requirements for it.
        audit: records each step; what cannot be recorded is not sent.
        absent: why there is no ``transport``.
        mirror: an independent copy of the enclave's key list, if the policy
            names one.
        cover: when to send cover requests, if the policy has any.
        advice: a sentence for the user about the configuration.
        first_s: how long to wait for an enclave's answer to begin.
        most_running: how many sealed exchanges may run at a time.
        clock: the time, aware UTC.
        timer: measures the pace of answers.
        sleep: waits until the enclave's key is renewed.
        below: randomness of that time.
        notify: takes messages for the user of this machine, such as that its clock
            is wrong; never text of a query.
        save_transcript: saves exchanges, for proving one later.
        on_premises: a factory for each on-premises server, by the id of its tier.
        router: chooses among the permitted tiers; None: what may be sent is sent.
        trace: writes a line about a query that was routed; called in a thread.
        named: the local models by name; None: there is only ``local``.
        parameters: returns the approximate number of the local model's; 0: not known.
        home_model: returns the rolled-out local model that would answer now, as in
            ``Provenance``; empty: none is rolled out.
        consents: asks the user for consent if the policy requires it; None: no user
            can be asked.
        queue: stores queries that no tier can answer just now, if permitted.
        kept: stores which conversations were kept local, across restarts; None: they
            are not stored. The session closes it.
        detectors: returns the state of the detectors' process.
        currency: the policy's signature, if one is required.
    """

    policy: Policy
    inspector: Inspects
    local: AnswersLocally
    transport: Transport | None
    keys: KeyStore
    audit: AuditTrail
    absent: FailureReason = EnclaveFailure.NOT_CONFIGURED
    mirror: KeyMirror | None = None
    cover: CoverSettings | None = None
    advice: str | None = None
    first_s: float = FIRST_EVENT_S
    most_running: int = MAX_RUNNING
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    timer: Timer = TIMER
    sleep: Sleep = asyncio.sleep
    below: RandomBelow = secrets.randbelow
    notify: Notify | None = None
    save_transcript: SaveTranscript | None = None
    on_premises: Mapping[str, OnPremises] = field(default_factory=dict[str, OnPremises])
    router: Router | None = None
    trace: Callable[[TraceLine], object] | None = None
    named: "NamedModels | None" = None
    parameters: Callable[[], int] = int
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

    def local_for(self, options: RoutingOptions) -> AnswersLocally:
        """Return the local model that a request asks for.

        Raises:
            LocalModelError: it was removed meanwhile.
        """
        if not options.local_model:
            return self.local
        # Never the usual one instead.
        if self.named is None:
            raise LocalModelError(NO_NAMED)
        return self.named.get(options.local_model)

    def now_ms(self) -> int:
        """Return the time of permits, in milliseconds since 1970."""
        return int(self.clock().timestamp() * 1000)
