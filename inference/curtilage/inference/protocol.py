"""The engine's interface: requests, events, and one Protocol.

Needs no library: the tests of all other parts run on ``scripted``.
"""

import contextlib
import threading
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol

from curtilage.inference.errors import RequestError
from curtilage.inference.sampling import SamplingSettings

ROLES: Final = frozenset({"system", "developer", "user", "assistant", "tool"})

Finish = Literal["stop", "length", "cancelled"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatMessage:
    """One turn.

    Attributes:
        role: one of ``ROLES``.
        content: the text; never becomes a control token.

    Raises:
        RequestError: the role is unknown or the text has no UTF-8 form.
    """

    role: str
    content: str = field(repr=False)

    def __post_init__(self) -> None:
        """Check role and text."""
        if self.role not in ROLES:
            raise RequestError("a message has an unknown role")
        refuse_unencodable(self.content, "a message")


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateRequest:
    """A conversation to be continued by one answer.

    A request without a system or developer message gets a neutral one
    (``templates.DEFAULT_SYSTEM_MESSAGE``), since models' templates would otherwise
    insert their own.

    Attributes:
        messages: at least one turn, oldest first.
        settings: sampling and limits.
        deterministic: decoded without others, so that a seed gives the same answer
            bit for bit; waits until no other request runs, and others wait for it.

    Raises:
        RequestError: there is no message, or a stop string has no UTF-8 form.
    """

    messages: tuple[ChatMessage, ...]
    settings: SamplingSettings = field(default_factory=SamplingSettings)
    deterministic: bool = False

    def __post_init__(self) -> None:
        """Check that there is a message and that stop strings are valid."""
        if not self.messages:
            raise RequestError("there is no message")
        for text in self.settings.stop:
            refuse_unencodable(text, "a stop string")


def refuse_unencodable(text: str, what: str) -> None:
    """Refuse text with lone surrogates, naming ``what`` but no character.

    Raises:
        RequestError: the text has no UTF-8 form.
    """
    if not _is_encodable(text):
        raise RequestError(f"{what} has no UTF-8 form")


def _is_encodable(text: str) -> bool:
    # Separate, so that no error of ours has the library's as its context: that one
    # contains the whole text.
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """How many tokens were read and generated.

    Attributes:
        prompt_tokens: tokens of the prompt, template included.
        completion_tokens: tokens sampled, the end marker not counted.
    """

    prompt_tokens: int
    completion_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The request's first turn has begun; it fits, and the prompt is being read.

    Attributes:
        prompt_tokens: tokens of the prompt.
    """

    prompt_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """One more token of the answer.

    Attributes:
        text: the text that became certain with it; empty while a character
            or a possible stop string is incomplete.
        logprob: natural logarithm of its probability before temperature, if
            requested; None also for text that only the end released.
        margin: between the likeliest token's and the second one's, if margins were
            requested; None likewise.
    """

    text: str = field(repr=False)
    logprob: float | None = field(default=None, repr=False)
    margin: float | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The answer ended and its traces in the engine were overwritten.

    While others are answered, the library may still hold a few of its last tokens in
    buffers of its own; they are freed with the context (``Context.renew``).

    Attributes:
        usage: counts.
        finish: ``stop`` (end marker or stop string), ``length`` or
            ``cancelled``.
    """

    usage: Usage
    finish: Finish


Event = Started | Token | Done
"""``Started``, then tokens, then exactly one ``Done``; or an exception. A
request cancelled before its turn is ``Done`` without ``Started``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineInfo:
    """The model and its settings; displayed, and named in evidence.

    Attributes:
        model_id: a display name; only the digest identifies.
        model_sha256: digest of the model file, hex.
        template_sha256: digest of its chat template, hex.
        architecture: as the file names it.
        context_tokens: prompt and answer together.
        threads: threads of one decode.
        sequences: requests that are answered at the same time.
        ephemerality: the claim about erasure; ``none``: overwritten after each
            request, but nothing was proven.
        prefix_reuse: always ``off``: nothing of one request serves another.
        adapter_sha256: digest of its LoRA adapter, hex; empty: there is none.
            Measurements of a model are valid only with the same adapter.
    """

    model_id: str
    model_sha256: str
    template_sha256: str
    architecture: str
    context_tokens: int
    threads: int
    sequences: int = 1
    ephemerality: Literal["none"] = "none"
    prefix_reuse: Literal["off"] = "off"
    adapter_sha256: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """How busy an engine is.

    Attributes:
        running: requests being answered, at most ``EngineInfo.sequences``.
        queued: requests that wait.
        max_queued: how many may wait.
        wait_s: the estimated wait of a new request, from recent turns.
    """

    running: int
    queued: int
    max_queued: int
    wait_s: float = field(default=0.0, compare=False)


class CancelToken:
    """Says once, from any thread, that an answer is no longer wanted."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], None]] = []

    @property
    def cancelled(self) -> bool:
        """Whether ``cancel`` was called."""
        return self._event.is_set()

    def cancel(self) -> None:
        """Cancel; calling it again changes nothing."""
        with self._lock:
            self._event.set()
            callbacks, self._callbacks = self._callbacks, []
        # Outside the lock: a callback may unsubscribe, which takes it.
        for callback in callbacks:
            callback()

    def subscribe(self, callback: Callable[[], None]) -> None:
        """Call back on ``cancel``, at once if it was called already."""
        # Checked under the lock: cancelled between the check and the insertion, it
        # would never be called.
        # never be called.
        with self._lock:
            if not self._event.is_set():
                self._callbacks.append(callback)
                return
        callback()

    def unsubscribe(self, callback: Callable[[], None]) -> None:
        """Remove a callback, and with it everything that it references."""
        with self._lock, contextlib.suppress(ValueError):
            self._callbacks.remove(callback)


class Engine(Protocol):
    """One model that answers a few requests at a time.

    Those that wait come in order of their work (``batch``). An answer that is not
    complete when its turn is over continues after those that wait.
    """

    @property
    def info(self) -> EngineInfo:
        """The loaded model.

        Raises:
            EngineClosedError: the engine was not started.
        """
        ...

    async def start(self) -> None:
        """Load the model and check the machine.

        Raises:
            ModelFileError: the file cannot be loaded, or changed meanwhile.
            TemplateError: the model has no usable chat template.
            EngineFailedError: the library failed, or this machine is unsuitable.
        """
        ...

    def generate(
        self, request: GenerateRequest, *, cancel: CancelToken | None = None
    ) -> AsyncGenerator[Event]:
        """Answer; closing the iterator cancels.

        Raises:
            ContextTooLongError: prompt and answer do not fit.
            TemplateError: the model cannot take these turns.
            EngineBusyError: too many requests are waiting.
            EngineClosedError: the engine is not running.
            EngineFailedError: the library failed.
        """
        ...

    def load(self) -> Load:
        """Return how busy the engine is now."""
        ...

    async def close(self) -> None:
        """Stop, end every stream with EngineClosedError, free the model."""
        ...
