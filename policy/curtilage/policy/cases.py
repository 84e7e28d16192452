"""Test cases of a policy: queries, each with the route that it must take.

A file is YAML, or lines of JSON with one case each::

    version: 1
    cases:
    - {id: card, text: "Pay with 4111 1111 1111 1111", route: local}
    - id: two-turns
      messages:
      - {role: user, content: "What is HIV?"}
      - {role: assistant, content: "A virus."}
      route: {clinic: local, else: enclave}
      rules: [payment-card]
      classes: [financial.pan]
      profiles: [clinic, bank]
    known_misses:
    - {id: card-in-words, text: "...", route: local}

``route`` is one route, or one for each policy by its name, ``else`` for the
others. All of ``rules`` must fire and all of ``classes`` must be found; others may
be too. ``profiles`` names the policies that a case is for; without it, all. A
known miss is a case that is known to fail; it is reported once it passes.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Final, cast

from curtilage.policy.decision.classes import is_class
from curtilage.policy.decision.decide import Assessment
from curtilage.policy.decision.routes import Route
from curtilage.policy.document.checks import Complaint, Location, Tree
from curtilage.policy.document.load import PROFILES, read_tree
from curtilage.policy.errors import PolicyError, Problem

ROLES: Final = ("system", "developer", "user", "assistant", "tool")
ELSE: Final = "else"
MAX_LINES: Final = 100_000
SHIPPED: Final = (
    "everyone",
    "more",
    "clean",
    "somebody",
    "languages",
    "covered",
    "figures",
    *PROFILES,
)

_FILE_KEYS: Final = frozenset({"version", "about", "cases", "known_misses"})
_CASE_KEYS: Final = frozenset(
    {"id", "text", "messages", "route", "rules", "classes", "profiles"}
)
_TURN_KEYS: Final = frozenset({"role", "content", "name"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One message of a case.

    Attributes:
        role: one of ``ROLES``.
        content: the text.
        name: the speaker's name, or None.
    """

    role: str
    content: str = field(repr=False)
    name: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A query and where it must go.

    Attributes:
        id: unique in its file.
        turns: the messages, oldest first; at least one.
        routes: the route by the name of the policy; ``else`` for the others.
        rules: ids of rules that must fire.
        classes: data classes that must be found.
        profiles: names of the policies that it is for; empty: all.
    """

    id: str
    turns: tuple[Turn, ...] = field(repr=False)
    routes: Mapping[str, Route]
    rules: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    profiles: tuple[str, ...] = ()

    def route_under(self, name: str) -> Route | None:
        """Return the route under the policy of this name; None: not for it."""
        if self.profiles and name not in self.profiles:
            return None
        return self.routes.get(name, self.routes.get(ELSE))


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseFile:
    """The cases of one file.

    Attributes:
        cases: those that must hold.
        known_misses: those that are known not to.
    """

    cases: tuple[Case, ...]
    known_misses: tuple[Case, ...] = ()

    def under(self, name: str) -> "CaseFile":
        """Return the cases that are for the policy of this name."""
        return CaseFile(
            cases=tuple(each for each in self.cases if each.route_under(name)),
            known_misses=tuple(
                each for each in self.known_misses if each.route_under(name)
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A case that does not hold; it holds no text.

    Attributes:
        id: the case's.
        expected: the route that it must take.
        got: the route that it takes.
        rule: what decided.
        reason: why, in the policy's words.
        missing_rules: rules that should have fired and did not.
        missing_classes: classes that should have been found and were not.
        fired: every rule that fired.
    """

    id: str
    expected: Route
    got: Route
    rule: str
    reason: str
    missing_rules: tuple[str, ...]
    missing_classes: tuple[str, ...]
    fired: tuple[str, ...]


