"""The oblivious gateway without I/O: open, dispatch, seal (RFC 9458, section 4).

Takes a whole encapsulated request and returns an ``Exchange``: either a chat
request for the model or an error, and the sealer for its answer. The gateway
is the target: nothing is ever forwarded anywhere. Before decapsulation every
failure is one of the constants below; afterwards every failure is sealed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final

from curtilage.enclave_server.errors import ChatError
from curtilage.enclave_server.ohttp.chat import (
    ChatCompletionRequest,
    ChatLimits,
    parse_chat_completion_request,
)
from curtilage.enclave_server.ohttp.inner_requests import (
    ChallengeRequest,
    CoverRequest,
    parse_challenge_request,
    parse_cover_request,
)
from curtilage.enclave_server.ohttp.keys import ServerKey
from curtilage.enclave_server.ohttp.openai_answers import (
    encode_error,
    error_type,
    tellable,
)
from curtilage.enclave_server.ohttp.receipts import NO_RECEIPT, Receipting, take_secret
from curtilage.enclave_server.ohttp.sealing import (
    ChunkedOutput,
    ChunkedSealer,
    PaddedSealer,
    PlainOutput,
    PlainSealer,
    Sealer,
)
from curtilage.wire import bhttp, chunked, ohttp
from curtilage.wire.bhttp import Fields
from curtilage.wire.dates import WINDOW, format_date, parse_date
from curtilage.wire.encapsulation import HEADER_BYTES, GatewayKey
from curtilage.wire.errors import UnknownKeyError, WireError
from curtilage.wire.hpke.suite import Suite
from curtilage.wire.media import (
    OHTTP_CHUNKED_REQUEST,
    OHTTP_REQUEST,
    PROBLEM_JSON,
    PROBLEM_OHTTP_KEY,
)
from curtilage.wire.shaping import Shape, TransportParameters

RETRY_LATER: Final[Fields] = ((b"retry-after", b"10"),)
"""Coarse on purpose: a finer value would disclose the load from other clients."""

REQUEST_LIMITS: Final = bhttp.Limits(max_content_chunks=512)
"""Of the binary HTTP in a request: in the largest class, chunks of 2 KiB."""

TARGET_SCHEME: Final = b"https"
TARGET_AUTHORITY: Final = b"curtilage.invalid"
CHAT_PATH: Final = b"/v1/chat/completions"
COVER_PATH: Final = b"/v1/cover"
CHALLENGE_PATH: Final = b"/v1/challenge"


@dataclass(frozen=True, slots=True, kw_only=True)
class OuterAnswer:
    """An answer outside any encapsulation: a constant, whatever the cause.

    Attributes:
        status: the HTTP status.
        content_type: of ``content``.
        content: contains nothing that the status does not.
        fields: further response fields.
    """

    status: int
    content_type: str
    content: bytes
    fields: tuple[tuple[str, str], ...] = ()


# RFC 9458, section 5.2: a request that could not be opened is answered outside the
# seal. The relay can read that answer, so it is constant for each status.
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
    """Return the 405 of a path that supports only ``allowed``."""
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
    """The encapsulation of a request; the answer uses the same."""

    PLAIN = OHTTP_REQUEST
    CHUNKED = OHTTP_CHUNKED_REQUEST


def form_of(content_types: list[str]) -> Form:
    """Read the outer Content-Type: exactly one, no parameters.

    Raises:
        OuterError: 415.
    """
    try:
        # Of two values, we might use one and the relay the other.
        (value,) = content_types
        return Form(value.strip(" \t").lower())
    except ValueError:
        raise OuterError(UNSUPPORTED_TYPE) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The values that decide about a request, apart from its own bytes.

    Attributes:
        chat: bounds of a chat request.
        transport: how answers are shaped.
        now: aware UTC.
        challenge_bucket: of every padded answer to a challenge, whatever it
            contains; None where challenges are not answered.
    """

    chat: ChatLimits
    transport: TransportParameters
    now: datetime
    challenge_bucket: int | None = None


