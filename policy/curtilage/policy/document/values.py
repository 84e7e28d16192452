"""Validators for single values of a policy, beyond their type.

Each function returns the value, or raises ``ValueError`` with a message that is
fit for the policy's author. ``model`` attaches them to its fields.

Detectors run in linear time, so a policy's patterns are RE2. Syntax that RE2 does not
support is refused here, so that the author sees it at once. Only that library can check
a pattern in full; the worker compiles it, and if that fails, nothing is sent.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Final, Protocol, TypeVar, cast

from curtilage.policy.decision.classes import expand, is_class, is_uncertain
from curtilage.policy.decision.conditions import parse_condition
from curtilage.policy.decision.rules import RESERVED_IDS

MAX_REPEAT: Final = 1000  # RE2's own limit
REQUIREMENTS: Final = frozenset(
    {"all_detectors_ok", "language_covered", "within_limits", "policy_current"}
)

# One construct after the other, so that the contents of an escape or a class are
# not taken for a construct.
_CONSTRUCT = re.compile(
    r"""
    \\(?P<escape>Q.*?(?:\\E|\Z)|[1-7][0-7]{1,2}|.)  # the second: an octal number
    | (?P<klass>\[\^?\]?(?:\\.|\[:\^?\w+:\]|[^\]\\])*\])
    | (?P<group>\((?:\?(?:<[=!]|[=!>(]|P=|\#))?)
    | (?P<end>\))
    | \{(?P<least>\d+)(?:,(?P<most>\d*))?\}(?P<possessive>\+?)
    | [*+?](?P<again>\+)
    | .
    """,
    re.VERBOSE | re.DOTALL,
)


class HasContext(Protocol):
    """The context that a validator gets in addition to the value."""

    @property
    def context(self) -> object:
        """The classes of this policy's own detectors, or None."""
        ...


def all_requirements(value: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse a list of requirements that leaves one out."""
    # A list that can be shortened would look as if leaving one out switched it off.
    if frozenset(value) != REQUIREMENTS or len(value) != len(REQUIREMENTS):
        raise ValueError(
            f"every requirement always holds: list {', '.join(sorted(REQUIREMENTS))}, "
            "or leave 'require' out"
        )
    return value


# By ISO 639-1. Who adds one brings its words (``VOCABULARIES`` of the detectors: a test
# compares), and names, topics and numbers that were measured in it.
COVERED_LANGUAGES: Final[Mapping[str, str]] = {
    "en": "English",
    "de": "German",
    "es": "Spanish",
    "fr": "French",
    "it": "Italian",
    "nl": "Dutch",
    "pt": "Portuguese",
}


def covered_languages(value: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse a language that no detector covers, and a list without one."""
    covered = ", ".join(f"{code} ({name})" for code, name in COVERED_LANGUAGES.items())
    for code in value:
        if code not in COVERED_LANGUAGES:
            raise ValueError(f"'{code}' is not covered; languages that are: {covered}")
    if not value:
        raise ValueError(f"name a language at least; those that are covered: {covered}")
    return each_once(value)


def own_route(value: object) -> object:
    """Refuse other systems' names for a route."""
    if isinstance(value, str) and value in {"relay", "remote"}:
        raise ValueError("the route is called 'enclave' here")
    return value


def each_once(value: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse a list that names something twice."""
    if len(set(value)) < len(value):
        raise ValueError("the same name is given twice")
    return value


class NamesText(Protocol):
    """The part of an approval that identifies the text."""

    @property
    def sha256(self) -> str:
        """SHA-256 of the text, in hexadecimal."""
        ...

    @property
    def role(self) -> str:
        """The role in which it is approved."""
        ...


_Entries = TypeVar("_Entries", bound=Sequence[object])


def some(value: _Entries) -> _Entries:
    """Refuse an empty list; runs after its entries, whose errors come first."""
    if not value:
        raise ValueError("expected at least 1 item")
    return value


_Approvals = TypeVar("_Approvals", bound=Sequence[NamesText])


def no_text_twice(value: _Approvals) -> _Approvals:
    """Refuse a text that is approved twice in one role."""
    if len({(each.role, each.sha256) for each in value}) < len(value):
        raise ValueError("the same text is approved twice in the same role")
    return value


def calendar_day(value: str) -> str:
    """Refuse anything but a calendar day, such as 2026-11-22."""
    try:
        known = date.fromisoformat(value).isoformat() == value
    except ValueError:
        known = False
    if not known:
        raise ValueError("expected a day such as 2026-11-22")
    return value


def file_inside(value: str) -> str:
    """Refuse a file outside the policy's folder."""
    # A policy from elsewhere must not make this machine read its other files: whether
    # an entry of a list is found would reveal their contents.
    if {"", ".", ".."} & set(value.split("/")):
        raise ValueError(
            "expected a file in or below the policy's folder: no '..', no leading '/'"
        )
    return value


def own_classes_of(info: HasContext) -> frozenset[str]:
    """Return the classes of this policy's own detectors."""
    return cast("frozenset[str]", info.context or frozenset())


def one_class(value: str, info: HasContext) -> str:
    """Refuse what is not exactly one class."""
    if expand(value, own=own_classes_of(info)) != frozenset({value}):
        raise ValueError("expected one class, not a pattern")
    return value


def class_pattern(value: str, info: HasContext) -> str:
    """Refuse a pattern that names no class."""
    expand(value, own=own_classes_of(info))
    return value


def class_or_branch(value: str, info: HasContext) -> str:
    """Refuse a name that is neither a class nor a branch of the tree."""
    covered_classes(value, own=own_classes_of(info))
    return value


def covered_classes(name: str, *, own: frozenset[str] = frozenset()) -> frozenset[str]:
    """Return a class, or all classes below a name; a pattern is accepted too.

    Raises:
        ValueError: no name in the tree is, or begins with, this one.
    """
    if name.endswith(("}", ".*")) or is_class(name):
        return expand(name, own=own)
    return expand(f"{name}.*", own=own)


def excludable(value: str, info: HasContext) -> str:
    """Refuse classes that always count."""
    names = expand(value, own=own_classes_of(info))
    # A leaked key cannot be taken back, and an uncertain finding may be anything:
    # no exclusion justifies either.
    if any(is_uncertain(name) or name.startswith("secret.") for name in names):
        raise ValueError("secret.* and uncertain.* cannot be excluded")
    return value


def expression(value: str, info: HasContext) -> str:
    """Refuse anything but an expression over classes."""
    parse_condition(value, own=own_classes_of(info))
    return value


def re2_pattern(value: str) -> str:
    """Refuse look-around, back-references, and other constructs that RE2 lacks.

    Raises:
        ValueError: says what, and at which character, counted from 1.
    """
    # Counting open groups is enough to check that they are balanced.
    depth = 0
    for match in _CONSTRUCT.finditer(value):
        complaint = _complaint(match)
        if complaint:
            raise ValueError(f"{complaint}, at character {match.start() + 1}")
        depth += (match["group"] is not None) - (match["end"] is not None)
        if depth < 0:
            raise ValueError(f"no group ends here, at character {match.start() + 1}")
    if depth:
        raise ValueError("a group does not end")
    return value


def _complaint(match: re.Match[str]) -> str:
    if match["group"] not in {None, "("}:
        return "RE2 knows no look-around, condition, atomic group, reference or comment"
    if match["escape"] is not None and match["escape"] in "123456789kGKXRZ":
        return f"RE2 does not know '\\{match['escape']}'"
    if match["again"] or match["possessive"]:
        return "RE2 knows no possessive repetition"
    counts = [int(each) for each in (match["least"], match["most"]) if each]
    if any(count > MAX_REPEAT for count in counts):
        return f"RE2 repeats at most {MAX_REPEAT} times"
    if match[0] in {"[", "\\"}:
        return "a class or an escape does not end"
    return ""


def unreserved_id(value: str) -> str:
    """Refuse a rule id that is reserved for the program."""
    if value in RESERVED_IDS:
        raise ValueError(f"the id {value!r} is reserved")
    return value
