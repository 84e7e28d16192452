"""Fills sentences with slots, and records where each name, place or date is."""

import random  # training must repeat; nothing secret is drawn
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from examples import Example, Span
from labels import TYPES
from people import People
from sentences import ENTITY_SENTENCES, PLAIN_SENTENCES

EVERYTHING: Final = frozenset(TYPES)
_SLOT = re.compile(r"\{(\w+)\}")
_TYPES: Final = {
    "full": "PERSON",
    "given": "PERSON",
    "given_lower": "PERSON",
    "family": "PERSON",
    "family_lower": "PERSON",
    "anyone": "PERSON",
    "handle": "PERSON",
    "city": "LOCATION",
    "place": "LOCATION",
    "org": "ORGANIZATION",
    "address": "ADDRESS",
    "zip": "ADDRESS",
    "age": "AGE",
    "years": "AGE",
    "date": "DATE",
    "nrp": "NRP",
}
# Our slots for presidio-research's; slots without a type are filled with digits.
_PRESIDIO: Final = {
    "person": "anyone",
    "name": "anyone",
    "first_name": "given",
    "last_name": "family",
    "first_name_male": "given",
    "first_name_female": "given",
    "first_name_nonbinary": "given",
    "last_name_male": "family",
    "last_name_female": "family",
    "street_address": "address",
    "address": "address",
    "gpe": "place",
    "city": "city",
    "country": "place",
    "state": "place",
    "organization": "org",
    "company": "org",
    "age": "years",
    "date_time": "date",
    "date": "date",
    "date_of_birth": "date",
    "nrp": "nrp",
    "nationality": "nrp",
    "title": "title",
    "prefix": "title",
    "zip_code": "zip",
    "zipcode": "zip",
}
READ_AS = "[name]"  # the client's placeholder for a name when it reads a text again
_TITLES = ("Mr.", "Mrs.", "Ms.", "Dr.", "Miss", "Prof.", "mr", "mrs", "dr.")


def filled(sentence: str, value: Callable[[str], str]) -> Example:
    """Return a sentence with ``value``'s result for each slot, marked by its type.

    Two braces mean a literal one.
    """
    text, spans, at = "", [], 0
    plain = sentence.replace("{{", "\x01").replace("}}", "\x02")
    for match in _SLOT.finditer(plain):
        text += plain[at : match.start()]
        at, start = match.end(), len(text)
        text += value(match[1])
        kind = _TYPES.get(match[1])
        if kind is not None and len(text) > start:
            spans.append(Span(start, len(text), kind))
    text += plain[at:]
    text = text.replace("\x01", "{").replace("\x02", "}")
    return Example(text, tuple(spans), EVERYTHING)


def without_names(example: Example) -> Example:
    """Return a text in the form in which it is judged after its people are replaced."""
    text = example.text
    for span in reversed(example.spans):
        if span.type == "PERSON":
            text = text[: span.start] + READ_AS + text[span.end :]
    return Example(text, topics=example.topics, key=example.key)


class Filler:
    """Fills slots; the same seed fills the same way."""

    def __init__(self, source: random.Random) -> None:
        self._source = source
        self._people = People(source)

    def fill(self, sentence: str) -> Example:
        """Return a sentence with its slots filled and marked."""
        return filled(sentence, self._value)

    def _value(self, slot: str) -> str:
        people, source = self._people, self._source
        if slot in {"num", "years"}:
            return str(source.randrange(1, 103))
        if slot == "zip":
            return str(source.randrange(10000, 99999))
        if slot == "title":
            return source.choice(_TITLES)
        if slot == "other":
            return str(source.randrange(10**8, 10**11))
        made = getattr(
            people, {"nrp": "belonging", "org": "organization"}.get(slot, slot)
        )
        value: str = made()
        return value


def entity_examples(
    source: random.Random, count: int, templates: Sequence[str]
) -> Iterator[Example]:
    """Yield ``count`` sentences: ours, presidio-research's, plain ones, joined ones.

    Args:
        source: the random source.
        count: how many.
        templates: presidio-research's sentences with ``{{slots}}``.
    """
    filler = Filler(source)
    others = [translated(template) for template in templates]
    for _ in range(count):
        draw = source.random()
        if draw < 0.3 and others:
            yield _shaken(source, filler.fill(source.choice(others)))
        elif draw < 0.38:
            text = source.choice(PLAIN_SENTENCES)
            yield Example(text, (), EVERYTHING)
        elif draw < 0.55:
            first = filler.fill(source.choice(ENTITY_SENTENCES))
            second = filler.fill(source.choice(ENTITY_SENTENCES + PLAIN_SENTENCES * 3))
            yield joined(first, second, source.choice((" ", "\n", "\n\n", ". ")))
        else:
            yield _shaken(source, filler.fill(source.choice(ENTITY_SENTENCES)))


def translated(template: str) -> str:
    """Return a template of presidio-research with the slots of ``Filler``."""
    marked = template.replace("{{", "\x01").replace("}}", "\x02")
    marked = marked.replace("{", "{{").replace("}", "}}")
    return re.sub(
        "\x01(\\w+)\x02",
        lambda match: "{" + _PRESIDIO.get(match[1].lower(), "other") + "}",
        marked,
    )


def joined(first: Example, second: Example, between: str) -> Example:
    """Return two texts joined into one, in which everything is known."""
    shift = len(first.text) + len(between)
    moved = (Span(s.start + shift, s.end + shift, s.type) for s in second.spans)
    return Example(
        first.text + between + second.text, (*first.spans, *moved), EVERYTHING
    )


def _shaken(source: random.Random, example: Example) -> Example:
    """Drop the final mark, or repeat a blank, as people do; spans remain valid."""
    text = example.text
    if source.random() < 0.3 and text[-1:] in ".!?":
        last = max((span.end for span in example.spans), default=0)
        if last < len(text):
            return Example(text[:-1], example.spans, example.known)
    return example
