"""Measured figures, and their JSON form.

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
``routes`` has the shares of the same rows that are kept local, sent with pseudonyms
and sent unchanged. ``stock`` is plain Presidio on the same rows in the same run,
``stock_model`` the same with spaCy's small English model. If both parts were
measured, ``developed`` is the part that developers may read, and the other values
are for the part held out. The JSON never contains the text of a row.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Final, Literal, Self

from curtilage.lab.evaluation.statistics import Estimate

FORMAT: Final = 1
Unit = Literal["share", "points", "ms", "ratio", "count"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The value that a figure should reach.

    Attributes:
        sense: whether the figure should be at least or at most the value.
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
        """Return whether a value meets the target."""
        return value >= self.value if self.sense == ">=" else value <= self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Routes:
    """The shares of rows by route, which add up to one.

    Attributes:
        home: kept on this device.
        pseudonyms: may be sent with pseudonyms.
        unchanged: may be sent as they are.
    """

    home: float
    pseudonyms: float
    unchanged: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One number with its context.

    Attributes:
        id: group, dot, name; stable over releases.
        title: for people.
        estimate: value, interval and number of observations.
        unit: of the value.
        target: None for a figure without one.
        stocks: the same for plain Presidio, and for Presidio with a model; fewer if
            that was not measured.
        routes: of the same rows; None if they are not whole texts.
        developed: the same for the developers' part, if this is the other part.
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
        """The group that the figure belongs to."""
        return self.id.partition(".")[0]

    @property
    def met(self) -> bool | None:
        """Whether the target is reached; None without a target or without data."""
        if self.target is None or not self.estimate.n:
            return None
        return self.target.met_by(self.estimate.value)

    def fields(self) -> dict[str, object]:
        """Return the figure's JSON fields."""
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
    """Return the figures, each with its value for the developers' part."""
    others = {each.id: each.estimate for each in developed}
    return tuple(replace(each, developed=others.get(each.id)) for each in figures)


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """The result of one setting of one knob.

    Attributes:
        knob: which threshold is moved.
        setting: its value, 0 to 300.
        recall: the share, of rows that must not be sent unchanged, that are not.
        leave: the share of harmless rows that may be sent, as a mean over their sets.
    """

    knob: str
    setting: int
    recall: float
    leave: float

    def fields(self) -> dict[str, object]:
        """Return the point's JSON fields."""
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
        policy_source: the policy's name.
        policy_digest: the policy's digest.
        figures: in the order of the sections.
        curve: recall against the share that may be sent, under this policy.
        missing: sets that were not found.
        profiles: recall against the share that may be sent, for each shipped profile.
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
        """Return the run's JSON fields."""
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
