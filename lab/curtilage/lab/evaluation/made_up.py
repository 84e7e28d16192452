"""Texts made for this project: invented people, numbers and sentences to measure with.

The sentences and names are in ``texts/``, one row per line. No training reads them:
they are held out by construction, and so have no key for the split. Random choices
depend on a row's position alone, so every run has the same texts.
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
# Slots that identify no one: the question, an illness, and a town.
_NOT_MARKED: Final = frozenset({"question", "illness", "place"})
_KINDS: Final[Mapping[str, str]] = {"given": "PERSON", "family": "PERSON"}
_ALPHABETS: Final[Mapping[str, str]] = {
    "#": digits,
    "@": ascii_uppercase,
    "*": digits + ascii_uppercase,
}
_TRIES: Final = 40_000  # about one in 3,000 candidates of the rarest kind is valid
_FILLED: Final = 3  # how often a template is filled
_LONG: Final = 8  # paragraphs of prose, about 900 words
# The names model reads windows of 128 pieces: 75 to 105 words, depending on the
# language.
_BEFORE: Final = (60, 75, 90, 105)

BURIED: Final = "buried"  # the topic of facts inside long texts

Draw = Callable[[int], int]  # returns a number below its argument


class Checks(Protocol):
    """The part of a python-stdnum module that is used."""

    def is_valid(self, number: str) -> bool:
        """Return whether a number could have been issued."""
        ...

    def compact(self, number: str) -> str:
        """Return a number without its separators."""
        ...


def texts(name: str, lang: str = "") -> Sequence[Mapping[str, object]]:
    """Return the rows of one of our files, filtered by language if one is given."""
    rows = read_json_lines(_TEXTS / f"{name}.jsonl")
    return [row for row in rows if not lang or row["lang"] == lang]


def languages() -> Sequence[str]:
    """Return the languages for which there are people, sentences and illnesses."""
    return [text_at(row, "lang") for row in texts("languages")]


def draws(seed: str) -> Draw:
    """Return a number source that repeats itself for the same seed."""
    blocks = (
        int.from_bytes(
            hashlib.sha256(f"curtilage-made-up:{seed}:{at}".encode()).digest()
        )
        for at in count()
    )
    return lambda below: next(blocks) % below


def filled(template: str, values: Mapping[str, str]) -> tuple[str, tuple[Gold, ...]]:
    """Return a template with its slots filled, and the positions of what identifies."""
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
    """Return an invented person: names, address and contact details."""
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
    """Yield each question inside a template that says who asks it, or for whom.

    The question's key is kept, so that it stays in the same part of the split.
    """
    templates = texts("clinical", lang)
    for row in rows:
        template = templates[draws(row.id)(len(templates))]
        values = {**person(lang, row.id), "question": row.text}
        text, gold = filled(text_at(template, "text"), values)
        yield Row(id=f"asked:{row.id}", key=row.key, text=text, gold=gold, tags=(lang,))


def sentences(lang: str, kind: str, limit: int) -> tuple[Row, ...]:
    """Return sentences of one language that name somebody, or mention an illness.

    Args:
        lang: one of ``languages``.
        kind: ``named`` or ``health``.
        limit: the maximum number.
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
            # Every name is combined with every other one before any pair repeats.
            for column, place in (("given", number), ("family", number + at)):
                names = items(source[column])
                values[column] = str(names[place % len(names)])
        text, gold = filled(frame.replace("{name}", "{given} {family}"), values)
        rows.append(Row(id=name, key="", text=text, gold=gold, tags=(lang,)))
    return sampled(rows, limit)


def surnames(limit: int) -> tuple[Row, ...]:
    """Return sentences with only a surname, from every naming tradition we have."""
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
    """Yield one language's templates of a file, each filled in three times.

    Yields nothing if there are no invented people for the language.
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
    """Yield the red team's facts at the end of long prose and of a window."""
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
    """Return the texts of one of our files without slots."""
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
    """Yield valid national numbers, each alone, with a label, and in a sentence.

    Every other one is written without separators.

    Args:
        limit: numbers per country; there are three rows for each.
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
    """Return the python-stdnum module for a country's number; it must exist."""
    return cast("Checks", get_cc_module(country, name))


def valid_numbers(shape: str, checks: Checks, draw: Draw) -> Iterator[str]:
    """Yield numbers of a given shape with valid check digits, found by trial.

    Args:
        shape: ``#`` a digit, ``@`` a letter, ``*`` either, ``{d}{m}{y}`` parts of a
            date; other characters are literal.
        checks: decides which are valid.
        draw: random source.

    Raises:
        ValueError: no valid number was found in very many attempts.
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
    # Days that every month has, and birth years of adults.
    low, span = {"d": (1, 28), "m": (1, 12), "y": (30, 69)}[slot]
    return f"{low + draw(span):02}"
