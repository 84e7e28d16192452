"""Decode binary HTTP as it arrives (RFC 9292, sections 3 and 4).

Both framings, known and indeterminate length. Every length is compared with its
limit before a single byte of it is waited for. Knows shapes and field rules,
not what a message asks for.
"""

from collections.abc import Generator
from typing import Final, Generic, TypeAlias

from curtilage.wire.cursor import Cursor, EventT, PushParser, ReceiveBuffer
from curtilage.wire.errors import (
    LimitExceededError,
    MalformedError,
    TruncatedError,
)
from curtilage.wire.fields import (
    Field,
    join_cookies,
    validate_content_length,
    validate_fields,
    validate_host,
    validate_request_target,
)
from curtilage.wire.messages import (
    DEFAULT_LIMITS,
    ContentChunk,
    Fields,
    InformationalResponse,
    Limits,
    RequestEnd,
    RequestEvent,
    RequestHead,
    ResponseEnd,
    ResponseEvent,
    ResponseHead,
)
from curtilage.wire.varint import pull_varint, read_varint

# RFC 9292, section 3.3.
FRAMING_REQUEST: Final = 0
FRAMING_RESPONSE: Final = 1
FRAMING_INDETERMINATE_REQUEST: Final = 2
FRAMING_INDETERMINATE_RESPONSE: Final = 3

MIN_INFORMATIONAL_STATUS: Final = 100
MIN_FINAL_STATUS: Final = 200
# RFC 9110, section 15: values outside 100..599 are invalid.
MAX_FINAL_STATUS: Final = 599

_Waiting: TypeAlias = Generator[None, None, None]


class _Decoder(Generic[EventT]):
    """Base of the decoders of requests and of responses."""

    __slots__ = ("_parser",)

    def __init__(
        self, buffer: ReceiveBuffer, steps: Generator[EventT | None, None, None]
    ) -> None:
        self._parser = PushParser(buffer, steps)

    def push(self, data: bytes) -> list[EventT]:
        """Take in ``data`` and return the events that it completes.

        An event says nothing about what follows it: a message is valid only
        once ``finish`` has returned.

        Raises:
            MalformedError: the message is invalid (RFC 9292, section 4).
            LimitExceededError: it exceeds one of the limits.
            ConsumedError: an earlier call raised, or ``finish`` was called.
        """
        return self._parser.push(data)

    def finish(self) -> list[EventT]:
        """Declare the end of the message; return the events it completes.

        Raises:
            TruncatedError: the message is not complete.
            ConsumedError: an earlier call raised, or ``finish`` was called.
        """
        return self._parser.finish()


class RequestDecoder(_Decoder[RequestEvent]):
    """Decode one request: a head, any content chunks, one end.

    Args:
        limits: what to accept.
        explicit_end: refuse the truncations of RFC 9292, section 3.8.
    """

    __slots__ = ()

    def __init__(
        self, limits: Limits = DEFAULT_LIMITS, *, explicit_end: bool = True
    ) -> None:
        buffer = ReceiveBuffer(limit_bytes=limits.max_message_bytes)
        super().__init__(buffer, _Parse(buffer, limits, explicit_end).request())


class ResponseDecoder(_Decoder[ResponseEvent]):
    """Decode one response: a head, any content chunks, one end.

    Args:
        limits: what to accept.
        explicit_end: refuse the truncations of RFC 9292, section 3.8. A stream
            that stops behind a complete section looks like one that was cut
            there, so a reader that shows an answer as it arrives needs the marks.
    """

    __slots__ = ()

    def __init__(
        self, limits: Limits = DEFAULT_LIMITS, *, explicit_end: bool = True
    ) -> None:
        buffer = ReceiveBuffer(limit_bytes=limits.max_message_bytes)
        super().__init__(buffer, _Parse(buffer, limits, explicit_end).response())


