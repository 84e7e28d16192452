"""The guest's door, and the other end of it."""

import asyncio
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from deploy.image import boot, push
from deploy.image.errors import ImageError
from deploy.image.guest import door

from curtilage.enclave_server.acquire import endorsements
from curtilage.enclave_server.evidence import release

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def behind_door(handler: Handler) -> AsyncGenerator[int]:
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    port: int = listener.getsockname()[1]
    serving = asyncio.create_task(door.serve([(listener, handler)]))
    try:
        yield port
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


def folders(tmp_path: Path) -> Path:
    for name in ("release", "endorsements"):
        (tmp_path / name).mkdir()
    return tmp_path


def files(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob("*") if path.is_file()]


async def test_files_are_taken_and_replaced(tmp_path: Path) -> None:
    intake = door.Intake(folders(tmp_path))
    outside = tmp_path / "outside"
    for content in (b"one", b"two"):
        (outside / "release").mkdir(parents=True, exist_ok=True)
        (outside / "release" / "checkpoint.txt").write_bytes(content)
        async with behind_door(intake.take) as port:
            address = f"tcp:127.0.0.1:{port}"
            names = await asyncio.to_thread(push.push_folder, address, outside)
        assert names == ["release/checkpoint.txt"]
        assert (tmp_path / "release" / "checkpoint.txt").read_bytes() == content
    assert [path.name for path in (tmp_path / "release").iterdir()] == [
        "checkpoint.txt"
    ]


@pytest.mark.parametrize(
    "name",
    [
        "release/other.txt",
        "release/.manifest.json",
        "endorsements/x0",
        "endorsements/identity.json",
        "release/../enclave.toml",
        "endorsements/../../etc/passwd",
        "endorsements/.hidden",
        "endorsements/A",
        "endorsements/",
        "/etc/passwd",
        "enclave.toml",
        "",
    ],
)
async def test_other_names_are_refused(tmp_path: Path, name: str) -> None:
    intake = door.Intake(folders(tmp_path))
    async with behind_door(intake.take) as port:
        with pytest.raises(ImageError):
            await asyncio.to_thread(push.push, f"tcp:127.0.0.1:{port}", name, b"x")
    assert files(tmp_path) == []


async def test_file_that_is_too_large_is_refused_unread() -> None:
    reader = asyncio.StreamReader()
    name = b"release/proof.txt"
    size = (door.MAX_FILE_BYTES + 1).to_bytes(4)
    reader.feed_data(bytes([len(name)]) + name + size)
    reader.feed_eof()
    with pytest.raises(ValueError, match="too large"):
        await door.read_file(reader)


async def test_file_that_is_cut_leaves_nothing(tmp_path: Path) -> None:
    intake = door.Intake(folders(tmp_path))
    async with behind_door(intake.take) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        name = b"release/proof.txt"
        writer.write(bytes([len(name)]) + name + (10).to_bytes(4) + b"half")
        writer.write_eof()
        assert await reader.read() == door.REFUSED
        writer.close()
    assert files(tmp_path) == []


def test_what_is_taken_is_what_is_read(tmp_path: Path) -> None:
    """The door has no code of ours, so it has its own list of the names."""
    release_names = (
        release.MANIFEST_FILE,
        release.PROOF_FILE,
        release.CHECKPOINT_FILE,
        release.CONSISTENCY_FILE,
    )
    stapled_names = (
        endorsements.VEK_FILE,
        endorsements.ASK_FILE,
        endorsements.ARK_FILE,
        endorsements.CRL_FILE,
        endorsements.COLLATERAL_FILE,
    )
    assert {f"release/{name}" for name in release_names} | {
        f"endorsements/{name}" for name in stapled_names
    } == door.NAMES
    intake = door.Intake(folders(tmp_path))
    for name in door.NAMES:
        intake.store(name, name.encode())
        assert (tmp_path / name).read_text() == name


def test_intake_cannot_be_filled(tmp_path: Path) -> None:
    intake = door.Intake(folders(tmp_path))
    for number in range(100):
        with pytest.raises(ValueError, match="no such name"):
            intake.store(f"endorsements/x{number}", b"")
    intake.store("endorsements/vek.der", b"good")
    assert files(tmp_path) == ["vek.der"]


async def test_passage_carries_both_ways_until_both_ended(tmp_path: Path) -> None:
    async def server(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        asked = await reader.read()  # to the end: half-close comes through
        writer.write(b"answer to " + asked)
        writer.close()

    path = tmp_path / "s"
    inner = await asyncio.start_unix_server(server, path)
    async with inner, behind_door(door.Passage(path).join) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"a question")
        writer.write_eof()
        assert await reader.read() == b"answer to a question"
        writer.close()


async def test_door_stays_open_without_a_server(tmp_path: Path) -> None:
    async with behind_door(door.Passage(tmp_path / "nothing").join) as port:
        for _ in range(3):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            assert await reader.read() == b""
            writer.close()


async def test_too_many_connections_are_turned_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entered, leave = asyncio.Event(), asyncio.Event()

    async def stay(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        entered.set()
        await leave.wait()
        writer.write(b"done")

    monkeypatch.setattr(door, "MAX_CONNECTIONS", 1)
    async with behind_door(stay) as port:
        inside, first = await asyncio.open_connection("127.0.0.1", port)
        await entered.wait()
        outside, second = await asyncio.open_connection("127.0.0.1", port)
        assert await outside.read() == b""
        leave.set()
        assert await inside.read() == b"done"
        first.close()
        second.close()


async def test_guest_that_hangs_up_has_not_refused(tmp_path: Path) -> None:
    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with behind_door(hang_up) as port:
        address = f"tcp:127.0.0.1:{port}"
        with pytest.raises(ConnectionError):
            await asyncio.to_thread(push.push, address, "release/proof.txt", b"x")
    (tmp_path / "release").mkdir()
    (tmp_path / "release" / "proof.txt").touch()
    with pytest.raises(ImageError):  # it has ended
        push.push_when_ready(address, tmp_path, timeout_s=0)


def test_folder_without_files_is_no_push(tmp_path: Path) -> None:
    with pytest.raises(ImageError):
        push.push_folder("tcp:127.0.0.1:1", tmp_path)


@pytest.mark.parametrize(
    "address", ["", "tcp:host:1", "unix:/x", "vsock:1", "tcp:1.2.3.4"]
)
def test_address_of_another_kind_is_refused(address: str) -> None:
    with pytest.raises(ImageError):
        push.connect(address)


# The emulated machine's command line.


def test_guest_lines_are_found_among_the_console(tmp_path: Path) -> None:
    console = tmp_path / boot.CONSOLE
    console.write_bytes(
        b"BIOS\x1b[2Jinit: pcr11 abc\r\nkernel\r\ninit: door started\r\n"
    )
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        guest = boot.Guest(process=process, console=console, ports=(1, 2))
    assert guest.lines() == ["pcr11 abc", "door started"]
    assert guest.addresses == ("tcp:127.0.0.1:1", "tcp:127.0.0.1:2")
