"""Known mistakes of other gateways, and egress: none is possible."""

import asyncio
import gc
import socket
import sys
import tracemalloc
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from curtilage import enclave_server
from curtilage.enclave_server.config import Limits
from curtilage.enclave_server.http.binding import bind
from curtilage.enclave_server.http.server import EnclaveServer
from curtilage.enclave_server.ohttp.chat import ChatLimits
from curtilage.enclave_server.ohttp.gateway import (
    TARGET_AUTHORITY,
    Form,
    Terms,
    open_exchange,
)
from curtilage_dev.scripted_engine import Script
from support.enclave_parts import (
    CHUNKED,
    LOOPBACK,
    NOW,
    PLAIN,
    QUICK,
    Parts,
    ask,
    chat_body,
    connect,
    dated,
    exchange,
    get,
    inner_request,
    make_parts,
    post,
    read_answer,
    seal,
    serving,
    until,
)
from support.virtual_time import VirtualTime

FORMS = [PLAIN, CHUNKED]
CANARY = "canary-90c1"
MEBIBYTE = 1024 * 1024
OUTWARD = {
    "socket.connect",
    "socket.sendto",
    "socket.sendmsg",
    "socket.getaddrinfo",
    "socket.gethostbyname",
    "subprocess.Popen",
    "os.system",
    "os.exec",
    "os.posix_spawn",
}


class AuditHook:
    """Records this process's effects on the outside while it is ``on``."""

    def __init__(self) -> None:
        self.on = False
        self.seen: list[str] = []

    def __call__(self, event: str, arguments: tuple[object, ...]) -> None:
        if self.on and event in OUTWARD:
            self.seen.append(f"{event} {arguments[1:]!r}")
            raise PermissionError(event)

    @contextmanager
    def watching(self) -> Generator[list[str]]:
        self.seen, self.on = [], True
        try:
            yield self.seen
        finally:
            self.on = False


HOOK = AuditHook()
sys.addaudithook(HOOK)


async def timed_parts(*scripts: Script) -> Parts:
    return await make_parts(*scripts, transport=QUICK, timer=VirtualTime().timer)


def by_hand(
    *,
    method: bytes = b"POST",
    scheme: bytes = b"https",
    authority: bytes = b"curtilage.invalid",
    path: bytes = b"/v1/chat/completions",
) -> bytes:
    """Encode what our own encoder refuses: no fields, no content."""
    parts = (method, scheme, authority, path)
    return b"\0" + b"".join(bytes([len(each)]) + each for each in parts)


def targets() -> dict[str, bytes]:
    """The address that would be fetched, if anything were."""
    authorities = [
        *(b"example.com", b"127.0.0.1", b"10.0.0.1", b"169.254.169.254", b"[::1]"),
        *(b"[::ffff:127.0.0.1]", b"2130706433", b"0177.0.0.1", b"0x7f.1", b"localhost"),
        *(b"user@example.com", b"example.com:25", b"xn--e1afmkfd.example"),
    ]
    inner = {
        authority.decode(): by_hand(authority=authority, path=b"/")
        for authority in authorities
    }
    for path in (b"http://example.com/", b"//example.com/", b"@example.com", b"*"):
        inner[path.decode()] = by_hand(path=path)
    for scheme in (b"http", b"file", b"ftp", b"unix"):
        inner[scheme.decode()] = by_hand(scheme=scheme, path=b"/etc/passwd")
    inner["forwarded"] = inner_request(
        fields=(*dated(), (b"forwarded", b"host=example.com"), (b"x-url", b"//a.b"))
    )
    return inner


async def test_no_outbound_socket_exists_while_answering() -> None:
    parts = await timed_parts()
    raw = [post(seal(parts.key, inner).message) for inner in targets().values()]
    raw += [
        post(seal(parts.key, form=form).message, content_type=form) for form in FORMS
    ]
    raw.append(post(seal(parts.key, inner_request(b'{"bucket":0}')).message))
    raw += [get("/healthz"), get("/ohttp-keys"), post(b"garbage")]
    async with serving(parts) as address:
        # Our own are connected before connecting is blocked.
        streams = [await connect(address) for _ in raw]
        with HOOK.watching() as seen:
            for data, (_, writer) in zip(raw, streams, strict=True):
                writer.write(data)
            answers = [await read_answer(reader) for reader, _ in streams]
        for _, writer in streams:
            writer.close()
    assert seen == []
    assert {answer.status for answer in answers} == {200, 422}
    # Only the chat requests succeeded: the two forms, and other fields.
    assert len(parts.engine.requests) == 3


