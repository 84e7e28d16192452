"""Generated texts in the shapes in which names and secrets were once sent.

Each text comes from a template of ``texts/shapes.jsonl``. Its surname consists of two
syllables and is in no word list. Random choices depend on the row's id alone, so every
run has the same texts. No training reads them.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Final

from curtilage.lab.evaluation.bench import Bench, Judged, Wanted
from curtilage.lab.evaluation.data_files import items, objects, text_at, whole_at
from curtilage.lab.evaluation.figures import Figure, Target
from curtilage.lab.evaluation.made_up import Draw, draws, filled, texts
from curtilage.lab.evaluation.rows import Gold, Row
from curtilage.lab.evaluation.statistics import share_of

MADE: Final = 520  # texts per shape and language, unless the limit is lower
_TOKEN: Final = re.compile(r"⟦[^⟧]+⟧")
_AILING: Final = "🤢🩸🤰💊🏥💉🦠🧠🫀😷🤒🦽"  # each one character
_LENGTHS: Final = (7, 9, 10, 12)
# One digit in this many is written as "double four" instead.
_TWICE: Final = 5


@dataclass(frozen=True, slots=True)
class _Source:
    """A language's templates and words."""

    fields: Mapping[str, object]

    @property
    def lang(self) -> str:
        return text_at(self.fields, "lang")

    def all(self, column: str) -> Sequence[str]:
        return [str(each) for each in items(self.fields[column])]

    def one(self, column: str, draw: Draw) -> str:
        values = self.all(column)
        return values[draw(len(values))]


@cache
def _sources() -> tuple[_Source, ...]:
    """Return each language's data, read once for thousands of texts."""
    return tuple(map(_Source, texts("shapes")))


Make = Callable[[_Source, Draw], tuple[str, tuple[Gold, ...]]]


# --- names ------------------------------------------------------------------------


def _surname(source: _Source, draw: Draw) -> str:
    return source.one("first", draw) + source.one("last", draw)


def _title(source: _Source, draw: Draw) -> tuple[str, tuple[Gold, ...]]:
    title = source.one("titles", draw)
    frame = source.one("title_frames", draw).replace("{title}", title, 1)
    text, gold = filled(frame, {"family": _surname(source, draw)})
    # A title at the beginning of the sentence has a capital; no position changes.
    return text[0].upper() + text[1:], gold


def _particle(source: _Source, draw: Draw) -> tuple[str, tuple[Gold, ...]]:
    particle = source.one("particles", draw)
    frame = source.one("particle_frames", draw).replace("{particle}", particle, 1)
    # Half of them are nouns of the language, since detectors miss those.
    family = source.one("nouns", draw) if draw(2) else _surname(source, draw)
    return filled(frame, {"given": source.one("given", draw), "family": family})


def _lower(source: _Source, draw: Draw) -> tuple[str, tuple[Gold, ...]]:
    frame = source.one("lower_frames", draw)
    frame = f"{source.one('before', draw)} {frame} {source.one('after', draw)}"
    return filled(frame, {"family": _surname(source, draw).lower()})


# --- numbers, secrets, affairs -----------------------------------------------------


def _dictated(source: _Source, draw: Draw) -> tuple[str, tuple[Gold, ...]]:
    number = _said(source, draw, _LENGTHS[draw(len(_LENGTHS))])
    return filled(source.one("number_frames", draw), {"number": number})


def _code(source: _Source, draw: Draw) -> tuple[str, tuple[Gold, ...]]:
    number = _said(source, draw, 3 + draw(4))
    return filled(source.one("code_frames", draw), {"number": number})


def _said(source: _Source, draw: Draw, digits: int) -> str:
    """Return a number in words, with a word for the pauses in it."""
    words, twice = source.all("digits"), text_at(source.fields, "twice")
    gap = source.one("gaps", draw)
    said: list[str] = []
    for at in range(digits):
        if at and at % (2 + draw(3)) == 0:
            said.append(gap)
        if not draw(_TWICE):
            said.append(twice)
        said.append(words[draw(len(words))])
    return " ".join(said)


def _secret(source: _Source, draw: Draw) -> tuple[str, tuple[Gold, ...]]:
    key, net, own = (source.one(each, draw) for each in ("key", "net", "own"))
    joined = key.replace(" ", "_").replace("'", "").lower()
    labels = [
        source.one("natural", draw).format(key=key, net=net),
        f"{own}_{joined}",
        f"{joined}_{own}",
        f"{own}-{joined}".upper(),
        f"{own}{joined.capitalize()}",
    ]
    one, other = (source.one("secrets_words", draw) for _ in range(2))
    mark = "!#%.+-_"[draw(7)]
    value = f"{one}{mark}{other}{draw(900) + 100}"
    label = labels[draw(len(labels))]
    frame = source.one("secret_frames", draw).replace("{label}", label)
    return filled(frame, {"secret": value})


def _budget(source: _Source, draw: Draw) -> tuple[str, tuple[Gold, ...]]:
    costs = source.all("costs")
    first = draw(len(costs))
    # Three different ones.
    values = {f"c{at}": costs[(first + at * 4) % len(costs)] for at in (1, 2, 3)}
    values |= {each: f"{draw(1900) + 60}" for each in "abcd"}
    values["income"] = source.one("income", draw)
    return source.one("budget_frames", draw).format(**values), ()


