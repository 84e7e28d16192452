"""Figures about failing detectors: whatever fails, the query is kept local."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, cast

from curtilage.client.chat.query import single_query
from curtilage.client.detection.detectors.all import own_equipment
from curtilage.client.detection.detectors.readings import Reading
from curtilage.client.detection.detectors.scanner import scan
from curtilage.client.detection.inspection import Inspector, prepare
from curtilage.client.detection.spans import Span
from curtilage.lab.evaluation import faulty_worker
from curtilage.lab.evaluation.figures import Figure, Target
from curtilage.lab.evaluation.statistics import share_of
from curtilage.policy.decision.decide import Inspection, assess
from curtilage.policy.decision.routes import Route
from curtilage.policy.document.model import Policy

HARMLESS: Final = "How does compound interest work?"
_ALL: Final = Target.at_least(1.0)
_NOTE: Final = (
    "faults: each detector raises, runs out of time, or answers nonsense, one at a "
    "time; then the whole process hangs, dies or talks nonsense"
)


Fault = Callable[[Reading], object]


def _raises(reading: Reading) -> object:
    raise RuntimeError(f"on purpose, after {len(reading.text)} characters")


def _runs_out(reading: Reading) -> object:
    raise TimeoutError(f"on purpose, after {len(reading.text)} characters")


def _no_list(reading: Reading) -> object:
    return len(reading.text)


def _no_spans(reading: Reading) -> object:
    return ["nothing found"] if reading.text else []


def _far_outside(reading: Reading) -> object:
    end = len(reading.text) + 1
    span = Span(
        data_class="financial.pan", detector="fault", start=end, end=end, score=1
    )
    return [span]


FAULTS: Final[tuple[Fault, ...]] = (
    _raises,
    _runs_out,
    _no_list,
    _no_spans,
    _far_outside,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """A detector that replaces another and fails in one way.

    Attributes:
        id: the replaced detector's name.
        fault: what happens instead of a search.
    """

    id: str
    fault: Fault

    def find(self, reading: Reading) -> Sequence[Span]:
        """Fail; the result need not have the declared type."""
        return cast("Sequence[Span]", self.fault(reading))


def faults(policy: Policy) -> Iterator[Figure]:
    """Yield how often a query is kept local when one or all detectors fail."""
    yield Figure(
        id="faults.detector",
        title="one detector fails: the query stays home",
        estimate=share_of(list(_with_broken_detectors(policy))),
        target=_ALL,
        note=_NOTE,
    )
    yield Figure(
        id="faults.process",
        title="their process fails: the query stays home",
        estimate=share_of(
            [_with_broken_process(policy, each) for each in faulty_worker.FAULTS]
        ),
        target=_ALL,
        note=_NOTE,
    )


def _with_broken_detectors(policy: Policy) -> Iterator[bool]:
    prepared = prepare(single_query(HARMLESS), policy.limits)
    for detector, views in own_equipment():
        for fault in FAULTS:
            broken = Broken(id=detector.id, fault=fault)
            # The others find nothing in this text, so they can be omitted.
            found = scan(prepared.texts, ((broken, views),))
            pairs = zip(found, prepared.places, strict=True)
            findings = [span.at(place) for spans, place in pairs for span in spans]
            yield _stays(policy, prepared.with_findings(findings))


def _with_broken_process(policy: Policy, fault: str) -> bool:
    inspector = Inspector.start(policy, command=faulty_worker.command(fault))
    try:
        return _stays(policy, inspector.inspect(single_query(HARMLESS)))
    finally:
        inspector.close()


def _stays(policy: Policy, inspection: Inspection) -> bool:
    return assess(policy.rulebook, inspection).route in {Route.LOCAL, Route.BLOCK}
