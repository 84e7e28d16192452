"""Figures about names: whose are noticed, in which texts, and which parts are sent."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from curtilage.lab.evaluation.bench import Bench, Judged, Wanted
from curtilage.lab.evaluation.datasets import FIRST_NAME
from curtilage.lab.evaluation.figures import Figure, Target
from curtilage.lab.evaluation.identifiers import lowered
from curtilage.lab.evaluation.rows import Row, sampled, sampled_each
from curtilage.lab.evaluation.statistics import Estimate, difference, share_of

PERSON: Final = frozenset(
    {
        "identifier.direct.person",
        "identifier.public.figure",
        "identifier.direct.username",
        "uncertain.name",
    }
)
_CLASSES: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "PERSON": PERSON,
        "LOCATION": frozenset(
            {
                "identifier.direct.address",
                "identifier.quasi.city",
                "identifier.quasi.zip",
            }
        ),
        "ORGANIZATION": frozenset({"identifier.quasi.employer"}),
    }
)
# The set's own letters; a name with two of them is in no group here.
_GROUPS: Final[Mapping[str, str]] = MappingProxyType(
    {"AF": "African-American", "AS": "Asian", "HA": "Hispanic", "WO": "white"}
)
_GENDERS: Final[Mapping[str, str]] = MappingProxyType({"F": "women", "M": "men"})
_GAP: Final = Target.at_most(0.05)
_SHARE_OF_FIRST_NAMES: Final = 2


# --- PUPA -----------------------------------------------------------------------


def pupa(bench: Bench) -> Iterator[Figure]:
    """Yield how many real queries are flagged, and which of their units are sent."""
    rows = bench.sample(bench.rows("pupa"))
    with_units = [row for row in rows if row.units]
    note = "PUPA was scrubbed, and its units were marked by a model: no recall"
    yield bench.figure(
        "pupa.flagged",
        "queries that do not leave unchanged",
        with_units,
        Wanted.CAUGHT,
        note=note,
    )
    judged = bench.judge(with_units, "pupa")
    yield Figure(
        id="pupa.leak",
        title="units that leave",
        estimate=share_of(
            [leak for each in judged for leak in each.leaks(each.row.units)]
        ),
        note=note,
    )


# --- fairness -------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Variant:
    """One way to write the names.

    Attributes:
        id: part of the figures' ids; empty for the plain way.
        title: for people.
        rows: a sample with equal shares of the groups.
    """

    id: str
    title: str
    rows: Sequence[Row]


def fairness(bench: Bench) -> Iterator[Figure]:
    """Yield how often a name is noticed, by group, and the largest difference."""
    for variant in _variants(bench):
        judged = bench.judge(variant.rows, f"fairness{variant.title}")
        for tags, gap in ((_GROUPS, "gap"), (_GENDERS, "gap_gender")):
            shares = {tag: _noticed(judged, tag) for tag in tags}
            for tag, title in tags.items():
                places = [(row, row.gold[0]) for row in variant.rows if tag in row.tags]
                yield Figure(
                    id=f"fairness.group{variant.id}.{tag.lower()}",
                    title=f"{title}{variant.title}",
                    estimate=shares[tag],
                    stocks=bench.stock_noticed(places, frozenset({"PERSON"})),
                )
            yield _gap(variant, gap, list(shares.values()))


def _variants(bench: Bench) -> Iterator[_Variant]:
    rows = bench.rows("pii-masking-bias")
    full = [row for row in rows if FIRST_NAME not in row.tags]
    first = [row for row in rows if FIRST_NAME in row.tags]
    chosen = sampled_each(full, tuple(_GROUPS), bench.limit)
    yield _Variant(id="", title="", rows=chosen)
    yield _Variant(
        id=".lower", title=", lower case", rows=[lowered(row) for row in chosen]
    )
    limit = bench.limit // _SHARE_OF_FIRST_NAMES
    alone = sampled_each(first, tuple(_GROUPS), limit)
    yield _Variant(id=".first", title=", first name alone", rows=alone)


def _noticed(judged: Sequence[Judged], tag: str) -> Estimate:
    return share_of(
        [
            each.notices(each.row.gold[0], PERSON)
            for each in judged
            if tag in each.row.tags
        ]
    )


def _gap(variant: _Variant, name: str, shares: Sequence[Estimate]) -> Figure:
    known = sorted((each for each in shares if each.n), key=lambda each: each.value)
    empty = Estimate(value=0.0, low=0.0, high=1.0, n=0)
    gap = difference(known[-1], known[0]) if known else empty
    kind = "genders" if name.endswith("gender") else "groups"
    return Figure(
        id=f"fairness.{name}{variant.id}",
        title=f"largest gap between {kind}{variant.title}",
        estimate=gap,
        unit="points",
        # The target applies to names in the normal spelling; the others are
        # informative.
        target=None if variant.id else _GAP,
    )


# --- names by corpus --------------------------------------------------------------


def names(bench: Bench) -> Iterator[Figure]:
    """Yield the recall for names, places and organisations in each corpus."""
    for name in ("ner-corpora", "uner-ewt", "nlu-evaluation-data"):
        rows = bench.rows(name)
        for corpus in sorted({row.tags[0] for row in rows}):
            part = [row for row in rows if row.tags[0] == corpus]
            yield from _of_corpus(bench, corpus, sampled(_marked(part), bench.limit))
    for name in ("uner-german-pud", "uner-swedish-talbanken"):
        rows = bench.sample(_marked(bench.rows(name)))
        yield Figure(
            id=f"names.gate.{name.removeprefix('uner-')}",
            title=f"{name.removeprefix('uner-')}: texts that stay home",
            estimate=share_of([not each.leaves for each in bench.judge(rows, name)]),
        )
        corpus = name.removeprefix("uner-")
        yield from _of_corpus(bench, corpus, rows)


def _marked(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row.gold]


def _of_corpus(bench: Bench, corpus: str, rows: Sequence[Row]) -> Iterator[Figure]:
    judged = bench.judge(rows, corpus)
    for kind, classes in _CLASSES.items():
        places = [
            (each, gold)
            for each in judged
            for gold in each.row.gold
            if gold.kind == kind
        ]
        if not places:
            continue
        yield Figure(
            id=f"names.{corpus}.{kind.lower()}",
            title=f"{corpus}: {kind}",
            estimate=share_of([each.notices(gold, classes) for each, gold in places]),
            stocks=bench.stock_noticed(
                ((each.row, gold) for each, gold in places), frozenset({kind})
            ),
        )