def test_the_watch_sees_a_connection() -> None:
    with (
        HOOK.watching() as seen,
        socket.socket() as caller,
        pytest.raises(PermissionError),
    ):
        caller.connect(("127.0.0.1", 9))
    assert seen == ["socket.connect (('127.0.0.1', 9),)"]


def test_no_module_knows_how_to_connect_but_to_evidence_and_an_engine() -> None:
    words = (
        *("open_connection", "create_connection", "ClientSession", "urlopen"),
        *("open_unix_connection", "create_unix_connection", "import socket"),
        *("create_datagram_endpoint", ".connect("),
        *("sock_connect", "getaddrinfo", "subprocess", "import http"),
    )
    found = {
        (path.name, word)
        for path in Path(enclave_server.__path__[0]).rglob("*.py")
        for word in words
        if path.parent.name != "stapler"  # another program, which fetches
        and word in path.read_text("utf-8")
    }
    assert found == {
        ("report.py", "create_unix_connection"),
        # Binds what is listened on.
        ("binding.py", "import socket"),
        # Imported only with ``engine = "openai"``: to a server on this machine.
        ("peer.py", "ClientSession"),
        ("peer.py", "sock_connect"),
    }


def test_default_target_is_unroutable() -> None:
    """openpcc/ohttp: a default allow-list that allows nothing real (kept)."""
    assert TARGET_AUTHORITY.endswith(b".invalid")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "inner",
    [
        b"",
        b"\x04",
        inner_request(path=b"/v1/models"),
        inner_request(b"{"),
        inner_request(fields=()),
        by_hand(method=b"GET /x HTTP/1.1\r\n"),
    ],
    ids=["empty", "framing", "path", "json", "fields", "method"],
)
async def test_error_after_decapsulation_is_encapsulated(
    form: str, inner: bytes
) -> None:
    """cloudflare/privacy-gateway #19, netty: reported in plain text outside."""
    parts = await timed_parts()
    sealed = seal(parts.key, inner, form=form)
    async with serving(parts) as address:
        answer = await ask(address, sealed)
    assert answer.status == 200
    assert answer.values("Content-Type") == [form.replace("req", "res")]
    assert sealed.open(answer.body).status >= 400


async def test_replay_is_defended_against() -> None:
    """cloudflare/privacy-gateway: a replay is answered for ever."""
    parts = await timed_parts()
    raw = post(seal(parts.key).message)
    async with serving(parts) as address:
        for _ in range(5):
            await exchange(address, raw)
    assert len(parts.engine.requests) == 1


@pytest.mark.parametrize("framed", ["length", "chunks"])
async def test_post_of_100_megabytes_is_not_held(framed: str) -> None:
    """cloudflare/privacy-gateway: 9 to 222 MB of memory for one POST."""
    parts = await timed_parts()
    piece = bytes(64 * 1024)
    async with serving(parts) as address:
        reader, writer = await connect(address)
        tracemalloc.start()
        try:
            if framed == "length":
                writer.write(post(b"", length=100 * MEBIBYTE))
            else:
                writer.write(post(b"", fields=["Transfer-Encoding: chunked"]))
            answer = asyncio.create_task(read_answer(reader))
            await send_until(writer, answer, piece, framed)
            assert (await answer).status == 413
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        writer.close()
    assert peak < 8 * MEBIBYTE


