"""The oblivious gateway without I/O: open, dispatch, seal (RFC 9458, section 4).

Takes a whole encapsulated request and gives an ``Exchange``: either a chat
request for the model or an error, and the sealer for its answer. The gateway
is the target: nothing is ever forwarded anywhere. Before decapsulation every
failure is one of the constants below; afterwards every failure is sealed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol

from curtilage.enclave_server.answers import JSON_TYPE, encode_error, tellable
from curtilage.enclave_server.chat import ChatLimits, ChatRequest, parse_chat_request
from curtilage.enclave_server.errors import ChatError
from curtilage.enclave_server.keys import ServerKey
from curtilage.wire import bhttp, chunked, ohttp
from curtilage.wire.errors import UnknownKeyError, WireError
from curtilage.wire.media import (
    OHTTP_CHUNKED_REQUEST,
    OHTTP_CHUNKED_RESPONSE,
    OHTTP_REQUEST,
    OHTTP_RESPONSE,
    PROBLEM_JSON,
    PROBLEM_OHTTP_KEY,
)
from curtilage.wire.suite import Suite

HEADER_BYTES: Final = 7
"""key_id(1) kem_id(2) kdf_id(2) aead_id(2)."""

Fields = tuple[tuple[bytes, bytes], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OuterAnswer:
    """An answer outside any encapsulation: a constant, whatever the cause.

    Attributes:
        status: the HTTP status.
        content_type: of ``content``.
        content: says nothing that the status does not.
        fields: further response fields.
    """

    status: int
    content_type: str
    content: bytes
    fields: tuple[tuple[str, str], ...] = ()


def _problem(status: int, title: str, kind: str = "about:blank") -> OuterAnswer:
    content = f'{{"type":"{kind}","title":"{title}","status":{status}}}'
    return OuterAnswer(
        status=status, content_type=PROBLEM_JSON, content=content.encode()
    )


BAD_REQUEST: Final = _problem(400, "Bad request")
NOT_FOUND: Final = _problem(404, "Not found")
REQUEST_TIMEOUT: Final = _problem(408, "Too slow")
TOO_LARGE: Final = _problem(413, "Too large")
UNSUPPORTED_TYPE: Final = _problem(415, "Unsupported type")
EXPECTATION_FAILED: Final = _problem(417, "Expectation failed")
UNDECAPSULATED: Final = _problem(422, "Not decapsulated")
"""Every failure of decapsulation but one: same bytes, status and fields."""
UNKNOWN_KEY: Final = _problem(422, "Unknown key configuration", PROBLEM_OHTTP_KEY)
"""The client holds an old key configuration (RFC 9458, section 5.3)."""
INTERNAL: Final = _problem(500, "Internal error")
UNAVAILABLE: Final = _problem(503, "Not available")


def method_not_allowed(allowed: str) -> OuterAnswer:
    """Return the 405 of a path that knows ``allowed`` only."""
    answer = _problem(405, "Method not allowed")
    return OuterAnswer(
        status=answer.status,
        content_type=answer.content_type,
        content=answer.content,
        fields=(("Allow", allowed),),
    )


class OuterError(Exception):
    """The request is answered without encapsulation.

    Attributes:
        answer: what to send; one of this module's constants.
    """

    def __init__(self, answer: OuterAnswer) -> None:
        super().__init__(str(answer.status))
        self.answer = answer


class Form(StrEnum):
    """Which encapsulation a request came in; the answer takes the same."""

    PLAIN = OHTTP_REQUEST
    CHUNKED = OHTTP_CHUNKED_REQUEST


def form_of(content_types: list[str]) -> Form:
    """Read the outer Content-Type: exactly one, no parameters.

    Raises:
        OuterError: 415.
    """
    try:
        (value,) = content_types
        return Form(value.strip(" \t").lower())
    except ValueError:
        raise OuterError(UNSUPPORTED_TYPE) from None


class Sealer(Protocol):
    """Seals one answer: ``begin``, any number of ``write``, ``finish``.

    Each returns the bytes to send now, which may be none.
    """

    @property
    def media_type(self) -> str:
        """The outer Content-Type of the answer."""
        ...

    def begin(self, status: int, fields: Fields) -> bytes:
        """Seal the inner head."""
        ...

    def write(self, content: bytes) -> bytes:
        """Seal some inner content."""
        ...

    def finish(self) -> bytes:
        """Seal the end; without it the client sees a truncated answer."""
        ...


class _ChunkedSealer:
    """Streams: what is written can be sent at once."""

    media_type = OHTTP_CHUNKED_RESPONSE

    def __init__(self, sealer: chunked.ChunkedResponseSealer) -> None:
        self._sealer = sealer

    def begin(self, status: int, fields: Fields) -> bytes:
        head = bhttp.encode_response_head(status, fields)
        return self._sealer.begin() + self._sealer.seal(head)

    def write(self, content: bytes) -> bytes:
        encoded = bhttp.encode_content_chunk(content) if content else b""
        return b"".join(
            self._sealer.seal(encoded[start : start + chunked.MAX_CHUNK_BYTES])
            for start in range(0, len(encoded), chunked.MAX_CHUNK_BYTES)
        )

    def finish(self) -> bytes:
        return self._sealer.finish(bhttp.encode_content_end())


class _PlainSealer:
    """Holds everything back: plain OHTTP seals an answer whole."""

    media_type = OHTTP_RESPONSE

    def __init__(self, sealer: ohttp.ResponseSealer) -> None:
        self._sealer = sealer
        self._status = 0
        self._fields: Fields = ()
        self._content = bytearray()

    def begin(self, status: int, fields: Fields) -> bytes:
        self._status, self._fields = status, fields
        return b""

    def write(self, content: bytes) -> bytes:
        self._content += content
        return b""

    def finish(self) -> bytes:
        response = bhttp.Response(
            status=self._status, fields=self._fields, content=bytes(self._content)
        )
        return self._sealer.seal(bhttp.encode_response(response))


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One opened request, ready to be answered.

    Attributes:
        asked: what to ask the model, or why nothing is asked.
        sealer: for the answer, whichever it is.
    """

    asked: ChatRequest | ChatError = field(repr=False)
    sealer: Sealer = field(repr=False)


