"""The stapler's fetcher and its command, against a server on this machine."""

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from curtilage.attest.evidence import DeviceKind, GpuEvidence, Tee
from curtilage.attest.evidence_json import encode_cpu_evidence
from curtilage.enclave_server.acquire.endorsements import read_endorsements
from curtilage.enclave_server.acquire.process import EvidenceServer, EvidenceSettings
from curtilage.enclave_server.stapler.__main__ import main
from curtilage.enclave_server.stapler.errors import FetchError, IdentityError
from curtilage.enclave_server.stapler.fetch import ATTEMPTS, FIRST_PAUSE_S, Fetcher
from curtilage.enclave_server.stapler.identity import (
    ask_devices,
    ask_identity,
    chains_of,
)
from curtilage.enclave_server.stapler.run import devices_file
from support.enclave_parts import until
from support.enclave_vendors import (
    amd_pages,
    intel_pages,
    page,
    serving_vendors,
    snp_evidence,
    tdx_evidence,
)

CANARY = "canary-55aa"
Answer = Callable[[web.BaseRequest], web.StreamResponse]
Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def answering(answer: Answer) -> AsyncGenerator[str]:
    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        return answer(request)

    async with handling(handle) as base:
        yield base


@asynccontextmanager
async def handling(handle: Handler) -> AsyncGenerator[str]:
    runner = web.ServerRunner(web.Server(handle))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        host, port = runner.addresses[0][:2]
        yield f"http://{host}:{port}"
    finally:
        await runner.cleanup()


class Sleeps:
    def __init__(self) -> None:
        self.slept: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.slept.append(seconds)


async def test_get_brings_body_and_headers() -> None:
    pages = {"/a": page(b"x" * 70_000, {"TCB-Info-Issuer-Chain": "c" * 8000})}
    async with serving_vendors(pages) as (base, asked), Fetcher() as fetcher:
        fetched = await fetcher.get(f"{base}/a?b=c", limit=70_000)
    assert fetched.body == b"x" * 70_000
    assert fetched.headers["tcb-info-issuer-chain"] == "c" * 8000
    assert asked == ["/a?b=c"]
    assert "xxx" not in repr(fetched)


async def test_passing_failures_are_tried_again_later_and_later() -> None:
    sleeps = Sleeps()
    async with (
        serving_vendors({"/a": page(b"x")}, fail_first=ATTEMPTS - 1) as (base, asked),
        Fetcher(sleep=sleeps) as fetcher,
    ):
        assert (await fetcher.get(f"{base}/a", limit=1)).body == b"x"
    assert len(asked) == ATTEMPTS
    assert sleeps.slept == [FIRST_PAUSE_S, 2 * FIRST_PAUSE_S, 4 * FIRST_PAUSE_S]


async def test_lasting_trouble_ends_after_some_tries() -> None:
    async with (
        serving_vendors({}, fail_first=99) as (base, asked),
        Fetcher(sleep=Sleeps()) as fetcher,
    ):
        with pytest.raises(FetchError, match="HTTP status 503"):
            await fetcher.get(f"{base}/a", limit=1)
    assert len(asked) == ATTEMPTS


@pytest.mark.parametrize("status", [301, 400, 404, 410])
async def test_what_another_try_cannot_change_is_not_tried_again(status: int) -> None:
    asked: list[str] = []

    def answer(request: web.BaseRequest) -> web.StreamResponse:
        asked.append(request.rel_url.raw_path)
        return web.Response(status=status, headers={"Location": "/b"})

    async with answering(answer) as base, Fetcher(sleep=Sleeps()) as fetcher:
        with pytest.raises(FetchError, match=f"status {status}") as caught:
            await fetcher.get(f"{base}/chip/c0ffee", limit=1)
    assert asked == ["/chip/c0ffee"]
    # An address identifies a chip; the message names only the host.
    assert "c0ffee" not in str(caught.value)


async def test_body_beyond_the_limit_is_not_read() -> None:
    pages = {"/a": page(b"x" * 101)}
    async with serving_vendors(pages) as (base, asked), Fetcher() as fetcher:
        with pytest.raises(FetchError, match="more than 100 bytes"):
            await fetcher.get(f"{base}/a", limit=100)
        assert len((await fetcher.get(f"{base}/a", limit=101)).body) == 101
    assert len(asked) == 2


