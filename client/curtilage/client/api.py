"""The public API: ``Client``, and ``SyncClient`` without ``await``.

::

    async with Client(policy="clinic.yaml", relay="https://relay.example/ward") as c:
        answer = await c.chat("Which vaccines does a nurse need?")
        print(answer.route, answer.rule, answer.text)
"""

import asyncio
import os
import threading
import warnings
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Literal,
    Protocol,
    Self,
    TypedDict,
    TypeVar,
    Unpack,
)

from curtilage.client import telemetry
from curtilage.client.answering.answer_stream import AnswerStream
from curtilage.client.assemble import assemble
from curtilage.client.chat.answer import Answer, Delta
from curtilage.client.chat.openai_chat import query_from
from curtilage.client.chat.query import Query
from curtilage.client.config import Flags, read_config
from curtilage.client.errors import UsageError
from curtilage.client.session import Session
from curtilage.client.telemetry import TelemetrySettings
from curtilage.policy.decision.decide import Decision

if TYPE_CHECKING:
    from curtilage.client.consent import Consents, Outbound, Stays

Messages = str | Sequence[Mapping[str, object]]
T = TypeVar("T")


class ChatOptions(TypedDict, total=False):
    """Wishes about an answer, and about the permitted tier that gives it.

    Names and ranges of those without a description are as in OpenAI's chat API; with
    several answers, ``Answer.choices`` has them all.

    Attributes:
        model: a name or alias of the file of models, or ``curtilage``.
        slo_ms: deadlines for the first text (``ttft``) and for the end (``total``).
        slo_hard: exclude tiers that are likely to miss them.
        max_cost: in millionths of a US dollar; exclude tiers that cost more.
        floor: minimum class of the query; raises the policy's result, never lowers it.
        mode: ``home``: locally or on-premises only; ``enclave_if_allowed``: prefer an
            enclave.
        preset: ``slo_ms`` for common cases.
        require: only this kind of tier; if it may not or cannot answer, none does.
        defer: if no tier can answer at the moment, queue the query and retry:
            ``QueuedError``, with the ticket for ``collect``. The policy must permit it
            (``routing.queue``).
    """

    model: str
    max_tokens: int
    temperature: float
    top_p: float
    seed: int | None
    stop: str | Sequence[str]
    logprobs: bool
    top_logprobs: int
    n: int
    presence_penalty: float
    frequency_penalty: float
    deterministic: bool
    tools: Sequence[Mapping[str, object]]
    tool_choice: str | Mapping[str, object]
    parallel_tool_calls: bool
    response_format: Mapping[str, object]
    slo_ms: Mapping[str, int]
    slo_hard: bool
    max_cost: int
    floor: Literal["restricted", "confidential", "internal", "public"]
    mode: Literal["auto", "home", "enclave_if_allowed"]
    preset: Literal["voice", "chat", "batch"]
    require: Literal["enclave", "on_premises", "local"]
    defer: bool


RENAMED: Final = "house_key_file is now on_premises_key_file; 0.2 has the new name only"


class ClientOptions(TypedDict, total=False):
    """Settings of a client; defaults are taken from the environment.

    Attributes:
        policy: a policy file; else ``CURTILAGE_POLICY``, else the shipped default
            profile.
        relay: ``https://host/name``; else ``CURTILAGE_RELAY``; without either,
            every query is answered locally.
        model: name or path of the local model; else the embedded one.
        model_sha256: its digest, required for a path.
        context_tokens: tokens of question and answer together; else
            ``CURTILAGE_CONTEXT_TOKENS``, else what the model was trained for, as far
            as memory allows.
        sequences: how many queries the local model answers at a time, 1 to 64; else
            ``CURTILAGE_SEQUENCES``, else two, or one if memory is short.
        threads: of the local model, 1 to 64; else ``CURTILAGE_THREADS``, else the
            processors that this process may use.
        kv_type: how keys and values are held; smaller than ``f16`` is less exact; else
            ``CURTILAGE_KV_TYPE``, else ``f16``.
        flash_attention: else ``CURTILAGE_FLASH_ATTENTION``, else ``auto``: where the
            library can.
        gpu_layers: how many layers a GPU computes, 0 to 1000, if the engine was built
            for one; else ``CURTILAGE_GPU_LAYERS``, else 0.
        answer_seconds: how long the local model may read a question and write the
            answer, 1 to 86,400; else ``CURTILAGE_ANSWER_SECONDS``, else 3,600.
        models: file with local models by name, and aliases; else
            ``CURTILAGE_MODELS``, else there are none.
        policy_key: public key (PEM) that must have signed the policy; else
            ``CURTILAGE_POLICY_KEY``; without either no signature is required.
        audit: directory of an audit log; else ``CURTILAGE_AUDIT``, else the user's
            own. Without a record there, nothing is sent.
        relay_ca: certificates (PEM) of the only authorities to trust for the
            relay; else ``CURTILAGE_RELAY_CA``, else the system's.
        relay_certificate: client certificate (PEM) for the relay; else
            ``CURTILAGE_RELAY_CERTIFICATE``, else none is shown.
        relay_certificate_key: its private key, if in another file; else
            ``CURTILAGE_RELAY_CERTIFICATE_KEY``.
        relay_key_file: file with the relay's API key; else
            ``CURTILAGE_RELAY_KEY_FILE``, else none is sent.
        on_premises_key_file: file with the API key of the policy's on-premises
            server; for several, ``TIER=FILE`` separated by commas; else
            ``CURTILAGE_ON_PREMISES_KEY_FILE``, else none is sent.
        consent: called with the data to be sent, where the policy requires consent
            (``routing.classes.*.consent``); returns whether it may be sent, or an
            awaitable of that. Without it nothing of such a class is sent.
        telemetry: destination of the whole process's counts and times, while this
            client runs; none by default. Needs the extra `telemetry`.
    """

    policy: str | Path | None
    relay: str | None
    model: str | Path | None
    model_sha256: str | None
    context_tokens: int | None
    sequences: int | None
    threads: int | None
    kv_type: Literal["f16", "q8_0", "q4_0"] | None
    flash_attention: Literal["auto", "on", "off"] | None
    gpu_layers: int | None
    answer_seconds: int | None
    models: str | Path | None
    policy_key: str | Path | None
    audit: str | Path | None
    relay_ca: str | Path | None
    relay_certificate: str | Path | None
    relay_certificate_key: str | Path | None
    relay_key_file: str | Path | None
    on_premises_key_file: str | Path | None
    consent: "Consents | None"
    telemetry: TelemetrySettings | None


