"""Routing options of one query, and their parser.

Library and endpoint parse the same mapping with the same code. No option can widen what
the policy permits: a floor only raises the class, all others restrict or order tiers.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum, unique
from typing import Final, Self, TypeVar, cast

from typing_extensions import override

from curtilage.client.errors import UsageError
from curtilage.policy.decision.tiers import RoutingClass, TierKind

MAX_MS: Final = 3_600_000
MAX_MICROUSD: Final = 1_000_000_000


@unique
class Mode(StrEnum):
    """The sender's preference among the permitted tiers.

    ``AUTO``: the best. ``HOME``: on this device or on-premises, or not at
    all. ``ENCLAVE_IF_ALLOWED``: an enclave before any other.
    """

    AUTO = "auto"
    HOME = "home"
    ENCLAVE_IF_ALLOWED = "enclave_if_allowed"


@unique
class Require(StrEnum):
    """The only kind of tier that may answer; if it cannot, none does."""

    ENCLAVE = "enclave"
    ON_PREMISES = "on_premises"
    LOCAL = "local"

    @classmethod
    @override
    def _missing_(cls, value: object) -> Self | None:
        # Its name in version 0.1, which applications may still send.
        return cls("on_premises") if value == "house" else None

    @property
    def kind(self) -> TierKind:
        """Return the corresponding kind of tier."""
        return _REQUIRED[self]


_REQUIRED: Final = {
    Require.ENCLAVE: TierKind.ATTESTED,
    Require.ON_PREMISES: TierKind.ON_PREMISES,
    Require.LOCAL: TierKind.IN_PROCESS,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingOptions:
    """The routing options of one query.

    Attributes:
        ttft_ms: deadline for the first text, in milliseconds.
        total_ms: deadline for the whole answer; None: the policy's budget.
        slo_hard: exclude tiers that are likely to miss these deadlines.
        max_cost_microusd: exclude tiers whose answer would cost more.
        floor: raises the query's class; never lowers it.
        mode: the preferred tiers.
        require: the only kind of tier that may answer.
        consent: a token which proves that the user consented to sending it.
        defer: if no tier can answer at the moment, queue it and retry.
        local_model: the only local model that may answer, by its name; empty: the
            usual one.
    """

    ttft_ms: int | None = None
    total_ms: int | None = None
    slo_hard: bool = False
    max_cost_microusd: int | None = None
    floor: RoutingClass = RoutingClass.PUBLIC
    mode: Mode = Mode.AUTO
    require: Require | None = None
    consent: str | None = field(default=None, repr=False)
    defer: bool = False
    local_model: str = ""


# In speech, a pause of more than 150 ms is noticeable; a chat feels responsive at 500.
# A batch has no deadline, so only quality and cost matter.
PRESETS: Final[Mapping[str, RoutingOptions]] = {
    "voice": RoutingOptions(ttft_ms=150, total_ms=10_000),
    "chat": RoutingOptions(ttft_ms=500, total_ms=30_000),
    "batch": RoutingOptions(total_ms=600_000),
}

MAX_CONSENT_CHARS: Final = 200

ROUTING_FIELDS: Final = frozenset(
    {
        "slo_ms",
        "slo_hard",
        "max_cost",
        "floor",
        "mode",
        "preset",
        "require",
        "consent",
        "defer",
    }
)
_Word = TypeVar("_Word", bound=StrEnum)


def options_from(mapping: Mapping[str, object]) -> RoutingOptions:
    """Parse a request's routing options.

    Null equals an absent field. Explicit fields take precedence over those of a preset.

    Args:
        mapping: ``slo_ms`` (``ttft`` and ``total``, milliseconds), ``slo_hard``,
            ``max_cost`` (micro-US-dollars, an integer), ``floor``, ``mode``,
            ``preset``, ``require``, ``consent``, ``defer``.

    Raises:
        UsageError: a field is unknown, of another type or out of range; names
            the field and the valid values, and never repeats a value.
    """
    # An unknown field's name may be a word of the query.
    _refuse_unknown("curtilage", mapping, ROUTING_FIELDS)
    preset = mapping.get("preset")
    if preset is not None and not (isinstance(preset, str) and preset in PRESETS):
        raise UsageError(f"preset must be {_either(PRESETS)}", param="preset")
    options = PRESETS[preset] if isinstance(preset, str) else RoutingOptions()
    slo = mapping.get("slo_ms")
    if slo is not None:
        if not isinstance(slo, Mapping):
            raise UsageError("slo_ms must be an object", param="slo_ms")
        times = cast("Mapping[str, object]", slo)
        _refuse_unknown("slo_ms", times, frozenset({"ttft", "total"}))
        ttft = integer("slo_ms.ttft", times.get("ttft"), 1, MAX_MS)
        total = integer("slo_ms.total", times.get("total"), 1, MAX_MS)
        options = replace(
            options,
            ttft_ms=options.ttft_ms if ttft is None else ttft,
            total_ms=options.total_ms if total is None else total,
        )
    hard = flag("slo_hard", mapping.get("slo_hard"))
    if hard and options.ttft_ms is None and options.total_ms is None:
        # Without a deadline it would have no effect.
        raise UsageError("slo_hard needs slo_ms or a preset", param="slo_hard")
    consent = mapping.get("consent")
    if consent is not None and not (
        isinstance(consent, str) and len(consent) <= MAX_CONSENT_CHARS
    ):
        raise UsageError("consent must be a token that was given", param="consent")
    mode = _word("mode", mapping.get("mode"), Mode) or options.mode
    require = _word("require", mapping.get("require"), Require)
    if mode is Mode.HOME and require is Require.ENCLAVE:
        raise UsageError(
            "mode home and require enclave exclude each other", param="require"
        )
    return replace(
        options,
        consent=consent,
        slo_hard=hard,
        max_cost_microusd=integer(
            "max_cost",
            mapping.get("max_cost"),
            0,
            MAX_MICROUSD,
            unit=", in millionths of a US dollar",
        ),
        floor=_word("floor", mapping.get("floor"), RoutingClass) or options.floor,
        mode=mode,
        require=require,
        defer=flag("defer", mapping.get("defer")),
    )


def _refuse_unknown(
    name: str, mapping: Mapping[str, object], known: frozenset[str]
) -> None:
    if not mapping.keys() <= known:
        raise UsageError(f"{name} may hold {', '.join(sorted(known))}", param=name)


def flag(name: str, value: object) -> bool:
    """Parse an optional flag; false if absent.

    Raises:
        UsageError: it is not a boolean.
    """
    if value is not None and not isinstance(value, bool):
        raise UsageError(f"{name} must be true or false", param=name)
    return bool(value)


def integer(
    name: str, value: object, low: int, high: int, *, unit: str = ""
) -> int | None:
    """Parse an optional integer.

    Raises:
        UsageError: it is not an integer, or not from ``low`` to ``high``.
    """
    if value is None:
        return None
    # In Python, True is a number.
    if (
        not isinstance(value, int)
        or isinstance(value, bool)
        or not low <= value <= high
    ):
        message = f"{name} must be an integer, {low} to {high}{unit}"
        raise UsageError(message, param=name)
    return value


def _word(name: str, value: object, words: type[_Word]) -> _Word | None:
    if value is None:
        return None
    try:
        return words(cast("str", value))  # any other type is no member either
    except ValueError:
        raise UsageError(f"{name} must be {_either(words)}", param=name) from None


def _either(words: Mapping[str, object] | type[StrEnum]) -> str:
    *most, last = list(words)
    return f"{', '.join(most)} or {last}"