def open_exchange(
    keys: Mapping[int, ServerKey], form: Form, message: bytes, limits: ChatLimits
) -> Exchange:
    """Open one encapsulated request and dispatch it.

    Trusts nothing in ``message``.

    Args:
        keys: by key id; only keys whose window holds now.
        form: from the outer Content-Type.
        message: the whole body, bounded by the caller.
        limits: of the chat request.

    Raises:
        OuterError: ``UNKNOWN_KEY`` for an unknown key id, ``UNDECAPSULATED``
            for every other cause.
    """
    try:
        content, sealer = _OPENERS[form](keys, message)
    except UnknownKeyError:
        raise OuterError(UNKNOWN_KEY) from None
    except WireError:
        raise OuterError(UNDECAPSULATED) from None
    try:
        _refuse_replay(keys[message[0]], message)
        asked = _dispatch(content, limits)
    except ChatError as error:
        return Exchange(asked=error, sealer=sealer)
    except Exception:  # noqa: BLE001 - from here on every failure must be sealed
        failed = ChatError(500, "internal_error")
        return Exchange(asked=failed, sealer=sealer)
    return Exchange(asked=asked, sealer=sealer)


def seal_error(sealer: Sealer, error: ChatError) -> bytes:
    """Seal a whole error answer."""
    error = tellable(error)
    fields = ((b"content-type", JSON_TYPE), *error.fields)
    return (
        sealer.begin(error.status, fields)
        + sealer.write(encode_error(error))
        + sealer.finish()
    )


