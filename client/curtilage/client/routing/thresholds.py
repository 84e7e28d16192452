"""Certified thresholds: the file format, for one model and one set of features.

Values and bytes; nothing is opened here. The certificate is valid only for the graded
combination of model, template and features. With any other, the file is refused and no
drafts are written: a threshold without a valid certificate is worse than none.

Thresholds for models of the catalogue come with Curtilage, each for one intent.
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
"""Share of bad answers from which a kind of question counts as often wrong."""
_ROUNDED: Final = 1e-4


@unique
class Unfit(StrEnum):
    """Why a certificate is not valid here; a closed set, safe to show."""

    NO_MODEL = "no_model"
    LOADING = "loading"
    FEATURES = "features"
    MODEL = "model"
    TEMPLATE = "template"


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """A certificate for the drafts of one model.

    Attributes:
        model_sha256: digest of the model's file, hex; it also fixes the quantisation.
        template_sha256: digest of its chat template, hex.
        features_sha256: identifies the features that the heads were learned for.
        quantisation: as the file names it, for people.
        alpha: upper bound of the error rate among accepted drafts,
        delta: and the probability that the sample was unrepresentative.
        grid: the candidate shares, fixed in advance.
        share: the chosen one.
        threshold: a draft with a larger score is accepted.
        graded: number of answers judged,
        bad: of these, the bad ones,
        accepted: those above the threshold,
        errors: and the bad ones among these.
        heads: one for each look, and one for the end.

    Raises:
        ConfigError: the numbers do not support the certificate.
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
        """Refuse a certificate that its own counts do not support."""
        shares = (self.alpha, self.delta, *self.grid)
        if (
            not all(0 < each <= 1 for each in shares)
            or not 0 <= self.threshold <= 1
            # A share outside the grid was chosen after seeing the results, and the
            # bound does not hold for it.
            or self.share not in self.grid
            or not 0 <= self.errors <= self.accepted <= self.graded
            or not self.errors <= self.bad <= self.graded
            or not self.accepted
            or len(self.heads) != len(LOOKS) + 1
            # A smaller number written by hand does not lower the threshold.
            or self.upper > self.alpha
        ):
            raise ConfigError("thresholds: the numbers do not certify the threshold")

    @property
    def upper(self) -> float:
        """Upper bound of the error rate among accepted drafts."""
        # Divided among all candidates (Bonferroni): choosing the best of ten bounds
        # that each hold in 95 of 100 cases would break the promise far more often.
        delta = self.delta / len(self.grid)
        return upper_bound(self.errors, self.accepted, delta)

    @property
    def accepts(self) -> float:
        """Share of drafts that are accepted, as counted."""
        return self.accepted / self.graded

    @property
    def warns(self) -> bool:
        """Whether answers below the threshold were often bad, as counted."""
        rejected = self.graded - self.accepted
        return rejected > 0 and self.bad - self.errors >= OFTEN * rejected

    def unfit(self, *, model_sha256: str, template_sha256: str) -> Unfit | None:
        """Return why it is not valid for the current model; None if it is."""
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
        intent: of the questions that they are for.
        made_of: the set of questions that were answered.
        date: when they were answered.
        thresholds: the certificate.
    """

    intent: Intent
    made_of: str
    date: str
    thresholds: Thresholds


def packed(thresholds: Thresholds) -> bytes:
    """Return the content of the file."""
    fields = {"version": VERSION, **asdict(thresholds)}
    encoded = json.dumps(fields, indent=1, sort_keys=True, allow_nan=False)
    return encoded.encode() + b"\n"


def read_thresholds(data: bytes) -> Thresholds:
    """Parse a file, strictly.

    Raises:
        ConfigError: it is not such a file, or its counts do not support it.
    """
    try:
        # A longer file is cut off in the middle, so it is not valid JSON and is
        # refused.
        parsed: object = json.loads(data[: MAX_BYTES + 1])
    except (ValueError, RecursionError):
        parsed = None
    values = cast("dict[str, Any]", parsed) if isinstance(parsed, dict) else {}
    if values.pop("version", None) != VERSION:
        raise _not_one()
    kinds = {each.name: each.type for each in fields(Thresholds)}
    # Strict in both directions: an unknown key may be a restriction by a later version,
    # and ignoring it would certify too much.
    if values.keys() != kinds.keys():
        raise _not_one()
    grid = _numbers(values.pop("grid"))
    heads = tuple(map(_head, _list_of(values.pop("heads"), dict)))
    for name, value in values.items():
        # The exact type: in Python, ``True`` is an ``int``.
        if type(value) is not kinds[name] and (type(value), kinds[name]) != (
            int,
            float,
        ):
            raise _not_one()
    return Thresholds(grid=grid, heads=heads, **values)


def read_shipped(data: bytes) -> tuple[Shipped, ...]:
    """Parse the file of the thresholds that come with Curtilage, strictly.

    Raises:
        ConfigError: it is not such a file, or its counts do not support it.
    """
    try:
        parsed: object = json.loads(data)
    except (ValueError, RecursionError):
        parsed = None
    values = cast("dict[str, Any]", parsed) if isinstance(parsed, dict) else {}
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
    # Redundant, for human readers; so it must be correct.
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
        "thresholds: not a file of `curtilage route certify`, or of another version"
    )
