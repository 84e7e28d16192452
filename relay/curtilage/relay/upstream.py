"""Connections to the gateways, shared by all clients.

Writes request heads of its own; of an answer it reads only status, type, length and
content. Follows no redirect, keeps no cookie, decompresses nothing, sends nothing
twice. A free connection serves the next request: no connection belongs to a client.

aiohttp's parser and protocol are used unchanged; its session is not: everything that
it adds to a request would have to be turned off, and costs more than the rest together.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from types import TracebackType
from typing import Final

from aiohttp import ClientError, EofStream, StreamReader
from aiohttp.client_proto import ResponseHandler
from aiohttp.http import HttpProcessingError, RawResponseMessage
from typing_extensions import override

from curtilage.relay import forward
from curtilage.relay.body import Sink
from curtilage.relay.config import RelayConfig
from curtilage.relay.forward import Passage
from curtilage.relay.pool import Dial, Pool, make_target
from curtilage.relay.refusals import Refusal, RefusedError
from curtilage.relay.tls import make_client_context

MAX_FIELD_BYTES: Final = 8190
MAX_FIELDS: Final = 64
MAX_INTERIM_ANSWERS: Final = 8
"""1xx answers skipped before a request's final one; a gateway sends no more."""
READ_BUFFER_BYTES: Final = 16 * 1024
"""Up to twice as much is buffered of an answer whose client does not read."""
FIRST_FINAL: Final = 200
SWITCHING: Final = 101


class Connection(ResponseHandler):
    """One connection to a gateway."""

    def __init__(self, loop: asyncio.AbstractEventLoop, silence_s: float) -> None:
        super().__init__(loop)
        self._silence_s = silence_s
        self._heard_at = 0.0
        self._watch: asyncio.TimerHandle | None = None
        self._watched = False
        self._notify: Callable[[], None] | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self.idle_since = 0.0
        self.expired = False

    @override
    def data_received(self, data: bytes) -> None:
        """Parse; pass on the result in the same turn of the loop."""
        super().data_received(data)
        # Empty if the parser is only resumed after a pause: then the gateway sent
        # nothing.
        if data and self._watched:
            self._heard_at = self._loop.time()
            if self._notify is not None:
                self._notify()

    @override
    def resume_reading(self, resume_parser: bool = True) -> None:
        """Resume reading if it was paused; aiohttp calls this after every read."""
        if self._reading_paused:
            super().resume_reading(resume_parser)

    @override
    def connection_lost(self, exc: BaseException | None) -> None:
        """Signal the end to readers and writers that wait."""
        if self._watch is not None:
            self._watch.cancel()
        # A sender that waits for room must wake up, and fail on its next piece.
        self._writable.set()
        super().connection_lost(exc)
        if self._notify is not None:
            self._notify()

    @override
    def pause_writing(self) -> None:
        """Pause writing: the gateway does not read."""
        super().pause_writing()
        self._writable.clear()

    @override
    def resume_writing(self) -> None:
        """Resume writing."""
        super().resume_writing()
        self._writable.set()

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Prepare for answers; one parser reads them all."""
        super().connection_made(transport)
        self.set_response_params(
            # Without a length or chunks there is no content: an end by closing looks
            # like a truncation, and ``forward`` refuses such an answer.
            read_until_eof=False,
            # A kilobyte may decompress to gigabytes; ``forward`` refuses any coding.
            auto_decompress=False,
            read_timeout=None,  # our own timer costs nothing per piece
            read_bufsize=READ_BUFFER_BYTES,
            max_line_size=MAX_FIELD_BYTES,
            max_field_size=MAX_FIELD_BYTES,
            max_headers=MAX_FIELDS,
        )

    def send(self, data: bytes) -> None:
        """Write, at once.

        Raises:
            ConnectionError: the gateway is gone.
        """
        # asyncio would drop it silently, and the request would seem to be sent.
        if self.transport is None or self.transport.is_closing():
            raise ConnectionResetError
        self.transport.write(data)

    async def sent(self) -> None:
        """Wait until the gateway reads again."""
        if not self._writable.is_set():
            await self._writable.wait()

    async def head(self) -> tuple[RawResponseMessage, StreamReader]:
        """Return the answer's head and content; interim answers are skipped."""
        # RFC 9110, section 15.2: a client must be able to skip 1xx. Not for ever: a
        # gateway that sends nothing else would hold a place that others wait for.
        for _ in range(MAX_INTERIM_ANSWERS):
            message, content = await self.read()
            if message.code >= FIRST_FINAL:
                return message, content
            if message.code == SWITCHING:
                # What follows is another protocol, which we did not ask for.
                break
        raise RefusedError(Refusal.GATEWAY_ANSWER)

    def listen(self, notify: Callable[[], None]) -> None:
        """Call this when there may be more to read."""
        self._notify = notify

    def watch(self) -> None:
        """End the exchange if the gateway stays silent for too long from now."""
        # One timer checks again when it is due; cancelling and setting one for each
        # piece would cost more than passing the piece on.
        self._heard_at = self._loop.time()
        self._watched = True
        if self._watch is None:
            self._watch = self._loop.call_later(self._silence_s, self._look)

    @property
    def usable(self) -> bool:
        """Whether a request may be sent."""
        # Not if bytes of an answer are left, or more arrived than was requested: the
        # next client would receive them.
        return self.is_connected() and not self.should_close

    def free(self) -> None:
        """End the watches of one request; the timer notices it by itself."""
        self._watched = False
        self._notify = None

    def cut(self) -> None:
        """End the connection and notify its reader; ``abort`` does not notify."""
        if self.transport is not None:
            self.transport.abort()

    def _look(self) -> None:
        self._watch = None
        if not self._watched:
            return
        # A gateway that we have paused, for a client that reads slowly, cannot send;
        # its silence is ours.
        if self._reading_paused:
            self._heard_at = self._loop.time()
        left_s = self._heard_at + self._silence_s - self._loop.time()
        if left_s > 0:
            self._watch = self._loop.call_later(left_s, self._look)
            return
        self.expired = True
        self.cut()


