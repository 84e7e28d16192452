"""Errors of the engine, grouped by what the caller can do about them.

::

    InferenceError
    ├── RequestError          the request itself is invalid; do not retry
    │   ├── ContextTooLongError   prompt and answer do not fit; counts attached
    │   └── SchemaError           a JSON schema that cannot be enforced
    ├── ContextSizeError      the settings ask for a context that is not possible
    ├── ModelFileError        the model file is missing, changed or unusable
    │   └── ModelDigestError      its digest is not the given one
    ├── TemplateError         the model's chat template cannot render this
    ├── EngineMissingError    a library of the engine is not installed
    ├── EngineBusyError       the queue is full; a later request may succeed
    │   └── EngineRestartingError   its process is being started again
    ├── EngineClosedError     the engine was not started, or was closed
    ├── EngineFailedError     the library failed; this request is lost
    │   ├── EngineMemoryError     there is too little memory to answer anything
    │   ├── EngineCrashedError    its process ended; a new one is started
    │   ├── EngineHungError       its process did nothing any more; likewise
    │   └── NativeError           a failed call, and its return code
    └── WrongThreadError      a call from a thread that does not own the model

Messages hold names, lengths, counts and digests; never a word of a prompt or
of an answer.
"""

from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from enum import StrEnum, unique
from typing import Final, TypeVar

_Given = TypeVar("_Given")
_Made = TypeVar("_Made")

ALL_TOOLS: Final = "tools"
FORMAT_SCHEMA: Final = "response_format.json_schema.schema"


def tool_schema(place: int) -> str:
    """Return the name of the schema of a request's tool, which is counted from 0."""
    return f"tools[{place}].function.parameters"


class InferenceError(Exception):
    """Base class of all errors of this part."""


class RequestError(InferenceError):
    """A field of the request is outside its range.

    Attributes:
        field: its place in the request, in the words and the notation of OpenAI's chat
            API; empty: not known.
    """

    field: str = ""


@contextmanager
def in_field(name: str) -> Generator[None]:
    """Add the place to the errors of the field that is read within."""
    try:
        yield
    except RequestError as problem:
        problem.field = problem.field or name
        raise


class ContextTooLongError(RequestError):
    """Prompt and answer together do not fit into the context.

    Attributes:
        prompt_tokens: length of the prompt; a lower bound where the text was
            too long to be tokenised at all.
        max_tokens: tokens requested.
        context_tokens: size of the context.
    """

    def __init__(
        self, *, prompt_tokens: int, max_tokens: int, context_tokens: int
    ) -> None:
        super().__init__(
            f"{prompt_tokens} prompt tokens and {max_tokens} answer tokens exceed"
            f" the context of {context_tokens}"
        )
        self.prompt_tokens = prompt_tokens
        self.max_tokens = max_tokens
        self.context_tokens = context_tokens


def each_in_field(
    name: str, make: Callable[[_Given], _Made], given: Iterable[_Given]
) -> tuple[_Made, ...]:
    """Make each part of a field; an error names the part by its position."""
    made: list[_Made] = []
    for place, each in enumerate(given):
        with in_field(f"{name}[{place}]"):
            made.append(make(each))
    return tuple(made)


@unique
class SchemaFault(StrEnum):
    """What is wrong with a schema; a closed set, without a word of the schema."""

    KEYWORD = "has a keyword that is not enforced"
    UNKNOWN = "has an unknown keyword"
    NEIGHBOUR = "has a keyword next to one that excludes others"
    LENGTH = "has a length next to format"
    FRACTION = "has a bound that is not an integer"
    BOUND = "has a bound that is too large"
    COUNT = "has a number that is too large"
    VALUE = "has an invalid keyword"
    PART = "has a part that is not a schema"
    REFERENCE = "refers to something outside or missing"
    CIRCLE = "refers to itself without anything between"
    NOTHING = "permits no value"
    NO_OBJECT = "permits no object"
    DEPTH = "is nested too deeply"
    PARTS = "has too many parts"
    PROPERTIES = "has too many properties"
    BOUNDS = "has too many bounds of numbers"
    VALUES = "lists too many values"
    REPEATS = "repeats too often"
    ALIKE = "has too many alternatives that begin alike"
    LONG = "takes too long to convert"
    GRAMMAR = "needs too large a grammar"


