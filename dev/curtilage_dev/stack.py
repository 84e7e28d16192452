"""A whole deployment of real processes on loopback, in one folder.

The demo, the end-to-end tests and the benchmarks start it, piece by piece, so that each
may change a piece first. All files are below one folder, which its owner deletes.
"""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Protocol

from curtilage.attest.evidence import Tee
from curtilage.attest.log.manifest import GpuRelease
from curtilage.inference.default_model import DEFAULT_SHA256
from curtilage.wire.shaping import PADDED, TransportParameters
from curtilage_dev import devlog
from curtilage_dev.certificates import Authority
from curtilage_dev.emulated.gpu import PRODUCT as GPU_PRODUCT
from curtilage_dev.emulated.gpu import ordinary_release
from curtilage_dev.emulated.machines import RSA_KINDS
from curtilage_dev.emulator import GPU_ROOT_FILE, ROOT_FILE
from curtilage_dev.policy import Emulated, development_policy, product_of, read_emulated
from curtilage_dev.processes import Process, ProcessError, Processes
from curtilage_dev.scripted_enclave import SCRIPTED_SHA256, Play

GATEWAY: Final = "demo"
NODES: Final = "abcdefgh"
"""Ids of a pool's nodes."""
MEASUREMENT: Final = hashlib.sha384(b"curtilage development image").hexdigest()
EMBEDDED: Final = "embedded"
DEVELOPMENT: Final = Path(__file__).resolve().parents[1]
# Without the final zero; sun_path has 108 bytes on Linux, 104 on macOS (unix(7),
# unix(4)).
LONGEST_SOCKET_PATH: Final = 103
FETCH: Final = """\
import ssl, sys, urllib.request
context = ssl.create_default_context(cafile=sys.argv[2] or None)
opener = urllib.request.build_opener(
    urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
)
sys.stdout.buffer.write(opener.open(sys.argv[1], timeout=20).read())
"""


class Timed(Protocol):
    """Wraps one step, to show its progress."""

    def __call__(self, title: str, /) -> AbstractContextManager[None]:
        """Return the wrapper of a step called ``title``."""
        ...


def untimed(title: str, /) -> AbstractContextManager[None]:
    """Show nothing."""
    del title
    return nullcontext()


