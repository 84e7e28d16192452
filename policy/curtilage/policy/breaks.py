"""What is known to be broken: published attacks, and what follows from each.

The list comes with the program (``known_breaks.toml``) and has a date. A production
policy must not name a product that a row refuses, and demands at least the levels that
a row raises, unless it accepts that row with a reason. All other rows are only said.
"""

import re
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any, Final

from curtilage.attest.amd_tcb import Product, Tcb
from curtilage.attest.evidence import DeviceKind, Tee

_ID: Final = re.compile(r"[a-z][a-z0-9-]{0,63}")
_MONTH: Final = re.compile(r"20[0-9]{2}-(0[1-9]|1[0-2])")
_DAY: Final = re.compile(r"20[0-9]{2}-(0[1-9]|1[0-2])-[0-3][0-9]")
_SOURCE: Final = re.compile(r"https://[!-~]+")
_KEYS: Final = frozenset(
    {"id", "name", "published", "kinds", "needs", "default", "effect", "source"}
)
_MORE: Final = frozenset({"products", "levels", "evaluation"})
_LEVELS: Final = frozenset({"fmc", "bl", "tee", "snp", "ucode"})
_HIGHEST_LEVEL: Final = 255
_GENUINE: Final = frozenset(
    {tee.value for tee in Tee if not tee.emulated}
    | {kind.value for kind in DeviceKind if not kind.emulated}
)


class Default(StrEnum):
    """What follows from a break."""

    # A production policy that names the product must accept the row.
    REFUSE = "refuse"
    # A production policy demands the levels that fix it, unless it accepts the row.
    RAISE = "raise"
    # Nothing in the evidence shows it.
    STATE = "state"
    # There is no evidence of such a product, so nothing could be accepted.
    NEVER = "never"


class Needs(StrEnum):
    """What an attacker needs in addition to running the machine."""

    SOFTWARE = "software"
    HANDS = "hands"


@dataclass(frozen=True, slots=True, kw_only=True)
class Break:
    """One published attack.

    Attributes:
        id: its name in ``accept_broken``.
        name: as its authors call it.
        published: year and month.
        kinds: the kinds of evidence, and of devices, that it affects.
        products: AMD's products that it affects; empty: the kinds as a whole.
        needs: what the attacker needs.
        default: what follows.
        effect: what it does, in a few words.
        source: where it was published.
        levels: AMD's patch levels that fix it, by product.
        evaluation: the number of Intel's evaluation that knows of it; 0: none.
    """

    id: str
    name: str
    published: str
    kinds: frozenset[str]
    products: frozenset[str]
    needs: Needs
    default: Default
    effect: str
    source: str
    levels: Mapping[str, Tcb]
    evaluation: int

    def affects(self, kinds: Collection[str], products: Collection[str]) -> bool:
        """Return whether any of these kinds and products is affected."""
        if not self.kinds & set(kinds):
            return False
        return not self.products or bool(self.products & set(products))


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownBreaks:
    """The list, and the day on which it was last looked through.

    Attributes:
        as_of: year, month and day.
        rows: in the file's order.
    """

    as_of: str
    rows: tuple[Break, ...]

    def of(
        self, kinds: Collection[str], products: Collection[str]
    ) -> tuple[Break, ...]:
        """Return what affects any of these kinds and products."""
        return tuple(row for row in self.rows if row.affects(kinds, products))

    def named(self, name: str) -> Break | None:
        """Return the row with this id, if there is one."""
        return next((row for row in self.rows if row.id == name), None)

    def raised(self, product: str, minimum: Tcb, accepted: Collection[str]) -> Tcb:
        """Return a product's lowest patch levels, with those that fix known breaks.

        Args:
            product: AMD's name for it.
            minimum: the levels that a policy names.
            accepted: the rows that it accepts, by id.
        """
        for row in self.rows:
            if row.id in accepted or row.default is not Default.RAISE:
                continue
            minimum = highest(minimum, row.levels.get(product))
        return minimum

    def raised_evaluation(self, minimum: int, accepted: Collection[str]) -> int:
        """Return the lowest number of Intel's evaluation, likewise."""
        found = [
            row.evaluation
            for row in self.rows
            if row.default is Default.RAISE and row.id not in accepted
        ]
        return max([minimum, *found])