def judge(case: Case, name: str, decision: Assessment) -> Failure | None:
    """Compare a decision under the policy of this name with what a case asks for.

    Returns:
        None where the case holds, or is not for this policy.
    """
    expected = case.route_under(name)
    if expected is None:
        return None
    fired = tuple(hit.id for hit in decision.rules)
    found = {*decision.classes, *decision.uncertain}
    missing_rules = tuple(each for each in case.rules if each not in fired)
    missing_classes = tuple(each for each in case.classes if each not in found)
    if decision.route is expected and not missing_rules and not missing_classes:
        return None
    return Failure(
        id=case.id,
        expected=expected,
        got=decision.route,
        rule=decision.rule,
        reason=decision.reason,
        missing_rules=missing_rules,
        missing_classes=missing_classes,
        fired=fired,
    )


def parse_cases(text: str, *, source: str = "cases") -> CaseFile:
    """Read a file of cases in YAML.

    Raises:
        PolicyError: with all problems, each with its line.
    """
    parser = _Parser()
    read_tree(text, parser.complaints, source=source)
    return CaseFile(
        cases=tuple(parser.cases["cases"]),
        known_misses=tuple(parser.cases["known_misses"]),
    )


def parse_case_lines(text: str, *, source: str = "cases") -> CaseFile:
    """Read lines of JSON, a case each; blank lines are passed over.

    Raises:
        PolicyError: with all problems, each with its line.
    """
    parser, problems = _Parser(), list[Problem]()
    # Line by line, so that every problem has its line, as in YAML.
    for number, line in enumerate(text.splitlines()[: MAX_LINES + 1], start=1):
        if number > MAX_LINES:
            problems.append(_problem(number, (), f"more than {MAX_LINES} lines"))
            break
        if not line.strip():
            continue
        try:
            tree = cast("Tree", json.loads(line, object_pairs_hook=_unique))
        except (ValueError, RecursionError):
            problems.append(_problem(number, (), "not a JSON object, or a key twice"))
            continue
        found = list(parser.case(tree, (), "cases"))
        problems += [_problem(number, place, words) for place, words in found]
    if not problems and not parser.cases["cases"]:
        problems.append(_problem(1, (), "there is no case"))
    if problems:
        raise PolicyError(tuple(problems), source=source)
    return CaseFile(cases=tuple(parser.cases["cases"]))


def shipped_cases(profile: str) -> CaseFile:
    """Return the shipped cases that are for a shipped profile.

    Raises:
        KeyError: there is no profile of this name.
    """
    if profile not in PROFILES:
        raise KeyError(profile)
    files = [_shipped(name) for name in SHIPPED]
    return CaseFile(
        cases=tuple(case for each in files for case in each.cases),
        known_misses=tuple(case for each in files for case in each.known_misses),
    ).under(profile)


@cache
def _shipped(name: str) -> CaseFile:
    path = resources.files("curtilage.policy") / "test_cases" / f"{name}.yaml"
    return parse_cases(path.read_text("utf-8"), source=f"cases {name}")


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    # The library would silently keep the last of two, and test another route.
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is given twice")
    return found


def _problem(line: int, place: Location, message: str) -> Problem:
    path = "".join(
        f"[{part}]" if isinstance(part, int) else f".{part}" for part in place
    )
    return Problem(line=line, path=path.removeprefix("."), message=message)


