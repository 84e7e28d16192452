"""Downloading, from a hub of our own on loopback."""

import hashlib
import stat
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from typing_extensions import override

from curtilage.client.local.download import ModelPullError, PullRequest, pull
from curtilage.client.local.registry import ModelRegistryError, Registry
from support.fakes import returns
from support.imports import told_at_import

REVISION = "0123456789abcdef0123456789abcdef01234567"
CONTENT = b"GGUF" + bytes(range(256)) * 4096
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def registry(root: Path) -> Registry:
    return Registry(root)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(CONTENT)
    return path


def request(**changes: str) -> PullRequest:
    fields = {
        "name": "tiny",
        "repo_id": "somebody/tiny",
        "filename": "tiny.gguf",
        "revision": REVISION,
        "sha256": SHA256,
    }
    return PullRequest(**(fields | changes))


@dataclass
class FakeHub:
    """What the hub serves, and what was asked of it."""

    content: bytes = CONTENT
    revision: str = REVISION
    break_after: int | None = None
    extra: bytes = b""
    ignore_ranges: bool = False
    asked: list[tuple[str, str, dict[str, str]]] = field(
        default_factory=list[tuple[str, str, dict[str, str]]]
    )
    url: str = ""


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, hub: FakeHub) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.hub = hub
        hub.url = f"http://127.0.0.1:{self.server_address[1]}"

    @override
    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of a client that went away."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    @override
    def log_message(self, format: str, *args: object) -> None:
        pass

    def _hub(self) -> FakeHub:
        assert isinstance(self.server, Server)
        return self.server.hub

    def _answer(self, *, with_body: bool) -> None:
        hub = self._hub()
        headers = {key.lower(): value for key, value in self.headers.items()}
        hub.asked.append((self.command, self.path, headers))
        if self.path != f"/somebody/tiny/resolve/{REVISION}/tiny.gguf":
            self.send_response(404)
            self.send_header("X-Error-Code", "EntryNotFound")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        start = 0
        if "range" in headers and not hub.ignore_ranges:
            start = int(headers["range"].removeprefix("bytes=").rstrip("-"))
        body = hub.content[start:] + (hub.extra if with_body else b"")
        self._send_headers(start, len(body))
        if with_body:
            self.wfile.write(body[: hub.break_after])
            self.close_connection = hub.break_after is not None

    def _send_headers(self, start: int, length: int) -> None:
        hub, total = self._hub(), len(self._hub().content)
        self.send_response(206 if start else 200)
        self.send_header("X-Repo-Commit", hub.revision)
        self.send_header("ETag", f'"{hashlib.sha256(hub.content).hexdigest()}"')
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(length))
        if start:
            self.send_header("Content-Range", f"bytes {start}-{total - 1}/{total}")
        self.end_headers()


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    pytest.importorskip(
        "huggingface_hub", reason="SKIPPED LOUDLY: the extra 'models' is absent"
    )
    # Credentials that must not be sent.
    monkeypatch.setenv("HF_TOKEN", "hf_canary")
    monkeypatch.setattr("time.sleep", returns(None))
    # The library writes in pieces of 10 MiB, more than the test's file has.
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 1 << 14)
    hub = FakeHub()
    server = Server(hub)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield hub
    server.shutdown()
    thread.join()
    server.server_close()


def test_pull_fetches_verifies_and_registers(
    registry: Registry, root: Path, hub: FakeHub, capfd: pytest.CaptureFixture[str]
) -> None:
    seen: list[tuple[int, int | None]] = []
    entry = pull(
        registry,
        request(),
        progress=lambda done, total: seen.append((done, total)),
        endpoint=hub.url,
    )
    assert Path(entry.path).read_bytes() == CONTENT
    assert Path(entry.path).parent == root / "models"
    assert stat.S_IMODE(Path(entry.path).stat().st_mode) == 0o600
    assert entry.source == f"somebody/tiny@{REVISION}/tiny.gguf"
    assert registry.verify("tiny") == entry
    assert seen[0] == (0, len(CONTENT))
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert [path.suffix for path in (root / "models").iterdir()] == [".gguf"]
    output = capfd.readouterr()
    assert (output.out, output.err) == ("", "")


def test_pull_sends_no_credentials(registry: Registry, hub: FakeHub) -> None:
    pull(registry, request(), endpoint=hub.url)
    assert hub.asked
    assert not any("authorization" in headers for _, _, headers in hub.asked)
    assert "canary" not in repr(hub.asked)


def test_broken_pull_goes_on_where_it_stopped(
    registry: Registry, root: Path, hub: FakeHub
) -> None:
    hub.break_after = 100_000
    # The library itself tries a few times; what came stays.
    with pytest.raises(ModelPullError, match="download failed"):
        _pull_once(registry, hub)
    (partial,) = (root / "models").iterdir()
    assert partial.suffix == ".partial"
    here = partial.stat().st_size
    assert 0 < here < len(CONTENT)
    assert registry.entries() == ()
    hub.break_after = None
    hub.asked.clear()
    pull(registry, request(), endpoint=hub.url)
    ranges = [h.get("range") for method, _, h in hub.asked if method == "GET"]
    assert ranges == [f"bytes={here}-"]
    assert registry.verify("tiny").size_bytes == len(CONTENT)


