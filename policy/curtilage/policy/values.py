"""What single values of a policy must be, beyond their type.

Each function returns the value, or raises ``ValueError`` with a message that is
fit for the policy's author. ``model`` hangs them on its fields.
"""

from typing import Final, Protocol, cast

from curtilage.policy.classes import expand, is_class, is_uncertain
from curtilage.policy.expressions import refuse_what_re2_lacks
from curtilage.policy.rules import RESERVED_IDS
from curtilage.policy.when import parse_when

REQUIREMENTS: Final = frozenset(
    {"all_detectors_ok", "language_covered", "within_limits", "policy_current"}
)


class Told(Protocol):
    """What a validator is told beside the value."""

    @property
    def context(self) -> object:
        """The classes of this policy's own detectors, or None."""
        ...


def all_requirements(value: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse a list of requirements that leaves one out."""
    if frozenset(value) != REQUIREMENTS or len(value) != len(REQUIREMENTS):
        raise ValueError(
            f"every requirement always holds: list {', '.join(sorted(REQUIREMENTS))}, "
            "or leave 'require' out"
        )
    return value


def covered_languages(value: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse a language that no detector covers."""
    if value != ("en",):
        raise ValueError("detectors of other languages than en are not in this release")
    return value


def own_route(value: object) -> object:
    """Refuse the words of others for a route of ours."""
    if isinstance(value, str) and value in {"relay", "remote"}:
        raise ValueError("the route is called 'enclave' here")
    return value


def each_once(value: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse a list that names something twice."""
    if len(set(value)) < len(value):
        raise ValueError("the same name stands here twice")
    return value


def file_inside(value: str) -> str:
    """Refuse a file that does not lie beside the policy or below."""
    if {"", ".", ".."} & set(value.split("/")):
        raise ValueError("a file beside the policy or below: no '..', no leading '/'")
    return value


def own_classes_of(info: Told) -> frozenset[str]:
    """Return the classes of this policy's own detectors."""
    return cast("frozenset[str]", info.context or frozenset())


def one_class(value: str, info: Told) -> str:
    """Refuse what is not exactly one class."""
    if expand(value, own=own_classes_of(info)) != frozenset({value}):
        raise ValueError("expected one class, not a pattern")
    return value


def class_pattern(value: str, info: Told) -> str:
    """Refuse what names no class."""
    expand(value, own=own_classes_of(info))
    return value


def class_or_branch(value: str, info: Told) -> str:
    """Refuse what names no class and no branch of the tree above classes."""
    covered_classes(value, own=own_classes_of(info))
    return value


def covered_classes(name: str, *, own: frozenset[str] = frozenset()) -> frozenset[str]:
    """Return a class, or all classes below a name; a pattern will do as well.

    Raises:
        ValueError: nothing in the tree is called so, or begins so.
    """
    if name.endswith(("}", ".*")) or is_class(name):
        return expand(name, own=own)
    return expand(f"{name}.*", own=own)


def excludable(value: str, info: Told) -> str:
    """Refuse classes that always count."""
    names = expand(value, own=own_classes_of(info))
    if any(is_uncertain(name) or name.startswith("secret.") for name in names):
        raise ValueError("secret.* and uncertain.* cannot be excluded")
    return value


def expression(value: str, info: Told) -> str:
    """Refuse what is no expression over classes."""
    parse_when(value, own=own_classes_of(info))
    return value


def re2_pattern(value: str) -> str:
    """Refuse what RE2 does not know."""
    refuse_what_re2_lacks(value)
    return value


def unreserved_id(value: str) -> str:
    """Refuse a rule id that the program uses itself."""
    if value in RESERVED_IDS:
        raise ValueError(f"the id {value!r} is taken by the program itself")
    return value
