"""The file of a certified threshold: of one model, for one way to look at its answers.

Values and bytes; nothing is opened here. What it promises holds for the drafts of
exactly the model, template and features that were graded. For any other it is refused,
and then nothing is drafted: a threshold without its promise is worse than none.

Thresholds of models of the catalogue come with Curtilage, each for one intent.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum, unique
from typing import Any, Final, cast

from curtilage.client.errors import ConfigError
from curtilage.client.routing.answer_features import FEATURES_SHA256
from curtilage.client.routing.bounds import upper_bound
from curtilage.client.routing.estimate import Intent
from curtilage.client.routing.verifier import LOOKS, Head

VERSION: Final = 1
MAX_BYTES: Final = 1 << 18
OFTEN: Final = 0.25
"""From such a share of bad ones on, answers of a kind are said to be often wrong."""
_ROUNDED: Final = 1e-4


@unique
class Unfit(StrEnum):
    """Why a file's promise does not hold here; a closed set, safe to tell."""

    NO_MODEL = "no_model"
    LOADING = "loading"
    FEATURES = "features"
    MODEL = "model"
    TEMPLATE = "template"


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """What was certified of one model's drafts.

    Attributes:
        model_sha256: digest of the model's file, hex; so also of its quantisation.
        template_sha256: digest of its chat template, hex.
        features_sha256: which numbers the heads were learned for.
        quantisation: as the file names it, for people.
        alpha: at most so many of what is accepted are bad,
        delta: but for this probability that the sample was lucky.
        grid: the shares that were looked at, fixed before.
        share: the one that was chosen.
        threshold: a draft with a larger score is accepted.
        graded: how many answers were judged,
        bad: how many of them were bad,
        accepted: how many lay above the threshold,
        errors: and how many of those were bad.
        heads: one for each look, and one for the end.

    Raises:
        ConfigError: the numbers do not bear out what they promise.
    """

    model_sha256: str
    template_sha256: str
    features_sha256: str
    quantisation: str
    alpha: float
    delta: float
    grid: tuple[float, ...]
    share: float
    threshold: float
    graded: int
    bad: int
    accepted: int
    errors: int
    heads: tuple[Head, ...] = field(repr=False)

    def __post_init__(self) -> None:
        """Refuse a promise that its own counts do not keep."""
        shares = (self.alpha, self.delta, *self.grid)
        if (
            not all(0 < each <= 1 for each in shares)
            or not 0 <= self.threshold <= 1
            or self.share not in self.grid
            or not 0 <= self.errors <= self.accepted <= self.graded
            or not self.errors <= self.bad <= self.graded
            or not self.accepted
            or len(self.heads) != len(LOOKS) + 1
            # Whoever writes a smaller number by hand gets no threshold for it.
            or self.upper > self.alpha
        ):
            raise ConfigError("thresholds: the numbers do not certify the threshold")

    @property
    def upper(self) -> float:
        """The bound of the error rate among what is accepted."""
        delta = self.delta / len(self.grid)
        return upper_bound(self.errors, self.accepted, delta)

    @property
    def accepts(self) -> float:
        """The share of drafts that is accepted, as counted."""
        return self.accepted / self.graded

    @property
    def warns(self) -> bool:
        """Whether what lies below the threshold was counted to be often bad."""
        rejected = self.graded - self.accepted
        return rejected > 0 and self.bad - self.errors >= OFTEN * rejected

    def unfit(self, *, model_sha256: str, template_sha256: str) -> Unfit | None:
        """Return why it does not hold for the model that runs; None where it does."""
        if self.features_sha256 != FEATURES_SHA256:
            return Unfit.FEATURES
        if self.model_sha256 != model_sha256.lower():
            return Unfit.MODEL
        if self.template_sha256 != template_sha256.lower():
            return Unfit.TEMPLATE
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shipped:
    """Thresholds that come with Curtilage.

    Attributes:
        intent: of which questions.
        made_of: the set whose questions were answered.
        date: the day on which they were.
        thresholds: what was certified.
    """

    intent: Intent
    made_of: str
    date: str
    thresholds: Thresholds


def packed(thresholds: Thresholds) -> bytes:
    """Return the file."""
    told = {"version": VERSION, **asdict(thresholds)}
    return json.dumps(told, indent=1, sort_keys=True, allow_nan=False).encode() + b"\n"


def read_thresholds(data: bytes) -> Thresholds:
    """Read a file, strictly.

    Raises:
        ConfigError: it is none, or promises what its counts do not bear out.
    """
    try:
        told: object = json.loads(data[: MAX_BYTES + 1])
    except (ValueError, RecursionError):
        told = None
    values = cast("dict[str, Any]", told) if isinstance(told, dict) else {}
    if values.pop("version", None) != VERSION:
        raise _not_one()
    kinds = {each.name: each.type for each in fields(Thresholds)}
    if values.keys() != kinds.keys():
        raise _not_one()
    grid = _numbers(values.pop("grid"))
    heads = tuple(map(_head, _list_of(values.pop("heads"), dict)))
    for name, value in values.items():
        # By type itself: for Python a true is a number.
        if type(value) is not kinds[name] and (type(value), kinds[name]) != (
            int,
            float,
        ):
            raise _not_one()
    return Thresholds(grid=grid, heads=heads, **values)


def read_shipped(data: bytes) -> tuple[Shipped, ...]:
    """Read the file of the thresholds that come with Curtilage, strictly.

    Raises:
        ConfigError: it is none, or says what its counts do not bear out.
    """
    try:
        told: object = json.loads(data)
    except (ValueError, RecursionError):
        told = None
    values = cast("dict[str, Any]", told) if isinstance(told, dict) else {}
    if values.keys() != {"version", "drafts"} or values["version"] != VERSION:
        raise _not_one()
    return tuple(map(_shipped, _list_of(values["drafts"], dict)))


def _shipped(value: Mapping[str, Any]) -> Shipped:
    if set(value) != {"intent", "set", "date", "accepted", "upper", "thresholds"}:
        raise _not_one()
    thresholds = read_thresholds(json.dumps(value["thresholds"]).encode())
    try:
        intent = Intent(value["intent"])
        said = _numbers([value["accepted"], value["upper"]])
    except ValueError:
        raise _not_one() from None
    # For people, so that they need not reckon; and so it must be right.
    counted = (thresholds.accepts, thresholds.upper)
    if any(abs(a - b) > _ROUNDED for a, b in zip(said, counted, strict=True)):
        raise ConfigError("thresholds: the numbers do not certify the threshold")
    return Shipped(
        intent=intent,
        made_of=str(value["set"]),
        date=str(value["date"]),
        thresholds=thresholds,
    )


def _head(value: Mapping[str, Any]) -> Head:
    if set(value) != {each.name for each in fields(Head)}:
        raise _not_one()
    rows = {name: _numbers(value[name]) for name in ("mean", "spread", "weights")}
    (bias,) = _numbers([value["bias"]])
    try:
        return Head(**rows, bias=bias)
    except ValueError:
        raise _not_one() from None


def _numbers(values: object) -> tuple[float, ...]:
    return tuple(map(float, _list_of(values, int, float)))


def _list_of(value: object, *kinds: type) -> list[Any]:
    if not isinstance(value, list):
        raise _not_one()
    values = cast("list[object]", value)
    if any(type(each) not in kinds for each in values):
        raise _not_one()
    return cast("list[Any]", values)


def _not_one() -> ConfigError:
    return ConfigError(
        "thresholds: no file of `curtilage route certify`, or of another version"
    )
