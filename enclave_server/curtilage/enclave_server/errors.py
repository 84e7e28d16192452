"""Errors of the enclave server, grouped by their origin.

Messages hold field names, codes and lengths; never a prompt, an answer, a
token or key material.

    EnclaveError
    ├── ConfigError         the operator's file is invalid; exit code 2
    ├── OpeningError        HPKE fails its self-test on this machine
    ├── EvidenceError       the evidence process returned nothing usable
    ├── AcquisitionError    in that process: the device returned nothing usable
    ├── SandboxError        an attempt got out of the sandbox; nothing is served
    ├── BundleError         our own bundle does not verify; nothing is served
    ├── ModelError          no model can answer here
    │   ├── BusyError       the queue is full; a later request may succeed
    │   ├── EngineCrashedError  the engine's process ended during the answer
    │   ├── EngineHungError     it made no progress and was ended
    │   ├── ModelUnavailableError  it cannot be loaded or reached, for now
    │   └── PromptTooLongError  the prompt and its answer exceed the context
    └── ChatError           the request inside the encapsulation is refused
"""

from dataclasses import dataclass


class EnclaveError(Exception):
    """Base class of all errors that this part raises on purpose."""


class ConfigError(EnclaveError):
    """The configuration file, or a file that it names, cannot be used.

    Attributes:
        problems: all of them, one line each, without values.
    """

    def __init__(self, *problems: str) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class OpeningError(EnclaveError):
    """HPKE fails its self-test on this machine, so nothing is served."""


class EvidenceError(EnclaveError):
    """The evidence process is missing, too slow, or its reply is invalid."""


class AcquisitionError(EnclaveError):
    """The device returned no evidence, or its files are unusable."""


class SandboxError(EnclaveError):
    """An attempt of the self-test got out of the sandbox, or there is none here."""


class BundleError(EnclaveError):
    """No bundle that verifies could be made.

    Attributes:
        code: the refusal code of the failed step, or ``release_unreadable``.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class ModelError(EnclaveError):
    """The model cannot answer; the cause is the server's, not the request's."""


class BusyError(ModelError):
    """Too many requests are waiting."""


class EngineCrashedError(ModelError):
    """The engine's process ended during the answer; another one is started."""


class EngineHungError(ModelError):
    """The engine's process made no progress and was ended; another one is started."""


class ModelUnavailableError(ModelError):
    """The model's file cannot be loaded again, or its server cannot be reached.

    That is tried at intervals.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class TooLong:
    """By how much a request exceeds the context; its sender is told, in the seal.

    Attributes:
        prompt_tokens: length of the prompt.
        max_tokens: tokens requested.
        context_tokens: size of the context.
    """

    prompt_tokens: int
    max_tokens: int
    context_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaPlace:
    """A place in a schema of a request: words of JSON Schema and positions alone.

    Attributes:
        keyword: the keyword that is refused; empty: none in particular.
        where: of the part that has it, such as ``properties[2].items``; empty: the
            whole schema.
    """

    keyword: str = ""
    where: str = ""


class PromptTooLongError(ModelError):
    """Prompt and answer together do not fit into the context.

    Attributes:
        too_long: the numbers; None: an engine of others does not name both.
    """

    def __init__(self, message: str, too_long: TooLong | None = None) -> None:
        super().__init__(message)
        self.too_long = too_long


class ChatError(EnclaveError):
    """A decapsulated request that is not answered by the model.

    Attributes:
        status: the HTTP status inside the encapsulation.
        code: a fixed code from a short list; never a part of the request.
        param: the name of a known field, or None; of one of several also its position.
        fields: extra response fields of the inner answer.
        too_long: for ``context_length_exceeded``, the numbers; else None.
        place: for an error of a schema, where in it; else None.
    """

    def __init__(
        self,
        status: int,
        code: str,
        *,
        param: str | None = None,
        fields: tuple[tuple[bytes, bytes], ...] = (),
        too_long: TooLong | None = None,
        place: SchemaPlace | None = None,
    ) -> None:
        super().__init__(f"{status} {code}" if param is None else f"{code}: {param}")
        self.status = status
        self.code = code
        self.param = param
        self.fields = fields
        self.too_long = too_long
        self.place = place

    def alone(self) -> "ChatError":
        """Return the same refusal without its traceback, to be stored.

        A raised exception references the frames that it passed through, with the
        request in them and the object that stores the error: such a cycle lives until
        the garbage collector runs, which may be never.
        """
        return type(self)(
            self.status,
            self.code,
            param=self.param,
            fields=self.fields,
            too_long=self.too_long,
            place=self.place,
        )