class UpstreamAnswer:
    """A gateway's answer whose head may pass.

    Args:
        connection: where it comes from.
        pool: takes the connection back when the answer was read to its end.
        message: its head.
        content: its content.
        sending: the task that still sends the request, if that has not ended.

    Attributes:
        head: the part of it that may pass.

    Raises:
        RefusedError: it must not pass.
    """

    def __init__(
        self,
        connection: Connection,
        pool: Pool[Connection],
        *,
        message: RawResponseMessage,
        content: StreamReader,
        sending: "asyncio.Task[None] | None" = None,
    ) -> None:
        self._connection = connection
        self._pool = pool
        self._content = content
        self._sending = sending
        self._sink: Sink | None = None
        self._over: asyncio.Future[None] | None = None
        self._taken = 0
        self._most = 0
        self._busy = False
        self.head = forward.admit_answer(
            message.code, forward.index(message.raw_headers)
        )

    async def whole(self, max_bytes: int) -> bytes:
        """Read the content to its end.

        Raises:
            RefusedError: too large, too slow or truncated.
        """
        with _as_refusal(self._connection):
            return await _read(self._content, max_bytes)

    async def pass_on(self, sink: Sink, max_bytes: int) -> None:
        """Write the content into ``sink`` as it arrives, piece by piece.

        Raises:
            RefusedError: too large, too slow or truncated.
        """
        self._sink, self._most = sink, max_bytes
        with _as_refusal(self._connection):
            over = self._write()
            # If there is no piece yet, the head is sent alone: what has arrived is
            # passed on (RFC 10036, section 3), and a client learns that its request was
            # accepted.
            sink.flush()
            if over:
                return
            self._over = asyncio.get_running_loop().create_future()
            self._connection.listen(self.resume)
            self.resume()
            await self._over

    def resume(self) -> None:
        """Write what has arrived, as far as the sink takes it."""
        over = self._over
        # Reading resumes the parser, which may call this again.
        if self._busy or over is None or over.done():
            return
        self._busy = True
        try:
            if self._write():
                over.set_result(None)
        except Exception as error:  # noqa: BLE001 - raised again by pass_on
            over.set_exception(error)
        finally:
            self._busy = False

    def close(self) -> None:
        """Release the connection; it is pooled if the answer was read to its end."""
        if self._over is not None:
            self._over.cancel()
        # Only a connection with nothing left of this exchange may serve another client:
        # late data would be read as that client's answer.
        whole = self._content.is_eof()
        if self._sending is not None and not self._sending.done():
            self._sending.cancel()
            whole = False
        self._pool.put_back(self._connection, reusable=whole)

    def _write(self) -> bool:
        """Write what has arrived; return whether that was all."""
        content, sink = self._content, self._sink
        while sink is not None and not sink.full:
            piece = content.read_nowait()
            # By what arrived, not by what was announced: chunks announce nothing.
            self._taken += len(piece)
            if self._taken > self._most:
                raise RefusedError(Refusal.GATEWAY_ANSWER)
            if piece:
                sink.write(piece)
            if content.at_eof():
                return True
            # Truncated: ending the client's answer here would make it look complete.
            if not self._connection.connected:
                raise ConnectionResetError
            if not piece or self._taken == content.total_bytes:
                return False
        return False


