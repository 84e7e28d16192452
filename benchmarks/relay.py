"""The cost of relaying in processor time, compared with a minimal nginx.

The peer is nginx with plain ``proxy_pass``, one worker, the same fields stripped,
buffers of the same size, and none of a relay's other duties. Also measured: the nginx
configuration that ``curtilage-relay nginx-config`` writes, one worker, and the
built-in relay, one process. Requests are like our client's: ``Incremental``, of known
length; an answer is as long as its request. Time is the processor time of the relay's
process, user and system; load and gateway are another process. The relays take turns,
so that other work of the machine affects all of them; the minimum of all rounds counts,
since other work can only add to it.
"""

import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, cast

from benchmarks.relay_load import Work
from benchmarks.report import Table
from curtilage.relay.config import parse_config
from curtilage.relay.nginx.config import nginx_config
from curtilage_dev.certificates import Authority

ROUNDS: Final = 6
STREAMS: Final = 40
IDLE: Final = 1000
STREAMING: Final = 200
FRAMES: Final = 25
PERIOD_S: Final = 0.02
NGINX: Final = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin")
PLAIN, GENERATED, BUILT_IN = "plain nginx", "generated nginx", "built-in relay"
BOUNDS: Final = {GENERATED: (1.1, 1.1), BUILT_IN: (6.5, 2.1)}
"""Times the peer: for a request, for a streamed frame."""
OPEN: Final = {"connections": 0, "exchanges": 0, "requests_per_s": 0}
ABSENT: Final = "NGINX IS NOT INSTALLED: the relay was not measured"
READY_S: Final = 20.0

_PLAIN: Final = """\
worker_processes 1;
pid {folder}/plain.pid;
error_log /dev/null crit;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    server_tokens off;
    {temporary}
    keepalive_requests 1000000;
    client_body_buffer_size 1m;
    proxy_buffer_size 8k;
    upstream gateway {{
        server 127.0.0.1:{gateway};
        keepalive 64;
        keepalive_requests 1000000;
    }}
    server {{
        listen {listen}{ssl};
        {certificate}
        location = /demo {{
            proxy_pass http://gateway/.well-known/ohttp-gateway;
            proxy_http_version 1.1;
            proxy_pass_request_headers off;
            proxy_set_header Host 127.0.0.1;
            proxy_set_header Connection "";
            proxy_set_header Content-Type $http_content_type;
            proxy_set_header Incremental $http_incremental;
            proxy_hide_header Set-Cookie;
            proxy_hide_header ETag;
            proxy_hide_header Alt-Svc;
            proxy_hide_header Server-Timing;
            proxy_hide_header Location;
            proxy_buffering off;
            proxy_request_buffering off;
        }}
    }}
}}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One kind of work, and what it is divided by.

    Attributes:
        name: for display.
        work: without the port.
        units: requests or frames.
        streamed: its bound is that of a frame.
    """

    name: str
    work: Work
    units: int
    streamed: bool = False


SHAPES: Final = (
    Shape(name="1 KB", work=Work(size=1024, requests=600), units=600),
    Shape(name="32 KB", work=Work(size=32768, requests=300), units=300),
    Shape(
        name="frame",
        work=Work(connections=STREAMS, frames=FRAMES, period_s=PERIOD_S),
        units=STREAMS * FRAMES,
        streamed=True,
    ),
)


