"""What every section of an evaluation needs: rows, verdicts, and a comparison.

Each row is looked at once, by all detectors (``scan: full``) and with a
deadline that a busy machine keeps too: the figures then tell about detection
alone. Time has figures of its own. Holds texts while it runs, and tells none.
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

from curtilage.client.detection.checked import InspectsMany
from curtilage.client.pseudonyms.deidentified import Deidentified
from curtilage.client.pseudonyms.rewrite import deidentify, findings_asked
from curtilage.client.query import Query, single_query
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
_KEY: Final = bytes(32)  # of a vault that hides nothing: the data is public
_SHORT: Final = 3  # a unit of fewer characters is in every text


class FindsSpans(Protocol):
    """What is used of plain Presidio."""

    def spans(self, text: str) -> Sequence["HasPlace"]:
        """Return what it reports."""
        ...


class HasPlace(Protocol):
    """A result of plain Presidio."""

    @property
    def kind(self) -> str:
        """Its own name of the entity."""
        ...

    @property
    def start(self) -> int:
        """First character."""
        ...

    @property
    def end(self) -> int:
        """One past the last."""
        ...


Tell = Callable[[str], None]


class Wanted(Enum):
    """What should become of a row."""

    CAUGHT = auto()  # it does not leave unchanged
    HOME = auto()  # it does not leave
    LEAVES = auto()  # it may leave, as it is or with pseudonyms
    NAMELESS = auto()  # it stays, or what leaves has nothing of what is marked in it


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A row, what was found in it, where it may go, and what would leave.

    Attributes:
        row: the row.
        inspection: by all detectors.
        decision: about the row as it is.
        outgoing: the text that would leave this device; empty where none does,
            also where pseudonyms could not be put in, or did not suffice.
    """

    row: Row
    inspection: Inspection = field(repr=False)
    decision: Assessment
    outgoing: str = field(default="", repr=False)

    @property
    def caught(self) -> bool:
        """Whether it does not leave unchanged."""
        return self.decision.route is not Route.ENCLAVE

    @property
    def leaves(self) -> bool:
        """Whether it may leave, as it is or with pseudonyms."""
        return self.decision.route in {Route.ENCLAVE, Route.DEIDENTIFY}

    @property
    def stays(self) -> bool:
        """Whether nothing leaves, after the second look at what has pseudonyms."""
        return not self.outgoing

    def leaks(self, values: Iterable[str]) -> list[bool]:
        """Tell for each value whether it stands in what would leave."""
        return [_stands_in(value, self.outgoing) for value in values]

    def ends(self, wanted: Wanted) -> bool:
        """Tell whether the row ends as it should."""
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
        """Tell whether a finding of these classes touches the marked characters."""
        return any(
            found.data_class in classes
            and found.normalization is Normalization.RAW
            and found.start < gold.end
            and gold.start < found.end
            for found in self.inspection.findings
        )


@dataclass(slots=True, kw_only=True)
class Bench:
    """One run's data, detectors and results so far.

    Attributes:
        data: the folder of sets.
        part: which rows count.
        limit: most rows of a set, for each tag where a set has several.
        policy: decides.
        inspectors: look; more than one share the work.
        stocks: plain Presidio, and Presidio with a model; may be empty.
        own: labelled texts of who measures.
        tell: takes a line for the person who waits.
        missing: sets that were not there.
        misses: ``(figure, row id)`` of rows on the wrong side.
    """

    data: Path
    part: Part
    limit: int
    policy: Policy
    inspectors: Sequence[InspectsMany]
    stocks: Sequence[FindsSpans] = ()
    own: Sequence[Row] = field(default=(), repr=False)
    tell: Tell = field(default=lambda _: None)
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
        """The policy under which the inspectors were started."""
        return full_scan(self.policy)

    def of_part(self, part: Part) -> Self:
        """Return a bench for other rows with the same detectors and the same texts."""
        return replace(self, part=part, _rows={})

    def rows(self, name: str) -> tuple[Row, ...]:
        """Return a set's rows of this part; none, said loudly, if it is missing."""
        if name not in self._rows:
            try:
                every = read_set(self.data, name)
            except MissingSetError as error:
                self.missing.append(name)
                self.tell(f"MISSING SET, not measured: {error}")
                every = ()
            self._rows[name] = tuple(row for row in every if in_part(row, self.part))
        return self._rows[name]

    def has(self, row: Row) -> bool:
        """Tell whether a row is of the part that is measured."""
        return in_part(row, self.part)

    def sample(self, rows: Iterable[Row]) -> tuple[Row, ...]:
        """Return at most ``limit`` of these rows, the same ones each time."""
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
        """Return what would leave of each query, as a session would send it."""
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
        # The second look of a session: with its pseudonyms, a text is inspected again,
        # and what is still found in it keeps it home.
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
                self.tell(f"\r{title}: {done} of {len(queries)}")
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
        """Return the share of rows that end as wanted; note the others.

        Beside it, of Presidio: the share in which it reports anything, which a gate
        built on it would keep; where a text should leave, that in which it does not.
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
        """Yield, for each Presidio, what returns its results in a row."""

        def spans(number: int, row: Row) -> Sequence[HasPlace]:
            if (number, row.id) not in self._spans:
                self._spans[number, row.id] = self.stocks[number].spans(row.text)
            return self._spans[number, row.id]

        return (partial(spans, number) for number in range(len(self.stocks)))

    def stock_noticed(
        self, places: Iterable[tuple[Row, Gold]], kinds: frozenset[str] | None = None
    ) -> tuple[Estimate, ...]:
        """Return, for each Presidio, the share of marks that a result of it touches.

        Args:
            places: what is marked.
            kinds: Presidio's entities that count; None: any.
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
        """Return, for each Presidio, the share of marks that its masks leave."""
        marks = tuple(places)
        return tuple(
            share_of(
                [
                    _stands_in(row.value(gold), masked(row.text, spans(row)))
                    for row, gold in marks
                ]
            )
            for spans in self.stock_spans()
        )


def masked(text: str, spans: Iterable[HasPlace]) -> str:
    """Return a text with blanks in place of what was found in it."""
    characters = list(text)
    for span in spans:
        characters[span.start : span.end] = " " * (span.end - span.start)
    return "".join(characters)


def routes_of(judged: Sequence[Judged]) -> Routes | None:
    """Return where rows go; None for no rows."""
    if not judged:
        return None
    left = sum(each.leaves for each in judged) / len(judged)
    unchanged = sum(not each.caught for each in judged) / len(judged)
    return Routes(home=1 - left, pseudonyms=left - unchanged, unchanged=unchanged)


def _stands_in(value: str, text: str) -> bool:
    return len(value) >= _SHORT and value.casefold() in text.casefold()
