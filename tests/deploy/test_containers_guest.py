"""The programs inside the containers: the question for health, and the door."""

import asyncio
import socket
import ssl
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest
from deploy.containers.guest import door, health

from curtilage_dev.certificates import Authority, Server

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
HEALTHY = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
ILL = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"


@pytest.fixture
def folder() -> Iterator[Path]:
    # A socket's path is limited to about 100 characters, so not tmp_path.
    with tempfile.TemporaryDirectory(prefix="door") as name:
        yield Path(name)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.make(tmp_path_factory.mktemp("tls"), now=datetime.now(UTC))


@pytest.fixture(scope="module")
def issued(authority: Authority) -> Server:
    return authority.issue("door", now=datetime.now(UTC))


@asynccontextmanager
async def served(
    handler: Handler, path: Path | None = None, context: ssl.SSLContext | None = None
) -> AsyncGenerator[int]:
    """Serve one connection, on a socket or a port; at the end wait for its end."""
    ended = asyncio.Event()

    async def handle(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            with suppress(ConnectionError):
                await handler(reader, writer)
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
            ended.set()

    if path is not None:
        server: asyncio.Server = await asyncio.start_unix_server(handle, path)
        port = 0
    else:
        server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=context)
        port = server.sockets[0].getsockname()[1]
    async with server:
        yield port
        await asyncio.wait_for(ended.wait(), timeout=10)


def answering(answer: bytes) -> Handler:
    async def handle(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        assert request.startswith(b"GET /healthz HTTP/1.1\r\n")
        writer.write(answer)
        await writer.drain()

    return handle


async def asked(address: str) -> int:
    return await asyncio.to_thread(health.main, [address])


# Health.


@pytest.mark.parametrize(("answer", "code"), [(HEALTHY, 0), (ILL, 1), (b"", 1)])
async def test_health_is_what_the_program_answers(
    folder: Path, answer: bytes, code: int
) -> None:
    path = folder / "s"
    async with served(answering(answer), path):
        assert await asked(f"unix:{path}") == code
    async with served(answering(answer)) as port:
        assert await asked(f"http://127.0.0.1:{port}") == code


async def test_health_is_asked_over_tls(issued: Server) -> None:
    context = door.context_of(issued.certificate, issued.key)
    async with served(answering(HEALTHY), context=context) as port:
        assert await asked(f"https://127.0.0.1:{port}") == 0


async def test_a_socket_that_accepts_is_enough_for_programs_without_http(
    folder: Path,
) -> None:
    path = folder / "s"
    assert await asked(f"file:{path}") == 1

    async def nothing(_: asyncio.StreamReader, __: asyncio.StreamWriter) -> None: ...

    async with served(nothing, path):
        assert await asked(f"file:{path}") == 0


def test_a_folder_is_healthy_once_there_is_a_file(tmp_path: Path) -> None:
    assert health.main([f"folder:{tmp_path}"]) == 1
    (tmp_path / "vek.der").touch()
    assert health.main([f"folder:{tmp_path}"]) == 0
    assert health.main([f"folder:{tmp_path / 'nothing'}"]) == 1


def test_a_program_that_is_not_there_is_not_healthy(folder: Path) -> None:
    assert health.main([f"unix:{folder / 'nothing'}"]) == 1
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        assert health.main([f"http://127.0.0.1:{port}"]) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["a", "b"],
        ["unix:relative"],
        ["ftp://127.0.0.1:1"],
        ["http://192.0.2.1:80"],
        ["http://127.0.0.1"],
        ["http://127.0.0.1:x"],
    ],
    ids=str,
)
def test_other_addresses_are_wrong_use(arguments: list[str]) -> None:
    assert health.main(arguments) == 2


# The door.


@asynccontextmanager
async def behind_door(
    path: Path, issued: Server, *, most: int = 4
) -> AsyncGenerator[int]:
    listener = socket.create_server(("127.0.0.1", 0))
    port: int = listener.getsockname()[1]
    stop = asyncio.Event()
    context = door.context_of(issued.certificate, issued.key)
    serving = asyncio.create_task(
        door.serve(listener, door.Door(path, most=most), context, stop)
    )
    try:
        yield port
    finally:
        stop.set()
        await serving


def trusting(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(authority.certificate))


async def test_bytes_pass_both_ways_and_the_end_with_them(
    folder: Path, authority: Authority, issued: Server
) -> None:
    content = bytes(range(256)) * 1024

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readexactly(len(content)))
        await writer.drain()

    path = folder / "s"
    async with (
        served(echo, path),
        behind_door(path, issued) as port,
    ):
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=trusting(authority), server_hostname="localhost"
        )
        writer.write(content)
        # The server closes, so the door does: nobody waits for a dead connection.
        assert await asyncio.wait_for(reader.read(), timeout=10) == content
        writer.close()


async def test_a_client_that_leaves_is_seen_by_the_server(
    folder: Path, authority: Authority, issued: Server
) -> None:
    ended = asyncio.Event()

    async def wait(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):  # how it ends does not matter here
            await reader.read()
        ended.set()

    path = folder / "s"
    async with (
        served(wait, path),
        behind_door(path, issued) as port,
    ):
        _, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=trusting(authority), server_hostname="localhost"
        )
        writer.write(b"x")
        await writer.drain()
        writer.close()
        await asyncio.wait_for(ended.wait(), timeout=10)


async def test_plain_http_and_old_tls_do_not_pass(
    folder: Path, authority: Authority, issued: Server
) -> None:
    reached = False

    async def note(_: asyncio.StreamReader, __: asyncio.StreamWriter) -> None:
        nonlocal reached
        reached = True

    path = folder / "s"
    async with (
        await asyncio.start_unix_server(note, path),
        behind_door(path, issued) as port,
    ):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /healthz HTTP/1.1\r\n\r\n")
        assert not (await reader.read()).startswith(b"HTTP")
        writer.close()
        old = trusting(authority)
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.open_connection(
                "127.0.0.1", port, ssl=old, server_hostname="localhost"
            )
    assert not reached


async def test_connections_beyond_the_limit_are_closed_at_once(
    folder: Path, authority: Authority, issued: Server
) -> None:
    async def stay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"here")
        await reader.read()

    async def connect(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(
            "127.0.0.1", port, ssl=trusting(authority), server_hostname="localhost"
        )

    path = folder / "s"
    async with (
        served(stay, path),
        behind_door(path, issued, most=1) as port,
    ):
        reader, writer = await connect(port)
        assert await reader.readexactly(4) == b"here"
        second, other = await connect(port)
        assert await asyncio.wait_for(second.read(), timeout=10) == b""
        other.close()
        writer.close()


async def test_without_a_server_a_connection_ends(
    folder: Path, authority: Authority, issued: Server
) -> None:
    async with behind_door(folder / "nothing", issued) as port:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=trusting(authority), server_hostname="localhost"
        )
        assert await asyncio.wait_for(reader.read(), timeout=10) == b""
        writer.close()


def test_a_certificate_that_cannot_be_used_is_said(
    tmp_path: Path, issued: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--server", str(tmp_path / "s"), "--listen", "127.0.0.1"]
    arguments += ["--port", "0", "--certificate", str(issued.certificate)]
    assert door.main([*arguments, "--key", str(tmp_path / "nothing")]) == 2
    assert capsys.readouterr().err == "door: No such file or directory\n"