class _Load:
    """The other process: gateway and clients."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.port = int(self._answer()["port"])

    def do(self, work: Work) -> None:
        """Do one piece of work to its end."""
        self.connect(work)
        self.go_on()

    def connect(self, work: Work) -> None:
        """Open the connections of a piece of work."""
        self._send(json.dumps(asdict(work)))

    def go_on(self) -> None:
        """Do it to its end."""
        self._send("")

    def _send(self, line: str) -> None:
        if self._process.stdin is None:
            raise RuntimeError("the load has no input")
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        self._answer()

    def _answer(self) -> dict[str, int]:
        line = self._process.stdout.readline() if self._process.stdout else ""
        if not line:
            raise RuntimeError("the load ended")
        read: dict[str, int] = json.loads(line)
        return read


@dataclass(frozen=True, slots=True, kw_only=True)
class _Relay:
    name: str
    pid: int
    port: int

    def resident_kib(self) -> int:
        """Return the resident set."""
        for line in Path(f"/proc/{self.pid}/status").read_text("utf-8").splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
        raise RuntimeError("the kernel does not report the resident set")

    def used_us(self) -> float:
        """Return the microseconds of processor that its threads have used."""
        tasks = Path(f"/proc/{self.pid}/task").glob("*/schedstat")
        return sum(int(task.read_text().split()[0]) for task in tasks) / 1000


def measure_relay(rounds: int = ROUNDS) -> Table:
    """Measure three relays with plain HTTP and with TLS towards clients."""
    rows: list[tuple[str | float, ...]] = []
    if NGINX is not None:
        for tls in (False, True):
            rows += _measure(rounds, tls=tls)
    note = (
        f"processor time, user and system, of one process; {rounds} rounds in turns, "
        f"the least. frame: 530 bytes to each of {STREAMS} streams at every tick. "
        "bound: what a ratio may be; aim for the built-in "
        "relay: 4 for a request"
    )
    return Table(
        title="Relaying: processor time against plain nginx proxy_pass",
        columns=("work", "relay", "us each", "ratio", "bound"),
        rows=tuple(rows),
        note=note if rows else ABSENT,
    )


def measure_relay_memory() -> Table:
    """Measure each relay at rest, with idle clients and with streams."""
    rows: list[tuple[str | float, ...]] = []
    if NGINX is not None:
        with ExitStack() as stack:
            load, relays, _ = _start(stack, tls=False)
            rows = [_memory(load, relay) for relay in relays]
    return Table(
        title="Relaying: memory",
        columns=(
            "relay",
            "at rest MiB",
            f"{IDLE} idle MiB",
            f"{STREAMING} streams MiB",
            "KiB an idle one",
            "KiB a stream",
        ),
        rows=tuple(rows),
        note="resident set of one process; TCP without TLS" if rows else ABSENT,
    )


def _memory(load: "_Load", relay: "_Relay") -> tuple[str | float, ...]:
    # Memory that any traffic touches once belongs to the idle relay.
    load.do(Work(port=relay.port, size=1024, requests=100))
    rest = relay.resident_kib()
    load.do(Work(port=relay.port, connections=IDLE, hold=True))
    idle = relay.resident_kib()
    load.do(Work(port=relay.port, connections=STREAMING, frames=1, hold=True))
    streams = relay.resident_kib()
    load.do(Work(port=relay.port, size=1024, requests=1))
    each = ((idle - rest) / IDLE, (streams - rest) / STREAMING)
    return (relay.name, rest / 1024, idle / 1024, streams / 1024, *each)


def _start(stack: ExitStack, *, tls: bool) -> tuple["_Load", list["_Relay"], str]:
    """Start the load and the relays; return also what clients trust."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
    trusted = Authority.make(folder / "tls", now=datetime.now(UTC)) if tls else None
    load = _Load(stack.enter_context(_spawn(_LOAD_COMMAND)))
    relays = _Starter(folder, load.port, trusted).all()
    ca = "" if trusted is None else str(trusted.certificate)
    return load, [stack.enter_context(each) for each in relays], ca


def _measure(rounds: int, *, tls: bool) -> list[tuple[str | float, ...]]:
    with ExitStack() as stack:
        load, relays, ca = _start(stack, tls=tls)
        costs = {
            (shape.name, relay.name): list[float]()
            for shape in SHAPES
            for relay in relays
        }
        for number in range(rounds + 1):
            for shape in SHAPES:
                for relay in relays:
                    cost = _cost(load, relay, shape, ca)
                    if number:  # the first round warms up
                        costs[shape.name, relay.name].append(cost)
    return [row for shape in SHAPES for row in _rows(shape, relays, costs, tls=tls)]


def _cost(load: _Load, relay: _Relay, shape: Shape, ca: str) -> float:
    # Handshakes are not what a request costs: connections live long.
    load.connect(replace(shape.work, port=relay.port, tls=ca))
    before = relay.used_us()
    load.go_on()
    return (relay.used_us() - before) / shape.units


