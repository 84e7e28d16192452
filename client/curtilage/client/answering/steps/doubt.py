"""Doubt: a note on local answers of a kind that was counted to be often wrong."""

import re
from contextlib import aclosing
from dataclasses import replace
from typing import Final

from curtilage.client.answering.attempt import Answers
from curtilage.client.chat.answer import Delta, doubt_note
from curtilage.client.chat.query import Query
from curtilage.client.routing.verifier import Verdict, Verifier

_JSON: Final = re.compile(r"\bjson\b", re.IGNORECASE)
_FENCE: Final = "```"


def wants_json(query: Query) -> bool:
    """Return whether a message asks for JSON; often an earlier one, of a program."""
    return any(
        _JSON.search(each.content)
        for each in query.messages
        if each.role not in {"assistant", "tool"}
    )


async def doubted(answer: Answers, verifier: Verifier, *, formatted: bool) -> Answers:
    """Yield an answer; one that would be rejected as a draft ends with a note.

    An answer that was cut, or that is to a part of the question, is not judged.

    Args:
        answer: the answer.
        verifier: judges it.
        formatted: a program reads it, and a note would make it unreadable.
    """
    begins = ""
    async with aclosing(answer) as events:
        async for event in events:
            if isinstance(event, Delta):
                if not event.note:
                    verifier.feed(event)
                    # Only the first characters are kept: they suffice to recognise
                    # JSON, and no text has to be held back for it.
                    if len(begins) < len(_FENCE):
                        begins = (begins + event.text).lstrip()
                # The model's probabilities are for the judge, and not part of the
                # answer.
                yield replace(event, signals=())
                continue
            # The judge was calibrated with complete answers only.
            cut = event.finish_reason != "stop"
            doubtful = not cut and verifier.end(event) is Verdict.REJECT
            formatted |= verifier.wants_json or begins.startswith(("{", "[", _FENCE))
            if doubtful and not formatted:
                yield doubt_note()
            yield replace(event, doubtful=doubtful)
