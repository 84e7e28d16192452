"""The files of each layout, made for one test, and questions asked through it."""

import http.client
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, cast

from deploy.image.options import ROOT
from tools.compose_test.engine import Engine
from tools.compose_test.errors import FailedError
from tools.compose_test.stack import Stack

from curtilage.attest.evidence import Tee
from curtilage_dev import devlog
from curtilage_dev.certificates import Authority
from curtilage_dev.emulator import released_image

COMPOSE: Final = ROOT / "deploy" / "compose"
PREPARE: Final = ROOT / "deploy" / "prepare.py"
DEVELOPMENT: Final = "development"
USER: Final = 65532
ENCLAVE_HOST: Final = "enclave.curtilage.test"
RELAY_HOST: Final = "relay.curtilage.example"
CLIENT_HOST: Final = "client.department.test"
BETWEEN: Final = "between"
"""The network that stands for the one between operators."""
APPLICATIONS: Final = ("letters", "triage")
ANSWER_S: Final = 180.0
MAX_TOKENS: Final = 24
ENCLAVE: Final = "enclave"
LOCAL: Final = "local"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where questions are asked.

    Attributes:
        port: on 127.0.0.1.
        host: what Host says.
        key: an application's key, or empty.
        authority: of the certificate, PEM; None: without TLS.
    """

    port: int
    host: str = "127.0.0.1"
    key: str = ""
    authority: Path | None = None

    def ask(self, text: str, *, max_tokens: int = MAX_TOKENS) -> "Answered":
        """Ask one question and return what came of it.

        Raises:
            ConnectionError: it failed, or ended before the answer did.
        """
        try:
            return self._ask(text, max_tokens)
        except (OSError, http.client.HTTPException) as error:
            raise ConnectionError(type(error).__name__) from None

    def _ask(self, text: str, max_tokens: int) -> "Answered":
        connection = self._connection()
        headers = {"Content-Type": "application/json", "Host": self.host}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        body = {
            "model": "curtilage",
            "messages": [{"role": "user", "content": text}],
            "max_tokens": max_tokens,
            "temperature": 0,
        }
        try:
            connection.request(
                "POST", "/v1/chat/completions", json.dumps(body), headers
            )
            answer = connection.getresponse()
            content = cast("dict[str, Any]", json.loads(answer.read()))
        finally:
            connection.close()
        error = cast("dict[str, Any]", content.get("error") or {})
        return Answered(
            status=answer.status,
            route=answer.getheader("x-curtilage-route") or "",
            code=str(error.get("code") or ""),
        )

    def _connection(self) -> http.client.HTTPConnection:
        if self.authority is None:
            return http.client.HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_S)
        context = ssl.create_default_context(cafile=str(self.authority))
        return http.client.HTTPSConnection(
            "127.0.0.1", self.port, timeout=ANSWER_S, context=context
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """What came of a question.

    Attributes:
        status: of HTTP.
        route: where it was answered.
        code: of the error, or empty.
    """

    status: int
    route: str
    code: str


def one_operator(engine: Engine, folder: Path) -> Stack:
    """Make the files of ``compose.yaml`` as a user would."""
    _run([sys.executable, str(PREPARE), "--out", str(folder)])
    _readable(folder / "release", folder / "enclave.toml")
    variables = {"ENCLAVE_FILES": str(folder), "RELAY_PORT": str(free_port())}
    return Stack(
        engine=engine,
        file=ROOT / "compose.yaml",
        folder=ROOT,
        profile=DEVELOPMENT,
        variables=variables,
    )


def policy_of(stack: Stack, folder: Path, service: str = "emulator") -> Path:
    """Write the policy that trusts a stack's emulated machine, as a user would."""
    root = folder / "root.pem"
    stack.get("cp", f"{service}:/run/evidence/root.pem", str(root))
    _run([sys.executable, str(PREPARE), "--out", str(folder), "--policy", str(root)])
    return folder / "policy.yaml"


def two_operators(engine: Engine, folder: Path) -> tuple[Stack, Stack, Path]:
    """Make the files of ``enclave.yaml`` and ``relay.yaml``, with TLS between them.

    Returns:
        both projects, and the authority of their certificates.
    """
    now = datetime.now(UTC)
    authority = Authority.make(folder / "authority", now=now)
    enclave, relay = folder / "enclave", folder / "relay"
    for place, name, host in (
        (enclave, "enclave", ENCLAVE_HOST),
        (relay, "relay", RELAY_HOST),
    ):
        issued = authority.issue(name, now=now, hosts=[host])
        _secret(place / "tls" / f"{name}.pem", issued.certificate)
        _secret(place / "tls" / f"{name}.key", issued.key)
    _run([sys.executable, str(PREPARE), "--out", str(enclave)])
    (enclave / "enclave.toml").write_text(_enclave_config(enclave), "utf-8")
    (enclave / "models").mkdir()
    _readable(enclave / "release", enclave / "enclave.toml", enclave / "models")
    (relay / "etc").mkdir()
    shutil.copyfile(authority.certificate, relay / "etc" / "enclave-authority.pem")
    (relay / "etc" / "relay.toml").write_text(_relay_config(), "utf-8")
    _readable(relay / "etc")
    ports = {"ENCLAVE_PORT": str(free_port()), "RELAY_PORT": str(free_port())}
    places = {"ENCLAVE_FILES": str(enclave), "RELAY_FILES": str(relay)}
    loopback = {"ENCLAVE_ADDRESS": "127.0.0.1", "RELAY_ADDRESS": "127.0.0.1"}
    variables = {
        **ports,
        **places,
        **loopback,
        "ENCLAVE_MODELS": str(enclave / "models"),
    }
    theirs = Stack(
        engine=engine,
        file=COMPOSE / "enclave.yaml",
        folder=COMPOSE,
        profile=DEVELOPMENT,
        variables=variables,
    )
    ours = Stack(
        engine=engine,
        file=COMPOSE / "relay.yaml",
        folder=COMPOSE,
        variables=variables,
    )
    return theirs, ours, authority.certificate