Asked = ChatCompletionRequest | CoverRequest | ChallengeRequest | ChatError
"""The request to answer, or the error to answer with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One opened request, ready to be answered.

    Attributes:
        asked: see there.
        sealer: for the answer, whichever it is.
        key: that the request was sealed to; None in tests without one.
        receipt: that the sealer fills; it also takes what only we know.
        least_bucket: the smallest bucket of a padded answer, whatever it contains.
    """

    asked: Asked = field(repr=False)
    sealer: Sealer | PaddedSealer = field(repr=False)
    key: ServerKey | None = field(default=None, repr=False)
    receipt: Receipting = field(default=NO_RECEIPT, repr=False)
    least_bucket: int = 0


def open_exchange(
    keys: Mapping[int, ServerKey], form: Form, message: bytes, terms: Terms
) -> Exchange:
    """Open one encapsulated request and dispatch it.

    Trusts nothing in ``message``. A message that does not open takes as long as one
    that almost did (see ``_that_fails_late``). One that does open costs little more
    than its bytes: the number of its parts is bounded, since all other answers are
    blocked meanwhile.

    Args:
        keys: by key id; only keys whose window includes the present.
        form: from the outer Content-Type.
        message: the whole body, bounded by the caller.
        terms: see there.

    Raises:
        OuterError: ``UNKNOWN_KEY`` for an unknown key id, ``UNDECAPSULATED``
            for every other cause.
    """
    # Only keys in their window: an expired one that still opened would defeat the
    # forward secrecy that overwriting it provides (RFC 9458, section 6.6).
    gateway_keys = {key_id: key.gateway_key(key_id) for key_id, key in keys.items()}
    message = _that_fails_late(gateway_keys, message)
    try:
        content, make_sealer = _OPENERS[form](gateway_keys, message, terms.transport)
    except UnknownKeyError:
        # A separate error, so that the client fetches new keys (RFC 9458, section 5.3).
        # It discloses nothing that the key id, in the clear, does not.
        raise OuterError(UNKNOWN_KEY) from None
    except WireError:
        # An oracle that distinguished causes could be queried until it opened
        # something.
        raise OuterError(UNDECAPSULATED) from None
    key = keys[message[0]]
    # Sealed from here on, in every case: outside the seal even "malformed" would
    # disclose something of the content to the relay. The receipt's secret does not
    # leave this function.
    request: bhttp.Request | ChatError
    secret = b""
    try:
        request, secret = take_secret(bhttp.decode_request(content, REQUEST_LIMITS))
    except WireError:
        request = ChatError(400, "invalid_request")
    except Exception:  # noqa: BLE001 - from here on every failure must be sealed
        request = ChatError(500, "internal_error")
    receipt: Receipting = NO_RECEIPT
    least_bucket = 0
    if not isinstance(request, ChatError):
        # Before the request is parsed: a refusal has a receipt as well.
        if key.receipts is not None:
            served_at = int(terms.now.timestamp())
            receipt = key.receipts.begin(secret, request.content, served_at)
        # By the path alone, so that no length reveals the refusal of a challenge.
        if request.path == CHALLENGE_PATH:
            least_bucket = terms.challenge_bucket or 0
    return Exchange(
        asked=_asked(key, message, request, terms),
        sealer=make_sealer(receipt),
        key=key,
        receipt=receipt,
        least_bucket=least_bucket,
    )


def _asked(
    key: ServerKey, message: bytes, request: bhttp.Request | ChatError, terms: Terms
) -> Asked:
    try:
        # First: a message that was seen once must count as seen, whatever else is
        # wrong.
        _refuse_replay(key, message)
        if isinstance(request, ChatError):
            return request
        return _dispatch(request, terms)
    except ChatError as error:
        # Without its traceback, whose frames hold the request.
        return error.alone()
    except Exception:  # noqa: BLE001 - from here on every failure must be sealed
        return ChatError(500, "internal_error")


