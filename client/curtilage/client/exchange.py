"""The seal door: one allowed query becomes one sealed request and its answer.

Sans-IO. This is the only place where a query turns into bytes for others, and
it takes an ``Allowed``, which ``policy.decide`` alone can build, and a
``VerifiedKey``, which ``attest.verify`` alone can build. What ``decide`` kept
home has no ``Allowed``, so it cannot come through here; and an ``Allowed`` for
one query does not open the door for another, since it names the payload.
"""

import hashlib
import hmac
import json
import math
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Final, NoReturn, cast, final

from typing_extensions import override

from curtilage.attest.verify import VerifiedKey, require_verified
from curtilage.client.answers import AnswerEvent, Delta, Finished
from curtilage.client.errors import EnclaveError, FailureReason
from curtilage.client.query import Query
from curtilage.policy.decide import Allowed, require_allowed
from curtilage.wire import bhttp, chunked, keyconfig
from curtilage.wire.errors import TruncatedError, WireError

AUTHORITY = b"curtilage.invalid"  # resolves nowhere: a mistake tells DNS nothing
CHAT_PATH = b"/v1/chat/completions"
SSE_END = "[DONE]"
HTTP_OK = 200
HTTP_TOO_LARGE = 413
HTTP_TOO_MANY = 429
HTTP_UNAVAILABLE = 503
MAX_ANSWER_BYTES = 8 * 1024 * 1024  # thousands of times the largest answer
_BRAND: Final = object()


class AnswerReader:
    """Turn the sealed answer's bytes into deltas; a failure is final.

    Call ``push`` with what arrives and ``finish`` at the end of the body.
    ``Finished`` is yielded by ``finish`` alone, after the final chunk opened:
    a stream that was cut is never told as complete.
    """

    def __init__(self, opener: chunked.ChunkedResponseOpener) -> None:
        self._opener = opener
        self._decoder = bhttp.ResponseDecoder()
        self._content = _UnreadContent()
        self._received = 0

    def push(self, data: bytes) -> list[AnswerEvent]:
        """Open what arrived.

        Raises:
            EnclaveError: broken, oversize, or an answer that is a refusal.
        """
        self._received += len(data)
        if self._received > MAX_ANSWER_BYTES:
            raise EnclaveError(FailureReason.ANSWER_BROKEN)
        try:
            plaintexts = self._opener.push(data)
            return [event for each in plaintexts for event in self._read(each)]
        except WireError:
            raise EnclaveError(FailureReason.ANSWER_BROKEN) from None

    def finish(self) -> list[AnswerEvent]:
        """Open the final chunk and close the answer.

        Raises:
            EnclaveError: as ``push``, and when the answer was cut.
        """
        try:
            last = self._opener.finish()
            events = [*self._read(last), *self._read_on(self._decoder.finish())]
        except TruncatedError:
            raise EnclaveError(FailureReason.ANSWER_INCOMPLETE) from None
        except WireError:
            raise EnclaveError(FailureReason.ANSWER_BROKEN) from None
        return [*events, *self._content.end()]

    def _read(self, plaintext: bytes) -> Iterator[AnswerEvent]:
        return self._read_on(self._decoder.push(plaintext))

    def _read_on(self, events: Iterable[bhttp.ResponseEvent]) -> Iterator[AnswerEvent]:
        for event in events:
            if isinstance(event, bhttp.ResponseHead):
                self._content = _content_reader(event)
            elif isinstance(event, bhttp.ContentChunk):
                yield from self._content.push(event.data)