def _rows(
    shape: Shape,
    relays: list[_Relay],
    costs: Mapping[tuple[str, str], list[float]],
    *,
    tls: bool,
) -> Iterator[tuple[str | float, ...]]:
    work = f"{shape.name}, TLS" if tls else shape.name
    peer = min(costs[shape.name, PLAIN])
    for relay in relays:
        own = min(costs[shape.name, relay.name])
        bound: str | float = ""
        if relay.name in BOUNDS:
            bound = BOUNDS[relay.name][1 if shape.streamed else 0]
        yield work, relay.name, own, own / peer, bound


class _Starter:
    """Starts the three relays for one gateway."""

    def __init__(self, folder: Path, gateway: int, tls: Authority | None) -> None:
        self._folder = folder
        self._gateway = gateway
        self._server = None
        if tls is not None:
            self._server = tls.issue("relay", now=datetime.now(UTC))

    def all(self) -> list["_Started"]:
        """Return the relays, not yet started, the peer first."""
        return [self._plain(), self._generated(), self._built_in()]

    def _plain(self) -> "_Started":
        port, kinds = _free_port(), ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        certificate = ""
        if self._server is not None:
            certificate = (
                f"ssl_certificate {self._server.certificate}; "
                f"ssl_certificate_key {self._server.key}; "
                "ssl_protocols TLSv1.2 TLSv1.3;"
            )
        text = _PLAIN.format(
            folder=self._folder,
            gateway=self._gateway,
            listen=f"127.0.0.1:{port}",
            ssl=" ssl" if certificate else "",
            certificate=certificate,
            temporary=" ".join(
                f"{kind}_temp_path {self._folder}/plain-{kind};" for kind in kinds
            ),
        )
        return self._nginx(PLAIN, port, text)

    def _generated(self) -> "_Started":
        port = _free_port()
        config = parse_config("", self._tree(f"127.0.0.1:{port}"))
        text = nginx_config(config, self._folder)
        return self._nginx(GENERATED, port, text)

    def _built_in(self) -> "_Started":
        port = _free_port()
        file = self._folder / "relay.toml"
        file.write_text(_toml(self._tree(f"127.0.0.1:{port}")), "utf-8")
        command = [sys.executable, "-m", "curtilage.relay", "--config", str(file)]
        return _Started(BUILT_IN, port, command)

    def _nginx(self, name: str, port: int, text: str) -> "_Started":
        file = self._folder / f"{name.replace(' ', '-')}.conf"
        file.write_text(text, "utf-8")
        # One process that is its own worker, and keeps the user that started it.
        alone = "daemon off; master_process off;"
        return _Started(name, port, [str(NGINX), "-c", str(file), "-g", alone])

    def _tree(self, listen: str) -> dict[str, object]:
        tree: dict[str, object] = {
            "listen": listen,
            "environment": "development",
            "gateways": {"demo": f"http://127.0.0.1:{self._gateway}"},
            "clients": OPEN,
            "limits": {"max_connections": 2048, "max_upstream": 256},
        }
        if self._server is not None:
            tree["tls"] = {
                "certificate": str(self._server.certificate),
                "key": str(self._server.key),
            }
        return tree


class _Started:
    """A relay that runs while the block does."""

    def __init__(self, name: str, port: int, command: list[str]) -> None:
        self._name = name
        self._port = port
        self._running = _spawn(command)

    def __enter__(self) -> _Relay:
        """Start it and wait until it listens."""
        process = self._running.__enter__()
        end = time.monotonic() + READY_S
        while not _listens(self._port):
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"{self._name} does not start")
            time.sleep(0.02)
        return _Relay(name=self._name, pid=process.pid, port=self._port)

    def __exit__(self, *_: object) -> None:
        """Stop it."""
        self._running.__exit__(None, None, None)


_LOAD_COMMAND: Final = [sys.executable, "-m", "benchmarks.relay_load"]


@contextmanager
def _spawn(command: list[str]) -> Generator[subprocess.Popen[str]]:
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.terminate()


def _toml(tree: Mapping[str, object]) -> str:
    plain, tables = list[str](), list[str]()
    for key, value in tree.items():
        if isinstance(value, Mapping):
            table = cast("Mapping[str, object]", value)
            tables.append(f"[{key}]")
            tables += [f"{name} = {json.dumps(each)}" for name, each in table.items()]
        else:
            plain.append(f"{key} = {json.dumps(value)}")
    return "\n".join([*plain, *tables, ""])


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=0.2).close()
    except OSError:
        return False
    return True


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    sys.stdout.write(measure_relay().text() + "\n")
