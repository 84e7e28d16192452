"""Loads policies from a strict subset of YAML.

The subset of YAML 1.1: mappings with distinct text keys, sequences, text,
decimal integers, ``true``, ``false`` and null. Everything else is refused with its
line: anchors, aliases, tags, directives, further documents. So ``NO`` is text,
``012`` is not an octal number and ``1:30`` not a number of seconds.

The text is read as events, never composed by the library, so size and depth
are bounded while reading. Then the tree is checked, and all problems are reported
at once, each with its line.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Final, Protocol, TypeVar, cast

import yaml
from pydantic import BaseModel, ValidationError

from curtilage.policy.decision.classes import CLASSES
from curtilage.policy.decision.tiers import Tiering
from curtilage.policy.document.attachments import Attachments, Files, digest_of
from curtilage.policy.document.checks import (
    Complaint,
    Location,
    Tree,
    as_written,
    complaints,
    detectors_named,
    own_classes,
    pack_complaints,
)
from curtilage.policy.document.model import PACKS, Document, Policy
from curtilage.policy.document.packs import Pack
from curtilage.policy.errors import PolicyError, Problem

MAX_CHARS: Final = 256 * 1024  # the shipped profile has about 10,000
MAX_DEPTH: Final = 12  # the deepest place of the model lies 6 deep
MAX_NODES: Final = 20_000
PROFILES: Final = ("default", "clinic", "bank", "law-firm", "public-office")
SHOWN_KEY_CHARS: Final = 40

_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,17})")
_WORDS: Final[dict[str, bool | None]] = {
    "true": True,
    "false": False,
    "null": None,
    "~": None,
    "": None,
}
# Control characters but line feed and tab, bidirectional marks, and surrogates: a
# reason is shown on terminals, and must be encodable.
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
# "Tuple should have at most 4 items after validation, not 5"
_COUNT = re.compile(r"\w+ should have at (most|least) ([0-9]+ \w+)(?: after.*)?")
PLAIN_WORDS: Final = {
    "missing": "this key is missing",
    "extra_forbidden": "unknown key",
    "tuple_type": "expected a list",
    "model_type": "expected keys and values",
    "string_type": "expected text",
    "bool_type": "expected true or false",
    "int_type": "expected a whole number",
}


_Model = TypeVar("_Model", bound=BaseModel)


def load_policy(
    text: str, *, source: str = "policy", files: Files | None = None
) -> Policy:
    """Read a policy.

    Args:
        text: the file's text; a path is never taken.
        source: what to call it in errors, such as the file's name.
        files: reads the lists that the policy names (``file``, ``dictionary``);
            without it, naming one is an error.

    Raises:
        PolicyError: with all problems, each with its line.
    """
    reader = _Reader()
    tree = reader.read(text)
    problems = set(reader.problems)
    document: Document | None = None
    attached = Attachments(
        files, lambda text: read_tree(text, lambda _: (), source="recognizers")
    )
    if not reader.broken:
        named = detectors_named(tree)
        document, found = _modelled(Document, named, own_classes(named))
        found += complaints(named, _pack_rules(named))
        if document is not None:
            found += attached.read(document)
        problems |= reader.located(list(as_written(found, tree)))
    if problems or document is None:
        raise PolicyError(tuple(sorted(problems)), source=source)
    # A valid document is prepared once, so that a decision reads no file.
    thresholds, packs = document.thresholds, document.packs
    # A detector may find a class of the tree; the policy's own are only the new ones.
    found_by = [each.data_class for each in document.detectors.own]
    if document.detectors.presidio is not None:
        found_by += document.detectors.presidio.classes.values()
    own = frozenset(found_by) - CLASSES
    loaded = [load_pack(name) for name in packs]
    claimed = frozenset[str]()
    if document.attestation is not None:
        claimed = claimed.union(
            *(each.covered(own) for each in document.attestation.classes)
        )
    routing = document.routing
    pseudonymised = document.pseudonymised_health == "leave"
    # The packs' rules first: of two that are equally private the earlier is named.
    rules = [
        rule.compile(thresholds, own, pack.pack, pseudonymised=pseudonymised)
        for pack in loaded
        for rule in pack.rules
    ]
    return Policy(
        document=document,
        digest=digest_of(
            text,
            packs={name: pack_text(name) for name in packs},
            files=attached.contents,
        ),
        source=source,
        rules=(
            *rules,
            *(
                rule.compile(thresholds, own, pseudonymised=pseudonymised)
                for rule in document.rules
            ),
        ),
        exclusions=tuple(entry.compile(thresholds, own) for entry in document.exclude),
        classes=CLASSES | own,
        recognizers=tuple(
            sorted({name for pack in loaded for name in pack.recognizers})
        ),
        detectors=tuple(attached.detectors),
        lists=tuple(attached.lists),
        presidio=attached.presidio,
        custody=attached.custody,
        tiering=Tiering(claimed=claimed)
        if routing is None
        else routing.tiering(own, claimed),
        routing_files={}
        if routing is None
        else {each: attached.contents[each] for each in routing.files},
        notices=tuple(_old_names(tree)),
    )


def _old_names(tree: Tree) -> Iterator[str]:
    """Yield a notice for each name that only this version still accepts."""
    routing = tree.get("routing") if isinstance(tree, dict) else None
    tiers = routing.get("tiers") if isinstance(routing, dict) else None
    for at, tier in enumerate(tiers if isinstance(tiers, list) else ()):
        if isinstance(tier, dict) and tier.get("kind") == "house":
            yield (
                f"routing.tiers[{at}].kind: 'house' is now 'on_premises'; version 0.2 "
                "will not accept the old name"
            )


def load_profile(name: str) -> Policy:
    """Read a shipped profile.

    Raises:
        KeyError: there is no profile of this name.
    """
    return load_policy(profile_text(name), source=f"profile {name}")


def profile_text(name: str) -> str:
    """Return the text of a shipped profile, comments and all.

    Raises:
        KeyError: there is no profile of this name.
    """
    return _shipped("profiles", name, PROFILES)


def read_tree(
    text: str, check: Callable[[Tree], Iterable[Complaint]], *, source: str
) -> Tree:
    """Read something else that people write, in the same YAML.

    Raises:
        PolicyError: with all problems, those of ``check`` too, with lines.
    """
    reader = _Reader()
    tree = reader.read(text)
    problems = set(reader.problems)
    if not reader.broken:
        problems |= reader.located(list(check(tree)))
    if problems:
        raise PolicyError(tuple(sorted(problems)), source=source)
    return tree


@cache
def load_pack(name: str) -> Pack:
    """Read a shipped pack.

    Raises:
        KeyError: there is no pack of this name.
    """
    return read_pack(pack_text(name), name=name)


def pack_text(name: str) -> str:
    """Return the text of a shipped pack, comments and all.

    Raises:
        KeyError: there is no pack of this name.
    """
    return _shipped("packs", name, PACKS)


def read_pack(text: str, *, name: str) -> Pack:
    """Read a pack.

    Raises:
        PolicyError: with all problems, each with its line.
    """
    reader = _Reader()
    tree = reader.read(text)
    problems = set(reader.problems)
    pack: Pack | None = None
    if not reader.broken:
        pack, found = _modelled(Pack, tree, frozenset())
        problems |= reader.located([*found, *pack_complaints(tree, name)])
    if problems or pack is None:
        raise PolicyError(tuple(sorted(problems)), source=f"pack {name}")
    return pack


def _shipped(folder: str, name: str, names: Iterable[str]) -> str:
    if name not in names:
        raise KeyError(name)
    place = resources.files("curtilage.policy") / folder / f"{name}.yaml"
    return place.read_text(encoding="utf-8")


def _pack_rules(tree: Tree) -> Mapping[str, str]:
    """Return the ids that packs have taken, each with its pack."""
    named = tree.get("packs") if isinstance(tree, dict) else None
    known = [each for each in PACKS if isinstance(named, list) and each in named]
    return {rule.id: name for name in known for rule in load_pack(name).rules}


def _modelled(
    model: type[_Model], tree: Tree, own: frozenset[str]
) -> tuple[_Model | None, list[Complaint]]:
    # JSON mode: strict Python mode would refuse a list for a tuple.
    try:
        return model.model_validate_json(json.dumps(tree), context=own), []
    except ValidationError as error:
        return None, [
            # A wrong key of a mapping is reported at its own place.
            (
                tuple(part for part in each["loc"] if part != "[key]"),
                _words(each["type"], each["msg"]),
            )
            # Without the input: it may be a word of the organisation's own lists.
            for each in error.errors(include_url=False, include_input=False)
        ]


def _words(kind: str, message: str) -> str:
    if kind in PLAIN_WORDS:
        return PLAIN_WORDS[kind]
    words = message.removeprefix("Value error, ").replace("Input should be", "expected")
    return _COUNT.sub(r"expected at \1 \2", words)


class _Events(Protocol):
    """The part of the library's loader that is used; the library has no types."""

    line: int

    def check_event(self) -> bool:
        """Return whether there is another event."""
        ...

    def get_event(self) -> yaml.Event:
        """Return the next event."""
        ...


