"""How each of those who may answer is asked: an enclave, a house's server, this model.

What ``decide`` kept home reaches the local model only: ``Enclave.ask`` cannot be called
without the ``Allowed`` that such a decision does not carry.
"""

import re
from collections.abc import AsyncGenerator, Awaitable, Mapping, Sequence
from contextlib import aclosing, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from curtilage.attest.verified_key import VerifiedKey
from curtilage.client.answer import (
    Answerer,
    AnswerEvent,
    Delta,
    Finished,
    Phase,
    Provenance,
    doubt_note,
)
from curtilage.client.answering.observer import Observer
from curtilage.client.answering.writers import Tells
from curtilage.client.audit.record import Outcome
from curtilage.client.audit.recorder import QueryRecorder
from curtilage.client.consent import Outbound
from curtilage.client.conversation.pinned import PinnedConversations
from curtilage.client.errors import (
    UNMET,
    AnswererError,
    DraftRejectedError,
    EnclaveError,
    FailureReason,
    OnPremisesUnavailableError,
)
from curtilage.client.local.ladder import begun_within, shortened_to_fit
from curtilage.client.options import Mode, Require
from curtilage.client.parts import ClientParts
from curtilage.client.pseudonyms.restore import AnswerRestorer
from curtilage.client.query import Query
from curtilage.client.remote.cover import CoverTraffic
from curtilage.client.remote.enclave import AttemptRecorded, Enclave
from curtilage.client.remote.requests import ChatRequest
from curtilage.client.route import AskEnclave, AskLocal, AskOnPremises, Plan, Way, Ways
from curtilage.client.routing.utility import Reason
from curtilage.client.routing.verifier import Verdict, Verifier
from curtilage.policy.decision.decide import Decision
from curtilage.policy.decision.permit import PermitDesk, PermitRefusedError
from curtilage.policy.decision.tiers import RoutingClass, Tier, TierKind
from curtilage.policy.expectations import requirement_for

ANSWERERS: Final[Mapping[TierKind, Answerer]] = {
    TierKind.IN_PROCESS: Answerer.LOCAL,
    TierKind.ON_PREMISES: Answerer.ON_PREMISES,
    TierKind.ATTESTED: Answerer.ENCLAVE,
}
_JSON: Final = re.compile(r"\bjson\b", re.IGNORECASE)
_FENCE: Final = "```"


@dataclass(frozen=True, slots=True)
class Chosen:
    """One tier that is asked, and what led to it.

    Attributes:
        tier: the tier.
        ways: all that might have been asked.
        plan: in which order they are asked, and why.
        failures: of those that were asked before it.
        draft: what it writes is judged while it is written.
        hedge: it is asked since another is late.
        last: nobody is left to be asked after it.
    """

    tier: Tier
    ways: Ways
    plan: Plan
    failures: tuple[AnswererError, ...]
    draft: bool = False
    hedge: bool = False
    last: bool = True

    @property
    def way(self) -> Way:
        """How it is asked."""
        return self.ways.by_tier[self.tier.id]

    @property
    def phase(self) -> Phase:
        """What is done while nothing has come of it."""
        match self.way:
            case AskEnclave():
                return Phase.ASKING_ENCLAVE
            case AskOnPremises():
                return Phase.ASKING_ON_PREMISES
            case AskLocal():
                return Phase.ASKING_HERE

    @property
    def answerer(self) -> Answerer:
        """What it is called where answers are told."""
        return ANSWERERS[self.tier.kind]

    @property
    def fallback(self) -> FailureReason | None:
        """Why one that might have come before does not answer."""
        return self.failures[0].reason if self.failures else self.plan.fallback

    @property
    def _why(self) -> str:
        """Why this tier answers; empty where nobody chose."""
        if not self.plan.why:
            return ""
        if self.failures:
            # It was not another's failure that sent a question on which is too hard.
            rejected = self.fallback is FailureReason.DRAFT_REJECTED
            return Reason.HARD if rejected else Reason.UNAVAILABLE
        if self.hedge:
            return Reason.FASTER
        return Reason.EASY if self.draft else self.plan.why

    def provenance(
        self,
        decision: Decision,
        *,
        model: str,
        floor: RoutingClass,
        key: VerifiedKey | None = None,
        recorded: bool,
        home_model: str = "",
        demonstration: bool = False,
    ) -> Provenance:
        """Say where the answer comes from."""
        way = self.way
        rewritten = way.rewritten if isinstance(way, AskEnclave) else None
        return Provenance(
            route=self.answerer,
            model=model,
            classes=decision.classes,
            rule=decision.rule,
            reason=decision.reason,
            policy_digest=decision.policy_digest,
            uncertain=decision.uncertain,
            verdict_id=None if key is None else key.verdict_id,
            evidence=None if key is None else key.tee,
            fallback=self.fallback,
            recorded=recorded,
            deidentified=() if rewritten is None else rewritten.counts,
            obstacle=way.obstacle if isinstance(way, AskLocal) else None,
            boundary="" if isinstance(way, AskOnPremises) else way.boundary,
            tier=self.tier.id,
            why=self._why,
            home_model=home_model,
            demonstration=demonstration,
            floor="" if floor is RoutingClass.PUBLIC else floor.value,
        )