async def send_until(
    writer: asyncio.StreamWriter, answer: "asyncio.Task[object]", piece: bytes, how: str
) -> None:
    size = f"{len(piece):x}\r\n".encode()
    sent = size + piece + b"\r\n" if how == "chunks" else piece
    for _ in range(100 * MEBIBYTE // len(piece)):
        if answer.done():
            return
        try:
            writer.write(sent)
            await writer.drain()
        except ConnectionError:
            return


async def test_silent_client_is_not_waited_for() -> None:
    """cloudflare/privacy-gateway: no timeout for a client."""
    parts = await make_parts(limits=Limits(header_s=1))
    async with serving(parts) as address, asyncio.timeout(20):
        reader, writer = await connect(address)
        writer.write(b"POST /.well-known/ohttp-gateway HTTP/1.1\r\n")
        assert await reader.read() == b""
        writer.close()


@pytest.mark.parametrize("place", ["method", "scheme", "authority", "path"])
@pytest.mark.parametrize("text", [b"a\r\nx: y", b"a b", b"a\0b", b"a\nb"])
async def test_control_data_injects_nothing(place: str, text: bytes) -> None:
    """netty: CR and LF in method, scheme, authority and path were passed on."""
    parts = await timed_parts()
    sealed = seal(parts.key, by_hand(**{place: text}))
    async with serving(parts) as address:
        response = sealed.open((await ask(address, sealed)).body)
    assert response.status in {400, 404, 405}
    assert parts.engine.requests == []


async def test_message_without_its_final_chunk_is_never_whole() -> None:
    """netty: a truncation was not detected when the final chunk was missing."""
    parts = await timed_parts()
    long = [{"role": "user", "content": "x" * 50_000}]
    inner = inner_request(chat_body(messages=long))
    message = seal(parts.key, inner).message
    start = 7 + 1120
    ends = [start + n * (4 + 16400) for n in range(4)]
    assert len(message) > ends[-1]
    async with serving(parts) as address:
        for end in ends:
            answer = await exchange(address, post(message[:end]))
            assert answer.status == 422
    assert parts.engine.requests == []


async def test_line_of_a_request_is_bounded() -> None:
    """netty: an unbounded request line."""
    async with serving(await timed_parts()) as address:
        reader, writer = await connect(address)
        writer.write(b"GET /" + b"a" * 100_000)
        async with asyncio.timeout(10):
            assert (await read_answer(reader)).status == 400
        writer.close()


async def test_idle_connection_keeps_no_answer() -> None:
    """netty: buffers kept by idle connections."""
    parts = await make_parts(
        Script(pieces=["x" * 1000] * 12), transport=QUICK, timer=VirtualTime().timer
    )
    server = EnclaveServer(parts.context)
    address = await server.start(bind(LOOPBACK))
    streams = [await connect(address) for _ in range(8)]

    async def round_trip() -> None:
        for reader, writer in streams:
            inner = inner_request(chat_body(stream=True))
            writer.write(post(seal(parts.key, inner).message))
            assert (await read_answer(reader)).status == 200

    await round_trip()
    # Garbage of other tests goes before: what warns of it while memory is traced
    # reads whole source files, and no connection keeps those.
    gc.collect()
    tracemalloc.start()
    try:
        await round_trip()
        await until(lambda: not parts.engine.load().running)
        # Objects that only reference themselves are garbage, not kept by a connection.
        gc.collect()
        snapshot = tracemalloc.take_snapshot()
    finally:
        tracemalloc.stop()
    of_connections = [
        tracemalloc.Filter(inclusive=True, filename_pattern=f"*/{name}/*")
        for name in ("asyncio", "aiohttp", "curtilage")
    ]
    kept = sum(trace.size for trace in snapshot.filter_traces(of_connections).traces)
    for _, writer in streams:
        writer.close()
    await server.stop()
    # Seventeen kilobytes were sent on each; some bookkeeping may remain.
    assert kept / len(streams) < 8 * 1024


async def test_secrets_are_in_no_repr() -> None:
    """netty: secrets in toString and in exceptions."""
    parts = await timed_parts()
    inner = inner_request(chat_body(messages=[{"role": "user", "content": CANARY}]))
    opened = open_exchange(
        dict.fromkeys(parts.key.key_ids, parts.key),
        Form.CHUNKED,
        seal(parts.key, inner).message,
        Terms(chat=ChatLimits(), transport=QUICK, now=NOW),
    )
    shown = repr((opened, opened.asked, opened.sealer, parts.key.gateway_keys))
    assert CANARY not in shown