class Upstreams:
    """The pools that all clients share: one for each gateway.

    Args:
        config: the gateways and the limits.

    Raises:
        StartError: the certificate file cannot be used.
    """

    def __init__(self, config: RelayConfig) -> None:
        # One context for all gateways, which verifies names. It keeps attackers off the
        # line; what a client trusts is the key that it sealed to.
        tls = make_client_context(config.upstream_ca_file)
        self._limits = config.limits
        self._hosts: dict[str, str] = {}
        self._pools: dict[str, Pool[Connection]] = {}
        for name, upstream in config.gateways.items():
            target = make_target(upstream, tls)
            self._hosts[name] = target.host
            self._pools[name] = Pool(
                partial(_open, target.dial, config.limits.upstream_read_timeout_s),
                connect_timeout_s=config.limits.connect_timeout_s,
            )

    async def fetch(
        self, gateway: str, *, path: str, media_type: str, max_bytes: int
    ) -> bytes:
        """Fetch keys or bundle, whole.

        Raises:
            RefusedError: unreachable, slow, too large or of another type.
        """
        pool = self._pools[gateway]
        request = forward.copy_request(path, host=self._hosts[gateway])
        try:
            # For the whole fetch: a slow copy would keep all waiting clients.
            async with asyncio.timeout(self._limits.fetch_timeout_s):
                connection = await pool.take()
                whole = False
                try:
                    with _as_refusal(connection):
                        connection.send(request)
                        connection.watch()
                        message, content = await connection.head()
                        fields = forward.index(message.raw_headers)
                        forward.admit_copy(message.code, fields, media_type=media_type)
                        value = await _read(content, max_bytes)
                    whole = True
                    return value
                finally:
                    pool.put_back(connection, reusable=whole)
        except TimeoutError:
            raise RefusedError(Refusal.GATEWAY_TIMEOUT) from None

    async def ask(self, passage: Passage, content: bytes) -> UpstreamAnswer:
        """Send a request, once, and return the answer's head.

        Args:
            passage: the request.
            content: its content, whole.

        Raises:
            RefusedError: unreachable, slow, or an answer that may not pass.
        """
        gateway = passage.route.gateway
        pool, host = self._pools[gateway], self._hosts[gateway]
        head = forward.request_head(passage, host=host, length=len(content))
        # Sent once: after a failure it is unknown whether the gateway opened it, and to
        # its replay protection a second copy is an attack. RFC 9458, section 6.5: a
        # relay must not retry by itself.
        connection = await pool.take()
        try:
            with _as_refusal(connection):
                connection.send(head + content)
                connection.watch()
                message, answered = await connection.head()
            return UpstreamAnswer(connection, pool, message=message, content=answered)
        except BaseException:
            pool.put_back(connection, reusable=False)
            raise

    async def ask_in_pieces(
        self, passage: Passage, pieces: AsyncIterator[bytes]
    ) -> UpstreamAnswer:
        """Send a request, once, as it arrives, and return the answer's head.

        The answer may begin before the request ends; the rest of the request is then
        sent concurrently.

        Args:
            passage: the request.
            pieces: its content; their exceptions are raised here, or end the answer.

        Raises:
            RefusedError: unreachable, slow, or an answer or a request that must not
                pass.
        """
        gateway = passage.route.gateway
        pool, host = self._pools[gateway], self._hosts[gateway]
        length = passage.content_length
        head = forward.request_head(passage, host=host, length=length)
        connection = await pool.take()

        def cut_if_broken(task: "asyncio.Task[None]") -> None:
            """Cut the connection where sending failed.

            A request that breaks off here must not look complete to the gateway, nor
            the answer to a part of it to the client.
            """
            if not task.cancelled() and task.exception() is not None:
                connection.cut()

        sending = asyncio.create_task(
            _send_pieces(connection, head, pieces, chunked=length is None)
        )
        sending.add_done_callback(cut_if_broken)
        heading = asyncio.create_task(connection.head())
        heading.add_done_callback(_seen)
        try:
            # Either may come first: a gateway may refuse what it has half read.
            await asyncio.wait({sending, heading}, return_when=asyncio.FIRST_COMPLETED)
            with _as_refusal(connection):
                if not heading.done():
                    await sending
                # From here on the gateway has everything, and its silence is its own.
                connection.watch()
                message, content = await heading
            return UpstreamAnswer(
                connection, pool, message=message, content=content, sending=sending
            )
        except BaseException:
            # Any end but an answer, including a client that disconnects, ends both
            # directions and makes the connection unusable: half a request is on it.
            heading.cancel()
            sending.cancel()
            pool.put_back(connection, reusable=False)
            raise

    def close(self) -> None:
        """Close every connection."""
        for pool in self._pools.values():
            pool.close()


