"""An answer: its pieces as they come, the whole at the end, and where it is from.

Knows neither how the pieces are made nor what they say.
"""

import re
from dataclasses import dataclass, field
from enum import StrEnum, unique
from typing import Final, Self

from typing_extensions import override

from curtilage.client.errors import FailureReason


class Answerer(StrEnum):
    """Who answered a query."""

    LOCAL = "local"
    ON_PREMISES = "on_premises"
    ENCLAVE = "enclave"

    @classmethod
    @override
    def _missing_(cls, value: object) -> Self | None:
        # In answers that version 0.1 queued.
        return cls("on_premises") if value == "house" else None


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
class TokenSignal:
    """How sure the model was of one token, before temperature; never leaves.

    Attributes:
        logprob: natural logarithm of the probability of the token that was drawn.
        margin: by how much the likeliest token's lies above the second one's, 0 or
            more; it need not be the token that was drawn.
    """

    logprob: float = field(repr=False)
    margin: float = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """A piece of the answer.

    Attributes:
        text: what to append.
        logprobs: (token text, log-probability) of each token; empty unless asked.
        tentative: it may be taken back: a draft that was not looked at whole.
        signals: of each token, for who judges a draft; empty unless it is one.
        prompt_tokens: tokens of the question, with the first piece of an answer of
            the local model; 0: not known yet.
        note: the client wrote it, and no model: a line about the answer.
    """

    text: str = field(repr=False)
    logprobs: tuple[tuple[str, float], ...] = field(default=(), repr=False)
    tentative: bool = False
    signals: tuple[TokenSignal, ...] = field(default=(), repr=False)
    prompt_tokens: int = 0
    note: bool = False


_READING_NOTE: Final = re.compile(
    r"\s*\[read (?:about )?[0-9,]+ of (?:about )?[0-9,]+ tokens\]\s*"
)


def reading_note(*, read: str, whole: str) -> Delta:
    """Return the line that begins an answer to a part of a question.

    Args:
        read: how many tokens of the question were read.
        whole: how many it has.
    """
    return Delta(text=f"[read {read} of {whole} tokens]\n\n", note=True)


_DOUBT: Final = "[the local model is often wrong on questions like this]"


def doubt_note() -> Delta:
    """Return the line that ends an answer whose like were counted to be often wrong."""
    return Delta(text=f"\n\n{_DOUBT}", note=True)


def without_reading_note(role: str, text: str) -> str:
    """Return a turn as the model wrote it: an answer without such lines.

    It is not part of the conversation. A model would imitate it, the detectors
    would judge it, and an answer that stayed would not be known again.
    """
    if role != "assistant":
        return text
    if (ended := text.rstrip()).endswith(_DOUBT):
        text = ended.removesuffix(_DOUBT).removesuffix("\n\n")
    note = _READING_NOTE.match(text)
    return text if note is None else text[note.end() :]


@unique
class Phase(StrEnum):
    """What is done for a query while nothing can be shown of its answer."""

    CLASSIFYING = "classifying"
    ASKING_HERE = "asking_here"
    ASKING_ON_PREMISES = "asking_on_premises"
    ASKING_ENCLAVE = "asking_enclave"
    CHECKING = "checking"
    WAITING = "waiting"


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A sign of life: nothing was to be shown for as long as one may be left waiting.

    Attributes:
        phase: what is done meanwhile.
    """

    phase: Phase


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What was tentative is the answer, and so is what follows."""


@unique
class RetractReason(StrEnum):
    """Why text is taken back: it is not good enough, or who wrote it broke off."""

    NOT_GOOD_ENOUGH = "not_good_enough"
    BROKE_OFF = "broke_off"
    OVERTAKEN = "overtaken"


@dataclass(frozen=True, slots=True, kw_only=True)
class Retract:
    """Text that was shown is none of the answer.

    Attributes:
        from_char: which, from the answer's beginning; what stands before it remains.
        reason: why.
    """

    from_char: int
    reason: RetractReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Replaced:
    """Another answers, from the beginning; two models' text is never spliced.

    Attributes:
        tier: who, by the policy's name of it.
    """

    tier: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The end of a complete answer.

    Attributes:
        finish_reason: ``stop``, or ``length`` where the answer was cut at its token
            limit or only a part of the question was read.
        prompt_tokens: tokens of the question.
        completion_tokens: tokens of the answer.
        unknown_tokens: pseudonyms in the answer that were not sent; they are left
            in it as they came.
        receipted: the enclave signed a receipt for it, which was verified.
        unrestored: placeholders left in the answer instead of a value, since they
            were not sent, are a part of another word or would be in an address.
        doubtful: it had to be answered locally, and answers of the local model that
            look like this one were counted to be often wrong.
    """

    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    unknown_tokens: int = 0
    receipted: bool = False
    unrestored: int = 0
    doubtful: bool = False


AnswerEvent = Delta | Finished
"""What one who answers yields."""
SessionEvent = Delta | Verified | Retract | Replaced | Finished
"""What a query's answer is made of, when more than one may write at it."""


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
        left_out: how many characters of the query were not read, since the local
            model's context does not hold them.
        home_model: where a rolled-out model of this machine answers, its tag in the
            trace (``routing.trace.model_tag``), by which grades are told apart.
        beside: another tier was asked beside this one, and may have the question too.
        floor: what the sender of this request declared (``RoutingClass``), where it
            raised anything: it holds for one request, so the next repeats it.
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
    beside: bool = False
    floor: str = ""
    demonstration: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A whole answer, and where it came from.

    Attributes:
        id: what it is called, by who says how it was; empty: it has no name.
        text: the answer.
        provenance: who answered, and why it was allowed to.
        finished: finish reason and token counts.
        logprobs: (token text, log-probability) pairs when asked for.
    """

    text: str = field(repr=False)
    provenance: Provenance
    finished: Finished
    logprobs: tuple[tuple[str, float], ...] = field(default=(), repr=False)
    id: str = ""

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
