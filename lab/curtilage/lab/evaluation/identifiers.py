"""Figures about what identifies or reaches a person, written plainly or disguised."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from curtilage.client.chat.query import Message, Query
from curtilage.lab.evaluation import disguises as redteam
from curtilage.lab.evaluation.bench import Bench, Wanted
from curtilage.lab.evaluation.figures import Figure, Target
from curtilage.lab.evaluation.rows import Row
from curtilage.lab.evaluation.statistics import share_of
from curtilage.policy.decision.decide import assess
from curtilage.policy.decision.routes import Route

SET: Final = "presidio-research"
STRUCTURED: Final = frozenset(
    {
        "CREDIT_CARD",
        "EMAIL_ADDRESS",
        "IBAN_CODE",
        "IP_ADDRESS",
        "PHONE_NUMBER",
        "US_DRIVER_LICENSE",
        "US_SSN",
    }
)
HOST: Final = "DOMAIN_NAME"
IDENTIFYING: Final = STRUCTURED | {"PERSON", "STREET_ADDRESS", "ADDRESS"}
LOWER: Final = "lower"
_FLAGGED: Final = "stock Presidio: any result at 35 in the text, or touching the mark"
_TYPE_NOTE: Final = (
    "by type: a mark is safe if its text stays home, or what leaves lacks it"
)
_LEAK_NOTE: Final = (
    "marks that leave: the marked characters are in the text that goes out; for "
    "Presidio, in the text with all its results masked"
)
_LEFT: Final = Target.at_most(0.01)
_STRUCTURED_TARGET: Final = Target.at_least(0.99)
_IDENTIFYING_TARGET: Final = Target.at_least(0.95)
_EVASION_TARGET: Final = Target.at_least(175 / 180)


def with_kind(rows: Sequence[Row], kinds: frozenset[str]) -> list[Row]:
    """Return the rows in which something of these kinds is marked."""
    return [row for row in rows if any(each.kind in kinds for each in row.gold)]


def lowered(row: Row) -> Row:
    """Return a row in lower case; a letter whose lower case is longer is kept."""
    small = (
        low if len(low := char.lower()) == len(char) else char for char in row.text
    )
    return replace(
        row, id=f"{row.id}:{LOWER}", text="".join(small), tags=(*row.tags, LOWER)
    )


# --- structured and identifying -----------------------------------------------


def structured(bench: Bench) -> Iterator[Figure]:
    """Yield the recall for texts with structured identifiers, in all and by type."""
    rows = bench.rows(SET)
    plain = with_kind(rows, STRUCTURED)
    yield _recall(
        bench,
        "structured.query",
        "texts with a structured identifier",
        plain,
        target=_STRUCTURED_TARGET,
    )
    yield _recall(
        bench,
        "structured.query_lower",
        "the same in lower case",
        [lowered(row) for row in plain],
    )
    yield _recall(
        bench,
        "structured.query_hosts",
        "host names counted as identifiers too",
        with_kind(rows, STRUCTURED | {HOST}),
    )


def identifying(bench: Bench) -> Iterator[Figure]:
    """Yield the recall for texts that identify a person, by type, and the leaks."""
    rows = bench.rows(SET)
    chosen = with_kind(rows, IDENTIFYING)
    small = [lowered(row) for row in chosen]
    yield _recall(
        bench,
        "identifying.query",
        "texts with an identifier, a person or an address",
        chosen,
        target=_IDENTIFYING_TARGET,
    )
    yield _recall(bench, "identifying.query_lower", "the same in lower case", small)
    for tag in sorted({tag for row in chosen for tag in row.tags}):
        part = [row for row in chosen if tag in row.tags]
        if len(part) < len(chosen):
            yield _recall(bench, f"identifying.file.{tag}", f"of these, {tag}", part)
    title = "identifying marks that leave"
    yield from leaks(bench, "identifying.leak", title, chosen)
    yield from leaks(bench, "identifying.leak_lower", f"{title}, lower case", small)
    yield from _by_type(bench, rows, "identifying.type", "")
    yield from _by_type(
        bench, [lowered(row) for row in rows], "identifying.type_lower", ", lower case"
    )


def _recall(
    bench: Bench,
    name: str,
    title: str,
    rows: Sequence[Row],
    *,
    target: Target | None = None,
) -> Figure:
    note = _FLAGGED if bench.stocks else ""
    return bench.figure(name, title, rows, Wanted.CAUGHT, target=target, note=note)


def leaks(
    bench: Bench,
    name: str,
    title: str,
    rows: Sequence[Row],
    kinds: frozenset[str] = IDENTIFYING,
) -> Iterator[Figure]:
    """Yield which marks are in the text sent: for all rows, and for changed ones.

    Presidio's share is given next to it: the marks that remain in the same texts after
    masking all its results.
    """
    judged = bench.judge(rows, title)
    changed = [each for each in judged if each.decision.route is Route.DEIDENTIFY]
    for more, chosen, heading, target in (
        ("", judged, title, None),
        ("_deidentified", changed, f"{title}, with pseudonyms", _LEFT),
    ):
        marks = [
            (each, gold)
            for each in chosen
            for gold in each.row.gold
            if gold.kind in kinds
        ]
        yield Figure(
            id=f"{name}{more}",
            title=heading,
            estimate=share_of(
                [any(each.leaks([each.row.value(gold)])) for each, gold in marks]
            ),
            target=target,
            stocks=bench.stock_leaks((each.row, gold) for each, gold in marks),
            note=_LEAK_NOTE,
        )


def _by_type(
    bench: Bench, rows: Sequence[Row], name: str, more: str
) -> Iterator[Figure]:
    judged = bench.judge([row for row in rows if row.gold], f"types{more}")
    counts = Counter(gold.kind for each in judged for gold in each.row.gold)
    for kind, _ in counts.most_common():
        marks = [
            (each, gold)
            for each in judged
            for gold in each.row.gold
            if gold.kind == kind
        ]
        yield Figure(
            id=f"{name}.{kind.lower()}",
            title=f"{kind}{more}",
            estimate=share_of(
                [not any(each.leaks([each.row.value(gold)])) for each, gold in marks]
            ),
            stocks=bench.stock_noticed((each.row, gold) for each, gold in marks),
            note=_TYPE_NOTE,
        )


# --- evasion ------------------------------------------------------------------


def evasion(bench: Bench) -> Iterator[Figure]:
    """Yield how many disguised identifiers are caught, also split over turns."""
    rows = [
        Row(id=f"evasion:{case.identifier}:{case.mutation}", key="", text=case.text)
        for case in redteam.mutated()
    ]
    yield _recall(
        bench,
        "evasion.mutations",
        "identifiers in 30 disguises",
        rows,
        target=_EVASION_TARGET,
    )
    for seed in redteam.SEEDS:
        part = [row for row in rows if f":{seed.name}:" in row.id]
        yield _recall(bench, f"evasion.of.{seed.name}", f"  {seed.name}", part)
    yield _split(bench, "evasion.turns", "split over two to four turns", "")
    answer = "Noted, please go on."
    title = "split over turns, answers in between"
    yield _split(bench, "evasion.turns_answered", title, answer)


def _split(bench: Bench, name: str, title: str, answer: str) -> Figure:
    queries = [
        _over_turns(seed.value, turns, answer)
        for seed in redteam.SEEDS
        for turns in (2, 3, 4)
    ]
    found = bench.inspect(queries, title)
    caught = [
        assess(bench.policy.rulebook, inspection).route is not Route.ENCLAVE
        for inspection in found
    ]
    return Figure(id=name, title=title, estimate=share_of(caught))


def _over_turns(value: str, turns: int, answer: str) -> Query:
    """Return a conversation in which each user turn has a piece of a value."""
    size = -(-len(value) // turns)
    messages: list[Message] = []
    for at in range(0, len(value), size):
        if messages and answer:
            messages.append(Message(role="assistant", content=answer))
        messages.append(Message(role="user", content=value[at : at + size]))
    return Query(messages=tuple(messages))