def _open_plain(keys: Mapping[int, ServerKey], message: bytes) -> tuple[bytes, Sealer]:
    gateway_keys = {key_id: key.gateway_key for key_id, key in keys.items()}
    opened = ohttp.open_request(gateway_keys, message)
    return opened.bhttp, _PlainSealer(opened.sealer)


def _open_chunked(
    keys: Mapping[int, ServerKey], message: bytes
) -> tuple[bytes, Sealer]:
    gateway_keys = {key_id: key.gateway_key for key_id, key in keys.items()}
    content, sealer = chunked.open_chunked_request(gateway_keys, message)
    return content, _ChunkedSealer(sealer)


_OPENERS: Final[
    Mapping[Form, Callable[[Mapping[int, ServerKey], bytes], tuple[bytes, Sealer]]]
] = {Form.PLAIN: _open_plain, Form.CHUNKED: _open_chunked}


def _refuse_replay(key: ServerKey, message: bytes) -> None:
    """Refuse a request whose ``enc`` was opened before (RFC 9458, 6.5)."""
    kem_id, kdf_id, aead_id = (
        int.from_bytes(message[start : start + 2]) for start in (1, 3, 5)
    )
    suite = Suite(kem_id=kem_id, kdf_id=kdf_id, aead_id=aead_id)
    if key.replay.is_full:
        raise ChatError(503, "busy", fields=RETRY_LATER)
    if not key.replay.admit(message[HEADER_BYTES : HEADER_BYTES + suite.nenc]):
        raise ChatError(400, "replayed")


RETRY_LATER: Final[Fields] = ((b"retry-after", b"30"),)
"""Coarse on purpose: a finer hint would tell how busy others keep us."""

TARGET_SCHEME: Final = b"https"
TARGET_AUTHORITY: Final = b"curtilage.invalid"
CHAT_PATH: Final = b"/v1/chat/completions"

_Handler = Callable[[bhttp.Request, ChatLimits], ChatRequest]


def _dispatch(content: bytes, limits: ChatLimits) -> ChatRequest:
    """Find the handler in an exact table; nothing else exists."""
    try:
        request = bhttp.decode_request(content)
    except WireError:
        raise ChatError(400, "invalid_request") from None
    target = (request.scheme, request.authority, request.path)
    methods = _TARGETS.get(target)
    if methods is None:
        raise ChatError(404, "not_found")
    handler = methods.get(request.method)
    if handler is None:
        allowed = b", ".join(methods)
        raise ChatError(405, "method_not_allowed", fields=((b"allow", allowed),))
    return handler(request, limits)


def _chat(request: bhttp.Request, limits: ChatLimits) -> ChatRequest:
    _validate_fields(request)
    return parse_chat_request(request.content, limits)


def _validate_fields(request: bhttp.Request) -> None:
    """Check the inner fields that would change what the content means.

    All others are ignored: nothing acts on them and nothing is forwarded.
    """
    values = _values(request, b"content-type")
    if len(values) != 1 or not _is_json(values[0]):
        raise ChatError(415, "unsupported_media_type")
    if _values(request, b"content-encoding"):
        raise ChatError(415, "unsupported_media_type")
    if _values(request, b"expect"):
        # RFC 9292 has no way to answer 100-continue in time.
        raise ChatError(417, "expectation_failed")


def _values(request: bhttp.Request, name: bytes) -> list[bytes]:
    return [value for key, value in request.fields if key == name]


def _is_json(value: bytes) -> bool:
    """Accept ``application/json``, also with the charset that it has anyway."""
    return value.lower().replace(b" ", b"") in {
        b"application/json",
        b"application/json;charset=utf-8",
    }


_TARGETS: Final[Mapping[tuple[bytes, bytes, bytes], Mapping[bytes, _Handler]]] = {
    (TARGET_SCHEME, TARGET_AUTHORITY, CHAT_PATH): {b"POST": _chat}
}
