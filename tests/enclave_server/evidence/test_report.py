import asyncio
import struct
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from curtilage.attest.evidence import (
    MAX_BUNDLE_BYTES,
    MAX_CPU_EVIDENCE_BYTES,
    DeviceKind,
    GpuEvidence,
    SnpEvidence,
    Tee,
)
from curtilage.attest.evidence_json import encode_cpu_evidence
from curtilage.enclave_server.errors import EvidenceError
from curtilage.enclave_server.evidence.report import NO_ANSWER, SocketEvidenceSource
from curtilage.enclave_server.evidence_protocol import encode_devices

DATA = bytes(range(64))
EVIDENCE = SnpEvidence(
    tee=Tee.EMULATED_SEV_SNP, report=b"report", vek=b"v", ask=b"a", crl=b""
)
Answer = Callable[[bytes, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def process(path: Path, answer: Answer) -> AsyncGenerator[None]:
    """Answer each connection after its 65 bytes have arrived."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await answer(await reader.readexactly(65), writer)
        writer.close()

    async with await asyncio.start_unix_server(serve, path):
        yield


def saying(data: bytes) -> Answer:
    async def answer(_data: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()

    return answer


def framed(body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + body


async def test_evidence_is_read_and_the_data_sent(tmp_path: Path) -> None:
    path, seen = tmp_path / "e.sock", list[bytes]()

    async def answer(data: bytes, writer: asyncio.StreamWriter) -> None:
        seen.append(data)
        writer.write(framed(encode_cpu_evidence(EVIDENCE)))

    async with process(path, answer):
        assert await SocketEvidenceSource(path).acquire(DATA) == EVIDENCE
    assert seen == [b"\x01" + DATA]


DEVICE = GpuEvidence(
    kind=DeviceKind.EMULATED_NVIDIA_GPU, report=b"report", chain=(b"leaf", b"root")
)


@pytest.mark.parametrize("count", [0, 1, 16])
async def test_devices_are_asked_for_over_the_base(tmp_path: Path, count: int) -> None:
    path, seen = tmp_path / "e.sock", list[bytes]()

    async def answer(data: bytes, writer: asyncio.StreamWriter) -> None:
        seen.append(data)
        writer.write(framed(encode_devices((DEVICE,) * count)))

    async with process(path, answer):
        devices = await SocketEvidenceSource(path).acquire_devices(DATA)
    assert devices == (DEVICE,) * count
    assert seen == [b"\x02" + DATA]


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (b"", "did not answer"),
        (struct.pack(">I", MAX_BUNDLE_BYTES + 1), "too large"),
        (framed(b"{}"), "not usable: malformed"),
        (framed(b'{"devices":[],"more":1}'), "not usable: malformed"),
        (framed(encode_devices((DEVICE,) * 17)), "not usable: "),
        (framed(b'{"devices":["canary"]}'), "not usable: malformed"),
    ],
)
async def test_nonsense_about_devices_is_refused(
    tmp_path: Path, said: bytes, reason: str
) -> None:
    path = tmp_path / "e.sock"
    async with process(path, saying(said)):
        with pytest.raises(EvidenceError, match=reason) as caught:
            await SocketEvidenceSource(path).acquire_devices(DATA)
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (b"", "did not answer: IncompleteReadError"),
        (b"\0\0", "did not answer: IncompleteReadError"),
        (framed(b"{}")[:-1], "did not answer: IncompleteReadError"),
        (b"\xff\xff\xff\xff", "too large"),
        (struct.pack(">I", MAX_CPU_EVIDENCE_BYTES + 1), "too large"),
        (framed(b"{}"), "not usable"),
        (framed(b"canary"), "not usable: malformed"),
        (
            framed(encode_cpu_evidence(EVIDENCE).replace(b"emulated", b"imagined")),
            "not usable: unsupported_product",
        ),
    ],
)
async def test_nonsense_is_refused(tmp_path: Path, said: bytes, reason: str) -> None:
    path = tmp_path / "e.sock"
    async with process(path, saying(said)):
        with pytest.raises(EvidenceError, match=reason) as caught:
            await SocketEvidenceSource(path).acquire(DATA)
    assert "canary" not in str(caught.value)


async def test_silence_is_not_waited_out(tmp_path: Path) -> None:
    path, done = tmp_path / "e.sock", asyncio.Event()

    async def answer(_data: bytes, _writer: asyncio.StreamWriter) -> None:
        await done.wait()

    async with process(path, answer):
        with pytest.raises(EvidenceError, match="too long"):
            await SocketEvidenceSource(path, timeout_s=0.05).acquire(DATA)
        done.set()


async def test_absent_process_is_an_error(tmp_path: Path) -> None:
    source = SocketEvidenceSource(tmp_path / "e.sock")
    with pytest.raises(EvidenceError, match=f"{NO_ANSWER}: FileNotFoundError"):
        await source.acquire(DATA)


@pytest.mark.parametrize("length", [0, 63, 65])
async def test_report_data_of_another_length_is_not_sent(
    tmp_path: Path, length: int
) -> None:
    with pytest.raises(EvidenceError, match="not 64 bytes"):
        await SocketEvidenceSource(tmp_path / "e.sock").acquire(bytes(length))