class _Parse:
    """One message, section by section in the order of RFC 9292, section 3.

    Each section bounds what it waits for; the buffer bounds what is pushed at once.
    """

    __slots__ = (
        "_buffer",
        "_content_bytes",
        "_explicit_end",
        "_indeterminate",
        "_limits",
    )

    def __init__(
        self, buffer: ReceiveBuffer, limits: Limits, explicit_end: bool
    ) -> None:
        self._buffer = buffer
        self._limits = limits
        self._explicit_end = explicit_end
        self._indeterminate = False
        self._content_bytes = 0

    def request(self) -> Generator[RequestEvent | None, None, None]:
        yield from self._framing(FRAMING_REQUEST, FRAMING_INDETERMINATE_REQUEST)
        # Section 3.4: request control data, in this order.
        method = yield from self._control("method")
        scheme = yield from self._control("scheme")
        authority = yield from self._control("authority")
        path = yield from self._control("path")
        validate_request_target(method, scheme, authority, path)
        fields = yield from self._fields(trailers=False)
        validate_host(authority, fields)
        # Joined after they were judged line by line (RFC 9113, section 8.2.3).
        fields = join_cookies(fields)
        yield RequestHead(
            method=method,
            scheme=scheme,
            authority=authority,
            path=path,
            fields=fields,
        )
        yield from self._content()
        # Now that all of it is counted: nothing may be done for a request before its
        # end, so there is no harm in hearing of it late.
        validate_content_length(fields, self._content_bytes)
        yield RequestEnd(trailers=(yield from self._trailers()))
        yield from self._padding()

    def response(self) -> Generator[ResponseEvent | None, None, None]:
        yield from self._framing(FRAMING_RESPONSE, FRAMING_INDETERMINATE_RESPONSE)
        # Section 3.5: response control data, with interim responses ahead of it.
        informational: list[InformationalResponse] = []
        while True:
            status = yield from pull_varint(self._buffer)
            if not MIN_INFORMATIONAL_STATUS <= status <= MAX_FINAL_STATUS:
                raise MalformedError("status code outside 100..599")
            if status >= MIN_FINAL_STATUS:
                break
            # Three bytes make one, so that a response could consist of them.
            if len(informational) == self._limits.max_informational:
                raise LimitExceededError(
                    f"{self._limits.max_informational} interim responses at most"
                )
            fields = yield from self._fields(trailers=False)
            informational.append(InformationalResponse(status=status, fields=fields))
        yield ResponseHead(
            status=status,
            fields=(yield from self._fields(trailers=False)),
            informational=tuple(informational),
        )
        # A response's Content-Length is not compared: after HEAD or with 304 it may
        # rightly differ (RFC 9110, section 8.6), and we do not know what was asked.
        yield from self._content()
        yield ResponseEnd(trailers=(yield from self._trailers()))
        yield from self._padding()

    # Section 3.3: framing indicator.

    def _framing(self, known: int, indeterminate: int) -> _Waiting:
        framing = yield from pull_varint(self._buffer)
        # A request where an answer is due, or the reverse, is a message of somebody
        # who reflects what we sent.
        if framing not in {known, indeterminate}:
            raise MalformedError("framing indicator is not one of this message")
        self._indeterminate = framing == indeterminate

    def _control(self, what: str) -> Generator[None, None, bytes]:
        length = yield from pull_varint(self._buffer)
        # Ahead of the wait, as with every length here: it is a few bytes of a
        # stranger's, and to wait for so many would be to store so many.
        if length > self._limits.max_control_bytes:
            raise LimitExceededError(
                f"{what}: {self._limits.max_control_bytes} bytes at most"
            )
        return (yield from self._buffer.pull(length))

    # Section 3.6: header and trailer field lines.

    def _fields(self, *, trailers: bool) -> Generator[None, None, Fields]:
        if self._indeterminate:
            lines = yield from self._indeterminate_lines()
        else:
            lines = yield from self._known_lines()
        # Before anybody sees one of them: CR, LF or NUL in a value becomes another
        # line wherever the message is written out as HTTP/1.1 (RFC 9292, section 3.6).
        validate_fields(lines, trailers=trailers)
        return tuple(lines)

    def _known_lines(self) -> Generator[None, None, list[Field]]:
        length = yield from pull_varint(self._buffer)
        self._check_section(length)
        section = Cursor((yield from self._buffer.pull(length)))
        lines: list[Field] = []
        try:
            while section.remaining:
                self._check_count(lines)
                name = section.take(read_varint(section))
                lines.append((name, section.take(read_varint(section))))
        except TruncatedError:
            # The section is here in full: more bytes would not mend it.
            raise MalformedError("field line runs past its section") from None
        return lines

    def _indeterminate_lines(self) -> Generator[None, None, list[Field]]:
        lines: list[Field] = []
        total = 0
        # The section's length is unknown: its bound is enforced as it grows, first by
        # the name's length, then by the value's, each before it is waited for.
        while name_length := (yield from pull_varint(self._buffer)):
            self._check_count(lines)
            self._check_section(total + name_length)
            name = yield from self._buffer.pull(name_length)
            value_length = yield from pull_varint(self._buffer)
            total += name_length + value_length
            self._check_section(total)
            lines.append((name, (yield from self._buffer.pull(value_length))))
        return lines

    def _check_section(self, length: int) -> None:
        if length > self._limits.max_section_bytes:
            raise LimitExceededError(
                f"field section: {self._limits.max_section_bytes} bytes at most"
            )

    def _check_count(self, lines: list[Field]) -> None:
        # Bytes alone do not bound them: a line costs three, and two objects here.
        if len(lines) == self._limits.max_fields:
            raise LimitExceededError(
                f"field section: {self._limits.max_fields} lines at most"
            )

    # Section 3.7: content.

    def _content(self) -> Generator[ContentChunk | None, None, None]:
        if (yield from self._ends_here()):
            return
        if not self._indeterminate:
            yield from self._pieces((yield from pull_varint(self._buffer)))
            return
        # Chunks carry no meaning, only a cost; a length of 0 is the end.
        chunks = 0
        while length := (yield from pull_varint(self._buffer)):
            chunks += 1
            if chunks > self._limits.max_content_chunks:
                raise LimitExceededError(
                    f"content: {self._limits.max_content_chunks} chunks at most"
                )
            yield from self._pieces(length)

    def _pieces(self, length: int) -> Generator[ContentChunk | None, None, None]:
        # Of all chunks together: many small ones are as much content as one large.
        self._content_bytes += length
        if self._content_bytes > self._limits.max_content_bytes:
            raise LimitExceededError(
                f"content: {self._limits.max_content_bytes} bytes at most"
            )
        # Passed on as it arrives, so that an answer is shown while it is generated;
        # only the end shows whether it was complete.
        while length:
            piece = self._buffer.take_at_most(length)
            length -= len(piece)
            if piece:
                yield ContentChunk(data=piece)
            else:
                yield from self._buffer.wait()

    def _trailers(self) -> Generator[None, None, Fields]:
        if (yield from self._ends_here()):
            return ()
        return (yield from self._fields(trailers=True))

    # Section 3.8: padding and truncation.

    def _ends_here(self) -> Generator[None, None, bool]:
        """Wait for a byte; say whether the message is truncated instead.

        "If the trailers of a message are empty, they MAY be omitted [...]. An
        encoder MAY omit empty content in the same way if the trailers are also
        empty." These are the two places that ask.
        """
        while not len(self._buffer):
            if self._buffer.ended and not self._explicit_end:
                return True
            yield from self._buffer.wait()
        return False

    def _padding(self) -> _Waiting:
        total = 0
        while True:
            piece = self._buffer.take_at_most(self._limits.max_padding_bytes + 1)
            total += len(piece)
            if total > self._limits.max_padding_bytes:
                raise LimitExceededError(
                    f"padding: {self._limits.max_padding_bytes} bytes at most"
                )
            # Section 3.8: what is not zero is not padding. Accepted, it would be a
            # place in a message that no reader checks.
            if piece.count(0) != len(piece):
                raise MalformedError("padding is not zero")
            if self._buffer.ended:
                return
            yield None
