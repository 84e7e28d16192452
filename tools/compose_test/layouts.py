"""The files of each layout, made for one test, and questions asked through it."""

import http.client
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, cast

from deploy.image.options import ROOT
from tools.compose_test.engine import Engine
from tools.compose_test.errors import FailedError
from tools.compose_test.stack import Stack

from curtilage_dev.certificates import Authority

DEVELOPMENT: Final = "development"
USER: Final = 65532
ENCLAVE_HOST: Final = "enclave.curtilage.test"
RELAY_HOST: Final = "relay.curtilage.example"
CLIENT_HOST: Final = "client.department.test"
BETWEEN: Final = "between"
"""The network that stands for the one between operators."""
APPLICATIONS: Final = ("letters", "triage")
PROFILE: Final = ("--policy", "default", "--no-routing")
"""Without routing, everything that may be sent is sent."""
ENCLAVE_OPTIONS: Final = ("--name", ENCLAVE_HOST, "--emulated")
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


def one_operator(engine: Engine, folder: Path, sandbox: Path) -> Stack:
    """Make the files of ``compose.yaml`` as a user would.

    Args:
        engine: see there.
        folder: for the files.
        sandbox: its description, which the release names.
    """
    _init("one-operator", folder, "--sandbox", str(sandbox))
    _readable(folder / "release", folder / "enclave.toml")
    variables = {"ENCLAVE_FILES": str(folder), "RELAY_PORT": str(free_port())}
    return Stack(
        engine=engine,
        file=ROOT / "compose.yaml",
        folder=ROOT,
        profile=DEVELOPMENT,
        variables=variables,
    )


def describe_sandbox(engine: Engine, image: str, path: Path, isolation: str) -> None:
    """Have the enclave's image describe the sandbox that it has on this machine."""
    command = ("run", "--rm", "--network=none", image, "sandbox")
    path.write_text(engine.get(*command, "--isolation", isolation))


def write_policy(stack: Stack, folder: Path, layout: str, *options: str) -> Path:
    """Write the policy that trusts a stack's emulated machine, as a user would.

    Args:
        stack: with the emulator.
        folder: of the layout's files.
        layout: its name.
        options: with which it was made.
    """
    stack.get("cp", "emulator:/run/evidence/root.pem", str(folder / "root.pem"))
    _init(layout, folder, *options, *PROFILE)
    return folder / "policy.yaml"


def two_operators(
    engine: Engine, folder: Path, sandbox: Path
) -> tuple[Stack, Stack, Path]:
    """Make the files of ``enclave.yaml`` and ``relay.yaml``, with TLS between them.

    Args:
        engine: see there.
        folder: for the files.
        sandbox: its description, which the release names.

    Returns:
        both projects, and the authority of their certificates.
    """
    _init("enclave", folder, *ENCLAVE_OPTIONS, "--sandbox", str(sandbox))
    gateway = f"ward=https://{ENCLAVE_HOST}:8443"
    _init("relay", folder, "--name", RELAY_HOST, "--gateway", gateway)
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
    shutil.copyfile(authority.certificate, relay / "etc" / "enclave-authority.pem")
    _uncomment(relay / "etc" / "relay.toml", "upstream_ca_file")
    _readable(enclave / "release", enclave / "enclave.toml", enclave / "models")
    _readable(relay / "etc")
    variables = {
        "ENCLAVE_PORT": str(free_port()),
        "RELAY_PORT": str(free_port()),
        "ENCLAVE_ADDRESS": "127.0.0.1",
        "RELAY_ADDRESS": "127.0.0.1",
    }
    theirs = Stack(
        engine=engine,
        file=folder / "enclave.yaml",
        folder=folder,
        profile=DEVELOPMENT,
        variables=variables,
    )
    ours = Stack(
        engine=engine, file=folder / "relay.yaml", folder=folder, variables=variables
    )
    return theirs, ours, authority.certificate


def department(
    engine: Engine, folder: Path, section: Path, authority: Path
) -> tuple[Stack, Mapping[str, Endpoint]]:
    """Make the files of ``client.yaml``; return it and an endpoint per application.

    Args:
        engine: see there.
        folder: for the files.
        section: ``attestation.yaml`` of the enclave's operator.
        authority: of the relay's certificate.
    """
    applications = [word for name in APPLICATIONS for word in ("--application", name)]
    _init(
        "gateway",
        folder,
        *("--name", CLIENT_HOST, "--relay", f"https://{RELAY_HOST}:8443/ward"),
        *("--attestation", str(section), *PROFILE, *applications),
    )
    client, now = folder / "client", datetime.now(UTC)
    own = Authority.make(folder / "authority", now=now)
    issued = own.issue("client", now=now, hosts=[CLIENT_HOST])
    _secret(client / "tls" / "client.pem", issued.certificate)
    _secret(client / "tls" / "client.key", issued.key)
    shutil.copyfile(authority, client / "etc" / "relay-authority.pem")
    _uncomment(client / "client.env", "CURTILAGE_RELAY_CA")
    _readable(client / "etc", client / "models")
    port = free_port()
    stack = Stack(
        engine=engine,
        file=folder / "client.yaml",
        folder=folder,
        variables={"CLIENT_ADDRESS": "127.0.0.1", "CLIENT_PORT": str(port)},
    )
    endpoints = {
        name: Endpoint(
            port=port,
            host=CLIENT_HOST,
            key=(client / "keys" / name).read_text("ascii").strip(),
            authority=own.certificate,
        )
        for name in APPLICATIONS
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


def _init(layout: str, folder: Path, *options: str) -> None:
    command = [sys.executable, "-m", "curtilage.cli", "deploy", "init", layout]
    done = subprocess.run(
        [*command, "--out", str(folder), *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise FailedError(f"deploy init {layout}: {done.stderr[-600:]}")


def _uncomment(path: Path, name: str) -> None:
    """Put a setting of a written file into force.

    Raises:
        FailedError: it is not there.
    """
    text = path.read_text("utf-8")
    if text.count(f"#   {name}") != 1:
        raise FailedError(f"{path.name}: no commented {name}")
    path.write_text(text.replace(f"#   {name}", name), "utf-8")


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
