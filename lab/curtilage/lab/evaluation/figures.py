"""A measured figure, and how figures are written for programs.

The JSON, which other programs read (``format`` 1)::

    {"format": 1, "date": "2026-01-31", "data": "name of the folder",
     "part": "all" | "developed" | "held-out",
     "policy": {"source": str, "digest": str},
     "missing": ["set", ...],
     "figures": [{"id": str, "group": str, "title": str, "unit": str,
                  "value": number, "low": number, "high": number, "n": integer,
                  "sense": ">=" | "<=" | null, "target": number | null,
                  "met": bool | null,
                  "developed": {"value", "low", "high", "n"} | null,
                  "routes": {"home", "pseudonyms", "unchanged"} | null,
                  "stock": {"value", "low", "high"} | null,
                  "stock_model": {"value", "low", "high"} | null,
                  "note": str}, ...],
     "curve": [{"knob": str, "setting": integer,
                "recall": number, "leave": number}, ...],
     "profiles": [the same, the knob is the profile's name, ...]}

``low`` and ``high`` are a 95% interval. ``unit`` is ``share`` (0 to 1),
``points`` (a difference of shares, 0 to 1), ``ms``, ``ratio`` or ``count``.
``routes`` says for the same rows which share stays, leaves with pseudonyms and
leaves as it is. ``stock`` is plain Presidio on the same rows in the same run,
``stock_model`` the same with spaCy's small English model. Where both parts were
measured, ``developed`` is the part that developers may look at, and the rest is
the part held out. No text of a row is ever part of it.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Final, Literal, Self

from curtilage.lab.evaluation.statistics import Estimate

FORMAT: Final = 1
Unit = Literal["share", "points", "ms", "ratio", "count"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a figure should reach.

    Attributes:
        sense: whether it should be at least or at most the value.
        value: in the figure's unit.
    """

    sense: Literal[">=", "<="]
    value: float

    @classmethod
    def at_least(cls, value: float) -> Self:
        """Return a target that larger values meet."""
        return cls(sense=">=", value=value)

    @classmethod
    def at_most(cls, value: float) -> Self:
        """Return a target that smaller values meet."""
        return cls(sense="<=", value=value)

    def met_by(self, value: float) -> bool:
        """Tell whether a value reaches it."""
        return value >= self.value if self.sense == ">=" else value <= self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Routes:
    """Where rows go: shares that add up to one.

    Attributes:
        home: kept on this device.
        pseudonyms: may leave with pseudonyms in it.
        unchanged: may leave as it is.
    """

    home: float
    pseudonyms: float
    unchanged: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One number, with what is needed to judge it.

    Attributes:
        id: group, dot, name; stable over releases.
        title: for people.
        estimate: value, interval and number of observations.
        unit: of the value.
        target: None where the figure is for information.
        stocks: the same of plain Presidio, and of Presidio with a model; fewer where
            that was not measured.
        routes: where the same rows go; None where they are not whole texts.
        developed: the same of the developers' part, where this is the other.
        note: how to read it.
    """

    id: str
    title: str
    estimate: Estimate
    unit: Unit = "share"
    target: Target | None = None
    stocks: tuple[Estimate, ...] = ()
    routes: Routes | None = None
    developed: Estimate | None = None
    note: str = ""

    @property
    def group(self) -> str:
        """What the figure is about."""
        return self.id.partition(".")[0]

    @property
    def met(self) -> bool | None:
        """Whether the target is reached; None without a target or without data."""
        if self.target is None or not self.estimate.n:
            return None
        return self.target.met_by(self.estimate.value)

    def fields(self) -> dict[str, object]:
        """Return the figure as JSON has it."""
        return {
            "id": self.id,
            "group": self.group,
            "title": self.title,
            "unit": self.unit,
            **_interval(self.estimate),
            "n": self.estimate.n,
            "sense": None if self.target is None else self.target.sense,
            "target": None if self.target is None else self.target.value,
            "met": self.met,
            "developed": None
            if self.developed is None
            else {**_interval(self.developed), "n": self.developed.n},
            "routes": None
            if self.routes is None
            else {name: round(share, 4) for name, share in asdict(self.routes).items()},
            "stock": _interval(self.stocks[0]) if self.stocks else None,
            "stock_model": _interval(self.stocks[1]) if self.stocks[1:] else None,
            "note": self.note,
        }


def with_other_part(
    figures: Sequence[Figure], developed: Sequence[Figure]
) -> tuple[Figure, ...]:
    """Return figures with those of the developers' part beside them."""
    others = {each.id: each.estimate for each in developed}
    return tuple(replace(each, developed=others.get(each.id)) for each in figures)


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """What one setting of one knob gives.

    Attributes:
        knob: which threshold is moved.
        setting: its value, 0 to 300.
        recall: share of what must not leave unchanged that does not.
        leave: share of the harmless that may leave, mean over its sets.
    """

    knob: str
    setting: int
    recall: float
    leave: float

    def fields(self) -> dict[str, object]:
        """Return the point as JSON has it."""
        return {
            "knob": self.knob,
            "setting": self.setting,
            "recall": round(self.recall, 4),
            "leave": round(self.leave, 4),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Everything that one run measured.

    Attributes:
        date: ISO 8601 day.
        data: the folder's name, without its path.
        part: which rows.
        policy_source: what the policy is called.
        policy_digest: which policy it was.
        figures: in the order of the sections.
        curve: recall against what may leave, under this policy.
        missing: sets that were not there.
        profiles: recall against what may leave, under each shipped profile.
    """

    date: str
    data: str
    part: str
    policy_source: str
    policy_digest: str
    figures: tuple[Figure, ...]
    curve: tuple[CurvePoint, ...]
    missing: tuple[str, ...]
    profiles: tuple[CurvePoint, ...] = ()

    def fields(self) -> dict[str, object]:
        """Return the run as JSON has it."""
        return {
            "format": FORMAT,
            "date": self.date,
            "data": self.data,
            "part": self.part,
            "policy": {"source": self.policy_source, "digest": self.policy_digest},
            "missing": list(self.missing),
            "figures": [figure.fields() for figure in self.figures],
            "curve": [point.fields() for point in self.curve],
            "profiles": [point.fields() for point in self.profiles],
        }


def _interval(estimate: Estimate) -> dict[str, object]:
    return {
        "value": round(estimate.value, 4),
        "low": round(estimate.low, 4),
        "high": round(estimate.high, 4),
    }