class Doors:
    """The doors of one client.

    Args:
        parts: what it is made of.
        desk: where permits are minted and redeemed.
        enclave: the way out, if there is one.
        cover: covers what is answered without it.
        pinned: the conversations that stay.
        observer: measures their answers.
    """

    def __init__(
        self,
        parts: ClientParts,
        desk: PermitDesk,
        enclave: Enclave | None,
        cover: CoverTraffic | None,
        *,
        pinned: PinnedConversations,
        observer: Observer,
    ) -> None:
        self._parts = parts
        self._desk = desk
        self._enclave = enclave
        self._cover = cover
        self._pinned = pinned
        self._observer = observer
        self._router = parts.router
        self._on_premises_servers = {
            tier: make(desk, self.now_ms) for tier, make in parts.on_premises.items()
        }

    async def close(self) -> None:
        """Free the model, and close every connection into the house."""
        await self._parts.local.close()
        for house in self._on_premises_servers.values():
            await house.close()

    async def _noted(
        self, query: Query, answer: AsyncGenerator[AnswerEvent], chosen: Chosen
    ) -> AsyncGenerator[AnswerEvent]:
        """Yield an answer, and remember it: it may come back as a turn."""
        way, here = chosen.way, chosen.ways.here
        left = isinstance(way, AskEnclave)
        if isinstance(way, AskEnclave):
            # Restored, an answer holds what was replaced on the way.
            here = None if way.rewritten is not None else False
        clears = chosen.ways.here is not True and not _was_kept_home(query, chosen)
        said: list[str] = []
        try:
            async with aclosing(answer) as events:
                async for event in events:
                    if clears:
                        self._pinned.clears(query)
                        clears = False
                    # A note of ours is no part of the turn: it is taken off again
                    # where the answer comes back as one.
                    if isinstance(event, Delta) and not event.note:
                        said.append(event.text)
                    yield event
        finally:
            # Whoever stops reading has read what came.
            if here is not None:
                self._pinned.answered(query, "".join(said), here=here, left=left)

    async def answered(
        self,
        recorder: QueryRecorder,
        chosen: "Chosen",
        query: Query,
        tells: Tells,
    ) -> AsyncGenerator[AnswerEvent]:
        """Ask the one that was chosen, and remember its answer as a turn."""
        tells.phase = chosen.phase
        match chosen.way:
            case AskEnclave() as way:
                answer = self._from_enclave(recorder, chosen, way, query, tells)
            case AskOnPremises() as way:
                answer = self._on_premises(recorder, chosen, way, query, tells)
            case AskLocal():
                answer = self._at_home(recorder, chosen, query, tells)
        router, estimate = self._router, chosen.plan.estimate
        following = (
            router.follow(chosen.tier, estimate) if router and estimate else None
        )
        answering = self._observer.asks(chosen.tier)
        with following or nullcontext():
            async with aclosing(self._noted(query, answer, chosen)) as events:
                async for event in events:
                    if following is not None:
                        following.saw(event)
                    if isinstance(event, Finished):
                        answering.finished(event.prompt_tokens, event.completion_tokens)
                    else:
                        answering.text()
                    yield event

    async def _from_enclave(
        self,
        recorder: QueryRecorder,
        chosen: "Chosen",
        step: AskEnclave,
        query: Query,
        tells: Tells,
    ) -> AsyncGenerator[AnswerEvent]:
        """Seal and send what ``step.allowed`` is about; yield what may be shown."""
        # No way out, or none that could be believed: as good as one that failed.
        if self._enclave is None:
            raise EnclaveError(self._parts.absent)
        sent = step.sent_of(query)
        agreed = await self._require_consent(step, sent, query, chosen.tier)
        rewritten = step.rewritten
        restorer = None if rewritten is None else AnswerRestorer(rewritten.vault.values)
        # As it was asked, too: what data need, their pseudonyms need.
        classes = {*recorder.decision.classes, *step.classes}
        part = step.narrowed
        request = ChatRequest(
            allowed=step.allowed,
            tier=chosen.tier.id,
            payload=sent.payload(),
            records=(
                recorder
                if part is None
                else recorder.of_part(
                    self._parts.policy, part.inspection, part.decision
                )
            ),
            requirement=requirement_for(self._parts.policy, classes),
        )
        async with aclosing(self._enclave.ask(request)) as steps:
            async for event in steps:
                # The record is on the disk and nothing is sealed yet: from here on it
                # is true that the enclave answers, and which.
                if isinstance(event, AttemptRecorded):
                    key = event.key
                    # What a person agreed to is that this release reads it; a key may
                    # have been renewed while he thought.
                    if agreed is not None and agreed != release_of(key):
                        raise EnclaveError(FailureReason.UNMET_CONSENT)
                    # Not before: what was only decided, shown or refused has not left.
                    self._pinned.leaves(sent, step.allowed.routing_class)
                    if self._router is not None:
                        shape = key.transport
                        self._router.ready(
                            chosen.tier,
                            life_s=(
                                key.expires_at - self._parts.clock()
                            ).total_seconds(),
                            period_ms=shape.period_ms,
                            first_bucket=shape.frames_of(0) if shape.buckets else 0,
                            buckets=shape.buckets,
                        )
                    tells.tell(
                        chosen.provenance(
                            recorder.decision,
                            model=release_of(key),
                            floor=query.options.floor,
                            key=key,
                            recorded=True,
                        )
                    )
                elif restorer is None:
                    yield event
                else:
                    for restored in restorer.push(event):
                        yield restored

    def asks_about(self, routing_class: RoutingClass) -> bool:
        """Tell whether a person is to agree before a query of a class leaves."""
        plan = self._parts.policy.routing
        return plan is not None and plan.asks_first(routing_class)

    async def _require_consent(
        self, way: AskEnclave, sent: Query, asked: Query, tier: Tier
    ) -> str | None:
        """Ask whoever is to agree, where the policy wants that.

        Returns the release that he agreed to, or None where nobody had to.

        Raises:
            EnclaveError: nobody agreed, so nothing is sealed.
        """
        if not self.asks_about(way.allowed.routing_class):
            return None
        consents = self._parts.consents
        if consents is not None:
            shown = await self.outbound(way, sent, asked, tier)
            answer = consents(shown)
            if (await answer if isinstance(answer, Awaitable) else answer) is True:
                return shown.release
        raise EnclaveError(FailureReason.UNMET_CONSENT)

    async def _verified_key(self) -> VerifiedKey:
        if self._enclave is None:
            raise EnclaveError(self._parts.absent)
        return await self._enclave.verified_key()

    async def outbound(
        self, way: AskEnclave, sent: Query, asked: Query, tier: Tier
    ) -> Outbound:
        """Say what would be sealed, and to whom; see ``Session.outbound``.

        Args:
            way: the permission.
            sent: what would be sent.
            asked: what was asked.
            tier: who would be told.
        """
        key = await self._verified_key()
        return Outbound(
            payload=sent.payload().content,
            payload_digest=way.allowed.payload_digest,
            routing_class=way.allowed.routing_class,
            tier=tier.id,
            release=release_of(key),
            verdict_id=key.verdict_id,
            evidence=key.tee,
            deidentified=() if way.rewritten is None else way.rewritten.counts,
            boundary=way.boundary,
            token=asked.options.consent,
        )

    async def _on_premises(
        self,
        recorder: QueryRecorder,
        chosen: "Chosen",
        way: AskOnPremises,
        query: Query,
        tells: Tells,
    ) -> AsyncGenerator[AnswerEvent]:
        """Tell a server in the house what ``way.allowed`` is about."""
        house = self._on_premises_servers[chosen.tier.id]
        # On the disk first, as for what leaves: whoever reads the trail must find every
        # machine that was told.
        await recorder.sent_on_premises(way.allowed)
        tells.tell(
            chosen.provenance(
                recorder.decision,
                model=house.model_id,
                floor=query.options.floor,
                recorded=True,
            )
        )
        self.cover_unless_sent(query, recorder.decision, chosen.failures)
        try:
            permit = self._desk.mint_on_premises(
                way.allowed,
                tier=chosen.tier.id,
                server_digest=house.digest,
                attempt=len(chosen.failures),
                now_ms=self.now_ms(),
            )
            async with aclosing(house.generate(permit, query)) as events:
                async for event in events:
                    yield event
        except PermitRefusedError as refused:
            # As with an enclave: another may answer, and this one was told nothing.
            raise OnPremisesUnavailableError(
                FailureReason.NOT_PERMITTED, code=refused.refusal.value
            ) from None

    def now_ms(self) -> int:
        """Return the time as permits have it, in milliseconds."""
        return int(self._parts.clock().timestamp() * 1000)

    async def _at_home(
        self,
        recorder: QueryRecorder,
        chosen: "Chosen",
        query: Query,
        tells: Tells,
    ) -> AsyncGenerator[AnswerEvent]:
        # Nothing of what follows knows a way out: this model runs in this process.
        recorded = await recorder.stays(Outcome.LOCAL, chosen.fallback)
        # Nothing is waited for between this and ``generate``: another model may take
        # over meanwhile, and what is told is what answers.
        router = self._router
        draft = chosen.plan.draft
        if chosen.draft and (
            router is None
            or draft is None
            or router.unfit(draft.thresholds) is not None
        ):
            # The thresholds are another's: of this one nobody knows how good it is.
            raise DraftRejectedError
        tells.tell(
            chosen.provenance(
                recorder.decision,
                model=self._parts.local.model_id,
                floor=query.options.floor,
                recorded=recorded,
                home_model=self._parts.home_model(),
                demonstration=self._parts.demonstration,
            )
        )
        if not chosen.draft:  # of a draft it is not yet known that it answers
            self.cover_unless_sent(query, recorder.decision, chosen.failures)
        verifier = None
        if router is not None and chosen.ways.here:
            verifier = router.doubts(query)
        signals = chosen.draft or verifier is not None
        answer = self._here(chosen, query, tells, signals=signals)
        if verifier is not None:
            answer = _doubted(answer, verifier, formatted=_wants_json(query))
        async with aclosing(answer) as events:
            async for event in events:
                yield event

    def _here(
        self, chosen: "Chosen", query: Query, tells: Tells, *, signals: bool
    ) -> AsyncGenerator[AnswerEvent]:
        """Have the local model answer; where it is the last one, as far as it can.

        ``signals``: with how sure the model is, for who judges the answer.
        """
        router = self._router
        generate = self._parts.local.generate
        if signals:
            generate = partial(generate, signals=True)
        estimate = chosen.plan.estimate
        if chosen.draft:
            return generate(query)
        if not chosen.last:
            if router is None or router.plan.observe or estimate is None:
                return generate(query)
            first_s = router.plan.local.stall_s + router.begins_s(chosen.tier, estimate)
            return begun_within(first_s, generate(query))
        # Alike with and without a section ``routing``, and while it only observes.
        plan = self._parts.policy.routing
        if plan is not None and not plan.local.shortens:
            return generate(query)

        def left_out(count: int) -> None:
            if tells.told is not None:
                tells.tell(replace(tells.told, left_out=count))

        return shortened_to_fit(generate, query, left_out)

    def cover_unless_sent(
        self, query: Query, decision: Decision, failures: Sequence[AnswererError]
    ) -> None:
        """Cover a query of which nothing was sent, once."""
        sent = any(
            isinstance(each, EnclaveError) and each.reason not in UNMET
            for each in failures
        )
        covered = any(isinstance(each, OnPremisesUnavailableError) for each in failures)
        if not sent and not covered:
            self.cover_for(query, decision)

    def cover_for(self, query: Query, decision: Decision) -> None:
        """Have a cover request sent for a query that nothing was sent of.

        One that is too large could not have left, whatever it says.
        """
        policy = self._parts.policy
        if policy.transport.cover is not None and not policy.wants_cover(decision):
            return
        # Its number of bytes is all that goes any further. Half a character has none,
        # and could not have left either.
        if self._cover is not None and self._enclave is not None:
            with suppress(EnclaveError, UnicodeError):
                length = len(query.payload().content)
                self._cover.answered_here(self._enclave.size_class(length))


