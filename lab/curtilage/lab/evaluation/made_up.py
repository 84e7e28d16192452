"""Texts of this project's own: made-up people, numbers and sentences to measure with.

The sentences and names stand in ``texts/``, a row a line, and no training reads
them: they are held out by construction, and so have no key of the split. What is
drawn depends on the place of a row alone, so that every run has the same texts.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count, islice, product
from pathlib import Path
from string import Formatter, ascii_uppercase, digits
from typing import Final, Protocol, cast

from stdnum import get_cc_module

from curtilage.lab.evaluation.data_files import items, read_json_lines, text_at
from curtilage.lab.evaluation.rows import Gold, Row, sampled

_TEXTS: Final = Path(__file__).with_name("texts")
# Slots that identify nobody: what is asked, what ails somebody, and a town.
_NOT_MARKED: Final = frozenset({"question", "illness", "place"})
_KINDS: Final[Mapping[str, str]] = {"given": "PERSON", "family": "PERSON"}
_ALPHABETS: Final[Mapping[str, str]] = {
    "#": digits,
    "@": ascii_uppercase,
    "*": digits + ascii_uppercase,
}
_TRIES: Final = 40_000  # of the rarest kind about one in 3,000 shapes is valid
_FILLED: Final = 3  # times that a template is filled
_LONG: Final = 8  # times the prose: about 900 words
# The names model reads windows of 128 pieces, which are 75 to 105 words by language.
_BEFORE: Final = (60, 75, 90, 105)

BURIED: Final = "buried"  # a topic: these stand in long texts

Draw = Callable[[int], int]  # a number below this one


class Checks(Protocol):
    """What is used of a module of python-stdnum."""

    def is_valid(self, number: str) -> bool:
        """Tell whether a number is one that could have been given."""
        ...

    def compact(self, number: str) -> str:
        """Return it without what is only written for the eye."""
        ...


def texts(name: str, lang: str = "") -> Sequence[Mapping[str, object]]:
    """Return the rows of a file of ours, those of one language if one is named."""
    rows = read_json_lines(_TEXTS / f"{name}.jsonl")
    return [row for row in rows if not lang or row["lang"] == lang]


def languages() -> Sequence[str]:
    """Return the languages in which there are people, sentences and illnesses."""
    return [text_at(row, "lang") for row in texts("languages")]


def draws(seed: str) -> Draw:
    """Return a source of numbers that is the same each time for the same seed."""
    blocks = (
        int.from_bytes(
            hashlib.sha256(f"curtilage-made-up:{seed}:{at}".encode()).digest()
        )
        for at in count()
    )
    return lambda below: next(blocks) % below


def filled(template: str, values: Mapping[str, str]) -> tuple[str, tuple[Gold, ...]]:
    """Return a template with its slots filled, and where what identifies stands."""
    text = ""
    gold: list[Gold] = []
    for literal, slot, _, _ in Formatter().parse(template):
        text += literal
        if slot is None:
            continue
        start = len(text)
        text += values[slot]
        if slot not in _NOT_MARKED:
            kind = _KINDS.get(slot, slot.upper())
            gold.append(Gold(kind=kind, start=start, end=len(text)))
    return text, tuple(gold)


def person(lang: str, seed: str) -> Mapping[str, str]:
    """Return somebody who does not exist: names, where they live, how to reach them."""
    (source,) = texts("languages", lang)
    draw = draws(seed)

    def one(column: str) -> str:
        values = items(source[column])
        return str(values[draw(len(values))])

    given, family = one("given"), one("family")
    return {
        "given": given,
        "family": family,
        "street": one("street"),
        "city": one("city"),
        "dob": f"{1 + draw(28):02}/{1 + draw(12):02}/{1931 + draw(70)}",
        "date": f"{1 + draw(28)}/{1 + draw(12)}/2026",
        "mrn": f"{1_000_000 + draw(9_000_000)}",
        "phone": f"+{30 + draw(19)} {100 + draw(900)} {1_000_000 + draw(9_000_000)}",
        "email": f"{given[0]}.{family}{draw(90)}@example.org".lower().replace(" ", ""),
    }


def asked_about_somebody(rows: Iterable[Row], lang: str) -> Iterator[Row]:
    """Yield each question in a template that says who asks it, or for whom.

    The question's key stays, so that it is held out where the question is.
    """
    templates = texts("clinical", lang)
    for row in rows:
        template = templates[draws(row.id)(len(templates))]
        values = {**person(lang, row.id), "question": row.text}
        text, gold = filled(text_at(template, "text"), values)
        yield Row(id=f"asked:{row.id}", key=row.key, text=text, gold=gold, tags=(lang,))


def sentences(lang: str, kind: str, limit: int) -> tuple[Row, ...]:
    """Return sentences of one language in which somebody is named, or is ill.

    Args:
        lang: one of ``languages``.
        kind: ``named`` or ``health``.
        limit: most of them.
    """
    (source,) = texts("languages", lang)
    frames = [str(each) for each in items(source[kind])]
    illnesses = [str(each) for each in items(source["illness"])]
    people = range(12)
    slots = illnesses if kind == "health" else people
    rows: list[Row] = []
    for (at, frame), (number, slot) in product(enumerate(frames), enumerate(slots)):
        name = f"made-up:{kind}:{lang}:{at}:{number}"
        values = {**person(lang, name), "illness": str(slot)}
        if kind == "named":
            # Each name once beside each other one before any pair comes again.
            for column, place in (("given", number), ("family", number + at)):
                names = items(source[column])
                values[column] = str(names[place % len(names)])
        text, gold = filled(frame.replace("{name}", "{given} {family}"), values)
        rows.append(Row(id=name, key="", text=text, gold=gold, tags=(lang,)))
    return sampled(rows, limit)


def surnames(limit: int) -> tuple[Row, ...]:
    """Return sentences with nothing but a surname, of every tradition we have."""
    families = [
        str(name) for row in texts("languages") for name in items(row["family"])
    ]
    frames = [text_at(row, "text") for row in texts("surnames")]
    rows: list[Row] = []
    for (at, frame), (number, family) in product(
        enumerate(frames), enumerate(families)
    ):
        text, gold = filled(frame, {"family": family})
        rows.append(
            Row(id=f"made-up:surname:{at}:{number}", key="", text=text, gold=gold)
        )
    return sampled(rows, limit)


def about_people(name: str, lang: str) -> Iterator[Row]:
    """Yield a file's templates of one language, each filled in three times.

    None where nobody is made up for the language.
    """
    for source in texts("people", lang):
        columns = {key: items(values) for key, values in source.items()}
        for at, template in enumerate(texts(name, lang)):
            for number in range(_FILLED):
                row = f"made-up:{name}:{lang}:{at}:{number}"
                draw = draws(row)
                values = {
                    column: str(each[draw(len(each))])
                    for column, each in columns.items()
                    if each
                }
                frame = text_at(template, "text")
                text, gold = filled(frame.replace("{name}", "{given} {family}"), values)
                yield Row(id=row, key="", text=text, gold=gold, tags=(lang,))


def buried() -> Iterator[Row]:
    """Yield the red team's facts at the end of long prose and where a window ends."""
    for number, fact in enumerate(texts("redteam")):
        if text_at(fact, "topic") != BURIED:
            continue
        lang = text_at(fact, "lang")
        (source,) = texts("prose", lang)
        prose = text_at(source, "text")
        words = prose.split()
        for place, before, after in (
            ("end of a document", " ".join([prose] * _LONG), ""),
            *(("window border", " ".join(words[-many:]), prose) for many in _BEFORE),
        ):
            text = " ".join((before, text_at(fact, "text"), after)).strip()
            yield Row(
                id=f"made-up:buried:{number}:{len(before)}",
                key="",
                text=text,
                tags=(lang, place),
            )