NOT_ENFORCED: Final = frozenset(
    {
        SchemaFault.KEYWORD,
        SchemaFault.UNKNOWN,
        SchemaFault.NEIGHBOUR,
        SchemaFault.LENGTH,
        SchemaFault.FRACTION,
        SchemaFault.BOUND,
        SchemaFault.COUNT,
    }
)
"""Of schemas that are strict only."""

TOO_LARGE: Final = frozenset(
    {
        SchemaFault.DEPTH,
        SchemaFault.PARTS,
        SchemaFault.PROPERTIES,
        SchemaFault.BOUNDS,
        SchemaFault.VALUES,
        SchemaFault.REPEATS,
        SchemaFault.ALIKE,
        SchemaFault.LONG,
        SchemaFault.GRAMMAR,
    }
)


class SchemaError(RequestError):
    """A JSON schema uses what cannot be enforced, or exceeds a bound.

    Attributes:
        reason: what is wrong; a ``SchemaFault`` if a schema was converted.
        keyword: the keyword of JSON Schema concerned; empty if there is none. A word
            that is no keyword of JSON Schema is the caller's text, and is not repeated.
        where: a path of keywords and positions, such as ``properties[2].items``; a
            property's name is the caller's text, its position is not.
        most: the bound that it exceeds; 0: none.
    """

    def __init__(
        self, reason: str, *, keyword: str = "", where: str = "", most: int = 0
    ) -> None:
        named = f": {keyword}" if keyword else ""
        more = f" (more than {most})" if most else ""
        super().__init__(f"the schema {reason}{more}{named}, at {where or 'its root'}")
        self.reason = reason
        self.keyword = keyword
        self.where = where
        self.most = most


class ContextSizeError(InferenceError):
    """The settings ask for a context that the model or the memory does not allow."""


class ModelFileError(InferenceError):
    """The model file cannot be used."""


class ModelDigestError(ModelFileError):
    """The file's SHA-256 is not the given one.

    Attributes:
        expected: the given digest, hex.
        found: the file's digest, hex.
    """

    def __init__(self, *, expected: str, found: str) -> None:
        super().__init__(f"the model file has SHA-256 {found}, not {expected}")
        self.expected = expected
        self.found = found


class TemplateError(InferenceError):
    """The model's chat template is missing, unsafe or refuses the turns."""


class EngineMissingError(InferenceError):
    """A library of the engine is not installed.

    Attributes:
        name: the library's.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class EngineBusyError(InferenceError):
    """Too many requests are waiting."""


class EngineRestartingError(EngineBusyError):
    """The engine's process ended and is being started again."""

    def __init__(self) -> None:
        super().__init__("the engine is being started again")


class EngineClosedError(InferenceError):
    """The engine is not running."""


class EngineFailedError(InferenceError):
    """The engine failed while it worked on this request."""


class EngineMemoryError(EngineFailedError):
    """There is no memory for a context, not even for the smallest one.

    Attributes:
        context_tokens: size of the smallest one that was tried.
        need_bytes: memory that it needs, with the model; None: unknown.
        memory_bytes: what was available; likewise.
    """

    def __init__(
        self,
        context_tokens: int,
        *,
        need_bytes: int | None = None,
        memory_bytes: int | None = None,
    ) -> None:
        super().__init__(
            f"there is too little memory for a context of {context_tokens} tokens"
        )
        self.context_tokens = context_tokens
        self.need_bytes = need_bytes
        self.memory_bytes = memory_bytes


class EngineCrashedError(EngineFailedError):
    """The engine's process ended while it worked on this request.

    Attributes:
        status: its exit status; negative: the number of the signal that ended it. The
            kernel ends a process with 9 (SIGKILL) when memory runs out, and llama.cpp
            its own with 6 (SIGABRT).
    """

    def __init__(self, status: int) -> None:
        how = f"signal {-status}" if status < 0 else f"exit status {status}"
        super().__init__(f"the engine's process ended ({how})")
        self.status = status


class EngineHungError(EngineFailedError):
    """The engine's process made no progress and was ended."""

    def __init__(self) -> None:
        super().__init__("the engine's process made no progress and was ended")


class NativeError(EngineFailedError):
    """A call of the library failed.

    Attributes:
        call: name of the call.
        code: its return code.
    """

    def __init__(self, call: str, code: int) -> None:
        super().__init__(f"{call} failed with code {code}")
        self.call = call
        self.code = code


class WrongThreadError(InferenceError):
    """Only the thread that loaded a model may use it."""