async def test_compressed_body_is_not_unpacked() -> None:
    def answer(_request: web.BaseRequest) -> web.StreamResponse:
        headers = {"Content-Encoding": "gzip"}
        return web.Response(body=b"\x1f\x8b as it is", headers=headers)

    async with answering(answer) as base, Fetcher() as fetcher:
        assert (await fetcher.get(base, limit=99)).body == b"\x1f\x8b as it is"


async def test_silent_vendor_is_not_waited_out() -> None:
    held = asyncio.Event()

    async def handle(_request: web.BaseRequest) -> web.StreamResponse:
        await held.wait()
        return web.Response()

    runner = web.ServerRunner(web.Server(handle))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        host, port = runner.addresses[0][:2]
        async with Fetcher(timeout_s=0.1, sleep=Sleeps()) as fetcher:
            with pytest.raises(FetchError, match="Timeout"):
                await fetcher.get(f"http://{host}:{port}/", limit=1)
    finally:
        held.set()
        await runner.cleanup()


async def test_vendor_that_is_not_there_is_an_error() -> None:
    async with Fetcher(sleep=Sleeps()) as fetcher:
        with pytest.raises(FetchError, match=r"127\.0\.0\.1:1: "):
            await fetcher.get("http://127.0.0.1:1/a", limit=1)
    with pytest.raises(FetchError, match="closed"):
        await Fetcher().get("http://127.0.0.1:1/a", limit=1)


async def test_environment_names_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    async with serving_vendors({"/a": page(b"x")}) as (base, _), Fetcher() as fetcher:
        assert (await fetcher.get(f"{base}/a", limit=1)).body == b"x"


async def test_proxy_is_asked_where_one_is_named() -> None:
    seen: list[str] = []

    def answer(request: web.BaseRequest) -> web.StreamResponse:
        seen.append(request.raw_path if hasattr(request, "raw_path") else "")
        return web.Response(body=b"through")

    async with answering(answer) as proxy, Fetcher(proxy=proxy) as fetcher:
        fetched = await fetcher.get("http://127.0.0.1:1/a", limit=9)
    assert fetched.body == b"through"
    assert len(seen) == 1


class Threaded:
    """Runs the vendors next to a command with its own loop."""

    def __init__(self, pages: dict[str, object]) -> None:
        self.base = ""
        self._pages = pages
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> str:
        self._thread.start()
        assert self._ready.wait(30)
        return self.base

    def __exit__(self, *_exception: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(30)
        self._loop.close()

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        async with serving_vendors(self._pages) as (base, _):  # type: ignore[arg-type]
            self.base = base
            self._ready.set()
            await self._stop.wait()


def test_one_round_fills_the_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "i.json").write_bytes(encode_cpu_evidence(snp_evidence()))
    with Threaded(dict(amd_pages(snp_evidence()))) as base:
        arguments = [
            *("run", "--identity", str(tmp_path / "i.json"), "--once"),
            *("--endorsements", str(tmp_path / "e"), "--amd-kds", base),
        ]
        assert main(arguments) == 0
    assert read_endorsements(tmp_path / "e").vek == snp_evidence().vek
    assert "renewed" in capsys.readouterr().err


def test_intel_s_addresses_are_options_too(tmp_path: Path) -> None:
    (tmp_path / "i.json").write_bytes(encode_cpu_evidence(tdx_evidence()))
    with Threaded(dict(intel_pages(tdx_evidence()))) as base:
        arguments = [
            *("run", "--identity", str(tmp_path / "i.json"), "--once"),
            *("--endorsements", str(tmp_path / "e")),
            *("--intel-pcs", base, "--intel-certificates", base),
        ]
        assert main(arguments) == 0
    assert read_endorsements(tmp_path / "e").collateral