class _Parser:
    """Reads cases from a tree; reports what is wrong, and where."""

    def __init__(self) -> None:
        self.cases: dict[str, list[Case]] = {"cases": [], "known_misses": []}
        self._ids: set[str] = set()

    def complaints(self, tree: Tree) -> Iterator[Complaint]:
        """Read a whole file."""
        if not isinstance(tree, dict):
            yield (), "expected keys and values"
            return
        yield from _unknown(tree, (), _FILE_KEYS)
        if tree.get("version") != 1:
            yield ("version",), "expected 1"
        if not tree.get("cases"):
            yield ("cases",), "there is no case"
        for key in ("cases", "known_misses"):
            entries = tree.get(key, [])
            if not isinstance(entries, list):
                yield (key,), "expected a list"
                continue
            for index, entry in enumerate(entries):
                yield from self.case(entry, (key, index), key)

    def case(self, tree: Tree, place: Location, kind: str) -> Iterator[Complaint]:
        """Read one case."""
        if not isinstance(tree, dict):
            yield place, "expected keys and values"
            return
        found = [*_unknown(tree, place, _CASE_KEYS), *self._id(tree.get("id"), place)]
        turns = _turns(tree, place, found)
        routes = _routes(tree.get("route"), (*place, "route"), found)
        lists = {
            key: _texts(tree.get(key, []), (*place, key), found)
            for key in ("rules", "classes", "profiles")
        }
        for index, name in enumerate(lists["classes"]):
            if not is_class(name):
                found.append(((*place, "classes", index), "unknown class"))
        yield from found
        # A case with any error is dropped: half of it could pass by accident.
        if not found:
            self.cases[kind].append(
                Case(id=str(tree["id"]), turns=turns, routes=routes, **lists)
            )

    def _id(self, value: Tree, place: Location) -> Iterator[Complaint]:
        if not isinstance(value, str) or not value:
            yield (*place, "id"), "expected text"
        elif value in self._ids:
            yield (*place, "id"), "another case above has the same id"
        else:
            self._ids.add(value)


def _unknown(
    tree: Mapping[str, Tree], place: Location, known: frozenset[str]
) -> Iterator[Complaint]:
    for key in tree:
        if key not in known:
            yield (*place, key), "unknown key"


def _turns(
    tree: Mapping[str, Tree], place: Location, found: list[Complaint]
) -> tuple[Turn, ...]:
    text, messages = tree.get("text"), tree.get("messages")
    if ("text" in tree) == ("messages" in tree):
        found.append((place, "write either 'text' or 'messages'"))
        return ()
    if isinstance(text, str):
        return (Turn(role="user", content=text),)
    if not isinstance(messages, list) or not messages:
        key, kind = ("text", "text") if "text" in tree else ("messages", "a list")
        found.append(((*place, key), f"expected {kind}"))
        return ()
    read = [
        _turn(each, (*place, "messages", index), found)
        for index, each in enumerate(messages)
    ]
    return tuple(each for each in read if each is not None)


def _turn(tree: Tree, place: Location, found: list[Complaint]) -> Turn | None:
    if not isinstance(tree, dict):
        found.append((place, "expected keys and values"))
        return None
    found += _unknown(tree, place, _TURN_KEYS)
    role, content, name = (tree.get(key) for key in ("role", "content", "name"))
    if role not in ROLES:
        found.append(((*place, "role"), f"expected one of {', '.join(ROLES)}"))
    if not isinstance(content, str):
        found.append(((*place, "content"), "expected text"))
    if not isinstance(name, str | None):
        found.append(((*place, "name"), "expected text"))
    return Turn(
        role=str(role),
        content=str(content),
        name=name if isinstance(name, str) else None,
    )


def _routes(tree: Tree, place: Location, found: list[Complaint]) -> Mapping[str, Route]:
    entries = tree if isinstance(tree, dict) else {ELSE: tree}
    routes: dict[str, Route] = {}
    if not entries:
        found.append((place, "names no route"))
    for name, value in entries.items():
        if isinstance(value, str) and value in set(Route):
            routes[name] = Route(value)
        else:
            words = f"expected one of {', '.join(route.value for route in Route)}"
            found.append(((*place, name) if tree is entries else place, words))
    return routes


def _texts(tree: Tree, place: Location, found: list[Complaint]) -> tuple[str, ...]:
    entries = tree if isinstance(tree, list) else [None]
    texts = tuple(each for each in entries if isinstance(each, str) and each)
    if len(texts) != len(entries):
        found.append((place, "expected a list of texts"))
    return texts
