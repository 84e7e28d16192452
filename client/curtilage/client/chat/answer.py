"""An answer: its pieces, the whole answer, and its provenance.

Knows neither how the pieces are generated nor what they say.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum, unique
from typing import Final, Self, cast

from typing_extensions import override

from curtilage.client.errors import FailureReason


class Answerer(StrEnum):
    """The kind of tier that answered a query."""

    LOCAL = "local"
    ON_PREMISES = "on_premises"
    ENCLAVE = "enclave"

    @classmethod
    @override
    def _missing_(cls, value: object) -> Self | None:
        # In answers queued by version 0.1.
        return cls("on_premises") if value == "house" else None


@unique
class Rung(StrEnum):
    """How much of the conversation is included; the most first."""

    SUMMARY = "summary"
    EXTRACT = "extract"
    CURRENT = "current"


@unique
class NotPossible(StrEnum):
    """Why a rung builds no query; a closed set without content."""

    NO_QUESTION = "no_question"
    ATTACHMENT = "attachment"
    NOT_PLAIN = "not_plain"
    STOP_STRING = "stop_string"
    CURRENT_TURN = "current_turn"
    LANGUAGE = "language"
    PROMPT = "prompt"
    REPEATS = "repeats"
    REFERS = "refers"
    NO_HISTORY = "no_history"
    NO_SUMMARY = "no_summary"
    SUMMARY_TELLS = "summary_tells"
    STILL_FOUND = "still_found"


class Obstacle(StrEnum):
    """Why names were not replaced, so a query is kept local; a closed set."""

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
class TokenSignal:
    """How certain the model was of one token, before temperature; never sent.

    Attributes:
        logprob: natural logarithm of the probability of the token that was drawn.
        margin: difference between the log-probabilities of the likeliest token and the
            second, 0 or more; the likeliest need not be the token that was drawn.
    """

    logprob: float = field(repr=False)
    margin: float = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    """A whole call of a tool, in an answer.

    Attributes:
        index: its position among the calls of the answer, from 0.
        name: of the tool.
        arguments: JSON, as the model wrote it.
    """

    index: int
    name: str = field(repr=False)
    arguments: str = field(repr=False)


Logprobs = tuple[tuple[str, float], ...]
"""(token, log-probability) of several tokens, in the order in which they were chosen. A
token may be a part of a character: its bytes are lone surrogates then (PEP 383), and
``bytes_of`` returns them."""


def token_of(data: bytes) -> str:
    """Return a token as ``Logprobs`` has it."""
    return data.decode("utf-8", "surrogateescape")


def bytes_of(token: str) -> bytes:
    """Return the bytes of a token of ``Logprobs``."""
    return token.encode("utf-8", "surrogateescape")


def token_said(text: str, data: object) -> str:
    """Return a token of an answer in OpenAI's format, as ``Logprobs`` has it.

    Args:
        text: its ``token``; of a part of a character it is only a mark.
        data: its ``bytes``; anything but a list of bytes says nothing.
    """
    listed = cast("list[object]", data) if isinstance(data, list) else []
    octets = [each for each in listed if type(each) is int and 0 <= each <= _BYTE]
    whole = bool(octets) and len(octets) == len(listed)
    return token_of(bytes(octets)) if whole else text


_BYTE: Final = 0xFF


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """A piece of the answer.

    Attributes:
        text: the text to append.
        logprobs: of each token; empty unless requested. The text of a token may come
            with a later one (a part of a character, what may begin a stop string), or
            never (a stop string, a call).
        tops: the likeliest tokens in the place of each of these; likewise.
        choice: to which of several answers it belongs, from 0.
        calls: of tools.
        tentative: it may be retracted: it belongs to a draft not yet judged.
        signals: of each token, for judging a draft; empty unless it is one.
        prompt_tokens: tokens of the question, with the first piece of an answer of
            the local model; 0: not known yet.
        note: written by the client and not by a model: a line about the answer.
    """

    text: str = field(repr=False)
    logprobs: Logprobs = field(default=(), repr=False)
    tops: tuple[Logprobs, ...] = field(default=(), repr=False)
    choice: int = 0
    calls: tuple[Called, ...] = ()
    tentative: bool = False
    signals: tuple[TokenSignal, ...] = field(default=(), repr=False)
    prompt_tokens: int = 0
    note: bool = False


_READING_NOTE: Final = re.compile(
    r"\s*\[read (?:about )?[0-9,]+ of (?:about )?[0-9,]+ tokens\]\s*"
)


def reading_note(*, read: str, whole: str) -> Delta:
    """Return the first line of an answer to a truncated question.

    Args:
        read: number of tokens of the question that were read.
        whole: its total number.
    """
    return Delta(text=f"[read {read} of {whole} tokens]\n\n", note=True)


_DOUBT: Final = "[the local model is often wrong on questions like this]"


def doubt_note() -> Delta:
    """Return the last line of an answer of a kind that is often wrong, as measured."""
    return Delta(text=f"\n\n{_DOUBT}", note=True)


def without_notes(text: str) -> str:
    """Return an assistant's turn as the model wrote it, without such lines.

    They are not part of the conversation. A model would imitate them, the detectors
    would judge them, and an answer that was kept local would not be recognised.
    """
    if (ended := text.rstrip()).endswith(_DOUBT):
        text = ended.removesuffix(_DOUBT).removesuffix("\n\n")
    note = _READING_NOTE.match(text)
    return text if note is None else text[note.end() :]


@unique
class Phase(StrEnum):
    """The current step for a query while its answer has no text yet."""

    CLASSIFYING = "classifying"
    ASKING_HERE = "asking_here"
    ASKING_ON_PREMISES = "asking_on_premises"
    ASKING_ENCLAVE = "asking_enclave"
    CHECKING = "checking"
    WAITING = "waiting"


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A sign of life, if there was nothing to show for some time.

    Attributes:
        phase: the current step.
    """

    phase: Phase


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """Tentative text is accepted as the answer, and so is what follows."""


