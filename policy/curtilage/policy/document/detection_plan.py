"""The detection plan of a policy: what the detectors run, with its JSON form.

It is sent to the detectors' worker as the first frame. It contains the words of the
policy's own dictionaries, which are the organisation's secrets: no repr shows them.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from hashlib import sha256
from types import MappingProxyType
from typing import Final, Literal, TypeAlias, TypeVar, cast, get_args

from curtilage.policy.decision.classes import is_class
from curtilage.policy.decision.conditions import MAX_SCORE

Engine: TypeAlias = Literal["none", "embedded", "spacy", "transformers"]
Kind: TypeAlias = Literal["regex", "dictionary", "edm"]
Scan: TypeAlias = Literal["early_exit", "full"]
Fields: TypeAlias = dict[str, object]

MAX_RECALL: Final = 300
DEFAULT_RECALL: Final = 100
DEFAULT_WINDOW: Final = 60
MAX_WINDOW: Final = 1000
NOT_THE_FIELDS: Final = "not the fields of"
NO_SUCH_LIST: Final = "expected the exact list of this digest"
_T = TypeVar("_T")
NO_TABLES: Final[Mapping[str, bytes]] = MappingProxyType({})
_HEX = re.compile(r"(?:[0-9a-f]{2})*")


@dataclass(frozen=True, slots=True, kw_only=True)
class NerPlan:
    """The model that finds names.

    Attributes:
        engine: ``none`` and ``embedded`` need no path.
        path: where the operator's own model lies; empty: there is none.
        sha256: of that model, 64 hexadecimal digits; empty without a path.
        labels: the model's labels and the data classes they stand for.
        recall: 0 to 300: hundredths by which "no name" is made less likely.
    """

    engine: Engine
    path: str = ""
    sha256: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    recall: int = DEFAULT_RECALL

    def to_fields(self) -> Fields:
        """Return it as JSON values."""
        return {
            "engine": self.engine,
            "path": self.path,
            "sha256": self.sha256,
            "labels": [list(pair) for pair in self.labels],
            "recall": self.recall,
        }

    @classmethod
    def from_fields(cls, value: object) -> "NerPlan":
        """Return what ``to_fields`` was made from.

        Raises:
            ValueError: it is anything else.
        """
        given = _mapping(value, cls)
        return cls(
            engine=_one_of(given["engine"], get_args(Engine)),
            path=_text(given["path"]),
            sha256=_hex(given["sha256"]),
            labels=tuple(_label(pair) for pair in _list(given["labels"])),
            recall=_number(given["recall"], MAX_RECALL),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnDetector:
    """A detector that a policy defines.

    Attributes:
        id: unique in its policy.
        kind: what ``pattern`` or ``entries`` are.
        data_class: what a hit is.
        base_score: 1 to 100, before ``boost``.
        pattern: RE2; empty unless ``kind`` is ``regex``.
        entries: words of a dictionary as they were written, or hexadecimal
            HMAC-SHA256 of exact values (``dictionaries.edm_entry``).
        table: or an ``exact_list``, as its file has it; empty: there is none.
        salt: the key of those, in hexadecimal; empty unless ``kind`` is ``edm``.
        context: words that make a hit surer.
        window: how far from a hit they may be, in characters.
        boost: how much surer, added to the score.
        validate: the check that a hit must pass, by name; empty: none.
        exclude: exact values that do not count.
    """

    id: str
    kind: Kind
    data_class: str
    base_score: int
    pattern: str = ""
    entries: tuple[str, ...] = field(default=(), repr=False)
    table: bytes = field(default=b"", repr=False)
    salt: str = field(default="", repr=False)
    context: tuple[str, ...] = ()
    window: int = DEFAULT_WINDOW
    boost: int = 0
    validate: str = ""
    exclude: tuple[str, ...] = field(default=(), repr=False)

    def to_fields(self) -> Fields:
        """Return it as JSON values; a table by its digest (``tables`` of a plan)."""
        made: Fields = {each.name: getattr(self, each.name) for each in fields(self)}
        for name in ("entries", "context", "exclude"):
            made[name] = list(getattr(self, name))
        made["table"] = sha256(self.table).hexdigest() if self.table else ""
        return made

    @classmethod
    def from_fields(
        cls, value: object, tables: Mapping[str, bytes] = NO_TABLES
    ) -> "OwnDetector":
        """Return what ``to_fields`` was made from.

        Raises:
            ValueError: it is anything else, or its table is not among them.
        """
        given = _mapping(value, cls)
        return cls(
            id=_text(given["id"]),
            kind=_one_of(given["kind"], get_args(Kind)),
            data_class=_class(given["data_class"]),
            base_score=_number(given["base_score"], MAX_SCORE),
            pattern=_text(given["pattern"]),
            entries=_texts(given["entries"]),
            table=_table(given["table"], tables),
            salt=_hex(given["salt"]),
            context=_texts(given["context"]),
            window=_number(given["window"], MAX_WINDOW),
            boost=_number(given["boost"], MAX_SCORE),
            validate=_text(given["validate"]),
            exclude=_texts(given["exclude"]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExclusionList:
    """A list of texts whose findings an exclusion may remove.

    A detector adds the name to ``Finding.listed`` if the found text, folded
    (``dictionaries.folded``), is one of the entries, folded.

    Attributes:
        name: as the policy calls it.
        classes: the findings that are to be compared.
        entries: as they were written.
    """

    name: str
    classes: tuple[str, ...]
    entries: tuple[str, ...] = field(repr=False)

    def to_fields(self) -> Fields:
        """Return it as JSON values."""
        return {
            "name": self.name,
            "classes": list(self.classes),
            "entries": list(self.entries),
        }

    @classmethod
    def from_fields(cls, value: object) -> "ExclusionList":
        """Return what ``to_fields`` was made from.

        Raises:
            ValueError: it is anything else.
        """
        given = _mapping(value, cls)
        return cls(
            name=_text(given["name"]),
            classes=tuple(_class(name) for name in _list(given["classes"])),
            entries=_texts(given["entries"]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PresidioPlan:
    """The operator's own recognizers.

    Attributes:
        recognizers: each as ``recognizers.recognizers_of`` has it.
        entry_points: name, distribution and its version.
        classes: entities, and the data classes they stand for; sorted.
    """

    recognizers: tuple[str, ...] = field(default=(), repr=False)
    entry_points: tuple[tuple[str, str, str], ...] = ()
    classes: tuple[tuple[str, str], ...] = ()

    def to_fields(self) -> Fields:
        """Return it as JSON values."""
        return {
            "recognizers": list(self.recognizers),
            "entry_points": [list(each) for each in self.entry_points],
            "classes": [list(pair) for pair in self.classes],
        }

    @classmethod
    def from_fields(cls, value: object) -> "PresidioPlan":
        """Return what ``to_fields`` was made from.

        Raises:
            ValueError: it is anything else.
        """
        given = _mapping(value, cls)
        points = [_texts(each) for each in _list(given["entry_points"])]
        if any(
            len(each) != len(("name", "distribution", "version")) for each in points
        ):
            raise ValueError("expected a name, a distribution and a version")
        return cls(
            recognizers=_texts(given["recognizers"]),
            entry_points=tuple((each[0], each[1], each[2]) for each in points),
            classes=tuple(_label(pair) for pair in _list(given["classes"])),
        )


NO_RECOGNIZERS: Final = PresidioPlan()


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectionPlan:
    """Detectors that the worker must run.

    Attributes:
        packs: the packs of the policy, in its order.
        recognizers: class names of Presidio's recognizers that they enable,
            sorted.
        ner: the model that finds names.
        detectors: the policy's own.
        scan: whether the worker may stop when the route is settled.
        exit_classes: classes of which one validated finding alone keeps the
            query local, sorted; empty where everything must be inspected.
        lists: the texts that exclusions name.
        languages: what may be judged, as ISO 639-1; a text in any other stays.
        presidio: the operator's recognizers.
    """

    packs: tuple[str, ...]
    recognizers: tuple[str, ...]
    ner: NerPlan
    detectors: tuple[OwnDetector, ...]
    scan: Scan
    exit_classes: tuple[str, ...]
    lists: tuple[ExclusionList, ...] = ()
    languages: tuple[str, ...] = ("en",)
    presidio: PresidioPlan = NO_RECOGNIZERS

    @property
    def tables(self) -> Mapping[str, bytes]:
        """The exact lists, each by its digest; ``to_fields`` does not contain them."""
        found = (each.table for each in self.detectors if each.table)
        return {sha256(table).hexdigest(): table for table in found}

    def to_fields(self) -> Fields:
        """Return it as JSON values, without the exact lists (``tables``)."""
        return {
            "packs": list(self.packs),
            "recognizers": list(self.recognizers),
            "ner": self.ner.to_fields(),
            "detectors": [each.to_fields() for each in self.detectors],
            "scan": self.scan,
            "exit_classes": list(self.exit_classes),
            "lists": [each.to_fields() for each in self.lists],
            "languages": list(self.languages),
            "presidio": self.presidio.to_fields(),
        }

    @classmethod
    def from_fields(
        cls, value: object, tables: Mapping[str, bytes] = NO_TABLES
    ) -> "DetectionPlan":
        """Return what ``to_fields`` was made from.

        Args:
            value: its fields.
            tables: ``tables``, each by its digest.

        Raises:
            ValueError: it is anything else; the message holds no content.
        """
        given = _mapping(value, cls)
        return cls(
            packs=_texts(given["packs"]),
            recognizers=_texts(given["recognizers"]),
            ner=NerPlan.from_fields(given["ner"]),
            detectors=tuple(
                OwnDetector.from_fields(each, tables)
                for each in _list(given["detectors"])
            ),
            scan=_one_of(given["scan"], get_args(Scan)),
            exit_classes=tuple(_class(name) for name in _list(given["exit_classes"])),
            lists=_each(given["lists"], ExclusionList.from_fields),
            languages=_texts(given["languages"]),
            presidio=PresidioPlan.from_fields(given["presidio"]),
        )


def _mapping(value: object, made: type[object]) -> Mapping[str, object]:
    # Exactly these: a missing field would mean a detector that does not run.
    expected = {each.name for each in fields(cast("type[NerPlan]", made))}
    if not isinstance(value, dict) or cast("Fields", value).keys() != expected:
        raise ValueError(f"{NOT_THE_FIELDS} {made.__name__}")
    return cast("Fields", value)


def _list(value: object) -> Sequence[object]:
    if not isinstance(value, list):
        raise ValueError("expected a list")  # noqa: TRY004 - one error for the caller
    return cast("list[object]", value)


def _each(value: object, make: Callable[[object], _T]) -> tuple[_T, ...]:
    return tuple(make(each) for each in _list(value))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("expected text")  # noqa: TRY004 - one error for the caller
    return value


def _texts(value: object) -> tuple[str, ...]:
    return _each(value, _text)


def _hex(value: object) -> str:
    text = _text(value)
    if not _HEX.fullmatch(text):
        raise ValueError("expected hexadecimal digits")
    return text


def _class(value: object) -> str:
    text = _text(value)
    # Of the tree, or of the form of a policy's own, which come with its detectors.
    if not is_class(text):
        raise ValueError("expected a data class")
    return text


def _table(value: object, tables: Mapping[str, bytes]) -> bytes:
    digest = _hex(value)
    if digest and digest not in tables:
        raise ValueError(NO_SUCH_LIST)
    return tables[digest] if digest else b""


def _label(value: object) -> tuple[str, str]:
    pair = _list(value)
    if len(pair) != len(("label", "class")):
        raise ValueError("expected a label and its class")
    return _text(pair[0]), _class(pair[1])


def _number(value: object, most: int) -> int:
    # ``type`` and not ``isinstance``: JSON's true is an integer in Python.
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"expected a whole number from 0 to {most}")
    return value


def _one_of(value: object, choices: tuple[_T, ...]) -> _T:
    for choice in choices:
        if value == choice:
            return choice
    raise ValueError("expected one of a few words")
