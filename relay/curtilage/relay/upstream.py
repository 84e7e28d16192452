"""Connections to the gateways, shared by all clients.

Writes heads of our own making; takes of an answer its status, type, length and
content alone. Follows no redirect, keeps no cookie, decompresses nothing, sends
nothing twice. A free connection serves the next request: none is one client's.

aiohttp's parser and protocol are used as they are; its session is not: all that it
adds to a request has to be switched off, and costs more than the rest together.
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
"""1xx answers skipped before one request's; more are no gateway's."""
READ_BUFFER_BYTES: Final = 16 * 1024
"""Twice that is kept of an answer whose client does not read."""
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
        """Parse; pass on what came of it, in the same turn of the loop."""
        super().data_received(data)
        # With nothing in it where the parser is only let go on after a pause: then no
        # gateway was heard.
        if data and self._watched:
            self._heard_at = self._loop.time()
            if self._notify is not None:
                self._notify()

    @override
    def resume_reading(self, resume_parser: bool = True) -> None:
        """Go on, if reading was paused; aiohttp asks after every read."""
        if self._reading_paused:
            super().resume_reading(resume_parser)

    @override
    def connection_lost(self, exc: BaseException | None) -> None:
        """Let those who wait, to read or to write, see that the end has come."""
        if self._watch is not None:
            self._watch.cancel()
        # A sender that waits for room must wake up, and fail on its next piece.
        self._writable.set()
        super().connection_lost(exc)
        if self._notify is not None:
            self._notify()

    @override
    def pause_writing(self) -> None:
        """Hold back: the gateway does not read."""
        super().pause_writing()
        self._writable.clear()

    @override
    def resume_writing(self) -> None:
        """Go on."""
        super().resume_writing()
        self._writable.set()

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Get ready for answers; one parser reads them all."""
        super().connection_made(transport)
        self.set_response_params(
            # Without a length or chunks nothing is content: an end by closing looks
            # like a cut, and ``forward`` refuses such an answer.
            read_until_eof=False,
            # A kilobyte may decompress to gigabytes; ``forward`` refuses any coding.
            auto_decompress=False,
            read_timeout=None,  # ours costs nothing for each piece
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
        # asyncio would drop it in silence, and the request would look as if sent.
        if self.transport is None or self.transport.is_closing():
            raise ConnectionResetError
        self.transport.write(data)

    async def sent(self) -> None:
        """Wait until the gateway reads on."""
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
                # What follows is another protocol, which nobody asked for.
                break
        raise RefusedError(Refusal.GATEWAY_ANSWER)

    def listen(self, notify: Callable[[], None]) -> None:
        """Call this whenever there may be more to read."""
        self._notify = notify

    def watch(self) -> None:
        """End the exchange when the gateway stays silent for too long from now."""
        # One timer looks again when it is due; to cancel and set one for each piece
        # would cost more than to pass it on.
        self._heard_at = self._loop.time()
        self._watched = True
        if self._watch is None:
            self._watch = self._loop.call_later(self._silence_s, self._look)

    @property
    def usable(self) -> bool:
        """Whether a request may be sent."""
        # Not where octets of an answer are left, or more came than was asked for: the
        # next client would be given them.
        return self.is_connected() and not self.should_close

    def free(self) -> None:
        """End one request's watches; the timer is left to find that out."""
        self._watched = False
        self._notify = None

    def cut(self) -> None:
        """End the connection so that its reader learns of it; ``abort`` is silent."""
        if self.transport is not None:
            self.transport.abort()

    def _look(self) -> None:
        self._watch = None
        if not self._watched:
            return
        # A gateway that we hold back, for a client that reads slowly, cannot be heard;
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
        sending: still passes the request on, where that has not ended.

    Attributes:
        head: what may pass of it.

    Raises:
        RefusedError: it may not pass.
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
            RefusedError: too large, too slow or cut.
        """
        with _as_refusal(self._connection):
            return await _read(self._content, max_bytes)

    async def pass_on(self, sink: Sink, max_bytes: int) -> None:
        """Write the content into ``sink`` as it comes, piece by piece.

        Raises:
            RefusedError: too large, too slow or cut.
        """
        self._sink, self._most = sink, max_bytes
        with _as_refusal(self._connection):
            over = self._write()
            # With no piece yet the head goes alone: what is there goes on (RFC 10036,
            # section 3), and a client learns that its request was taken.
            sink.flush()
            if over:
                return
            self._over = asyncio.get_running_loop().create_future()
            self._connection.listen(self.resume)
            self.resume()
            await self._over

    def resume(self) -> None:
        """Write what is there, as far as the sink takes it."""
        over = self._over
        # Reading lets the parser go on, which may come here again.
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
        """Let go; a connection whose answer was read to its end is pooled."""
        if self._over is not None:
            self._over.cancel()
        # Only a connection on which nothing of this exchange is left may serve another
        # client: what came late would be taken for that one's answer.
        whole = self._content.is_eof()
        if self._sending is not None and not self._sending.done():
            self._sending.cancel()
            whole = False
        self._pool.put_back(self._connection, reusable=whole)

    def _write(self) -> bool:
        """Write what is there; return whether that was all."""
        content, sink = self._content, self._sink
        while sink is not None and not sink.full:
            piece = content.read_nowait()
            # By what came, not by what was announced: chunks announce nothing.
            self._taken += len(piece)
            if self._taken > self._most:
                raise RefusedError(Refusal.GATEWAY_ANSWER)
            if piece:
                sink.write(piece)
            if content.at_eof():
                return True
            # Cut before its end: to end the client's answer here would forge that end.
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
        # One context for all gateways, and it verifies names. It keeps strangers off
        # the line; what a client trusts is the key that it sealed to.
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
            # Over all of it: a copy that drips would keep everybody who asks waiting.
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
        # Sent once: after a failure nobody knows whether the gateway opened it, and to
        # its replay protection a second copy is an attack. RFC 9458, section 6.5: a
        # relay must not try again by itself.
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
        """Send a request, once, as it comes, and return the answer's head.

        The answer may begin before the request ends; what is left of the
        request then goes on at the same time.

        Args:
            passage: the request.
            pieces: its content; what they raise is raised here, or cuts the answer.

        Raises:
            RefusedError: unreachable, slow, an answer that may not pass, or a
                request that may not.
        """
        gateway = passage.route.gateway
        pool, host = self._pools[gateway], self._hosts[gateway]
        length = passage.content_length
        head = forward.request_head(passage, host=host, length=length)
        connection = await pool.take()

        def cut_if_broken(task: "asyncio.Task[None]") -> None:
            # A request that breaks off here must not look whole there, and the
            # answer to a part of it must not look whole to anybody.
            if not task.cancelled() and task.exception() is not None:
                connection.cut()

        sending = asyncio.create_task(
            _send_pieces(connection, head, pieces, chunked=length is None)
        )
        sending.add_done_callback(cut_if_broken)
        heading = asyncio.create_task(connection.head())
        heading.add_done_callback(_seen)
        try:
            # Either may come first: a gateway may refuse what it has read half of.
            await asyncio.wait({sending, heading}, return_when=asyncio.FIRST_COMPLETED)
            with _as_refusal(connection):
                if not heading.done():
                    await sending
                # From here on the gateway has all, and its silence is its own.
                connection.watch()
                message, content = await heading
            return UpstreamAnswer(
                connection, pool, message=message, content=content, sending=sending
            )
        except BaseException:
            # Any end but an answer, the client's own going away included, ends both
            # ways and spoils the connection: half a request is on it.
            heading.cancel()
            sending.cancel()
            pool.put_back(connection, reusable=False)
            raise

    def close(self) -> None:
        """Close every connection."""
        for pool in self._pools.values():
            pool.close()


class _as_refusal:  # noqa: N801 - reads as a statement
    """Turn what aiohttp and the system raise into a refusal, without its words."""

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
        """Replace what was raised."""
        if not isinstance(
            error, ClientError | HttpProcessingError | EofStream | OSError
        ):
            return
        # Our own watch cut the line: the error is only how that looks from here.
        if self._connection.expired:
            raise RefusedError(Refusal.GATEWAY_TIMEOUT) from None
        if isinstance(error, TimeoutError):
            return  # a deadline around us, which its owner words
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
        # In chunks of our own making; the client's extensions and sizes stop here.
        connection.send(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
        # The client is read no faster than its gateway reads: else we would store it.
        await connection.sent()
    if chunked:
        connection.send(b"0\r\n\r\n")


def _seen(task: "asyncio.Task[tuple[RawResponseMessage, StreamReader]]") -> None:
    if not task.cancelled():
        task.exception()  # looked at, also when the request failed before it


async def _read(content: StreamReader, max_bytes: int) -> bytes:
    pieces: list[bytes] = []
    left = max_bytes
    while piece := await content.readany():
        # As it comes: what a gateway announces it need not keep to.
        left -= len(piece)
        if left < 0:
            raise RefusedError(Refusal.GATEWAY_ANSWER)
        pieces.append(piece)
    return b"".join(pieces)
