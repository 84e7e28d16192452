"""Strict reading of TOML tables: typed, bounded, all problems at once.

Knows types, not meanings: the keys are defined in ``config`` and ``balancer.config``.
"""

import tomllib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol, TypeVar, cast

from curtilage.relay.errors import ConfigError

MAY_BE_ZERO: Final = frozenset(
    {"drain_delay_s", "connections", "exchanges", "requests_per_s", "place_wait_s"}
)


class _Dataclass(Protocol):
    __dataclass_fields__: ClassVar[dict[str, Any]]


_Numbers = TypeVar("_Numbers", bound=_Dataclass)
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class Table:
    """One table of a file: its values, and the problems of the whole file.

    A wrong value is recorded as a problem and read as if it were absent, so that one
    run reports everything.
    """

    values: Mapping[str, object]
    place: str = ""
    problems: list[str] = field(default_factory=list[str])

    def problem(self, key: str, message: str) -> None:
        """Record a problem of one key."""
        self.problems.append(f"{self.place}{key}: {message}")

    def only(self, known: Collection[str]) -> None:
        """Refuse every other key: a misspelt limit would silently keep its default."""
        listed = "" if self.place else f"; known: {', '.join(sorted(known))}"
        for key in sorted(self.values.keys() - set(known)):
            self.problem(key, f"unknown key{listed}")

    def parsed(
        self, key: str, parse: Callable[[str], _Value], expected: str
    ) -> _Value | None:
        """Read a text that ``parse`` understands, or raises a ``ConfigError`` about."""
        value = self.values.get(key)
        if not isinstance(value, str):
            self.problem(key, expected)
            return None
        try:
            return parse(value)
        except ConfigError as error:
            self.problem(key, str(error))
            return None

    def texts(self, key: str) -> list[str]:
        """Read a list of texts; an absent one is empty."""
        value = self.values.get(key, [])
        texts = cast("list[object]", value) if isinstance(value, list) else [value]
        found = [text for text in texts if isinstance(text, str)]
        if not isinstance(value, list) or len(found) < len(texts):
            self.problem(key, "expected a list of texts")
        return found

    def path(self, key: str) -> Path | None:
        """Read a path; None: it is absent."""
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, str) or not value:
            self.problem(key, "expected a path")
            return None
        return Path(value)

    def table(self, key: str) -> "Table":
        """Read a sub-table; an absent one is empty."""
        value = self.values.get(key, {})
        if not isinstance(value, dict):
            self.problem(key, "expected a table")
            value = {}
        # TOML's names are texts.
        values = cast("dict[str, object]", value)
        return Table(values, f"{self.place}{key}.", self.problems)

    def numbers(self, key: str, defaults: _Numbers) -> _Numbers:
        """Read a sub-table of numbers above 0 into a dataclass of defaults."""
        known = {item.name: item.type for item in fields(defaults)}
        table = self.table(key)
        chosen: dict[str, Any] = {}  # each checked against its field below
        for name, value in table.values.items():
            whole = known.get(name) is int
            # To Python a bool is an int. Neither NaN nor infinity is a number of
            # seconds that ever pass, so each would turn its limit off.
            if name not in known:
                table.problem(name, "unknown key")
            elif isinstance(value, bool) or not isinstance(
                value, int if whole else int | float
            ):
                kind = "whole number" if whole else "number"
                table.problem(name, f"expected a {kind}")
            elif not 0 < value < float("inf") and not (
                value == 0 and name in MAY_BE_ZERO
            ):
                table.problem(name, "expected more than 0")
            else:
                chosen[name] = value
        return replace(defaults, **chosen)


def read_toml(text: str) -> dict[str, object]:
    """Return the tree of a configuration file's text.

    Raises:
        ConfigError: it is not TOML.
    """
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"not TOML: {error}") from None
