"""What goes over the pipe, as plain JSON values: requests, events, settings, errors.

A value becomes an object with its class's name and the fields that differ from their
defaults. Reading is strict: another class, a field too many or another type is refused.
An error is its class and numbers; the numbers of a schema's error are positions in
closed lists. It has a text only while a model loads: by then the process has read no
request.
"""

import math
import re
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import UnionType
from typing import (
    Any,
    Final,
    Literal,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from curtilage.inference.errors import (
    ALL_TOOLS,
    FORMAT_SCHEMA,
    ContextTooLongError,
    EngineBusyError,
    EngineClosedError,
    EngineFailedError,
    EngineMemoryError,
    EngineMissingError,
    InferenceError,
    ModelDigestError,
    ModelFileError,
    NativeError,
    RequestError,
    SchemaError,
    SchemaFault,
    TemplateError,
    tool_schema,
)
from curtilage.inference.protocol import MAX_TOOLS
from curtilage.inference.schema import KEYWORDS
from curtilage.inference.settings import EngineSettings, Isolation

CLASS: Final = ""
"""The key of a value's class; no field has this name."""
MAX_TEXT: Final = 300
ERROR: Final = "error"
LOADED: Final = "loaded"
WALL: Final = "wall"
TRIAL: Final = "trial"
STEPS: Final = "steps"
TURN_S: Final = "turn_s"
DRAW_S: Final = "draw_s"
EXIT_FAILED: Final = 3
"""Of a process that gives up."""

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the process is to load; its first frame.

    Attributes:
        model: path of the model file.
        sha256: its digest, hex.
        model_id: a display name.
        adapter: path of a LoRA adapter; empty: none.
        adapter_sha256: the adapter's digest, hex.
        settings: the engine's limits.
        isolation: what separates requests.
        tried: whether the process also limits itself, and tries to get out of its wall.
        lent: the parent's descriptors of the files, which it hashes; of one process.
    """

    model: str
    sha256: str
    model_id: str
    adapter: str = ""
    adapter_sha256: str = ""
    settings: EngineSettings
    isolation: Isolation = "shared"
    tried: bool = False
    lent: tuple[int, ...] = ()

    @property
    def files(self) -> tuple[tuple[Path, str], ...]:
        """The files' paths and digests."""
        adapter = ((Path(self.adapter), self.adapter_sha256),) if self.adapter else ()
        return ((Path(self.model), self.sha256), *adapter)


def to_value(given: object) -> object:
    """Return a value as plain JSON data."""
    if is_dataclass(given) and not isinstance(given, type):
        found: dict[str, object] = {CLASS: type(given).__name__}
        for name, default in _defaults(type(given)):
            value: object = getattr(given, name)
            if default is MISSING or value != default:
                found[name] = to_value(value)
        return found
    if isinstance(given, tuple):
        return [to_value(each) for each in cast("tuple[object, ...]", given)]
    if isinstance(given, bytes):
        return given.hex()
    return given


def from_value(kind: type[_T], value: object) -> _T:
    """Read a value of one class; the inverse of ``to_value``.

    Raises:
        ValueError: it is something else.
        RequestError: a request that its class refuses.
    """
    return cast("_T", _read(kind, value))


def one_of(kinds: object, value: object) -> object:
    """Read a value of one of several classes, a union; as ``from_value``."""
    return _read(kinds, value)


def _read(kind: Any, value: Any) -> object:  # noqa: ANN401, PLR0911 - one kind each
    if kind is float:
        number = type(value) in {int, float} and not math.isnan(cast("float", value))
        return _checked(value, number)
    if kind in {int, str, bool}:
        return _checked(value, type(value) is kind)
    if kind is None or kind is type(None):
        return _checked(value, value is None)
    if kind is bytes:
        return bytes.fromhex(cast("str", _checked(value, isinstance(value, str))))
    if isinstance(kind, type) and is_dataclass(kind):
        return _read_fields(kind, value)
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Literal:
        return _checked(value, any(value is each or value == each for each in inner))
    if origin in {Union, UnionType}:
        return _read_any(inner, value)
    return _read_tuple(inner, value)


def _read_any(kinds: tuple[object, ...], value: object) -> object:
    """Read by the class that a value names, or as the one plain kind that fits."""
    name = cast("dict[str, object]", value).get(CLASS) if type(value) is dict else None
    for kind in kinds:
        if isinstance(kind, type) and is_dataclass(kind):
            if kind.__name__ == name:
                return _read(kind, value)
            continue
        try:
            return _read(kind, value)
        except ValueError:
            continue
    raise ValueError("a value of no known class")


def _read_tuple(kinds: tuple[object, ...], value: object) -> tuple[object, ...]:
    given = cast("list[object]", _checked(value, isinstance(value, list)))
    if kinds[-1] is Ellipsis:
        kinds = (kinds[0],) * len(given)
    _checked(given, len(given) == len(kinds))
    return tuple(map(_read, kinds, given))


def _read_fields(kind: type, value: object) -> object:
    given = cast("dict[str, object]", _checked(value, type(value) is dict))
    _checked(given, given.get(CLASS) == kind.__name__)
    hints = _hints(kind)
    needed = {name for name, default in _defaults(kind) if default is MISSING}
    _checked(given, needed <= given.keys() <= hints.keys() | {CLASS})
    return kind(
        **{name: _read(hints[name], each) for name, each in given.items() if name}
    )


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


@cache
def _defaults(kind: type) -> tuple[tuple[str, object], ...]:
    return tuple((each.name, _default(each)) for each in fields(cast("Any", kind)))


def _default(each: "Field[object]") -> object:
    factory = each.default_factory
    return each.default if factory is MISSING else factory()


def _checked(value: _T, fits: bool) -> _T:
    if not fits:
        # Without the value, which may be content.
        raise ValueError("a value of another kind")
    return value


# --- errors ---------------------------------------------------------------------------

_SENTENCES: Final[dict[type[InferenceError], str]] = {
    SchemaError: "cannot be enforced",
    RequestError: "the model cannot fulfil this request",
    ModelFileError: "the model file cannot be used",
    TemplateError: "the model's chat template cannot take these turns",
    EngineMissingError: "a library",
    EngineBusyError: "too many requests are waiting",
    EngineClosedError: "the engine was closed",
    EngineFailedError: "the engine failed while it worked on this request",
}
_NUMBERS: Final[dict[type[InferenceError], tuple[str, ...]]] = {
    ContextTooLongError: ("prompt_tokens", "max_tokens", "context_tokens"),
    EngineMemoryError: ("context_tokens",),
    NativeError: ("code",),
}
_BY_NAME: Final = {
    each.__name__: each for each in (*_SENTENCES, *_NUMBERS, ModelDigestError)
}

_TEXT: Final = "text"


def error_to_value(problem: InferenceError, *, loading: bool) -> dict[str, object]:
    """Return an error's class and numbers; while the model loads, also its text."""
    kind = type(problem)
    if kind.__name__ not in _BY_NAME:
        kind = EngineFailedError
    found: dict[str, object] = {ERROR: kind.__name__}
    if isinstance(problem, ModelDigestError):
        found |= {"expected": problem.expected, "found": problem.found}
    for name in _NUMBERS.get(kind, ()):
        found[name] = getattr(problem, name)
    if isinstance(problem, SchemaError) and not loading:
        found |= _schema_to_value(problem)
    if loading and kind in _SENTENCES:
        text = str(problem)[:MAX_TEXT]
        found[_TEXT] = "".join(each if each.isprintable() else "?" for each in text)
    return found


def error_from_value(value: object, *, loading: bool) -> InferenceError:
    """Read an error; the inverse of ``error_to_value``.

    Raises:
        ValueError: it is none, or has a text although no model loads.
    """
    given = cast("dict[str, object]", _checked(value, type(value) is dict))
    kind = _BY_NAME.get(cast("str", _checked(given.get(ERROR), _named(given))))
    if kind is None:
        raise ValueError("an error of no known class")
    if kind is ModelDigestError:
        _checked(given, loading and given.keys() == {ERROR, "expected", "found"})
        hex_ = {name: _digest(given[name]) for name in ("expected", "found")}
        return ModelDigestError(**hex_)
    if kind is SchemaError and not loading:
        return _schema_from_value(given)
    names = _NUMBERS.get(kind)
    if names is not None:
        _checked(given, given.keys() == {ERROR, *names})
        numbers = {name: cast("int", _read(int, given[name])) for name in names}
        if kind is NativeError:
            return NativeError("the library", numbers["code"])
        return _made(kind, **numbers)
    texts = {_TEXT} if loading else set[str]()
    _checked(given, given.keys() == {ERROR, *texts})
    if not loading:
        return _made(kind, _SENTENCES[kind])
    text = cast("str", _read(str, given[_TEXT]))
    return _made(kind, _checked(text, len(text) <= MAX_TEXT and text.isprintable()))


_FAULTS: Final = (*SchemaFault,)
_FIELDS: Final = (ALL_TOOLS, FORMAT_SCHEMA, *map(tool_schema, range(MAX_TOOLS)))
_STEP: Final = re.compile(r"([$A-Za-z]*)(?:\[([0-9]{1,5})\])?")
_MOST_STEPS: Final = 256
_MOST: Final = 1 << 31
_NONE: Final = -1


def _schema_to_value(problem: SchemaError) -> dict[str, object]:
    """Return the numbers of a schema's error; what is in no list is left out."""
    return {
        "reason": _at(problem.reason, _FAULTS),
        "keyword": _at(problem.keyword, KEYWORDS),
        "where": _steps_of(problem.where),
        "most": problem.most,
        "field": _at(problem.field, _FIELDS),
    }


def _schema_from_value(given: dict[str, object]) -> SchemaError:
    _checked(
        given, given.keys() == {ERROR, "reason", "keyword", "where", "most", "field"}
    )
    steps = _read_tuple((tuple[int, int], ...), given["where"])
    _checked(given, len(steps) <= _MOST_STEPS)
    problem = SchemaError(
        _of(_FAULTS, given["reason"]) or _SENTENCES[SchemaError],
        keyword=_of(KEYWORDS, given["keyword"]),
        where=".".join(_step(*cast("tuple[int, int]", each)) for each in steps),
        most=_number(given["most"], least=0),
    )
    problem.field = _of(_FIELDS, given["field"])
    return problem


def _steps_of(where: str) -> list[list[int]]:
    """Return each step of a path: its keyword's place in the list, and its position."""
    steps: list[list[int]] = []
    for step in filter(None, where.split(".")):
        found = _STEP.fullmatch(step)
        if found is None or (found[1] and found[1] not in KEYWORDS):
            return []
        position = _NONE if found[2] is None else int(found[2])
        steps.append([_at(found[1], KEYWORDS), position])
    return steps[:_MOST_STEPS]


def _step(word: int, position: int) -> str:
    place = "" if _number(position) == _NONE else f"[{position}]"
    return f"{_of(KEYWORDS, word)}{place}"


def _at(word: str, known: tuple[str, ...]) -> int:
    return known.index(word) if word in known else _NONE


def _of(known: tuple[str, ...], place: object) -> str:
    at = _number(place, most=len(known) - 1)
    return "" if at == _NONE else known[at]


def _number(value: object, *, least: int = _NONE, most: int = _MOST) -> int:
    number = cast("int", _read(int, value))
    return _checked(number, least <= number <= most)


def _named(given: dict[str, object]) -> bool:
    return type(given.get(ERROR)) is str


def _made(kind: Any, *arguments: str, **numbers: int) -> InferenceError:  # noqa: ANN401 - a class of the two tables
    return cast("InferenceError", kind(*arguments, **numbers))


def _digest(value: object) -> str:
    text = cast("str", _read(str, value))
    length = 64  # SHA-256, hex
    return _checked(
        text, len(text) == length and len(bytes.fromhex(text)) * 2 == length
    )