@final
class SealedExchange:
    """One sealed request, to be sent once, and the reader of its answer.

    Only ``seal`` builds it. It holds no plaintext.
    """

    __slots__ = ("_body", "reader")

    def __init__(self, brand: object, body: bytes, reader: AnswerReader) -> None:
        if brand is not _BRAND:
            raise TypeError("only seal() builds a SealedExchange")
        self._body: bytes | None = body
        self.reader = reader

    def take_body(self) -> bytes:
        """Hand out the encapsulated request; a second call raises.

        Raises:
            RuntimeError: it was taken before; ``enc`` is never reused.
        """
        body, self._body = self._body, None
        if body is None:
            raise RuntimeError("a sealed request is sent once")
        return body

    @override
    def __reduce__(self) -> NoReturn:
        """Refuse to be copied or pickled."""
        raise TypeError("a SealedExchange cannot be copied")


def seal(
    allowed: Allowed, query: Query, key: VerifiedKey, *, now: datetime
) -> SealedExchange:
    """Seal one query that may leave, to one verified key.

    Args:
        allowed: the decision that this very payload may leave.
        query: what was inspected.
        key: the enclave's key, checked again to be in force at ``now``.
        now: the time of sealing, aware.

    Raises:
        TypeError: ``allowed`` was not built by ``policy.decide``, or ``key``
            not by ``attest.verify``.
        PermissionError: ``allowed`` is for another payload.
        RefusedError: the key expired between verification and sealing.
    """
    permitted = require_allowed(allowed)
    verified = require_verified(key)
    content = query.payload()  # once: what is compared is what is sealed
    digest = hashlib.sha256(content).digest()
    if not hmac.compare_digest(permitted.payload_digest, digest):
        raise PermissionError("the decision is about another payload")
    verified.usable_at(now)
    request = bhttp.encode_request(
        bhttp.Request(
            method=b"POST",
            scheme=b"https",
            authority=AUTHORITY,
            path=CHAT_PATH,
            fields=((b"content-type", b"application/json"),),
            content=content,
        )
    )
    config = keyconfig.parse_key_configs(verified.key_configs)[0]
    sealed = chunked.seal_chunked_request(config, request)
    return SealedExchange(_BRAND, sealed.message, AnswerReader(sealed.opener))


class _UnreadContent:
    """Content before its head: there is none, so anything is broken."""

    def push(self, data: bytes) -> Iterator[AnswerEvent]:
        """Refuse: no head came first."""
        del data
        raise EnclaveError(FailureReason.ANSWER_BROKEN)

    def end(self) -> list[AnswerEvent]:
        """Refuse: an answer without a head is none."""
        raise EnclaveError(FailureReason.ANSWER_BROKEN)


class _RefusedContent(_UnreadContent):
    """The body of an inner error: read past, then told as its status."""

    def __init__(self, status: int) -> None:
        self._status = status

    @override
    def push(self, data: bytes) -> Iterator[AnswerEvent]:
        """Skip the error's words; the status says enough."""
        del data
        return iter(())

    @override
    def end(self) -> list[AnswerEvent]:
        """Raise what the status means."""
        if self._status in {HTTP_UNAVAILABLE, HTTP_TOO_MANY}:
            raise EnclaveError(FailureReason.BUSY)
        if self._status == HTTP_TOO_LARGE:
            raise EnclaveError(FailureReason.TOO_LARGE)
        raise EnclaveError(FailureReason.REFUSED, code=str(self._status))


