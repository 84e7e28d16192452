import asyncio
import struct
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
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


@dataclass
class Kept:
    """A process that keeps its connections, and answers when it is let."""

    answers: list[bytes]
    seen: list[bytes] = field(default_factory=list[bytes])
    writers: list[asyncio.StreamWriter] = field(
        default_factory=list[asyncio.StreamWriter]
    )
    let: asyncio.Event = field(default_factory=asyncio.Event)
    tasks: list["asyncio.Task[None]"] = field(
        default_factory=list["asyncio.Task[None]"]
    )

    def accept(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.writers.append(writer)
        self.tasks.append(asyncio.create_task(self.serve(reader, writer)))

    async def serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                self.seen.append(await reader.readexactly(65))
                await self.let.wait()
                writer.write(self.answers.pop(0))
                await writer.drain()
        writer.close()


@asynccontextmanager
async def keeping(path: Path, *answers: bytes) -> AsyncGenerator[Kept]:
    kept = Kept(list(answers))
    kept.let.set()
    server = await asyncio.start_unix_server(kept.accept, path)
    try:
        yield kept
    finally:
        server.close()
        kept.let.set()
        for writer in kept.writers:
            writer.close()
        await asyncio.gather(*kept.tasks, return_exceptions=True)


@asynccontextmanager
async def source(
    path: Path, *, timeout_s: float = 20
) -> AsyncGenerator[SocketEvidenceSource]:
    made = SocketEvidenceSource(path, timeout_s=timeout_s)
    try:
        yield made
    finally:
        made.close()
        await asyncio.sleep(0)  # the transport closes in the next turn


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

    async with process(path, answer), source(path) as ours:
        assert await ours.acquire(DATA) == EVIDENCE
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

    async with process(path, answer), source(path) as ours:
        devices = await ours.acquire_devices(DATA)
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
    async with process(path, saying(said)), source(path) as ours:
        with pytest.raises(EvidenceError, match=reason) as caught:
            await ours.acquire_devices(DATA)
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (b"", "did not answer: IncompleteReadError"),
        (framed(b""), "has no evidence"),
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
    async with process(path, saying(said)), source(path) as ours:
        with pytest.raises(EvidenceError, match=reason) as caught:
            await ours.acquire(DATA)
    assert "canary" not in str(caught.value)


async def test_silence_is_not_waited_out(tmp_path: Path) -> None:
    path, done = tmp_path / "e.sock", asyncio.Event()

    async def answer(_data: bytes, _writer: asyncio.StreamWriter) -> None:
        await done.wait()

    async with process(path, answer), source(path, timeout_s=0.05) as ours:
        with pytest.raises(EvidenceError, match="too long"):
            await ours.acquire(DATA)
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


GIVEN = framed(encode_cpu_evidence(EVIDENCE))
OTHER = replace(EVIDENCE, report=b"another")


async def test_one_connection_serves_many_requests(tmp_path: Path) -> None:
    path = tmp_path / "e.sock"
    devices = framed(encode_devices((DEVICE,)))
    async with (
        keeping(path, GIVEN, devices, framed(b""), GIVEN) as kept,
        source(path) as ours,
    ):
        await ours.open()
        await ours.open()
        assert await ours.acquire(DATA) == EVIDENCE
        assert await ours.acquire_devices(DATA) == (DEVICE,)
        # That there is none this time ends nothing.
        with pytest.raises(EvidenceError, match="has no evidence"):
            await ours.acquire(DATA)
        assert await ours.acquire(DATA) == EVIDENCE
        assert len(kept.writers) == 1


async def test_answers_reach_whom_they_are_for(tmp_path: Path) -> None:
    path = tmp_path / "e.sock"
    answers = (GIVEN, framed(encode_cpu_evidence(OTHER)))
    async with keeping(path, *answers) as kept, source(path) as ours:
        kept.let.clear()
        asking = [asyncio.create_task(ours.acquire(DATA)) for _ in range(2)]
        while not kept.seen:  # noqa: ASYNC110 - the other end of a socket
            await asyncio.sleep(0)
        kept.let.set()
        assert await asyncio.gather(*asking) == [EVIDENCE, OTHER]


async def test_a_late_answer_is_not_the_next_ones(tmp_path: Path) -> None:
    path = tmp_path / "e.sock"
    answers = (GIVEN, framed(encode_cpu_evidence(OTHER)))
    async with keeping(path, *answers) as kept, source(path) as ours:
        kept.let.clear()
        given_up = asyncio.create_task(ours.acquire(DATA))
        while not kept.seen:  # noqa: ASYNC110 - the other end of a socket
            await asyncio.sleep(0)
        given_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await given_up
        kept.let.set()
        assert await ours.acquire(DATA) == OTHER
        assert len(kept.writers) == 1


async def test_more_than_was_asked_for_ends_the_connection(tmp_path: Path) -> None:
    path, lost = tmp_path / "e.sock", asyncio.Event()
    async with keeping(path, GIVEN + GIVEN, GIVEN) as kept, source(path) as ours:
        ours.lost = lost.set
        assert await ours.acquire(DATA) == EVIDENCE
        await asyncio.wait_for(lost.wait(), 20)
        assert await ours.acquire(DATA) == EVIDENCE
        assert len(kept.writers) == 2


async def test_a_lost_connection_is_reported_and_opened_again(tmp_path: Path) -> None:
    path, lost = tmp_path / "e.sock", list[bool]()
    async with keeping(path, GIVEN, GIVEN) as kept, source(path) as ours:
        ours.lost = lambda: lost.append(True)
        await ours.acquire(DATA)
        kept.writers[0].close()
        async with asyncio.timeout(20):
            while not lost:  # noqa: ASYNC110 - the other end of a socket
                await asyncio.sleep(0)
        assert await ours.acquire(DATA) == EVIDENCE
        assert len(kept.writers) == 2
    # The end of our own is no loss.
    assert lost == [True]


async def test_who_waits_hears_that_the_connection_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "e.sock"
    async with keeping(path) as kept, source(path) as ours:
        kept.let.clear()
        asking = [asyncio.create_task(ours.acquire(DATA)) for _ in range(3)]
        while not kept.seen:  # noqa: ASYNC110 - the other end of a socket
            await asyncio.sleep(0)
        kept.writers[0].transport.abort()
        found = await asyncio.gather(*asking, return_exceptions=True)
    assert [type(each) for each in found] == [EvidenceError] * 3


async def test_an_absent_process_is_not_opened(tmp_path: Path) -> None:
    ours = SocketEvidenceSource(tmp_path / "e.sock")
    with pytest.raises(EvidenceError, match=f"{NO_ANSWER}: FileNotFoundError"):
        await ours.open()