def test_round_that_fails_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Threaded({}) as base:
        (tmp_path / "i.json").write_bytes(encode_cpu_evidence(snp_evidence()))
        arguments = [
            *("run", "--identity", str(tmp_path / "i.json"), "--once"),
            *("--endorsements", str(tmp_path / "e"), "--amd-kds", base),
        ]
        assert main(arguments) == 3
    assert "HTTP status 404" in capsys.readouterr().err
    assert not (tmp_path / "e").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["fetch"],
        ["run"],
        ["run", "--identity", "/i", "--endorsements", "/e", "--interval", "59"],
        ["run", "--identity", "/i", "--endorsements", "/e", "--amd-kds", "http://a.b"],
        ["run", "--identity", "/i", "--endorsements", "/e", "--product", "Rome"],
        ["identify", "--socket", "/i", "--out", "/o"],
    ],
)
def test_wrong_arguments_are_a_usage_error(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2


class Machine:
    """A device in memory."""

    def __init__(self, evidence: object = None) -> None:
        self.evidence = evidence

    def acquire(self, report_data: bytes, endorsements: object) -> object:
        assert report_data
        assert endorsements
        return self.evidence or snp_evidence()


class Gpu:
    """A GPU in memory."""

    def acquire(self, base: bytes, endorsements: object) -> tuple[GpuEvidence, ...]:
        assert base
        assert endorsements
        return (
            GpuEvidence(
                kind=DeviceKind.NVIDIA_GPU, report=b"r", chain=(b"leaf", b"root")
            ),
        )


@asynccontextmanager
async def evidence_process(folder: Path, *, gpus: bool = False) -> AsyncGenerator[Path]:
    settings = EvidenceSettings(
        endorsements=folder / "e",
        listen=folder / "e.sock",
        identify=folder / "i.sock",
    )
    server = EvidenceServer(
        settings,
        Machine(),  # type: ignore[arg-type]
        lambda _line: None,
        devices=Gpu() if gpus else None,
    )
    await server.start()
    try:
        yield folder / "i.sock"
    finally:
        await server.close()


async def test_machine_is_asked_for_by_its_socket(tmp_path: Path) -> None:
    async with evidence_process(tmp_path) as socket:
        assert await ask_identity(socket) == encode_cpu_evidence(snp_evidence())
    with pytest.raises(IdentityError, match=r": FileNotFoundError$"):
        await ask_identity(socket)


async def test_identity_is_stored_to_be_carried_along(tmp_path: Path) -> None:
    async with evidence_process(tmp_path) as socket:
        arguments = ["identify", "--socket", f"unix:{socket}"]
        out = tmp_path / "identity.json"
        code = await asyncio.to_thread(main, [*arguments, "--out", str(out)])
    assert code == 0
    assert out.read_bytes() == encode_cpu_evidence(snp_evidence())
    assert not devices_file(out).exists()


async def test_gpus_are_identified_next_to_the_machine(tmp_path: Path) -> None:
    async with evidence_process(tmp_path, gpus=True) as socket:
        arguments = ["identify", "--socket", f"unix:{socket}"]
        out = tmp_path / "identity.json"
        code = await asyncio.to_thread(main, [*arguments, "--out", str(out)])
        devices = await ask_devices(socket)
    assert code == 0
    assert devices_file(out).read_bytes() == devices
    assert chains_of(devices) == ((b"leaf", b"root"),)


async def test_post_sends_its_body_and_type() -> None:
    seen: list[tuple[str, str | None, bytes]] = []

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        kind = request.headers.get("Content-Type")
        seen.append((request.method, kind, await request.read()))
        if len(seen) == 1:
            return web.Response(status=503)
        return web.Response(body=b"answer")

    async with handling(handle) as base, Fetcher(sleep=Sleeps()) as fetcher:
        fetched = await fetcher.post(base, b"\0asked", content_type="a/b", limit=6)
        assert fetched.body == b"answer"
        with pytest.raises(FetchError, match="more than 5 bytes"):
            await fetcher.post(base, b"", content_type="a/b", limit=5)
    assert seen[:2] == [("POST", "a/b", b"\0asked")] * 2


async def test_too_large_an_answer_is_not_read(tmp_path: Path) -> None:
    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"\xff\xff\xff\xff")
        await writer.drain()
        writer.close()

    path = tmp_path / "s"
    async with await asyncio.start_unix_server(serve, path):
        with pytest.raises(IdentityError, match="too large"):
            await ask_identity(path)


async def test_command_continues_until_a_signal(tmp_path: Path) -> None:
    async with (
        evidence_process(tmp_path) as socket,
        serving_vendors(amd_pages(snp_evidence())) as (base, _),
    ):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "curtilage.enclave_server.stapler", "run"),
            *("--identity", f"unix:{socket}", "--endorsements", str(tmp_path / "e")),
            *("--amd-kds", base),
            stderr=subprocess.PIPE,
        )
        try:
            await until((tmp_path / "e" / "crl.der").exists, within_s=60)
        finally:
            process.send_signal(signal.SIGTERM)
            _, errors = await process.communicate()
    assert process.returncode == 0
    assert errors.startswith(b"renewed ark.der")
    assert Tee.EMULATED_SEV_SNP.value.encode() not in errors