def department(
    engine: Engine, folder: Path, policy: Path, authority: Path
) -> tuple[Stack, Mapping[str, Endpoint]]:
    """Make the files of ``client.yaml``; return it and an endpoint per application."""
    now = datetime.now(UTC)
    own = Authority.make(folder / "authority", now=now)
    issued = own.issue("client", now=now, hosts=[CLIENT_HOST])
    _secret(folder / "tls" / "client.pem", issued.certificate)
    _secret(folder / "tls" / "client.key", issued.key)
    made = {name: _make_key(name) for name in APPLICATIONS}
    etc = folder / "etc"
    etc.mkdir()
    (folder / "models").mkdir()
    shutil.copyfile(policy, etc / "policy.yaml")
    shutil.copyfile(authority, etc / "relay-authority.pem")
    rows = [row for _, row in made.values()]
    (etc / "gateway.toml").write_text(_gateway_config(rows), "utf-8")
    (folder / "client.env").write_text(
        f"CURTILAGE_RELAY=https://{RELAY_HOST}:8443/ward\n"
        "CURTILAGE_RELAY_CA=/etc/curtilage/relay-authority.pem\n",
        "utf-8",
    )
    _readable(etc, folder / "models")
    port = free_port()
    stack = Stack(
        engine=engine,
        file=COMPOSE / "client.yaml",
        folder=COMPOSE,
        variables={
            "CLIENT_FILES": str(folder),
            "CLIENT_MODELS": str(folder / "models"),
            "CLIENT_ADDRESS": "127.0.0.1",
            "CLIENT_PORT": str(port),
        },
    )
    endpoints = {
        name: Endpoint(port=port, host=CLIENT_HOST, key=key, authority=own.certificate)
        for name, (key, _) in made.items()
    }
    return stack, endpoints


def join_networks(engine: Engine, hosts: Mapping[str, tuple[Stack, str]]) -> None:
    """Put containers into the network between operators, under these names."""
    if engine.run("network", "inspect", BETWEEN).returncode != 0:
        engine.get("network", "create", BETWEEN)
    for host, (stack, service) in hosts.items():
        container = str(stack.container(service)["Id"])
        engine.get("network", "connect", "--alias", host, BETWEEN, container)


def free_port() -> int:
    """Return a port of loopback that nothing uses at present."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def emulated_measurement(folder: Path) -> bytes:
    """Return what the release in a folder names."""
    return released_image(folder / "release", Tee.EMULATED_SEV_SNP)


def _enclave_config(folder: Path) -> str:
    text = (ROOT / "deploy" / "enclave.toml").read_text("utf-8")
    text = text.replace("emulator.sock", "evidence.sock")
    return f"{text}\n{devlog.log_table(folder / 'log')}"


def _relay_config() -> str:
    return f"""\
listen = "0.0.0.0:8443"
hosts = ["{RELAY_HOST}", "localhost", "127.0.0.1"]
upstream_ca_file = "/etc/curtilage/enclave-authority.pem"

[gateways]
ward = "https://{ENCLAVE_HOST}:8443"

[tls]
certificate = "/run/secrets/certificate"
key = "/run/secrets/key"
"""


def _gateway_config(rows: Sequence[str]) -> str:
    return f"""\
listen = "0.0.0.0:8443"
names = ["{CLIENT_HOST}"]
keys = {json.dumps(list(rows))}

[tls]
certificate = "/run/secrets/certificate"
key = "/run/secrets/key"
"""


def _make_key(name: str) -> tuple[str, str]:
    command = [sys.executable, "-m", "curtilage.cli", "gateway", "make-key", name]
    made = cast("dict[str, str]", json.loads(_run([*command, "--json"])))
    return made["key"], made["row"]


def _secret(path: Path, source: Path) -> None:
    """Copy a file for the containers' user alone."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_bytes(source.read_bytes())
    os.chown(path, USER, USER)
    path.chmod(0o400)
    path.parent.chmod(0o755)


def _readable(*places: Path) -> None:
    for place in places:
        for each in (place, *place.rglob("*")):
            each.chmod(0o755 if each.is_dir() else 0o644)


def _run(command: Sequence[str]) -> str:
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise FailedError(f"{' '.join(command[1:4])}: {done.stderr[-600:]}")
    return done.stdout