@dataclass(slots=True, kw_only=True)
class Stack:
    """The processes and their addresses.

    Attributes:
        folder: contains all files.
        processes: stops them all.
        model: ``embedded``, or a GGUF file, on both sides.
        model_sha256: that file's digest.
        record: whether a recorder in front of relay and enclave records the traffic.
        measurement: that the emulated processor reports.
        tee: the kind of the emulated processor.
        gpus: how many GPUs the emulated machine has.
        nodes: how many enclaves there are; more than one are a pool, with the ids
            ``NODES``, all identical and on one emulated machine.
        enclave_extra: lines added to the enclave's configuration.
        relay_extra: lines added to the relay's configuration.
        transport: how the release shapes its answers; the policy accepts this.
        tls: whether both hops use TLS, under certificates made for this run.
        profile: the policy's text up to its sections about enclaves; empty: the
            shipped default.
        routed: whether the policy keeps its section ``routing``.
        play: the script that replaces the enclave's model; None: the model.
        timed: wraps each step.
        environment: added to that of every process.
    """

    folder: Path
    processes: Processes
    model: str = EMBEDDED
    model_sha256: str = ""
    record: bool = False
    measurement: str = MEASUREMENT
    tee: Tee = Tee.EMULATED_SEV_SNP
    gpus: int = 0
    nodes: int = 1
    enclave_extra: str = ""
    relay_extra: str = ""
    transport: TransportParameters = PADDED
    tls: bool = False
    profile: str = ""
    routed: bool = False
    play: Play | None = None
    timed: Timed = untimed
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    running: dict[str, Process] = field(default_factory=dict[str, Process])
    enclave_address: str = ""
    node_addresses: dict[str, str] = field(default_factory=dict[str, str])
    relay_address: str = ""
    client_url: str = ""
    _authority: Authority | None = None
    _recorded: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def policy(self) -> Path:
        """The client's policy file."""
        return self.folder / "policy.yaml"

    @property
    def release(self) -> Path:
        """The release: manifest, proof, checkpoint."""
        return self.folder / "release"

    @property
    def evidence_socket(self) -> Path:
        """The emulated processor's socket."""
        return self.folder / "evidence.sock"

    @property
    def state(self) -> Path:
        """The folder that replaces the user's home folder."""
        return self.folder / "state"

    @property
    def audit(self) -> Path:
        """The client's audit log."""
        return self.state / "curtilage" / "audit"

    @property
    def relay_view(self) -> Path:
        """The traffic in front of the relay, a line for each exchange."""
        return self.folder / "relay-view.jsonl"

    @property
    def enclave_view(self) -> Path:
        """The traffic in front of the enclave, a line for each exchange."""
        return self.folder / "enclave-view.jsonl"

    @property
    def relay_url(self) -> str:
        """The gateway's address at the relay."""
        return f"{self._scheme}://{self.relay_address}/{GATEWAY}"

    @property
    def authority(self) -> Path | None:
        """The root that clients and relay trust; None without TLS."""
        return self._issuer.certificate if self.tls else None

    def start_all(self) -> None:
        """Start everything; the client's slow start overlaps the others'."""
        slow = " (makes two RSA-4096 keys)" if self.tee in RSA_KINDS else ""
        with self.timed(f"{self._machine}{slow}"):
            self.start_evidence()
        with self.timed("development log: one release, logged and witnessed"):
            self.publish()
        with self.timed("enclave server: model, key in memory, evidence"):
            self.start_enclave()
        with self.timed("relay"):
            self.start_relay()
        with self.timed("client: detectors, local model, endpoint"):
            self.start_client()

    def start_evidence(self) -> None:
        """Start the emulated processor."""
        if len(os.fsencode(self.evidence_socket)) > LONGEST_SOCKET_PATH:
            raise ProcessError(
                "the temporary folder's path is too long for a socket; "
                "set TMPDIR to a shorter one, for example /tmp"
            )
        process = self._start(
            "emulator",
            "curtilage_dev.emulator",
            "--state",
            str(self.folder),
            "--listen",
            f"unix:{self.evidence_socket}",
            "--measurement",
            self.measurement,
            "--tee",
            self.tee.value,
            "--gpus",
            str(self.gpus),
        )
        process.wait_ready()

    def publish(self, *, measurement: str | None = None) -> None:
        """Log the release and write the policy that accepts it."""
        devlog.create(
            self.release,
            devlog.ReleaseArguments(
                version="0.1.0",
                source="development",
                measurements=(measurement or self.measurement,),
                models=(self._released_model,),
                transport=self.transport,
                tee=self.tee,
                gpu=ordinary_release() if self.gpus else GpuRelease(),
            ),
            now=datetime.now(UTC),
        )
        text = development_policy(
            machine=self.emulated,
            log=(self.release / devlog.LOG_FILE).read_bytes(),
            transport=self.transport,
            profile=self.profile,
            routed=self.routed,
        )
        self.policy.write_text(text, "utf-8")

    def start_enclave(self) -> None:
        """Start the enclave server on a free port, or again on the same one.

        For a pool, all nodes in parallel.
        """
        if self.nodes == 1:
            process = self._run_enclave("enclave", self.enclave_address)
            address = listen_address(process.wait_ready())
            self.enclave_address = self._seen_at("enclave", address)
            return
        for node in NODES[: self.nodes]:
            self.begin_node(node)
        for node in NODES[: self.nodes]:
            self.wait_node(node)

    def begin_node(self, node: str) -> None:
        """Start one of a pool's nodes, or again on the same port."""
        self._run_enclave(f"enclave-{node}", self.node_addresses.get(node, ""))

    def wait_node(self, node: str) -> None:
        """Wait until a node is ready."""
        name = f"enclave-{node}"
        address = listen_address(self.running[name].wait_ready())
        self.node_addresses[node] = self._seen_at(name, address)

    def _run_enclave(self, name: str, address: str) -> Process:
        config = self.folder / f"{name}.toml"
        config.write_text(self._enclave_config(name, address), "utf-8")
        program, played = "curtilage.enclave_server", tuple[str, ...]()
        if self.play is not None:
            program, played = "curtilage_dev.scripted_enclave", self.play.arguments()
        return self._start(name, program, "--config", str(config), *played)

    def start_relay(self) -> None:
        """Start the relay on a free port, or again on the same one."""
        config = self.folder / "relay.toml"
        upstreams = {GATEWAY: self.enclave_address}
        if self.nodes > 1:
            upstreams = {
                f"{GATEWAY}.{node}": address
                for node, address in self.node_addresses.items()
            }
        gateways = "".join(
            f"{name} = {json.dumps(f'{self._scheme}://{address}')}\n"
            for name, address in upstreams.items()
        )
        trusted = f"upstream_ca_file = {json.dumps(str(self.authority))}\n"
        config.write_text(
            'environment = "development"\n'
            f"listen = {json.dumps(self._listen('relay', self.relay_address))}\n"
            f"{trusted if self.tls else ''}"
            f"[gateways]\n{gateways}"
            f"{self._tls_table('relay')}{self.relay_extra}",
            "utf-8",
        )
        process = self._start("relay", "curtilage.relay", "--config", str(config))
        address = listen_address(process.wait_ready())
        self.relay_address = self._seen_at("relay", address)

    def start_client(self, *extra: str, name: str = "client") -> None:
        """Start the client's endpoint on a free port, or as a gateway's file says."""
        arguments = ["serve", "--policy", str(self.policy)]
        arguments += [] if "--gateway" in extra else ["--port", "0"]
        arguments += ["--relay", self.relay_url]
        if self.authority is not None:
            arguments += ["--relay-ca", str(self.authority)]
        if self.model != EMBEDDED:
            arguments += ["--model", self.model, "--model-sha256", self.model_sha256]
        process = self._start(name, "curtilage.cli", *arguments, *extra)
        self.client_url = str(process.wait_ready()["listen"])

    def fetch_bundle(self) -> Path:
        """Fetch the bundle through the relay, as any client does; return its file."""
        path = self.folder / "bundle.json"
        path.write_bytes(_get(f"{self.relay_url}/bundle", self.authority))
        return path

    @property
    def emulated(self) -> Emulated:
        """The machine, as a policy accepts it."""
        return read_emulated(self.folder, self.tee, self.gpus)

    @property
    def _machine(self) -> str:
        gpus = f" with {self.gpus} GPU" if self.gpus else ""
        plural = "s" if self.gpus > 1 else ""
        return f"emulated processor, {self.tee.value}{gpus}{plural}"

    @property
    def _released_model(self) -> str:
        if self.play is not None:
            return SCRIPTED_SHA256
        return self.model_sha256 or DEFAULT_SHA256

    @property
    def _scheme(self) -> str:
        return "https" if self.tls else "http"

    @property
    def _issuer(self) -> Authority:
        if self._authority is None:
            now = datetime.now(UTC)
            self._authority = Authority.make(self.folder / "tls", now=now)
        return self._authority

    def _tls_table(self, name: str) -> str:
        """Return a server's ``[tls]`` and make its certificate."""
        if not self.tls:
            return ""
        server = self._issuer.issue(name, now=datetime.now(UTC))
        return (
            f"[tls]\ncertificate = {json.dumps(str(server.certificate))}\n"
            f"key = {json.dumps(str(server.key))}\n"
        )

    def _start(self, name: str, module: str, *arguments: str) -> Process:
        environment = {"XDG_STATE_HOME": str(self.state), **self.environment}
        if module.startswith("curtilage_dev"):
            environment["PYTHONPATH"] = str(DEVELOPMENT)
        process = self.processes.start(
            name, ["-m", module, *arguments], environment=environment
        )
        self.running[name] = process
        return process

    def _listen(self, name: str, address: str) -> str:
        """Return the address to listen on: the previous one, or any free port."""
        return self._recorded.get(name) or address or "127.0.0.1:0"

    def _seen_at(self, name: str, address: str) -> str:
        """Return the address at which others reach a party: its recorder's, if any."""
        if not self.record:
            return address
        recorder = f"{name}-recorder"
        if name not in self._recorded:
            view = self.folder / f"{name}-view.jsonl"
            arguments = ["--to", address, "--record", str(view)]
            if self.tls:
                own = self._issuer.issue(recorder, now=datetime.now(UTC))
                arguments += ["--certificate", str(own.certificate)]
                arguments += ["--key", str(own.key), "--ca", str(self.authority)]
            self._start(recorder, "curtilage_dev.recorder", *arguments)
            self._recorded[name] = address
        return listen_address(self.running[recorder].wait_ready())

    def _gpu_anchor_lines(self) -> list[str]:
        if not self.gpus:
            return []
        return _anchor_lines(GPU_PRODUCT, self.folder / GPU_ROOT_FILE)

    def _enclave_config(self, name: str, address: str) -> str:
        lines = [
            'environment = "development"',
            f"listen = {json.dumps(self._listen(name, address))}",
            f"evidence = {json.dumps(f'unix:{self.evidence_socket}')}",
            f"release = {json.dumps(str(self.release))}",
            *_anchor_lines(product_of(self.emulated), self.folder / ROOT_FILE),
            *self._gpu_anchor_lines(),
            devlog.log_table(self.release).rstrip(),
            "[model]",
            f"path = {json.dumps(self.model)}",
        ]
        if self.model_sha256:
            lines.append(f"sha256 = {json.dumps(self.model_sha256)}")
        text = "\n".join(lines)
        return f"{text}\n{self._tls_table(name)}{self.enclave_extra}\n"


def _anchor_lines(product: str, certificate: Path) -> list[str]:
    return [
        "[[trust_anchors]]",
        'kind = "emulated"',
        f"product = {json.dumps(product)}",
        f"certificate = {json.dumps(str(certificate))}",
    ]


def listen_address(ready: dict[str, object]) -> str:
    """Return ``host:port`` from a process's ready line."""
    return str(ready["listen"]).rpartition("/")[2]


def _get(url: str, authority: Path | None) -> bytes:
    """Fetch with another program, so that none of our code is involved."""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            FETCH,
            url,
            "" if authority is None else str(authority),
        ],
        capture_output=True,
        check=True,
    )
    return done.stdout
