"""Settle whom the findings of one conversation are about, once all of it is known.

The detectors see texts, and not who speaks. "You" is anybody where a user writes it,
and the user where an assistant or a tool does: what is left of a conversation when an
application cuts it short. A special word ("Catholic") is somebody's where somebody is
spoken of anywhere in the conversation, and a topic where nobody is.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from curtilage.policy.decision.findings import Finding

SOMEBODY: Final = "marker.first_person"
ADDRESSEE: Final = "marker.addressee"
# Instructions say "you" to the model: there only "the user" is the user.
_SPEAK_TO_THE_USER: Final = frozenset({"assistant", "tool"})
_WORDS: Final = frozenset({"lexicon"})  # detectors whose special words may be a topic
# In a short text little is said of anything: there a topic counts earlier, if somebody
# is spoken of in the same text; the packs ask for ``>=50``. Money does not: of that
# every customer of a bank speaks who asks for a card.
_SHORT_CHARS: Final = 200
_TOPICS_THAT_COUNT_EARLIER: Final = frozenset(
    {"topic.health", "topic.special", "topic.legal", "topic.hr"}
)
_EARLY: Final = 40
_SURE_ENOUGH: Final = 50
_TOPIC: Final = "topic.special"
_TOPIC_SCORE: Final = 40  # below what makes a topic somebody's (``topic.special>=50``)


def settled(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the findings with "you" and the special words as what they are.

    One finding more never makes another one less: a person that is added turns topics
    into data, and nothing turns data into a topic.
    """
    known = tuple(
        replace(each, data_class=SOMEBODY)
        if each.data_class == ADDRESSEE and each.where.role in _SPEAK_TO_THE_USER
        else each
        for each in findings
    )
    told = {each.where for each in known if each.data_class == SOMEBODY}
    known = tuple(
        replace(each, score=max(each.score, _SURE_ENOUGH))
        if each.data_class in _TOPICS_THAT_COUNT_EARLIER
        and each.score >= _EARLY
        and each.where in told
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
