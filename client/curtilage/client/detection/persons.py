"""Determines whom the findings of one conversation are about, once all are known.

The detectors see texts, but not who speaks. "You" is anyone if a user writes it, and
the user if an assistant or a tool does, which is all that remains of a conversation
that an application shortens. A special word ("Catholic") is personal if a person is
mentioned anywhere in the conversation, and a topic otherwise.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from curtilage.policy.decision.findings import Finding

SOMEBODY: Final = "marker.first_person"
ADDRESSEE: Final = "marker.addressee"
# Instructions say "you" to the model; only "the user" is the user there.
_SPEAK_TO_THE_USER: Final = frozenset({"assistant", "tool"})
_WORDS: Final = frozenset({"lexicon"})  # detectors whose special words may be a topic
# A short text says little about anything. In one, a topic counts from a lower score if
# a person is mentioned in the same text; the packs require ``>=50``. Not for money,
# which every bank customer who asks for a card mentions.
_SHORT_CHARS: Final = 200
_TOPICS_THAT_COUNT_EARLIER: Final = frozenset(
    {"topic.health", "topic.special", "topic.legal", "topic.hr"}
)
_EARLY: Final = 40
_SURE_ENOUGH: Final = 50
_TOPIC: Final = "topic.special"
_TOPIC_SCORE: Final = 40  # lower than for a personal topic (``topic.special>=50``)


def settled(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the findings with the final meaning of "you" and of special words.

    An additional finding never weakens another one: a person turns topics into data,
    and nothing turns data into a topic.
    """
    known = tuple(
        replace(each, data_class=SOMEBODY)
        if each.data_class == ADDRESSEE and each.where.role in _SPEAK_TO_THE_USER
        else each
        for each in findings
    )
    personal = {each.where for each in known if each.data_class == SOMEBODY}
    known = tuple(
        replace(each, score=max(each.score, _SURE_ENOUGH))
        if each.data_class in _TOPICS_THAT_COUNT_EARLIER
        and each.score >= _EARLY
        and each.where in personal
        and each.start == 0
        and each.end <= _SHORT_CHARS
        else each
        for each in known
    )
    if any(_is_personal(each.data_class) for each in known):
        return known
    return tuple(
        replace(each, data_class=_TOPIC, score=min(each.score, _TOPIC_SCORE))
        if each.detector in _WORDS and each.data_class.startswith("special.")
        else each
        for each in known
    )


def _is_personal(data_class: str) -> bool:
    return data_class == SOMEBODY or data_class.startswith(
        ("identifier.direct.", "identifier.public.", "uncertain.")
    )
