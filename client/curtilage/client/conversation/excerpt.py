"""Reduced queries for a conversation in which a turn had to be kept local.

Each rung of the ladder includes less of the conversation than the one before it: a
summary made locally, then the turns since the last one that was kept local, then the
question alone. If none of them is allowed, the query is kept local. A rung builds a new
query. It decides nothing: the query is sent only with an ``Allowed`` of its own.

The input is the routing class of each message; ``RESTRICTED`` means that it had to be
kept local. Fails closed: a message that is not known to have been sent counts as such.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from curtilage.client.chat.answer import NotPossible, Rung
from curtilage.client.chat.query import PROMPTS, Message, Query, Settings
from curtilage.client.conversation.redaction import (
    MASK,
    is_english,
    own_words,
    redacted,
)
from curtilage.client.conversation.standalone import stands_alone
from curtilage.policy.decision.conversation import History
from curtilage.policy.decision.tiers import RoutingClass

HistoryRules = Mapping[RoutingClass, History]
"""The form in which turns of a class may be included; ``NEVER`` if missing."""


MAX_RUN: Final = 5  # longest run of words that may repeat a turn that was kept local
MAX_SUMMARY_TOKENS: Final = 200
MAX_SUMMARY_CHARS: Final = 1200
MAX_MASKS_PERCENT: Final = 20
MAX_SUMMARISED_CHARS: Final = (
    6000  # end of the conversation, as shown to the local model
)
# A smaller one copies names into its summary, and omits the question.
LEAST_PARAMETERS: Final = 3_000_000_000
_WORD: Final = re.compile(r"[^\W_]+")
_ASKED: Final = (
    "Summarise this conversation in at most five short English sentences: what is "
    "wanted, under which conditions, which facts matter, which question is open. Name "
    "no person, place, organisation, date or number, and quote nothing."
)
INTRODUCTION: Final = "The conversation so far, in short and without names: "


BOUNDARY: Final[Mapping[str, str]] = {
    Rung.SUMMARY: "a summary of the conversation was sent with the question",
    Rung.EXTRACT: "the turns since the one kept local were sent, redacted",
    Rung.CURRENT: "the question was sent alone, without its conversation",
    **{
        why: f"the conversation is kept local, and with it this question: {said}"
        for why, said in {
            NotPossible.NO_QUESTION: "it does not end with one",
            NotPossible.ATTACHMENT: "it has parts that are not text",
            NotPossible.NOT_PLAIN: "it has tools, a format or several answers",
            NotPossible.STOP_STRING: "its stop strings contain words",
            NotPossible.CURRENT_TURN: "something is found in it",
            NotPossible.LANGUAGE: "not all of it is in English",
            NotPossible.PROMPT: "its system message must not be sent",
            NotPossible.REPEATS: "it repeats words that were kept local",
            NotPossible.REFERS: "by itself it does not say what it is about",
            NotPossible.NO_HISTORY: "no turn may be sent with it",
            NotPossible.NO_SUMMARY: "there is no summary of it",
            NotPossible.SUMMARY_TELLS: "its summary reveals too much",
            NotPossible.STILL_FOUND: "the policy keeps the reduced query local",
        }.items()
    },
}
"""Descriptions for users."""


def rungs(history: HistoryRules, *, parameters: int) -> tuple[Rung, ...]:
    """Return the rungs to be tried, in order.

    Args:
        history: the policy's rules; none for turns that were kept local: then the
            whole conversation is kept local with them.
        parameters: of the local model, which would write the summary.
    """
    if RoutingClass.RESTRICTED not in history:
        return ()
    summarise = history[RoutingClass.RESTRICTED] is History.SAFE_SUMMARY
    summary = (Rung.SUMMARY,) if summarise and parameters >= LEAST_PARAMETERS else ()
    return (*summary, Rung.EXTRACT, Rung.CURRENT)


def summary_request(
    query: Query, taint: Sequence[RoutingClass], history: HistoryRules
) -> Query | None:
    """Return the request for a summary by the local model; None: nothing to summarise.

    Args:
        query: the conversation.
        taint: the routing class of each message.
        history: the policy's rules.
    """
    conversation = "\n".join(
        f"{message.role}: {message.content}"
        for message, each in zip(query.messages[:-1], taint, strict=False)
        if history.get(each) is History.SAFE_SUMMARY and message.role not in PROMPTS
    )
    if not conversation:
        return None
    return Query(
        messages=(
            Message(role="system", content=_ASKED),
            Message(role="user", content=conversation[-MAX_SUMMARISED_CHARS:]),
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
    """Return the query with this much of a conversation, or why there is none.

    The question is sent as written. It contains no word, number or run of words from a
    turn that was kept local, except common words.

    Args:
        query: the conversation; its last message is the question.
        taint: the routing class of each message: ``RESTRICTED`` was kept local; others
            were sent, or might have been, under their class.
        how: how much to include.
        history: the policy's rules.
        summary: the local model's answer to ``summary_request``.

    Raises:
        ValueError: not exactly one class for each message.
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
    """Return why the question cannot be sent without its conversation, or None."""
    if len(query.messages) < 2 or query.messages[-1].role != "user":  # noqa: PLR2004
        return NotPossible.NO_QUESTION
    # Parts other than text were not inspected, and the text may refer to them.
    if query.opaque:
        return NotPossible.ATTACHMENT
    if not query.is_plain:
        return NotPossible.NOT_PLAIN
    if any(map(_WORD.search, query.settings.stop)):
        return NotPossible.STOP_STRING
    if taint[-1] is RoutingClass.RESTRICTED:
        return NotPossible.CURRENT_TURN
    question = query.messages[-1].content
    # The list of common words is English: in another language, a turn that was kept
    # local could be repeated in translation, without a word of it.
    if not all(map(is_english, (question, *filter(str.strip, stayed)))):
        return NotPossible.LANGUAGE
    kept = frozenset[str]().union(*map(own_words, stayed))
    if not kept.isdisjoint(own_words(question)) or not said.isdisjoint(_runs(question)):
        return NotPossible.REPEATS
    return None