def seal_error(sealer: Sealer, error: ChatError) -> bytes:
    """Seal a whole error answer, unpadded."""
    # The inner status is the error's; outside, the answer is a 200 like any other, so
    # that the relay learns nothing of it (RFC 9458, section 5.2).
    error = tellable(error)
    fields = ((b"content-type", error_type(error)), *error.fields)
    return (
        sealer.begin(error.status, fields)
        + sealer.write(encode_error(error))
        + sealer.finish()
    )


def _that_fails_late(keys: Mapping[int, GatewayKey], message: bytes) -> bytes:
    """Return the message, or one that takes as long to fail.

    A header that names a suite that the key does not offer, and a message that ends
    before its sealed part, would be refused without any decapsulation; the time
    would distinguish them from other failures. Instead, a message of the same length
    is opened whose ``enc`` belongs to no ciphertext. Key ids are distinguishable
    anyway.
    """
    # An empty message names no key; it is timed like one that names ours.
    key = keys.get(message[0]) if message else next(iter(keys.values()), None)
    if key is None:
        return message
    # RFC 9458, section 4.1: key id, KEM, KDF and AEAD are in clear, and can be changed
    # on the way; only what the key offers is opened unchanged.
    suites = key.config.suites()
    header = message[:HEADER_BYTES]
    for suite in suites:
        if header == _header(key.config.key_id, suite):
            if len(message) > HEADER_BYTES + suite.nenc:
                return message
            break
    suite = suites[0]
    # Every public key of a KEM here is at least as long as its enc, and its bytes, used
    # as an enc, open nothing.
    head = _header(key.config.key_id, suite) + key.config.public_key[: suite.nenc]
    return head + message[len(head) :].ljust(2 * suite.nk, b"\0")


def _header(key_id: int, suite: Suite) -> bytes:
    numbers = (suite.kem_id, suite.kdf_id, suite.aead_id)
    return bytes([key_id]) + b"".join(number.to_bytes(2) for number in numbers)


def _suite_of(message: bytes) -> Suite:
    kem_id, kdf_id, aead_id = (
        int.from_bytes(message[start : start + 2]) for start in (1, 3, 5)
    )
    return Suite(kem_id=kem_id, kdf_id=kdf_id, aead_id=aead_id)


_Opened = tuple[bytes, Callable[[Receipting], Sealer | PaddedSealer]]


def _open_plain(
    keys: Mapping[int, GatewayKey], message: bytes, transport: TransportParameters
) -> _Opened:
    # RFC 9458, section 4.3; the response's keys come from the same context (4.4).
    opened = ohttp.open_request(keys, message)
    suite = _suite_of(message)

    # Made when the receipt is known; the release, not the request, selects the kind.
    def make_sealer(receipt: Receipting) -> Sealer | PaddedSealer:
        if transport.shape is Shape.UNSAFE_UNPADDED:
            return PlainSealer(opened.sealer, receipt)
        output = PlainOutput(opened.sealer, transport, suite, receipt)
        return PaddedSealer(transport, output)

    return opened.bhttp, make_sealer


def _open_chunked(
    keys: Mapping[int, GatewayKey], message: bytes, transport: TransportParameters
) -> _Opened:
    # draft-ietf-ohai-chunked-ohttp: the last chunk is sealed as such, so a truncated
    # request does not open at all.
    content, sealer = chunked.open_chunked_request(keys, message)

    def make_sealer(receipt: Receipting) -> Sealer | PaddedSealer:
        if transport.shape is Shape.UNSAFE_UNPADDED:
            return ChunkedSealer(sealer, chunked.MAX_CHUNK_BYTES, receipt)
        return PaddedSealer(transport, ChunkedOutput(sealer, receipt))

    return content, make_sealer


