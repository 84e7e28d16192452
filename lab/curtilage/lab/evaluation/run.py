"""The whole evaluation, section by section, and the choice of its figures."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, Protocol

from curtilage.client.chat.query import single_query
from curtilage.lab.evaluation.bench import Bench
from curtilage.lab.evaluation.curve import Closes, ner_recall, profiles, thresholds
from curtilage.lab.evaluation.faults import faults
from curtilage.lab.evaluation.figures import CurvePoint, Figure, Target
from curtilage.lab.evaluation.identifiers import (
    IDENTIFYING,
    SET,
    evasion,
    identifying,
    structured,
    with_kind,
)
from curtilage.lab.evaluation.labelled import own
from curtilage.lab.evaluation.languages import (
    affairs,
    language,
    named,
    numbers,
    red_team,
    surname,
)
from curtilage.lab.evaluation.names import fairness, names, pupa
from curtilage.lab.evaluation.questions import clean, clinical, hard
from curtilage.lab.evaluation.rows import sampled
from curtilage.lab.evaluation.shapes import shapes
from curtilage.lab.evaluation.statistics import share_of
from curtilage.lab.evaluation.timing import (
    Look,
    SocketCount,
    TimedInspector,
    deadline,
    latency,
    sockets,
)
from curtilage.lab.evaluation.topics import health, leave, privacy, unchanged
from curtilage.policy.decision.classes import UNFINISHED
from curtilage.policy.decision.decide import assess
from curtilage.policy.document.model import Policy


class Detectors(TimedInspector, Closes, Protocol):
    """Detectors that can be timed and stopped."""


Start = Callable[[Policy], Detectors]


@dataclass(frozen=True, slots=True, kw_only=True)
class Doors:
    """Functions that start detectors.

    Attributes:
        start: with their worker.
        detectors: in this process, to measure their CPU time.
    """

    start: Start
    detectors: Callable[[Policy], Look]


Section = Callable[[Bench], Iterator[Figure]]
_CHECKED_AGAIN: Final = 60  # rows of each set
_NONE: Final = Target.at_most(0.0)

SECTIONS: Final[MappingProxyType[str, Section]] = MappingProxyType(
    {
        "structured": structured,
        "identifying": identifying,
        "health": health,
        "privacy": privacy,
        "evasion": evasion,
        "leave": leave,
        "pupa": pupa,
        "fairness": fairness,
        "names": names,
        "clinical": clinical,
        "clean": clean,
        "hard": hard,
        "named": named,
        "language": language,
        "redteam": red_team,
        "told": affairs,
        "surname": surname,
        "shapes": shapes,
        "national": numbers,
        "own": own,
    }
)
MEASURED_APART: Final = (
    "latency",
    "deadline",
    "sockets",
    "faults",
    "validity",
    "curve",
    "profiles",
)
GROUPS: Final = (*SECTIONS, *MEASURED_APART)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The requested figures.

    Attributes:
        ids: groups, figures or prefixes of figures' ids; empty: all.
    """

    ids: tuple[str, ...] = ()

    def has_group(self, group: str) -> bool:
        """Return whether any figure of a group is wanted."""
        return not self.ids or any(each.split(".")[0] == group for each in self.ids)

    def has(self, figure: Figure) -> bool:
        """Return whether a figure is wanted."""
        return not self.ids or any(
            figure.id == each or figure.id.startswith(f"{each}.") for each in self.ids
        )


def sections_of(bench: Bench, choice: Choice) -> Iterator[Figure]:
    """Yield the wanted figures about rows, section by section."""
    for group, section in SECTIONS.items():
        if choice.has_group(group):
            yield from filter(choice.has, section(bench))
            if group == "leave":
                yield from filter(choice.has, unchanged(bench))


def figures_of(bench: Bench, choice: Choice, doors: Doors) -> Iterator[Figure]:
    """Yield all wanted figures, including time and faults."""
    yield from sections_of(bench, choice)
    if choice.has_group("latency"):
        yield from filter(choice.has, latency(bench, doors.start, doors.detectors))
    if choice.has_group("deadline"):
        yield deadline(bench, doors.start)
    if choice.has_group("sockets"):
        yield sockets(bench, doors.start, SocketCount())
    if choice.has_group("faults"):
        bench.notify("faults")
        yield from filter(choice.has, faults(bench.policy))
    if choice.has_group("validity"):
        yield from filter(choice.has, validity(bench, doors.start))


def curve_of(bench: Bench, choice: Choice, start: Start) -> Iterator[CurvePoint]:
    """Yield the points of all curves, if they are wanted."""
    if choice.has_group("curve"):
        yield from thresholds(bench)
        yield from ner_recall(bench, start)


def profiles_of(bench: Bench, choice: Choice, start: Start) -> Iterator[CurvePoint]:
    """Yield a curve for each shipped profile, if they are wanted."""
    if choice.has_group("profiles"):
        yield from profiles(bench, start)


def validity(bench: Bench, start: Start) -> Iterator[Figure]:
    """Yield figures that show whether the others can be relied on."""
    sets: Sequence[Sequence[str]] = [
        [row.text for row in sampled(rows, _CHECKED_AGAIN)]
        for rows in (
            with_kind(bench.rows(SET), IDENTIFYING),
            bench.rows("counsel-chat"),
            bench.rows("clinc150"),
            bench.rows("banking77"),
            bench.rows("arena-hard"),
        )
    ]
    queries = [single_query(text) for texts in sets for text in texts]
    inspections = list(bench.inspect(queries, "validity"))
    whole = [assess(bench.policy.rulebook, each) for each in inspections]
    yield Figure(
        id="validity.failures",
        title="inspections with an error or out of time",
        estimate=share_of(
            [not UNFINISHED.isdisjoint(each.uncertain) for each in whole]
        ),
        target=_NONE,
    )
    # The policy's own scan with this run's deadline: a busy machine is not a finding.
    document = bench.policy.document
    scan = document.model_copy(update={"limits": bench.patient.document.limits})
    inspector = start(replace(bench.policy, document=scan))
    try:
        early = [
            assess(bench.policy.rulebook, each)
            for each in inspector.inspect_many(queries)
        ]
    finally:
        inspector.close()
    yield Figure(
        id="validity.early_exit",
        title="routes that change when scanning stops early",
        estimate=share_of(
            [a.route is not b.route for a, b in zip(whole, early, strict=True)]
        ),
        target=_NONE,
    )