def _summarised(
    summary: str | None, history: HistoryRules
) -> tuple[Message, ...] | NotPossible:
    if history.get(RoutingClass.RESTRICTED) is not History.SAFE_SUMMARY:
        return NotPossible.NO_HISTORY
    if not summary or len(summary) > MAX_SUMMARY_CHARS:
        return NotPossible.NO_SUMMARY
    masked = redacted(summary)
    if masked is None:
        return NotPossible.NO_SUMMARY
    # Many masks: it was about names, and the words between them may identify these.
    if 100 * masked.count(MASK) > MAX_MASKS_PERCENT * len(masked.split()):
        return NotPossible.SUMMARY_TELLS
    return (Message(role="system", content=INTRODUCTION + masked.replace("\n", " ")),)


def _extracted(
    query: Query, taint: Sequence[RoutingClass], history: HistoryRules
) -> tuple[Message, ...] | NotPossible:
    """Return the turns since the last one that must not be sent, redacted.

    Earlier turns are omitted, too: the model would continue them as if that one did not
    exist. A question refers to the exchange right before it.
    """
    turns: list[Message] = []
    for message, each in reversed(
        tuple(zip(query.messages[:-1], taint[:-1], strict=True))
    ):
        if message.role in PROMPTS:
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
    """Return all instructions of the application to the model, redacted."""
    prompts: list[Message] = []
    for message, each in zip(query.messages, taint, strict=True):
        if message.role not in PROMPTS:
            continue
        left = _left_of(message, each, history)
        # Without its instructions, the model would answer another question.
        if left is None:
            return NotPossible.PROMPT
        prompts.append(left)
    return tuple(prompts)


def _left_of(
    message: Message, routing_class: RoutingClass, history: HistoryRules
) -> Message | None:
    """Return the permitted part of a message that was sent, or None."""
    never = history.get(routing_class, History.NEVER) is History.NEVER
    if never or routing_class is RoutingClass.RESTRICTED or message.role == "tool":
        return None
    content = redacted(message.content)
    return None if content is None else Message(role=message.role, content=content)


def _runs(text: str) -> Iterator[tuple[str, ...]]:
    """Yield the runs of words that must not occur in a turn that was kept local."""
    words = _WORD.findall(text.casefold())
    return zip(*(words[at:] for at in range(MAX_RUN + 1)), strict=False)