_OPENERS: Final[
    Mapping[
        Form,
        Callable[[Mapping[int, GatewayKey], bytes, TransportParameters], _Opened],
    ]
] = {Form.PLAIN: _open_plain, Form.CHUNKED: _open_chunked}


def _refuse_replay(key: ServerKey, message: bytes) -> None:
    """Refuse a request whose ``enc`` was opened before (RFC 9458, 6.5).

    Comes before the date is checked. A message that is refused for its date has
    been seen: were it not recorded, an attacker who kept it could replay it once its
    date is valid, after the client has sent another in its place.
    """
    suite = _suite_of(message)
    # Refused, not evicted: filling a set that evicts entries would enable a replay.
    if key.replay.is_full:
        raise ChatError(503, "busy", fields=RETRY_LATER)
    if not key.replay.admit(message[HEADER_BYTES : HEADER_BYTES + suite.nenc]):
        raise ChatError(400, "replayed")


def _dispatch(request: bhttp.Request, terms: Terms) -> Asked:
    """Check the only Date, look the target up in an exact table, and parse.

    Only the targets in the table exist.
    """
    # With a window, the replay set need not outlive a key (RFC 9458, section 6.5.1).
    # The refusal contains our time, so that a client whose clock is wrong may use it
    # (section 6.5.2).
    values = _values(request, b"date")
    if len(values) != 1 or not is_in_window(values[0], terms.now):
        fields = ((b"date", format_date(terms.now)), (b"cache-control", b"no-store"))
        raise ChatError(400, "date", fields=fields)
    parsers: dict[bytes, Callable[[bytes], Asked]] = {
        CHAT_PATH: lambda content: parse_chat_completion_request(content, terms.chat)
    }
    # Without padding, a dummy answer has no length that could imitate a real one.
    if terms.transport.shape is Shape.PADDED:
        buckets = terms.transport.buckets
        parsers[COVER_PATH] = lambda content: parse_cover_request(content, buckets)
    if terms.challenge_bucket is not None:
        parsers[CHALLENGE_PATH] = parse_challenge_request
    # Scheme and authority too: a request for another target is not ours.
    target = (request.scheme, request.authority)
    parse = parsers.get(request.path)
    if parse is None or target != (TARGET_SCHEME, TARGET_AUTHORITY):
        raise ChatError(404, "not_found")
    if request.method != b"POST":
        # RFC 9110, section 15.5.6: a 405 must list the allowed methods.
        raise ChatError(405, "method_not_allowed", fields=((b"allow", b"POST"),))
    _validate_fields(request)
    return parse(request.content)


def is_in_window(value: bytes, now: datetime) -> bool:
    """Return whether ``value`` is a date at most ``WINDOW`` away from ``now``.

    Whole seconds are compared, since the field has no others: a request that was in
    time must not be refused because of our clock's fraction.
    """
    # Both ways: a message with a future date would be held back until it is valid.
    moment = parse_date(value)
    return moment is not None and abs(moment - now.replace(microsecond=0)) <= WINDOW


def _validate_fields(request: bhttp.Request) -> None:
    """Check the inner fields that would change what the content means.

    All others are ignored: nothing acts on them and nothing is forwarded.
    """
    # Neither form data nor text: another parser must not read it differently. JSON's
    # implicit charset may be stated.
    named = [each.lower() for each in _values(request, b"content-type")]
    types = [each.replace(b" ", b"") for each in named]
    if types not in ([b"application/json"], [b"application/json;charset=utf-8"]):
        raise ChatError(415, "unsupported_media_type")
    if _values(request, b"content-encoding"):
        raise ChatError(415, "unsupported_media_type")
    if _values(request, b"expect"):
        # RFC 9458, section 5.1: no part of a sealed answer can be sent in time, so a
        # gateway must refuse a request that waits for it.
        raise ChatError(417, "expectation_failed")


def _values(request: bhttp.Request, name: bytes) -> list[bytes]:
    return [value for key, value in request.fields if key == name]