@unique
class RetractReason(StrEnum):
    """Why text is retracted: a rejected draft, or a tier that failed."""

    NOT_GOOD_ENOUGH = "not_good_enough"
    BROKE_OFF = "broke_off"
    OVERTAKEN = "overtaken"


@dataclass(frozen=True, slots=True, kw_only=True)
class Retract:
    """Text that was shown is not part of the answer.

    Attributes:
        from_char: its position in the answer; the text before it remains.
        reason: why.
    """

    from_char: int
    reason: RetractReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Replaced:
    """Another tier answers, from the beginning; two models' texts are never joined.

    Attributes:
        tier: the new tier, by the policy's name.
    """

    tier: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The end of a complete answer.

    Attributes:
        finish_reason: ``stop``, ``tool_calls`` if it ends with calls, or ``length`` if
            it was cut at its token limit or only a part of the question was read.
        others: the same of the second answer and those after it, if several were
            requested.
        prompt_tokens: tokens of the question.
        completion_tokens: tokens of the answer.
        unknown_tokens: pseudonyms in the answer that were not sent; they are left
            unchanged.
        receipted: the enclave signed a receipt for it, which was verified.
        unrestored: placeholders in the answer that were not replaced by a value: they
            were not sent, are part of another word or would be in an address.
        doubtful: it had to be answered locally, and answers of the local model that
            look like this one were often wrong, as measured.
    """

    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    others: tuple[str, ...] = ()
    unknown_tokens: int = 0
    receipted: bool = False
    unrestored: int = 0
    doubtful: bool = False


AnswerEvent = Delta | Finished
"""An event from a single tier."""
SessionEvent = Delta | Verified | Retract | Replaced | Finished
"""An event of a query's answer, to which several tiers may contribute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """The provenance of an answer, known before its first word.

    Attributes:
        route: the kind of tier that answers.
        model: the local model's name, or the release that the enclave's evidence
            names; never the answer's own claim.
        classes: data classes found in the query, sorted.
        uncertain: what could not be determined about it, sorted.
        rule: id of the rule that decided.
        reason: that rule's reason, as the policy's author wrote it.
        policy_digest: ``sha256:…`` of the policy in force.
        verdict_id: identifies the verified evidence, if the enclave answers.
        evidence: its kind, such as ``sev-snp``; ``emulated-…`` is evidence without
            hardware.
        fallback: why the tier that was chosen first does not answer.
        recorded: whether the audit trail contains this; always, if anything was sent.
            A local answer is given even if recording failed.
        deidentified: number of values of each class sent as pseudonyms, sorted;
            empty if the query was sent unchanged, or kept local.
        obstacle: why a query whose names should have been replaced was kept local.
        tier: the policy's name of the tier.
        why: why that tier was chosen, if the policy has a ``routing:`` section;
            a member of ``routing.utility.Reason``.
        boundary: if a turn of the conversation had to be kept local: how much was sent
            (``Rung``), or why nothing was (``NotPossible``).
        left_out: number of characters of the query that were not read, since they
            exceed the local model's context.
        home_model: if a rolled-out local model answers, its tag in the trace
            (``routing.trace.model_tag``), to which feedback is assigned.
        in_parallel: another tier was asked in parallel, and may have the question too.
        floor: the minimum class declared in this request (``RoutingClass``), if it
            raised anything: it is valid for one request, so the next must repeat it.
        demonstration: whether the embedded model answers, which only shows that the
            path works.
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
    left_out: int = 0
    home_model: str = ""
    in_parallel: bool = False
    floor: str = ""
    demonstration: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One of several answers to one question.

    Attributes:
        text: the answer.
        finish_reason: see ``Finished``.
        logprobs: see ``Delta``.
        tops: see ``Delta``.
        calls: of tools.
    """

    text: str = field(repr=False)
    finish_reason: str
    logprobs: Logprobs = field(default=(), repr=False)
    tops: tuple[Logprobs, ...] = field(default=(), repr=False)
    calls: tuple[Called, ...] = ()

    @classmethod
    def of(cls, pieces: Iterable[Delta], finish_reason: str) -> Self:
        """Join the pieces of one answer."""
        each = tuple(pieces)
        return cls(
            text="".join(piece.text for piece in each),
            finish_reason=finish_reason,
            logprobs=tuple(pair for piece in each for pair in piece.logprobs),
            tops=tuple(
                top
                for piece in each
                for top in piece.tops or ((),) * len(piece.logprobs)
            ),
            calls=tuple(call for piece in each for call in piece.calls),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A whole answer, with its provenance.

    Attributes:
        id: identifies it for feedback; empty: it has none.
        text: the answer.
        provenance: where it comes from, and why that was permitted.
        finished: finish reason and token counts.
        logprobs: (token, log-probability) pairs, if requested; see ``Logprobs``.
        tops: the likeliest tokens in the place of each, if requested.
        calls: of tools.
        others: further answers, if several were requested.
    """

    text: str = field(repr=False)
    provenance: Provenance
    finished: Finished
    logprobs: Logprobs = field(default=(), repr=False)
    tops: tuple[Logprobs, ...] = field(default=(), repr=False)
    calls: tuple[Called, ...] = ()
    others: tuple[Choice, ...] = ()
    id: str = ""

    @property
    def choices(self) -> tuple[Choice, ...]:
        """All answers."""
        first = Choice(
            text=self.text,
            finish_reason=self.finished.finish_reason,
            logprobs=self.logprobs,
            tops=self.tops,
            calls=self.calls,
        )
        return (first, *self.others)

    @property
    def route(self) -> Answerer:
        """The kind of tier that answered."""
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
