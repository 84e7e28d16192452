"""Why the enclave's server refuses: one tree, grouped by who is at fault.

Messages hold field names, codes and lengths; never a prompt, an answer, a
token or key material.

    EnclaveError
    ├── ConfigError         the operator's file is wrong; exit code 2
    ├── OpeningError        this machine does not open as HPKE does
    ├── EvidenceError       the evidence process gave nothing usable
    ├── AcquisitionError    in that process: the device gave nothing usable
    ├── BundleError         our own bundle does not hold; nothing is served
    ├── ModelError          no model can answer here
    │   ├── BusyError       the queue is full; later it may fit
    │   └── PromptTooLongError  the prompt and its answer exceed the context
    └── ChatError           the request inside the encapsulation is refused
"""


class EnclaveError(Exception):
    """Root of everything this part raises on purpose."""


class ConfigError(EnclaveError):
    """The configuration file, or something it names, cannot be used.

    Attributes:
        problems: everything that is wrong, one line each, without values.
    """

    def __init__(self, *problems: str) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class OpeningError(EnclaveError):
    """What would be opened and sealed here is not HPKE, so nothing is served."""


class EvidenceError(EnclaveError):
    """The evidence process is not there, too slow, or answers nonsense."""


class AcquisitionError(EnclaveError):
    """No evidence could be had from the device, or its files are unusable."""


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
    """Too many requests wait already."""


class PromptTooLongError(ModelError):
    """Prompt and answer together do not fit into the context."""


class ChatError(EnclaveError):
    """A decapsulated request that is not answered by the model.

    Attributes:
        status: the HTTP status inside the encapsulation.
        code: a fixed word, one of a short list; never a part of the request.
        param: the name of a known field, or None.
        fields: extra response fields of the inner answer.
    """

    def __init__(
        self,
        status: int,
        code: str,
        *,
        param: str | None = None,
        fields: tuple[tuple[bytes, bytes], ...] = (),
    ) -> None:
        super().__init__(f"{status} {code}" if param is None else f"{code}: {param}")
        self.status = status
        self.code = code
        self.param = param
        self.fields = fields

    def alone(self) -> "ChatError":
        """Return the same refusal without where it came from, to be kept.

        One that was raised holds the frames that it went through and all that
        called them, the question in them and whoever keeps the error: such a
        cycle lives until the interpreter looks for cycles, which may be never.
        """
        return type(self)(self.status, self.code, param=self.param, fields=self.fields)
