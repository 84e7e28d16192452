"""A hub of models on loopback, as far as downloading one file needs it."""

import hashlib
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from typing_extensions import override

REPOSITORY, FILE = "somebody/tiny", "tiny.gguf"
REVISION = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class FakeHub:
    """What the hub serves, and what was asked of it."""

    content: bytes
    revision: str = REVISION
    break_after: int | None = None
    extra: bytes = b""
    ignore_ranges: bool = False
    asked: list[tuple[str, str, dict[str, str]]] = field(
        default_factory=list[tuple[str, str, dict[str, str]]]
    )
    url: str = ""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, hub: FakeHub) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.hub = hub
        hub.url = f"http://127.0.0.1:{self.server_address[1]}"

    @override
    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of a client that went away."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    @override
    def log_message(self, format: str, *args: object) -> None:
        pass

    def _hub(self) -> FakeHub:
        assert isinstance(self.server, _Server)
        return self.server.hub

    def _answer(self, *, with_body: bool) -> None:
        hub = self._hub()
        headers = {key.lower(): value for key, value in self.headers.items()}
        hub.asked.append((self.command, self.path, headers))
        if self.path != f"/{REPOSITORY}/resolve/{REVISION}/{FILE}":
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


@contextmanager
def serving(hub: FakeHub) -> Generator[FakeHub]:
    """Serve it while the body runs."""
    server = _Server(hub)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