def written(name: str) -> tuple[Row, ...]:
    """Return the texts of a file of ours that has no slots."""
    return tuple(
        Row(
            id=f"made-up:{name}:{number}",
            key="",
            text=text_at(row, "text"),
            tags=tuple(filter(None, (text_at(row, "lang"), text_at(row, "topic")))),
        )
        for number, row in enumerate(texts(name))
    )


# --- national numbers --------------------------------------------------------------

FORMS: Final = ("bare", "labelled", "in a sentence")


def national(limit: int) -> Iterator[Row]:
    """Yield valid national numbers, each alone, with its label, and in a sentence.

    Every other one is written without the marks that people put between digits.

    Args:
        limit: numbers of each country; three rows each.
    """
    for source in texts("numbers"):
        country, label = text_at(source, "country"), text_at(source, "label")
        forms = ("{number}", f"{label}: {{number}}", text_at(source, "sentence"))
        checks = checks_of(country, text_at(source, "check"))
        valid = valid_numbers(text_at(source, "shape"), checks, draws(country))
        for at, number in enumerate(islice(valid, limit)):
            written = checks.compact(number) if at % 2 else number
            for form, template in zip(FORMS, forms, strict=True):
                text, gold = filled(template, {"number": written})
                yield Row(
                    id=f"made-up:number:{country}:{at}:{form}",
                    key="",
                    text=text,
                    gold=gold,
                    tags=(country, form),
                )


def checks_of(country: str, name: str) -> Checks:
    """Return what python-stdnum knows of a country's number; it must know it."""
    return cast("Checks", get_cc_module(country, name))


def valid_numbers(shape: str, checks: Checks, draw: Draw) -> Iterator[str]:
    """Yield numbers of a shape whose check digits are right, by trying.

    Args:
        shape: ``#`` a digit, ``@`` a letter, ``*`` either, ``{d}{m}{y}`` parts of a
            date; all else as it is.
        checks: tells which are valid.
        draw: random source.

    Raises:
        ValueError: none of very many is valid.
    """
    template = re.sub("[#@*]", lambda mark: f"{{{mark[0]}}}", shape)
    parts = list(Formatter().parse(template))
    while True:
        for _ in range(_TRIES):
            number = "".join(
                lit + (_drawn(slot, draw) if slot else "") for lit, slot, _, _ in parts
            )
            if checks.is_valid(number):
                yield number
                break
        else:
            raise ValueError(f"no number of the shape {shape} is valid")


def _drawn(slot: str, draw: Draw) -> str:
    if slot in _ALPHABETS:
        alphabet = _ALPHABETS[slot]
        return alphabet[draw(len(alphabet))]
    # Days that every month has, of people who are grown up.
    low, span = {"d": (1, 28), "m": (1, 12), "y": (30, 69)}[slot]
    return f"{low + draw(span):02}"
