"""Shared parts of an evaluation's sections: rows, verdicts, and a comparison.

All detectors inspect each row once (``scan: full``), with a deadline that a busy
machine meets too, so the figures are about detection alone. There are separate
figures for time. A bench keeps texts while it runs, and shows none.
"""

import queue
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final, Protocol, Self

from curtilage.client.chat.query import Query, single_query
from curtilage.client.detection.checked import InspectsMany
from curtilage.client.pseudonyms.deidentified import Deidentified
from curtilage.client.pseudonyms.rewrite import deidentify, findings_asked
from curtilage.lab.evaluation.data_files import MissingSetError
from curtilage.lab.evaluation.datasets import read_set
from curtilage.lab.evaluation.figures import Figure, Routes, Target
from curtilage.lab.evaluation.rows import Gold, Part, Row, in_part, sampled
from curtilage.lab.evaluation.statistics import Estimate, share_of
from curtilage.policy.decision.decide import Assessment, Inspection, assess
from curtilage.policy.decision.findings import Normalization
from curtilage.policy.decision.routes import Route
from curtilage.policy.document.model import Policy, full_scan

BATCH: Final = 32
_KEY: Final = bytes(32)  # of a vault that has nothing to protect: the data is public
_SHORT: Final = 3  # a shorter unit is in every text


class FindsSpans(Protocol):
    """The part of plain Presidio that is used."""

    def spans(self, text: str) -> Sequence["HasPlace"]:
        """Return its results."""
        ...


class HasPlace(Protocol):
    """A result of plain Presidio."""

    @property
    def kind(self) -> str:
        """Presidio's name for the entity."""
        ...

    @property
    def start(self) -> int:
        """First character."""
        ...

    @property
    def end(self) -> int:
        """One past the last."""
        ...


Notify = Callable[[str], None]