@dataclass(slots=True)
class _Frame:
    """A mapping or sequence that is being read."""

    value: dict[str, Tree] | list[Tree]
    place: Location
    key: str | None = None  # of a mapping: the key whose value comes next
    repeated: bool = False  # that key stood here before; the first one counts


@dataclass(slots=True)
class _Reader:
    """Events to a tree, and the line of every place in it."""

    problems: list[Problem] = field(default_factory=list[Problem])
    broken: bool = False  # the rest could not be read: no further checks
    _lines: dict[Location, int] = field(default_factory=dict[Location, int])
    _refused: set[Location] = field(default_factory=set[Location])
    _frames: list[_Frame] = field(default_factory=list[_Frame])
    _root: Tree = None
    _documents: int = 0
    _nodes: int = 0

    def read(self, text: str) -> Tree:
        """Return the tree; what is wrong with it is in ``problems``."""
        if len(text) > MAX_CHARS:
            self._stop(1, f"a policy has at most {MAX_CHARS} characters")
            return None
        try:
            loader = cast("_Events", yaml.SafeLoader(text))
        except yaml.reader.ReaderError as error:
            line = text.count("\n", 0, error.position) + 1
            self._stop(line, "a character that YAML does not allow")
            return None
        try:
            while not self.broken and loader.check_event():
                self._take(loader.get_event())
        except yaml.MarkedYAMLError as error:
            self._stop(_line_of(error.problem_mark), f"not YAML: {error.problem}")
        except (ValueError, OverflowError):
            # The library passes the number of an escape to chr() unchecked.
            self._stop(loader.line + 1, "not YAML: an escape beyond Unicode")
        return self._root

    def located(self, found: list[Complaint]) -> set[Problem]:
        """Give each complaint its line; drop those on what was refused before."""
        return {
            Problem(line=self._line(place), path=_path(place), message=message)
            for place, message in found
            if self._refused.isdisjoint(_prefixes(place))
        }

    def _take(self, event: yaml.Event) -> None:
        line = _line_of(event.start_mark)
        if isinstance(event, yaml.NodeEvent):
            self._take_node(event, line)
        elif isinstance(event, yaml.CollectionEndEvent):
            self._frames.pop()
        elif isinstance(event, yaml.DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                self._stop(line, "a policy is one document; another begins here")
            if event.version is not None or event.tags:
                self._report(line, (), "directives are not accepted")

    def _take_node(self, event: yaml.NodeEvent, line: int) -> None:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            self._stop(line, f"a policy has at most {MAX_NODES} entries")
            return
        frame = self._frames[-1] if self._frames else None
        if frame is not None and isinstance(frame.value, dict) and frame.key is None:
            self._take_key(frame, event, line)
            return
        place = _next_place(frame)
        self._lines.setdefault(place, line)
        self._check_plain(event, place, line)
        value = self._value(event, place, line)
        if frame is None:
            self._root = value
        elif isinstance(frame.value, list):
            frame.value.append(value)
        else:
            if not frame.repeated:
                frame.value[str(frame.key)] = value
            frame.key = None
        if isinstance(value, dict | list):
            self._frames.append(_Frame(value=value, place=place))

    def _take_key(self, frame: _Frame, event: yaml.NodeEvent, line: int) -> None:
        if not isinstance(event, yaml.ScalarEvent):
            self._stop(line, "a key is text")
            return
        key = event.value
        # Keys appear in messages, and messages on terminals.
        if _UNPRINTABLE.search(key):
            key = ascii(key)
            self._refuse(line, (*frame.place, key), "a character that cannot be shown")
        place = (*frame.place, key)
        self._check_plain(event, place, line)
        if not isinstance(_scalar(event), str):
            self._refuse(line, place, "a key is text: put it in quotes")
        # The library would silently keep the last of two: a second ``default`` far
        # below would be in force, and the reader would rely on the first.
        frame.key, frame.repeated = key, key in frame.value
        if frame.repeated:
            first = self._lines[place]
            self._report(line, place, f"this key is given twice, first in line {first}")
        self._lines.setdefault(place, line)

    def _check_plain(self, event: yaml.NodeEvent, place: Location, line: int) -> None:
        # Nine lines of nested aliases can expand to gigabytes, and a reader of the file
        # would have to resolve each alias.
        if isinstance(event, yaml.AliasEvent):
            self._refuse(line, place, "aliases are not accepted: write it out")
            return
        if event.anchor is not None:
            self._report(line, place, "anchors are not accepted")
        # A tag sets a value's type; here only the model does.
        if getattr(event, "tag", None) is not None:
            self._refuse(line, place, "tags are not accepted")

    def _value(self, event: yaml.NodeEvent, place: Location, line: int) -> Tree:
        if isinstance(event, yaml.ScalarEvent):
            value = _scalar(event)
            if isinstance(value, str) and _UNPRINTABLE.search(value):
                self._refuse(line, place, "a character that cannot be shown")
                return None
            return value
        if isinstance(event, yaml.AliasEvent):
            return None
        # While reading, before any recursive code sees the tree.
        if len(self._frames) == MAX_DEPTH:
            self._stop(line, f"a policy nests at most {MAX_DEPTH} deep")
        return {} if isinstance(event, yaml.MappingStartEvent) else []

    def _line(self, place: Location) -> int:
        lines = (self._lines[each] for each in _prefixes(place) if each in self._lines)
        return next(lines, 1)

    def _report(self, line: int, place: Location, message: str) -> None:
        self.problems.append(Problem(line=line, path=_path(place), message=message))

    def _refuse(self, line: int, place: Location, message: str) -> None:
        self._refused.add(place)
        self._report(line, place, message)

    def _stop(self, line: int, message: str) -> None:
        # Half a tree would lead to reports of problems that the file does not have.
        self.broken = True
        self._report(line, (), message)


def _line_of(mark: object) -> int:
    """Return the line of a mark, from 1; the library counts from 0."""
    return int(getattr(mark, "line", 0)) + 1


def _scalar(event: yaml.ScalarEvent) -> Tree:
    # In quotes everything is text, ``"true"`` as well.
    plain = event.style is None
    if plain and event.value in _WORDS:
        return _WORDS[event.value]
    if plain and _INTEGER.fullmatch(event.value):
        return int(event.value)
    return str(event.value)


def _next_place(frame: _Frame | None) -> Location:
    if frame is None:
        return ()
    if isinstance(frame.value, list):
        return (*frame.place, len(frame.value))
    return (*frame.place, str(frame.key))


def _prefixes(place: Location) -> Iterator[Location]:
    """Yield the place itself, then what holds it, up to the document."""
    for length in range(len(place), -1, -1):
        yield place[:length]


def _path(place: Location) -> str:
    """Return the place as ``rules[3].when``."""
    return "".join(
        f"[{part}]" if isinstance(part, int) else f".{part[:SHOWN_KEY_CHARS]}"
        for part in place
    ).removeprefix(".")