def highest(first: Tcb, second: Tcb | None) -> Tcb:
    """Return the higher of two patch levels, component by component."""
    if second is None:
        return first
    return Tcb(
        fmc=max(first.fmc, second.fmc),
        bl=max(first.bl, second.bl),
        tee=max(first.tee, second.tee),
        snp=max(first.snp, second.snp),
        ucode=max(first.ucode, second.ucode),
    )


@cache
def known_breaks() -> KnownBreaks:
    """Return the list that comes with this program."""
    place = resources.files("curtilage.policy") / "known_breaks.toml"
    return parse_breaks(place.read_text(encoding="utf-8"))


def parse_breaks(text: str) -> KnownBreaks:
    """Read a list; anything that is not exactly of its form is an error.

    Raises:
        ValueError: says which row, and what is wrong.
    """
    tree = tomllib.loads(text)
    as_of = str(tree.get("as_of", ""))
    if _DAY.fullmatch(as_of) is None or set(tree) != {"as_of", "break"}:
        raise ValueError("not a day in 'as_of', or something besides the rows")
    rows = tuple(_row(each) for each in tree["break"])
    if len({row.id for row in rows}) < len(rows):
        raise ValueError("an id is given twice")
    if any(row.published > as_of for row in rows):
        raise ValueError("a row is newer than the list")
    return KnownBreaks(as_of=as_of, rows=rows)


def _row(tree: Mapping[str, Any]) -> Break:
    name = str(tree.get("id", ""))
    if _ID.fullmatch(name) is None or not _KEYS <= set(tree) <= _KEYS | _MORE:
        raise ValueError(
            f"row {name!r}: an id, a key or a source is missing, or unknown"
        )
    row = Break(
        id=name,
        name=str(tree["name"]),
        published=str(tree["published"]),
        kinds=frozenset(tree["kinds"]),
        products=frozenset(tree.get("products", ())),
        needs=Needs(tree["needs"]),
        default=Default(tree["default"]),
        effect=str(tree["effect"]),
        source=str(tree["source"]),
        levels=MappingProxyType(
            {product: _tcb(each) for product, each in tree.get("levels", {}).items()}
        ),
        evaluation=int(tree.get("evaluation", 0)),
    )
    if (wrong := _problem(row)) is not None:
        raise ValueError(f"row {name!r}: {wrong}")
    return row


def _problem(row: Break) -> str | None:
    known = {product.value for product in Product}
    checks = {
        "no name, or no effect": bool(row.name and row.effect),
        "published in no month": _MONTH.fullmatch(row.published) is not None,
        "a source is an https address": _SOURCE.fullmatch(row.source) is not None,
        "affects no kind, or one that is unknown": bool(row.kinds)
        and row.kinds <= _GENUINE,
        "levels of a product that it does not affect": set(row.levels)
        <= row.products & known,
        # Otherwise a row would seem to have an effect that it has not.
        "raises nothing, or says levels and does not raise": (
            row.default is Default.RAISE
        )
        is bool(row.levels or row.evaluation),
        "refuses no product": row.default is not Default.REFUSE
        or (bool(row.products) and row.products <= known),
        "could be accepted": row.default is not Default.NEVER
        or (bool(row.products) and not row.products & known),
    }
    return next((said for said, holds in checks.items() if not holds), None)


def _tcb(tree: Mapping[str, Any]) -> Tcb:
    values = [tree.get(name, 0) for name in _LEVELS]
    if not tree or not set(tree) <= _LEVELS:
        raise ValueError("no patch level, or one that is unknown")
    if any(
        type(value) is not int or not 0 <= value <= _HIGHEST_LEVEL for value in values
    ):
        raise ValueError("a patch level is not between 0 and 255")
    return Tcb(**{"bl": 0, "tee": 0, "snp": 0, "ucode": 0, **tree})