def _kin(source: _Source, draw: Draw) -> tuple[str, tuple[Gold, ...]]:
    sources = _sources()
    other = sources[draw(len(sources))]
    ill = source if draw(2) else other
    values = {"kin": other.one("kin", draw), "ill": ill.one("ill", draw)}
    return source.one("kin_frames", draw).format(**values), ()


def _emoji(source: _Source, draw: Draw) -> tuple[str, tuple[Gold, ...]]:
    emoji = _AILING[draw(len(_AILING))]
    return source.one("emoji_frames", draw).format(emoji=emoji), ()


# --- what must not leave, and how many of it does -------------------------------------

_SHAPES: Final[Mapping[str, tuple[str, Make, Wanted]]] = MappingProxyType(
    {
        "title": ("a surname behind a title or role", _title, Wanted.NAMELESS),
        "particle": ("a surname behind a particle", _particle, Wanted.NAMELESS),
        "lower": ("a surname in small letters", _lower, Wanted.NAMELESS),
        "dictated": ("a dictated number", _dictated, Wanted.NAMELESS),
        "code": ("a dictated PIN or door code", _code, Wanted.NAMELESS),
        "secret": ("a secret under another label", _secret, Wanted.NAMELESS),
        "budget": ("a household's figures", _budget, Wanted.CAUGHT),
        "kin": ("somebody's health, with words of two languages", _kin, Wanted.CAUGHT),
        "emoji": ("somebody's health, said with an emoji", _emoji, Wanted.CAUGHT),
    }
)


def made(shape: str, lang: str, limit: int) -> tuple[Row, ...]:
    """Return different texts of one shape and language; fewer if there are no more."""
    (source,) = [each for each in _sources() if each.lang == lang]
    make = _SHAPES[shape][1]
    rows: dict[str, Row] = {}
    for at in range(4 * limit):
        name = f"shapes:{shape}:{lang}:{at}"
        text, gold = make(source, draws(name))
        rows.setdefault(text, Row(id=name, key="", text=text, gold=gold, tags=(lang,)))
        if len(rows) == limit:
            break
    return tuple(rows.values())


def shapes(bench: Bench) -> Iterator[Figure]:
    """Yield for each shape and language how many texts leak nothing sensitive."""
    sources = _sources()
    for shape, (title, _, wanted) in _SHAPES.items():
        for source in sources:
            rows = made(shape, source.lang, min(bench.limit, MADE))
            yield bench.figure(
                f"shapes.{shape}.{source.lang}",
                f"{title}, {source.lang}",
                [row for row in rows if bench.has(row)],
                wanted,
                target=Target.at_least(1.0),
            )
    yield from _usable(bench, sources)
    for source in sources:
        harmless = [
            Row(id=f"shapes:harmless:{source.lang}:{at}", key="", text=text)
            for at, text in enumerate(source.all("harmless"))
        ]
        yield bench.figure(
            f"shapes.harmless.{source.lang}",
            f"harmless texts with the same words, {source.lang}: may leave",
            [row for row in harmless if bench.has(row)],
            Wanted.LEAVES,
        )


# --- whether a text stays usable ---------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Whole:
    """A text with names, the words that must remain, and how many people it names."""

    row: Row
    keep: Sequence[str]
    people: int

    def holds(self, judged: Judged) -> bool:
        """Return whether the text sent has its own words and one token per person."""
        sent = judged.outgoing
        tokens = set(_TOKEN.findall(sent))
        return len(tokens) == self.people and all(each in sent for each in self.keep)


def _usable(bench: Bench, sources: Sequence[_Source]) -> Iterator[Figure]:
    """Yield how many rewritten texts lost only the names."""
    for source in sources:
        wholes = [each for each in _wholes(source) if bench.has(each.row)]
        judged = bench.judge([each.row for each in wholes], "usable")
        name = f"shapes.usable.{source.lang}"
        rewritten = [
            (each, found)
            for each, found in zip(wholes, judged, strict=True)
            if not found.stays
        ]
        ended = [each.holds(found) for each, found in rewritten]
        bench.misses += [
            (name, each.row.id)
            for (each, _), well in zip(rewritten, ended, strict=True)
            if not well
        ]
        yield Figure(
            id=name,
            title=f"rewritten texts that lose only names, {source.lang}",
            estimate=share_of(ended),
            target=Target.at_least(1.0),
            note="of the texts that leave with pseudonyms; one token for each person",
        )


def _wholes(source: _Source) -> Iterator[_Whole]:
    given = source.all("given")
    for at, fields in enumerate(objects(source.fields["usable"])):
        for number in range(len(given)):
            name = f"shapes:usable:{source.lang}:{at}:{number}"
            draw = draws(name)
            ga, gb = given[number], given[(number + 1) % len(given)]
            fa, fb = _surname(source, draw), _surname(source, draw)
            names = {"ga": ga, "gb": gb, "fa": fa}
            values = {**names, "a": f"{ga} {fa}", "b": f"{gb} {fb}"}
            yield _Whole(
                Row(id=name, key="", text=text_at(fields, "text").format(**values)),
                [str(each) for each in items(fields["keep"])],
                whole_at(fields, "people") or 0,
            )