def _wants_json(query: Query) -> bool:
    """Tell whether a message asks for JSON; often an earlier one, of the program."""
    return any(
        _JSON.search(each.content)
        for each in query.messages
        if each.role not in {"assistant", "tool"}
    )


async def _doubted(
    answer: AsyncGenerator[AnswerEvent], verifier: Verifier, *, formatted: bool
) -> AsyncGenerator[AnswerEvent]:
    """Yield an answer; behind one that would do as no draft, a line that says so.

    One that was cut, or is of a part of the question, is not judged. ``formatted``: a
    program reads it, and a line would break it.
    """
    begins = ""
    async with aclosing(answer) as events:
        async for event in events:
            if isinstance(event, Delta):
                if not event.note:
                    verifier.feed(event)
                    if len(begins) < len(_FENCE):
                        begins = (begins + event.text).lstrip()
                yield replace(event, signals=())
                continue
            cut = event.finish_reason != "stop"
            doubtful = not cut and verifier.end(event) is Verdict.REJECT
            formatted |= verifier.wants_json or begins.startswith(("{", "[", _FENCE))
            if doubtful and not formatted:
                yield doubt_note()
            yield replace(event, doubtful=doubtful)


def _was_kept_home(query: Query, chosen: Chosen) -> bool:
    """Return whether the caller kept a query local that could have been sent."""
    asked = query.options
    return (
        asked.mode is Mode.HOME
        or asked.require not in {None, Require.ENCLAVE}
        or any(each.reason is FailureReason.UNMET_CONSENT for each in chosen.failures)
    )


def release_of(key: VerifiedKey) -> str:
    """Return the name of what runs in the enclave: release and version."""
    return f"{key.release_name}/{key.release_version}"