class Wanted(Enum):
    """The expected handling of a row."""

    CAUGHT = auto()  # it must not be sent unchanged
    HOME = auto()  # it must be kept local
    LEAVES = auto()  # it may be sent, unchanged or with pseudonyms
    NAMELESS = auto()  # it is kept local, or nothing that is marked in it is sent


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A row with its findings, its decision, and the text that would be sent.

    Attributes:
        row: the row.
        inspection: by all detectors.
        decision: about the row as it is.
        outgoing: the text that would be sent; empty if none would be, also if
            pseudonyms could not be inserted or did not suffice.
    """

    row: Row
    inspection: Inspection = field(repr=False)
    decision: Assessment
    outgoing: str = field(default="", repr=False)

    @property
    def caught(self) -> bool:
        """Whether it is not sent unchanged."""
        return self.decision.route is not Route.ENCLAVE

    @property
    def leaves(self) -> bool:
        """Whether it may be sent, unchanged or with pseudonyms."""
        return self.decision.route in {Route.ENCLAVE, Route.DEIDENTIFY}

    @property
    def stays(self) -> bool:
        """Whether it is kept local, after a look at the text with pseudonyms too."""
        return not self.outgoing

    def leaks(self, values: Iterable[str]) -> list[bool]:
        """Return for each value whether it is in the text that would be sent."""
        return [_is_in(value, self.outgoing) for value in values]

    def ends(self, wanted: Wanted) -> bool:
        """Return whether the row ends as it should."""
        match wanted:
            case Wanted.CAUGHT:
                return self.caught
            case Wanted.HOME:
                return not self.leaves
            case Wanted.LEAVES:
                return self.leaves
            case Wanted.NAMELESS:
                marks = map(self.row.value, self.row.gold)
                return not any(self.leaks((*marks, *self.row.units)))

    def notices(self, gold: Gold, classes: frozenset[str]) -> bool:
        """Return whether a finding of these classes touches the marked characters."""
        return any(
            found.data_class in classes
            and found.normalization is Normalization.RAW
            and found.start < gold.end
            and gold.start < found.end
            for found in self.inspection.findings
        )


@dataclass(slots=True, kw_only=True)
class Bench:
    """The data, the detectors and the results so far of one run.

    Attributes:
        data: the folder of sets.
        part: which rows count.
        limit: the most rows of a set, or of each tag if a set has several.
        policy: makes the decisions.
        inspectors: inspect the rows; several share the work.
        stocks: plain Presidio, and Presidio with a model; may be empty.
        own: the user's own labelled texts.
        notify: receives progress lines for the user.
        missing: sets that were not found.
        misses: ``(figure, row id)`` of rows on the wrong side.
    """

    data: Path
    part: Part
    limit: int
    policy: Policy
    inspectors: Sequence[InspectsMany]
    stocks: Sequence[FindsSpans] = ()
    own: Sequence[Row] = field(default=(), repr=False)
    notify: Notify = field(default=lambda _: None)
    missing: list[str] = field(default_factory=list[str])
    misses: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    _rows: dict[str, tuple[Row, ...]] = field(
        default_factory=dict[str, tuple[Row, ...]]
    )
    _judged: dict[str, Judged] = field(default_factory=dict[str, Judged])
    _spans: dict[tuple[int, str], Sequence[HasPlace]] = field(
        default_factory=dict[tuple[int, str], "Sequence[HasPlace]"]
    )

    @property
    def patient(self) -> Policy:
        """The policy that the inspectors were started with."""
        return full_scan(self.policy)

    def of_part(self, part: Part) -> Self:
        """Return a bench for other rows, with the same detectors and texts."""
        return replace(self, part=part, _rows={})

    def rows(self, name: str) -> tuple[Row, ...]:
        """Return a set's rows in this part; none, with a notice, if it is missing."""
        if name not in self._rows:
            try:
                every = read_set(self.data, name)
            except MissingSetError as error:
                self.missing.append(name)
                self.notify(f"MISSING SET, not measured: {error}")
                every = ()
            self._rows[name] = tuple(row for row in every if in_part(row, self.part))
        return self._rows[name]

    def has(self, row: Row) -> bool:
        """Return whether a row is in the part that is measured."""
        return in_part(row, self.part)

    def sample(self, rows: Iterable[Row]) -> tuple[Row, ...]:
        """Return at most ``limit`` of these rows, the same ones in each run."""
        return sampled(rows, self.limit)

    def judge(self, rows: Sequence[Row], title: str) -> list[Judged]:
        """Return a verdict on each row, in order."""
        new = [row for row in rows if row.id not in self._judged]
        queries = [single_query(row.text) for row in new]
        inspections = list(self.inspect(queries, title))
        decisions = [assess(self.policy.rulebook, each) for each in inspections]
        texts = self._outgoing(queries, inspections, decisions)
        for row, found, decision, outgoing in zip(
            new, inspections, decisions, texts, strict=True
        ):
            self._judged[row.id] = Judged(
                row=row, inspection=found, decision=decision, outgoing=outgoing
            )
        return [self._judged[row.id] for row in rows]

    def _outgoing(
        self,
        queries: Sequence[Query],
        inspections: Sequence[Inspection],
        decisions: Sequence[Assessment],
    ) -> list[str]:
        """Return the text of each query as a session would send it."""
        texts = [
            query.messages[0].content if decision.route is Route.ENCLAVE else ""
            for query, decision in zip(queries, decisions, strict=True)
        ]
        rewritten: dict[int, Deidentified] = {}
        for at, decision in enumerate(decisions):
            if decision.route is Route.DEIDENTIFY:
                found = findings_asked(self.policy, inspections[at], decision)
                made = deidentify(queries[at], found, key=_KEY)
                if isinstance(made, Deidentified):
                    rewritten[at] = made
        # Like a session, inspect the text with pseudonyms again; whatever is still
        # found in it keeps it local.
        again = self.inspect([each.reading for each in rewritten.values()], "rescan")
        for (at, made), seen in zip(rewritten.items(), again, strict=True):
            if (
                assess(self.policy.rulebook, made.inspected(seen)).route
                is Route.ENCLAVE
            ):
                texts[at] = made.outgoing_texts()[0]
        return texts

    def inspect(self, queries: Sequence[Query], title: str) -> Iterator[Inspection]:
        """Yield an inspection of each query, in order."""
        if not queries:
            return
        waiting = iter(queries)
        batches = list(iter(lambda: list(islice(waiting, BATCH)), []))
        free: queue.SimpleQueue[InspectsMany] = queue.SimpleQueue()
        for inspector in self.inspectors:
            free.put(inspector)

        def run(batch: list[Query]) -> list[Inspection]:
            inspector = free.get()
            try:
                return list(inspector.inspect_many(batch))
            finally:
                free.put(inspector)

        done = 0
        with ThreadPoolExecutor(len(self.inspectors)) as pool:
            for found in pool.map(run, batches):
                done += len(found)
                self.notify(f"\r{title}: {done} of {len(queries)}")
                yield from found

    def figure(
        self,
        name: str,
        title: str,
        rows: Sequence[Row],
        wanted: Wanted,
        *,
        target: Target | None = None,
        note: str = "",
    ) -> Figure:
        """Return the share of rows that end as wanted, and record the others.

        Presidio's share is given next to it: the rows in which it reports anything,
        which a gate built on it would block; or, if a text should be sent, those
        without a report.
        """
        judged = self.judge(rows, title)
        ended = [each.ends(wanted) for each in judged]
        self.misses += [
            (name, each.row.id)
            for each, well in zip(judged, ended, strict=True)
            if not well
        ]
        free = wanted is Wanted.LEAVES
        return Figure(
            id=name,
            title=title,
            estimate=share_of(ended),
            target=target,
            stocks=tuple(
                share_of([bool(spans(row)) is not free for row in rows])
                for spans in self.stock_spans()
            ),
            routes=routes_of(judged),
            note=note,
        )

    # --- the comparison -------------------------------------------------------

    def stock_spans(self) -> Iterator[Callable[[Row], Sequence[HasPlace]]]:
        """Yield for each Presidio a function that returns its results for a row."""

        def spans(number: int, row: Row) -> Sequence[HasPlace]:
            if (number, row.id) not in self._spans:
                self._spans[number, row.id] = self.stocks[number].spans(row.text)
            return self._spans[number, row.id]

        return (partial(spans, number) for number in range(len(self.stocks)))

    def stock_noticed(
        self, places: Iterable[tuple[Row, Gold]], kinds: frozenset[str] | None = None
    ) -> tuple[Estimate, ...]:
        """Return for each Presidio the share of marks that one of its results touches.

        Args:
            places: what is marked.
            kinds: Presidio's entities that count; None: all.
        """
        marks = tuple(places)
        return tuple(
            share_of(
                [
                    any(
                        (kinds is None or span.kind in kinds)
                        and span.start < gold.end
                        and gold.start < span.end
                        for span in spans(row)
                    )
                    for row, gold in marks
                ]
            )
            for spans in self.stock_spans()
        )

    def stock_leaks(self, places: Iterable[tuple[Row, Gold]]) -> tuple[Estimate, ...]:
        """Return for each Presidio the share of marks that remain after masking."""
        marks = tuple(places)
        return tuple(
            share_of(
                [
                    _is_in(row.value(gold), masked(row.text, spans(row)))
                    for row, gold in marks
                ]
            )
            for spans in self.stock_spans()
        )


def masked(text: str, spans: Iterable[HasPlace]) -> str:
    """Return a text with blanks in place of the findings."""
    characters = list(text)
    for span in spans:
        characters[span.start : span.end] = " " * (span.end - span.start)
    return "".join(characters)


def routes_of(judged: Sequence[Judged]) -> Routes | None:
    """Return the shares of the routes; None if there are no rows."""
    if not judged:
        return None
    left = sum(each.leaves for each in judged) / len(judged)
    unchanged = sum(not each.caught for each in judged) / len(judged)
    return Routes(home=1 - left, pseudonyms=left - unchanged, unchanged=unchanged)


def _is_in(value: str, text: str) -> bool:
    return len(value) >= _SHORT and value.casefold() in text.casefold()
