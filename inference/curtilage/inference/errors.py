"""Errors of the engine, grouped by what the caller can do about them.

::

    InferenceError
    ├── RequestError          the request itself is invalid; do not retry
    │   ├── ContextTooLongError   prompt and answer do not fit; counts attached
    │   └── SchemaError           a JSON schema that cannot be enforced
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


class InferenceError(Exception):
    """Base class of all errors of this part."""


class RequestError(InferenceError):
    """A field of the request is outside its range."""


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


class SchemaError(RequestError):
    """A JSON schema uses what cannot be enforced, or exceeds a bound.

    Attributes:
        reason: what is wrong.
        keyword: the keyword of JSON Schema concerned; empty if there is none. A word
            that is no keyword of JSON Schema is the caller's text, and is not repeated.
        where: a path of keywords and positions, such as ``properties[2].items``; a
            property's name is the caller's text, its position is not.
    """

    def __init__(self, reason: str, *, keyword: str = "", where: str = "") -> None:
        named = f": {keyword}" if keyword else ""
        super().__init__(f"the schema {reason}{named}, at {where or 'its root'}")
        self.reason = reason
        self.keyword = keyword
        self.where = where


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
    """

    def __init__(self, context_tokens: int) -> None:
        super().__init__(
            f"there is too little memory for a context of {context_tokens} tokens"
        )
        self.context_tokens = context_tokens


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