class _JsonContent(_UnreadContent):
    """One ``chat.completion`` object, whole."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    @override
    def push(self, data: bytes) -> Iterator[AnswerEvent]:
        """Keep it until the end."""
        self._parts.append(data)
        return iter(())

    @override
    def end(self) -> list[AnswerEvent]:
        """Parse the object."""
        answer = _object(b"".join(self._parts))
        choice = _first_choice(answer)
        text = _member(choice.get("message"), "content")
        if not isinstance(text, str):
            raise EnclaveError(FailureReason.ANSWER_BROKEN)
        delta = Delta(text=_text(text), logprobs=_logprobs(choice))
        return [delta, _finished(choice, answer)]


class _EventStreamContent(_UnreadContent):
    """Server-sent events: ``chat.completion.chunk`` objects, then ``[DONE]``."""

    def __init__(self) -> None:
        self._buffer = b""
        self._finished: Finished | None = None
        self._done = False

    @override
    def push(self, data: bytes) -> Iterator[AnswerEvent]:
        """Yield the deltas of every whole event."""
        *whole, self._buffer = (self._buffer + data).split(b"\n\n")
        for event in whole:
            yield from self._event(event)

    @override
    def end(self) -> list[AnswerEvent]:
        """Require a finish reason and the end mark."""
        if self._buffer.strip() or not self._done or self._finished is None:
            raise EnclaveError(FailureReason.ANSWER_INCOMPLETE)
        return [self._finished]

    def _event(self, event: bytes) -> Iterator[AnswerEvent]:
        if self._done or not event.startswith(b"data: "):
            raise EnclaveError(FailureReason.ANSWER_BROKEN)
        data = event.removeprefix(b"data: ")
        if data == SSE_END.encode():
            self._done = True
            return
        chunk = _object(data)
        if "error" in chunk:
            raise EnclaveError(FailureReason.ANSWER_INCOMPLETE)
        choice = _first_choice(chunk)
        text = _member(choice.get("delta"), "content")
        if isinstance(text, str) and text:
            yield Delta(text=_text(text), logprobs=_logprobs(choice))
        if choice.get("finish_reason") is not None:
            self._finished = _finished(choice, chunk)


def _content_reader(head: bhttp.ResponseHead) -> _UnreadContent:
    if head.status != HTTP_OK:
        return _RefusedContent(head.status)
    fields = dict(head.fields)
    media_type = fields.get(b"content-type", b"").partition(b";")[0].strip()
    if media_type == b"text/event-stream":
        return _EventStreamContent()
    if media_type == b"application/json":
        return _JsonContent()
    raise EnclaveError(FailureReason.ANSWER_BROKEN)


def _object(data: bytes) -> dict[str, object]:
    try:
        value: object = json.loads(data)
    except (ValueError, RecursionError):
        raise EnclaveError(FailureReason.ANSWER_BROKEN) from None
    if not isinstance(value, dict):
        raise EnclaveError(FailureReason.ANSWER_BROKEN)
    return cast("dict[str, object]", value)


def _first_choice(value: dict[str, object]) -> dict[str, object]:
    choices = value.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise EnclaveError(FailureReason.ANSWER_BROKEN)
    return cast("dict[str, object]", choices[0])


def _finished(choice: dict[str, object], holder: dict[str, object]) -> Finished:
    reason = choice.get("finish_reason")
    usage = holder.get("usage")
    counts = cast("dict[str, object]", usage) if isinstance(usage, dict) else {}
    if not isinstance(reason, str) or reason not in {"stop", "length"}:
        raise EnclaveError(FailureReason.ANSWER_BROKEN)
    return Finished(
        finish_reason=reason,
        prompt_tokens=_count(counts.get("prompt_tokens")),
        completion_tokens=_count(counts.get("completion_tokens")),
    )


def _count(value: object) -> int:
    return value if isinstance(value, int) and value >= 0 else 0


def _logprobs(choice: dict[str, object]) -> tuple[tuple[str, float], ...]:
    content = _member(choice.get("logprobs"), "content")
    found: list[tuple[str, float]] = []
    for entry in cast("list[object]", content) if isinstance(content, list) else []:
        token, value = _member(entry, "token"), _member(entry, "logprob")
        if isinstance(token, str) and isinstance(value, int | float):
            found.append((_text(token), _finite(value)))
    return tuple(found)


def _finite(value: float) -> float:
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise EnclaveError(FailureReason.ANSWER_BROKEN)
    return number


def _text(value: str) -> str:
    """Return a text that can be written on; half a character cannot."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise EnclaveError(FailureReason.ANSWER_BROKEN) from None
    return value


def _member(value: object, key: str) -> object:
    """Return an object's member, or None where there is none."""
    if not isinstance(value, dict):
        return None
    return cast("dict[str, object]", value).get(key)
