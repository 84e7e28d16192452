"""What may be asked of others in a conversation of which a turn had to stay.

Each rung of the ladder takes less of the conversation along than the one before it:
a summary made here, then the turns since the last one that had to stay, then the
question alone. What none of them allows stays home. A rung makes a new query. It
decides nothing: the query leaves only with an ``Allowed`` of its own.

Which turns had to stay is told by message: as the routing class of each, where
``RESTRICTED`` had to. Fails closed: whatever is not known to have left had to stay.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum, unique
from typing import Final

from curtilage.client.boundary.redaction import (
    MASK,
    is_english,
    own_words,
    redacted,
)
from curtilage.client.query import Message, Query, Settings
from curtilage.client.repetition import stands_alone
from curtilage.policy.decision.conversation import History
from curtilage.policy.decision.tiers import RoutingClass

HistoryRules = Mapping[RoutingClass, History]
"""In which form turns of a class may enter; of one that is left out, ``NEVER``."""


MAX_RUN: Final = 5  # words in a row that a turn which stayed may share with what leaves
MAX_SUMMARY_TOKENS: Final = 200
MAX_SUMMARY_CHARS: Final = 1200
MAX_MASKS_PERCENT: Final = 20
MAX_TOLD_CHARS: Final = 6000  # of the conversation, to the local model; the last ones
# A smaller one copies names into its summary, and leaves out what was asked.
LEAST_PARAMETERS: Final = 3_000_000_000
_PROMPTS: Final = frozenset({"system", "developer"})
_WORD: Final = re.compile(r"[^\W_]+")
_ASKED: Final = (
    "Summarise this conversation in at most five short English sentences: what is "
    "wanted, under which conditions, which facts matter, which question is open. Name "
    "no person, place, organisation, date or number, and quote nothing."
)
_TOLD: Final = "The conversation so far, in short and without names: "


@unique
class Rung(StrEnum):
    """How much of the conversation is taken along; the most first."""

    SUMMARY = "summary"
    EXTRACT = "extract"
    CURRENT = "current"


@unique
class NotPossible(StrEnum):
    """Why a rung makes no query; a closed set, safe to tell."""

    NO_QUESTION = "no_question"
    ATTACHMENT = "attachment"
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


BOUNDARY: Final[Mapping[str, str]] = {
    Rung.SUMMARY: "of the conversation a summary left with the question",
    Rung.EXTRACT: "of the conversation the turns since what had to stay left, redacted",
    Rung.CURRENT: "the question left alone, without its conversation",
    **{
        why: f"the conversation has to stay, and this question with it: {said}"
        for why, said in {
            NotPossible.NO_QUESTION: "it does not end with one",
            NotPossible.ATTACHMENT: "it has parts that are no text",
            NotPossible.STOP_STRING: "its stop strings hold words",
            NotPossible.CURRENT_TURN: "something is found in it",
            NotPossible.LANGUAGE: "not all of it is in English",
            NotPossible.PROMPT: "its system message may not go along",
            NotPossible.REPEATS: "it says again what had to stay",
            NotPossible.REFERS: "by itself it does not say what it is about",
            NotPossible.NO_HISTORY: "no turn may go along",
            NotPossible.NO_SUMMARY: "there is no summary of it",
            NotPossible.SUMMARY_TELLS: "its summary tells too much",
            NotPossible.STILL_FOUND: "the policy keeps what would leave of it",
        }.items()
    },
}
"""What each means, for people."""


def rungs(history: HistoryRules, *, parameters: int) -> tuple[Rung, ...]:
    """Return the rungs to be tried, in order.

    Args:
        history: what the policy says; nothing of turns that had to stay: the
            conversation stays with them, whole.
        parameters: of the local model, which would make the summary.
    """
    if RoutingClass.RESTRICTED not in history:
        return ()
    told = history[RoutingClass.RESTRICTED] is History.SAFE_SUMMARY
    summary = (Rung.SUMMARY,) if told and parameters >= LEAST_PARAMETERS else ()
    return (*summary, Rung.EXTRACT, Rung.CURRENT)


def summary_request(
    query: Query, taint: Sequence[RoutingClass], history: HistoryRules
) -> Query | None:
    """Return what the local model is asked for a summary; None: nothing may be in it.

    Args:
        query: the conversation.
        taint: the routing class of each message.
        history: what the policy says.
    """
    told = "\n".join(
        f"{message.role}: {message.content}"
        for message, each in zip(query.messages[:-1], taint, strict=False)
        if history.get(each) is History.SAFE_SUMMARY and message.role not in _PROMPTS
    )
    if not told:
        return None
    return Query(
        messages=(
            Message(role="system", content=_ASKED),
            Message(role="user", content=told[-MAX_TOLD_CHARS:]),
        ),
        settings=Settings(max_tokens=MAX_SUMMARY_TOKENS, temperature=0, seed=0),
    )


def narrowed(
    query: Query,
    taint: Sequence[RoutingClass],
    how: Rung,
    *,
    history: HistoryRules,
    summary: str | None = None,
) -> Query | NotPossible:
    """Return the query that takes this much of a conversation along, or why not.

    The question leaves as it is written. It holds no word, number or run of words that
    is a turn's that had to stay, and everybody's words do not count.

    Args:
        query: the conversation; its last message is the question.
        taint: the routing class of each message: ``RESTRICTED`` had to stay, another
            is the one under which it left or might leave.
        how: how much to take along.
        history: what the policy says.
        summary: what the local model made of ``summary_request``.

    Raises:
        ValueError: there is not one class for each message.
    """
    if len(taint) != len(query.messages):
        raise ValueError("each message has a routing class")
    stayed = [
        f"{message.name or ''} {message.content}"
        for message, each in zip(query.messages, taint, strict=True)
        if each is RoutingClass.RESTRICTED
    ]
    said = {run for each in stayed for run in _runs(each)}
    obstacle = _obstacle(query, taint, stayed, said)
    if obstacle is not None:
        return obstacle
    asked = Message(role="user", content=query.messages[-1].content)
    match how:
        case Rung.SUMMARY:
            context = _summarised(summary, history)
        case Rung.EXTRACT:
            context = _extracted(query, taint, history)
        case Rung.CURRENT:
            context = () if stands_alone(asked.content) else NotPossible.REFERS
    prompts = _prompts(query, taint, history)
    if isinstance(context, NotPossible) or isinstance(prompts, NotPossible):
        return context if isinstance(context, NotPossible) else NotPossible.PROMPT
    if any(not said.isdisjoint(_runs(each.content)) for each in (*prompts, *context)):
        return NotPossible.REPEATS
    return replace(query, messages=(*prompts, *context, asked))


def _obstacle(  # noqa: PLR0911 - one reason each
    query: Query,
    taint: Sequence[RoutingClass],
    stayed: Sequence[str],
    said: set[tuple[str, ...]],
) -> NotPossible | None:
    """Return why the question cannot be asked apart from its conversation, if so."""
    if len(query.messages) < 2 or query.messages[-1].role != "user":  # noqa: PLR2004
        return NotPossible.NO_QUESTION
    # Parts that are no text were looked at by nobody, and the text may speak of them.
    if query.opaque:
        return NotPossible.ATTACHMENT
    if any(map(_WORD.search, query.settings.stop)):
        return NotPossible.STOP_STRING
    if taint[-1] is RoutingClass.RESTRICTED:
        return NotPossible.CURRENT_TURN
    question = query.messages[-1].content
    # The list of everybody's words is English: in another language a turn that stayed
    # could be told again, translated, without a word of it.
    if not all(map(is_english, (question, *filter(str.strip, stayed)))):
        return NotPossible.LANGUAGE
    told = frozenset[str]().union(*map(own_words, stayed))
    if not told.isdisjoint(own_words(question)) or not said.isdisjoint(_runs(question)):
        return NotPossible.REPEATS
    return None


def _summarised(
    summary: str | None, history: HistoryRules
) -> tuple[Message, ...] | NotPossible:
    if history.get(RoutingClass.RESTRICTED) is not History.SAFE_SUMMARY:
        return NotPossible.NO_HISTORY
    if not summary or len(summary) > MAX_SUMMARY_CHARS:
        return NotPossible.NO_SUMMARY
    told = redacted(summary)
    if told is None:
        return NotPossible.NO_SUMMARY
    # Many masks: it was written of names. What is between them tells whose.
    if 100 * told.count(MASK) > MAX_MASKS_PERCENT * len(told.split()):
        return NotPossible.SUMMARY_TELLS
    return (Message(role="system", content=_TOLD + told.replace("\n", " ")),)


def _extracted(
    query: Query, taint: Sequence[RoutingClass], history: HistoryRules
) -> tuple[Message, ...] | NotPossible:
    """Return the turns since the last that may not go along, redacted.

    Not those before it, either: they would be gone on with as if it had not been. What
    a question refers to, it refers to in the exchange before it.
    """
    turns: list[Message] = []
    for message, each in reversed(
        tuple(zip(query.messages[:-1], taint[:-1], strict=True))
    ):
        if message.role in _PROMPTS:
            continue
        left = _left_of(message, each, history)
        if left is None:
            break
        turns.insert(0, left)
    while turns and turns[0].role != "user":
        del turns[0]
    return tuple(turns) or NotPossible.NO_HISTORY


def _prompts(
    query: Query, taint: Sequence[RoutingClass], history: HistoryRules
) -> tuple[Message, ...] | NotPossible:
    """Return all that the application told the model to be, redacted."""
    prompts: list[Message] = []
    for message, each in zip(query.messages, taint, strict=True):
        if message.role not in _PROMPTS:
            continue
        left = _left_of(message, each, history)
        # An answer that ignores what it was told to be is none to what was asked.
        if left is None:
            return NotPossible.PROMPT
        prompts.append(left)
    return tuple(prompts)


def _left_of(
    message: Message, routing_class: RoutingClass, history: HistoryRules
) -> Message | None:
    """Return what may go along of a message that left, or None."""
    never = history.get(routing_class, History.NEVER) is History.NEVER
    if never or routing_class is RoutingClass.RESTRICTED or message.role == "tool":
        return None
    content = redacted(message.content)
    return None if content is None else Message(role=message.role, content=content)


def _runs(text: str) -> Iterator[tuple[str, ...]]:
    """Yield the runs of words of which a turn that stayed may share none."""
    words = _WORD.findall(text.casefold())
    return zip(*(words[at:] for at in range(MAX_RUN + 1)), strict=False)