class Client:
    """A Curtilage client: classifies a query, then answers locally or asks the enclave.

    Args:
        **options: see ``ClientOptions``.

    Raises:
        ConfigError: a setting is wrong; names it.
        PolicyError: the policy is wrong; all problems with their lines.
        TypeError: an unknown option.
    """

    def __init__(self, **options: Unpack[ClientOptions]) -> None:
        self._consents = options.pop("consent", None)
        self._telemetry = options.pop("telemetry", None)
        # A path may be a ``Path``. ``Flags`` refuses unknown names.
        settings: dict[str, Any] = {
            name: str(value) if isinstance(value, Path) else value
            for name, value in options.items()
        }
        if "house_key_file" in settings:
            warnings.warn(RENAMED, DeprecationWarning, stacklevel=2)
            old = settings.pop("house_key_file")
            settings.setdefault("on_premises_key_file", old)
        flags = Flags(**settings)
        self._config = read_config(flags, os.environ)
        self._session: Session | None = None

    async def __aenter__(self) -> Self:
        """Start the detectors and load the local model."""
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop."""
        await self.close()

    async def start(self) -> None:
        """Start the detectors and load the local model, a few seconds.

        Raises:
            TelemetryError: it was requested, and is not installed.
        """
        if self._session is not None:
            return
        if self._telemetry is not None:
            telemetry.configure(self._telemetry)
        try:
            parts = await assemble(self._config)
        except BaseException:
            self._stop_telemetry()
            raise
        self._session = Session(replace(parts, consents=self._consents))
        if parts.queue is not None:
            self._session.queue.keep_on()

    async def close(self) -> None:
        """Stop the detectors, free the model, close every connection.

        Waits until the connections have the length that they would have with any
        answer: an observer of the line must not learn how long an answer was.
        Cancelling this closes them at once.
        """
        session, self._session = self._session, None
        if session is not None:
            try:
                await session.close()
            finally:
                self._stop_telemetry()

    def _stop_telemetry(self) -> None:
        # Not if another part of the program configured it.
        if self._telemetry is not None:
            telemetry.shutdown()

    async def chat(self, messages: Messages, **options: Unpack[ChatOptions]) -> Answer:
        """Answer a question or a conversation, whole.

        Args:
            messages: one question, or turns ``{"role": …, "content": …}``.
            **options: see ``ChatOptions``.

        Raises:
            ClientError: no answer is possible or allowed; the class shows the reason.
        """
        return await self.session.ask(self._query(messages, options))

    def stream(
        self, messages: Messages, **options: Unpack[ChatOptions]
    ) -> AnswerStream:
        """Answer piece by piece: ``async for piece in client.stream(…)``.

        The stream's ``provenance`` names the tier once ``begin()`` returned, its
        ``answer`` is complete after the last piece.
        """
        return self.session.stream(self._query(messages, options, stream=True))

    async def collect(self, ticket: str) -> Answer:
        """Return the answer to a queued query; it is kept until it is dropped.

        Raises:
            QueuedError: it is still queued.
            TicketError: it has no answer, and will not get one; see the code.
            ClientError: the policy has no queue, or the queue cannot be read.
        """
        return await self.session.queue.collect(ticket)

    async def drop(self, ticket: str) -> bool:
        """Delete a queued query or its answer; return whether there was one."""
        return await self.session.queue.drop(ticket)

    def feedback(self, answer: Answer | AnswerStream | str, *, good: bool) -> None:
        """Report whether an answer was good: once, for one of the last few thousand.

        It is counted for the tier that gave the answer, for `curtilage route stats` and
        `advise`; no word of question or answer is stored for that.

        Args:
            answer: the answer, or its ``id``.
            good: whether it was.

        Raises:
            UsageError: the answer is unknown.
        """
        answer_id = answer if isinstance(answer, str) else answer.id
        self.session.feedback(answer_id, good=good)

    async def decide(self, messages: Messages) -> Decision:
        """Return where a query may be answered, and why.

        Hypothetical: nothing is sent, answered or recorded.
        """
        query = query_from(messages, {}, stream=False, answered=False)
        return await self.session.decide(query)

    async def outbound(
        self, messages: Messages, **options: Unpack[ChatOptions]
    ) -> "Outbound | Stays":
        """Return the data that would be sealed for a query, and for whom; send nothing.

        Raises:
            ClientError: it cannot be determined; the class shows the reason.
        """
        return await self.session.outbound(self._query(messages, options))

    def _query(
        self, messages: Messages, options: ChatOptions, *, stream: bool = False
    ) -> Query:
        names = self.session.names
        return query_from(messages, dict(options), stream=stream, names=names)

    @property
    def session(self) -> Session:
        """The running session."""
        if self._session is None:
            raise UsageError("the client is not started: use `async with Client()`")
        return self._session


class SyncClient:
    """``Client`` for programs without an event loop; the same options.

    Runs the client on a thread of its own; its methods may be called from any
    one thread at a time.
    """

    def __init__(self, **options: Unpack[ClientOptions]) -> None:
        self._client = Client(**options)
        self._loop = asyncio.new_event_loop()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        """Start the detectors and load the local model."""
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop."""
        self.close()

    def start(self) -> None:
        """Start the detectors and load the local model, a few seconds."""
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._loop.run_forever, name="curtilage-client", daemon=True
            )
            self._thread.start()
            self._run(self._client.start())

    def close(self) -> None:
        """Stop everything; a second call does nothing."""
        if self._loop.is_closed():
            return
        if self._thread is not None:
            self._run(self._client.close())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        self._loop.close()

    def chat(self, messages: Messages, **options: Unpack[ChatOptions]) -> Answer:
        """Answer a question or a conversation, whole; see ``Client.chat``."""
        return self._run(self._client.chat(messages, **options))

    def stream(
        self, messages: Messages, **options: Unpack[ChatOptions]
    ) -> "SyncAnswerStream":
        """Answer piece by piece: ``for piece in client.stream(…)``."""
        self._require_started()
        return SyncAnswerStream(self._client.stream(messages, **options), self._run)

    def collect(self, ticket: str) -> Answer:
        """Return the answer to a queued query; see ``Client.collect``."""
        return self._run(self._client.collect(ticket))

    def drop(self, ticket: str) -> bool:
        """Delete a queued query or its answer; see ``Client.drop``."""
        return self._run(self._client.drop(ticket))

    def feedback(
        self, answer: "Answer | SyncAnswerStream | str", *, good: bool
    ) -> None:
        """Report whether an answer was good; see ``Client.feedback``."""
        answer_id = answer if isinstance(answer, str) else answer.id

        async def said() -> None:
            """Run on the client's thread, since it writes to the queries' trace."""
            self._client.feedback(answer_id, good=good)

        self._run(said())

    def decide(self, messages: Messages) -> Decision:
        """Return where a query may be answered, and why; see ``Client.decide``."""
        return self._run(self._client.decide(messages))

    def _require_started(self) -> None:
        if self._thread is None or self._loop.is_closed():
            raise UsageError("the client is not started: use `with SyncClient()`")

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        if self._thread is None or self._loop.is_closed():
            work.close()  # or Python warns of a coroutine that was never awaited
            self._require_started()
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


class SyncAnswerStream:
    """One answer while it is generated; iterate for pieces, then read ``answer``."""

    def __init__(self, stream: AnswerStream, run: "_Runner") -> None:
        self._stream = stream
        self._run = run

    def __iter__(self) -> Iterator[Delta]:
        """Yield the pieces of the answer."""
        pieces = aiter(self._stream)
        try:
            while (piece := self._run(_next(pieces))) is not None:
                yield piece
        finally:
            self._run(self._stream.aclose())

    @property
    def id(self) -> str:
        """The answer's id."""
        return self._stream.id

    @property
    def answer(self) -> Answer:
        """The whole answer; only after the last piece."""
        return self._stream.answer


class _Runner(Protocol):
    """Runs a coroutine to completion, on the client's thread."""

    def __call__(self, work: Coroutine[Any, Any, T], /) -> T: ...


async def _next(pieces: AsyncIterator[Delta]) -> Delta | None:
    # ``run_coroutine_threadsafe`` needs a coroutine, and ``anext`` returns none.
    return await anext(pieces, None)
