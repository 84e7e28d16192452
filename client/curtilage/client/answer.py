"""An answer: its pieces as they come, the whole at the end, and where it is from.

Knows neither how the pieces are made nor what they say.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from enum import StrEnum

from curtilage.client.errors import FailureReason


class Answerer(StrEnum):
    """Who answered a query."""

    LOCAL = "local"
    HOUSE = "house"
    ENCLAVE = "enclave"


class Obstacle(StrEnum):
    """Why a query stays as it is, and so at home; a closed set, safe to tell."""

    NOTHING_FOUND = "nothing_found"
    MARK_IN_SOURCE = "mark_in_source"
    OTHER_VIEW = "other_view"
    ACROSS_TEXTS = "across_texts"
    NOT_CONTENT = "not_content"
    OVERLAP = "overlap"
    NO_STAND_IN = "no_stand_in"
    STOP_STRING = "stop_string"
    LOGPROBS = "logprobs"
    STILL_FOUND = "still_found"
    NAME_LEFT = "name_left"


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """A piece of the answer.

    Attributes:
        text: what to append.
        logprobs: (token text, log-probability) of each token; empty unless asked.
    """

    text: str = field(repr=False)
    logprobs: tuple[tuple[str, float], ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The end of a complete answer.

    Attributes:
        finish_reason: ``stop`` or ``length``.
        prompt_tokens: tokens of the question.
        completion_tokens: tokens of the answer.
        unknown_tokens: pseudonyms in the answer that were not sent; they stand in
            it as they came.
        receipted: the enclave signed a receipt for it, which was verified.
    """

    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    unknown_tokens: int = 0
    receipted: bool = False


AnswerEvent = Delta | Finished


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Where an answer comes from, known before its first word.

    Attributes:
        route: who answers.
        model: what answers: the local model's name, or the release that the
            enclave's evidence names; never what an answer says of itself.
        classes: data classes found in the query, sorted.
        uncertain: what could not be known of it, sorted.
        rule: id of the rule that decided.
        reason: that rule's reason, as the policy's author wrote it.
        policy_digest: ``sha256:…`` of the policy in force.
        verdict_id: the evidence relied upon, when the enclave answers.
        evidence: its kind, such as ``sev-snp``; behind one that begins with
            ``emulated-`` stands no hardware.
        fallback: why the tier that was chosen first does not answer.
        recorded: whether the audit trail holds this; what leaves always is in
            it, an answer of this machine is given even if that failed.
        deidentified: how many values of each class left as pseudonyms, sorted;
            empty where the query left as it was, or stayed.
        obstacle: why a query whose names should have been replaced stayed.
        tier: the policy's name of where it is answered.
        why: why that tier was chosen, where the policy has a ``routing:`` section;
            a member of ``routing.utility.Reason``.
        boundary: of a conversation of which a turn had to stay: how much of it left
            (``boundary.ladder.Rung``), or why none did (``NotPossible``).
    """

    route: Answerer
    model: str
    classes: tuple[str, ...]
    rule: str
    reason: str
    policy_digest: str
    uncertain: tuple[str, ...] = ()
    verdict_id: str | None = None
    evidence: str | None = None
    fallback: FailureReason | None = None
    recorded: bool = False
    deidentified: tuple[tuple[str, int], ...] = ()
    obstacle: Obstacle | None = None
    tier: str = ""
    why: str = ""
    boundary: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A whole answer, and where it came from.

    Attributes:
        text: the answer.
        provenance: who answered, and why it was allowed to.
        finished: finish reason and token counts.
        logprobs: (token text, log-probability) pairs when asked for.
    """

    text: str = field(repr=False)
    provenance: Provenance
    finished: Finished
    logprobs: tuple[tuple[str, float], ...] = field(default=(), repr=False)

    @property
    def route(self) -> Answerer:
        """Who answered."""
        return self.provenance.route

    @property
    def classes(self) -> tuple[str, ...]:
        """The data classes found in the query."""
        return self.provenance.classes

    @property
    def rule(self) -> str:
        """The id of the rule that decided."""
        return self.provenance.rule

    @property
    def policy_digest(self) -> str:
        """The digest of the policy in force."""
        return self.provenance.policy_digest


class AnswerStream:
    """One answer as it is made: iterate for pieces, then read the rest.

    ``provenance`` is known once ``begin()`` returned or the first piece came;
    ``answer`` after the last piece. Closing it stops the model.
    """

    def __init__(
        self, events: "Callable[[AnswerStream], AsyncGenerator[AnswerEvent]]"
    ) -> None:
        self._events = events(self)
        self._waiting: AnswerEvent | None = None
        self._pieces: list[Delta] = []
        self._finished: Finished | None = None
        self._provenance: Provenance | None = None

    async def begin(self) -> Provenance:
        """Wait until somebody began to answer.

        Raises:
            ClientError: no answer is possible, or none is allowed.
        """
        # The first event, taken ahead: by then the session has said who answers, which
        # must be told before the text is (an HTTP head, a line on a terminal).
        if self._waiting is None and not self._pieces and self._finished is None:
            self._waiting = await anext(self._events)
        return self.provenance

    async def __aiter__(self) -> AsyncGenerator[Delta]:
        """Yield the pieces of the answer.

        Raises:
            ClientError: as ``begin``; also when the answer was cut.
        """
        await self.begin()
        # Whoever leaves in the middle stops the model, too.
        async with aclosing(self._events):
            event, self._waiting = self._waiting, None
            while event is not None:
                if isinstance(event, Delta):
                    self._pieces.append(event)
                    yield event
                else:
                    self._finished = event
                event = await anext(self._events, None)

    async def aclose(self) -> None:
        """Stop the answer, and the model that makes it."""
        await self._events.aclose()

    @property
    def told(self) -> Provenance | None:
        """Who answers and why; None before anybody began."""
        return self._provenance

    @property
    def provenance(self) -> Provenance:
        """The same; only after ``begin``."""
        if self._provenance is None:
            raise RuntimeError("nobody began to answer yet")
        return self._provenance

    @provenance.setter
    def provenance(self, value: Provenance) -> None:
        """Tell who answers; the session does, once it knows."""
        self._provenance = value

    @property
    def answer(self) -> Answer:
        """The whole answer; only after the last piece."""
        if self._finished is None:
            raise RuntimeError("the answer is not complete")
        return Answer(
            text="".join(piece.text for piece in self._pieces),
            provenance=self.provenance,
            finished=self._finished,
            logprobs=tuple(pair for piece in self._pieces for pair in piece.logprobs),
        )
