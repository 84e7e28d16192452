"""The trade-off of recall and texts that may be sent, from stored findings.

Moving a threshold to ``t`` is equivalent to raising every finding of at least ``t`` to
the policy's own threshold and dropping the others. So no rule is compiled again, and
no text is inspected again. A finding confirmed by a checksum always counts. Only the
model's own recall knob needs another inspection of a sample.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, Protocol

from curtilage.client.chat.query import single_query
from curtilage.client.detection.checked import InspectsMany
from curtilage.lab.evaluation.bench import Bench, Judged
from curtilage.lab.evaluation.datasets import DIALOGUE
from curtilage.lab.evaluation.figures import CurvePoint
from curtilage.lab.evaluation.identifiers import IDENTIFYING, SET, with_kind
from curtilage.lab.evaluation.made_up import asked_about_somebody
from curtilage.lab.evaluation.rows import Row, sampled
from curtilage.lab.evaluation.statistics import mean_of_shares, share_of
from curtilage.policy.decision.decide import WhatIf, assess
from curtilage.policy.decision.findings import Finding
from curtilage.policy.decision.routes import Route
from curtilage.policy.document.load import PROFILES, load_profile
from curtilage.policy.document.model import Policy, Thresholds, full_scan

FREE: Final = ("clinc150", "banking77", "arena-hard", "medquad", "pubmedqa")
ROWS_OF_A_SET: Final = 500
ROWS_OF_A_RESCAN: Final = 150
NER_RECALLS: Final = (0, 50, 100, 200, 300)
_SETTINGS: Final = (1, *range(10, 101, 10))
_SUSPECTED: Final = "uncertain.name"
_DIRECT: Final = ("identifier.direct.", "identifier.public.")
_KNOBS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "all": (*_DIRECT, "identifier.quasi.", "topic.", _SUSPECTED),
        "direct": _DIRECT,
        "quasi": ("identifier.quasi.",),
        "topic": ("topic.",),
        "name": (_SUSPECTED,),
    }
)


class Closes(InspectsMany, Protocol):
    """Detectors that can be stopped."""

    def close(self) -> None:
        """Stop them."""
        ...


StartMany = Callable[[Policy], Closes]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Samples:
    """Rows that must not be sent unchanged, and rows that may, by set."""

    keep: Sequence[Sequence[Judged]]
    free: Sequence[Sequence[Judged]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """One moved threshold.

    Attributes:
        prefixes: the prefixes of the classes that it applies to.
        setting: the lowest score that counts now.
        own: the policy's thresholds.
    """

    prefixes: tuple[str, ...]
    setting: int
    own: Thresholds

    def apply(self, inspection: WhatIf) -> WhatIf:
        """Return the findings that a policy with this threshold would see."""
        return WhatIf(
            findings=tuple(self._moved(inspection.findings)),
            messages=inspection.messages,
            pinned=inspection.pinned,
            approved=inspection.approved,
            floor=inspection.floor,
        )

    def _moved(self, findings: Sequence[Finding]) -> Iterator[Finding]:
        for found in findings:
            if found.validated or not found.data_class.startswith(self.prefixes):
                yield found
            elif found.score >= self.setting:
                least = self.own.minimum_of(found.data_class)
                yield replace(found, score=max(found.score, least))


def thresholds(bench: Bench) -> Iterator[CurvePoint]:
    """Yield a point for each setting of each threshold."""
    keep, free = _rows(bench, ROWS_OF_A_SET)
    samples = _Samples(
        keep=[bench.judge(rows, "curve") for rows in keep],
        free=[bench.judge(rows, "curve") for rows in free],
    )
    own = bench.policy.document.thresholds
    for knob, prefixes in _KNOBS.items():
        bench.notify(f"curve: {knob}")
        for setting in _SETTINGS if keep and free else ():
            shift = Shift(prefixes=prefixes, setting=setting, own=own)
            yield _point(
                bench.policy,
                samples,
                shift.apply,
                knob=knob,
                setting=setting,
            )


def ner_recall(bench: Bench, start: StartMany) -> Iterator[CurvePoint]:
    """Yield a point for each setting of the model's recall knob, on a sample."""
    if bench.policy.document.ner.engine == "none":
        return
    keep, free = _rows(bench, ROWS_OF_A_RESCAN)
    if not keep or not free:
        return
    patient = full_scan(bench.policy)
    for setting in NER_RECALLS:
        ner = patient.document.ner.model_copy(update={"recall": setting})
        document = patient.document.model_copy(update={"ner": ner})
        bench.notify(f"curve: ner-recall {setting}")
        inspector = start(replace(patient, document=document))
        try:
            samples = _Samples(
                keep=[_look(bench.policy, inspector, rows) for rows in keep],
                free=[_look(bench.policy, inspector, rows) for rows in free],
            )
        finally:
            inspector.close()
        yield _point(
            bench.policy,
            samples,
            lambda inspection: inspection,
            knob="ner-recall",
            setting=setting,
        )