def _pull_once(registry: Registry, hub: FakeHub) -> None:
    def stop_at_third_try(_done: int, _total: int | None) -> None:
        if sum(method == "GET" for method, _, _ in hub.asked) >= 3:
            raise OSError("the network is gone")

    pull(registry, request(), progress=stop_at_third_try, endpoint=hub.url)


def test_pull_starts_anew_where_the_server_knows_no_ranges(
    registry: Registry, root: Path, hub: FakeHub
) -> None:
    hub.ignore_ranges = True
    (root / "models").mkdir(parents=True)
    (root / "models" / f"{SHA256}.partial").write_bytes(b"GGUF and something else")
    pull(registry, request(), endpoint=hub.url)
    assert registry.verify("tiny").size_bytes == len(CONTENT)


def test_pull_starts_anew_after_a_partial_file_that_is_too_long(
    registry: Registry, root: Path, hub: FakeHub
) -> None:
    (root / "models").mkdir(parents=True)
    (root / "models" / f"{SHA256}.partial").write_bytes(CONTENT + b"and more")
    pull(registry, request(), endpoint=hub.url)
    assert registry.verify("tiny").size_bytes == len(CONTENT)


def test_pull_refuses_another_digest_and_leaves_nothing(
    registry: Registry, root: Path, hub: FakeHub
) -> None:
    hub.content = CONTENT[:-1] + b"x"
    with pytest.raises(ModelRegistryError, match="it was deleted"):
        pull(registry, request(), endpoint=hub.url)
    assert list((root / "models").iterdir()) == []
    assert registry.entries() == ()


def test_pull_refuses_a_damaged_partial_file(
    registry: Registry, root: Path, hub: FakeHub
) -> None:
    (root / "models").mkdir(parents=True)
    (root / "models" / f"{SHA256}.partial").write_bytes(b"rotten")
    with pytest.raises(ModelRegistryError, match="it was deleted"):
        pull(registry, request(), endpoint=hub.url)
    pull(registry, request(), endpoint=hub.url)


def test_pull_refuses_more_than_was_announced(registry: Registry, hub: FakeHub) -> None:
    hub.extra = b"x" * 100_000
    with pytest.raises(ModelPullError):
        pull(registry, request(), endpoint=hub.url)
    assert registry.entries() == ()


def test_pull_refuses_another_revision(registry: Registry, hub: FakeHub) -> None:
    hub.revision = "f" * 40
    with pytest.raises(ModelPullError, match="another revision"):
        pull(registry, request(), endpoint=hub.url)


def test_pull_refuses_what_the_hub_does_not_have(
    registry: Registry, hub: FakeHub
) -> None:
    with pytest.raises(ModelPullError, match="download failed"):
        pull(registry, request(filename="other.gguf"), endpoint=hub.url)


def test_pull_says_that_the_hub_cannot_be_reached(registry: Registry) -> None:
    pytest.importorskip("huggingface_hub")
    with pytest.raises(ModelPullError, match="download failed"):
        pull(registry, request(), endpoint="http://127.0.0.1:9")


def test_pull_of_a_file_that_is_here_fetches_nothing(
    registry: Registry, hub: FakeHub
) -> None:
    pull(registry, request(), endpoint=hub.url)
    hub.asked.clear()
    pull(registry, request(), endpoint=hub.url)
    pull(registry, request(name="again"), endpoint=hub.url)
    assert hub.asked == []
    assert [entry.name for entry in registry.entries()] == ["again", "tiny"]


def test_second_pull_at_once_is_refused(registry: Registry, hub: FakeHub) -> None:
    refused: list[ModelPullError] = []

    def again(_done: int, _total: int | None) -> None:
        if not refused:
            with pytest.raises(ModelPullError, match="already") as refusal:
                pull(registry, request(name="other"), endpoint=hub.url)
            refused.append(refusal.value)

    pull(registry, request(), progress=again, endpoint=hub.url)
    assert len(refused) == 1


def test_pull_refuses_a_taken_name_before_it_fetches(
    registry: Registry, file: Path, hub: FakeHub
) -> None:
    registry.add("tiny", file, SHA256)
    with pytest.raises(ModelRegistryError, match="another file already"):
        pull(registry, request(sha256="00" * 32), endpoint=hub.url)
    assert hub.asked == []


@pytest.mark.parametrize(
    "changes",
    [
        {"revision": "main"},
        {"revision": REVISION[:-1]},
        {"revision": REVISION.upper()},
        {"sha256": ""},
        {"sha256": SHA256[:-1]},
        {"name": "../x"},
        {"name": "default"},
    ],
    ids=str,
)
def test_request_refuses_what_is_not_pinned(changes: dict[str, str]) -> None:
    with pytest.raises(ModelRegistryError):
        request(**changes)


def test_missing_extra_is_named(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ModelPullError, match="extra 'models'"):
        pull(registry, request())


def test_the_library_is_told_to_report_nothing_before_it_is_imported(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = told_at_import(monkeypatch, "huggingface_hub", "HF_HUB_DISABLE_TELEMETRY")
    with pytest.raises(ModelPullError):
        pull(registry, request())
    assert told == ["1"]