class _as_refusal:  # noqa: N801 - reads as a statement
    """Turn exceptions of aiohttp and the system into a refusal, without their text."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        """Enter."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Replace the exception."""
        if not isinstance(
            error, ClientError | HttpProcessingError | EofStream | OSError
        ):
            return
        # Our own watch ended the connection: the error is only its consequence.
        if self._connection.expired:
            raise RefusedError(Refusal.GATEWAY_TIMEOUT) from None
        if isinstance(error, TimeoutError):
            return  # a deadline set by the caller, which handles it
        raise RefusedError(Refusal.GATEWAY_ANSWER) from None


async def _open(dial: Dial, silence_s: float) -> Connection:
    connection = Connection(asyncio.get_running_loop(), silence_s)
    await dial(lambda: connection)
    return connection


async def _send_pieces(
    connection: Connection,
    head: bytes,
    pieces: AsyncIterator[bytes],
    *,
    chunked: bool,
) -> None:
    connection.send(head)
    async for piece in pieces:
        # In chunks of our own; the client's chunk extensions and sizes are dropped.
        connection.send(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
        # The client is read no faster than its gateway reads: else we would buffer it.
        await connection.sent()
    if chunked:
        connection.send(b"0\r\n\r\n")


def _seen(task: "asyncio.Task[tuple[RawResponseMessage, StreamReader]]") -> None:
    if not task.cancelled():
        task.exception()  # retrieved, also when the request failed before it


async def _read(content: StreamReader, max_bytes: int) -> bytes:
    pieces: list[bytes] = []
    left = max_bytes
    while piece := await content.readany():
        # As it arrives: a gateway need not keep to the length that it announces.
        left -= len(piece)
        if left < 0:
            raise RefusedError(Refusal.GATEWAY_ANSWER)
        pieces.append(piece)
    return b"".join(pieces)