def profiles(bench: Bench, start: StartMany) -> Iterator[CurvePoint]:
    """Yield a curve for each shipped profile, with all its thresholds moved together.

    Each profile has its own detectors, and all of them inspect the same sample.
    """
    keep, free = _rows(bench, ROWS_OF_A_RESCAN)
    for name in PROFILES if keep and free else ():
        policy = load_profile(name)
        bench.notify(f"profile {name}")
        inspector = start(full_scan(policy))
        try:
            samples = _Samples(
                keep=[_look(policy, inspector, rows) for rows in keep],
                free=[_look(policy, inspector, rows) for rows in free],
            )
        finally:
            inspector.close()
        for setting in _SETTINGS:
            shift = Shift(
                prefixes=_KNOBS["all"], setting=setting, own=policy.document.thresholds
            )
            yield _point(policy, samples, shift.apply, knob=name, setting=setting)


def _look(policy: Policy, inspector: InspectsMany, rows: Sequence[Row]) -> list[Judged]:
    found = inspector.inspect_many([single_query(row.text) for row in rows])
    return [
        Judged(row=row, inspection=each, decision=assess(policy.rulebook, each))
        for row, each in zip(rows, found, strict=True)
    ]


def _rows(bench: Bench, limit: int) -> tuple[list[Sequence[Row]], list[Sequence[Row]]]:
    """Return samples of each set: rows that must not be sent unchanged, and others."""
    dialogues = [row for row in bench.rows("mts-dialog") if DIALOGUE in row.tags]
    keep = (
        with_kind(bench.rows(SET), IDENTIFYING),
        bench.rows("counsel-chat"),
        dialogues,
        tuple(asked_about_somebody(bench.rows("pubmedqa"), "en")),
    )
    free = tuple(bench.rows(name) for name in FREE)
    return _chosen(bench, keep, limit), _chosen(bench, free, limit)


def _chosen(
    bench: Bench, sets: Iterable[Sequence[Row]], limit: int
) -> list[Sequence[Row]]:
    # Start from the sample of the figures, so that most rows are already judged.
    return [sampled(bench.sample(rows), limit) for rows in sets if rows]


def _point(
    policy: Policy,
    samples: _Samples,
    moved: Callable[[WhatIf], WhatIf],
    *,
    knob: str,
    setting: int,
) -> CurvePoint:
    def routes(sample: Sequence[Judged]) -> list[Route]:
        return [
            assess(policy.rulebook, moved(each.inspection)).route for each in sample
        ]

    kept = [
        [route is not Route.ENCLAVE for route in routes(each)] for each in samples.keep
    ]
    left = [
        [route in {Route.ENCLAVE, Route.DEIDENTIFY} for route in routes(each)]
        for each in samples.free
    ]
    return CurvePoint(
        knob=knob,
        setting=setting,
        recall=mean_of_shares([share_of(each) for each in kept]).value,
        leave=mean_of_shares([share_of(each) for each in left]).value,
    )
