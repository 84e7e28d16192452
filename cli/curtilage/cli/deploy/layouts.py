"""What belongs to each layout: its files, and what comes next.

The paths inside containers are those that the compose files mount.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Final

from cryptography import x509

from curtilage.attest.log.manifest import parse_manifest
from curtilage.attest.sandbox import Isolation
from curtilage.cli.deploy.configurations import (
    GATEWAY_SOCKET,
    INSIDE,
    Places,
    client_env,
    enclave_toml,
    gateway_toml,
    relay_toml,
)
from curtilage.cli.deploy.files import (
    File,
    Kept,
    certificate_request,
    private_key,
    shipped,
    text_file,
)
from curtilage.cli.deploy.release import RELEASE_NAME, Machines
from curtilage.cli.deploy.sections import (
    Trust,
    attestation_section,
    transport_section,
)
from curtilage.client.endpoint.gateway_file import read_gateway_file
from curtilage.client.endpoint.keys import make_key
from curtilage.client.errors import ConfigError
from curtilage.transparency.files import PRIVATE_FILE, read_bounded
from curtilage.transparency.own_log import OwnLog

ONE_OPERATOR: Final = "one-operator"
PROCESSES: Final = "processes"
ENCLAVE: Final = "enclave"
RELAY: Final = "relay"
GATEWAY: Final = "gateway"
FOLDERS: Final[Mapping[str, Sequence[str]]] = MappingProxyType(
    {ENCLAVE: ("enclave/models",), GATEWAY: ("client/models",)}
)
"""Folders that stay empty until the operator puts models there."""
ENCLAVE_TOML: Final = "enclave.toml"
ROOT_FILE: Final = "root.pem"
ATTESTATION_FILE: Final = "attestation.yaml"
POLICY_FILE: Final = "policy.yaml"
MAX_PEM_BYTES: Final = 16 * 1024
LONGEST_SOCKET_PATH: Final = 103
"""``sun_path`` has 108 bytes on Linux and 104 on macOS, with a final zero (unix(7))."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnclaveModel:
    """The model of an enclave.

    Attributes:
        path: as the enclave sees it, or ``embedded``.
        sha256: of the file, hex.
        isolation: what separates requests.
    """

    path: str
    sha256: str
    isolation: Isolation = Isolation.SHARED


def one_operator(out: Path, machines: Machines, model: EnclaveModel) -> Iterator[File]:
    """Yield what ``compose.yaml`` mounts."""
    places = Places(
        listen=f"unix:{GATEWAY_SOCKET}",
        evidence="unix:/run/evidence/emulator.sock",
        release=f"{INSIDE}/release",
        root="/run/evidence/root.pem",
    )
    yield _enclave_file(out / ENCLAVE_TOML, places, machines, model, out)


def processes(out: Path, machines: Machines, model: EnclaveModel) -> Iterator[File]:
    """Yield the configurations of an enclave and a relay on this machine.

    Raises:
        ConfigError: the path of a socket would be too long.
    """
    folder = out.resolve()
    longest = folder / "evidence.sock"
    if len(str(longest).encode()) > LONGEST_SOCKET_PATH:
        raise ConfigError(
            f"{longest}: longer than the {LONGEST_SOCKET_PATH} bytes of a socket's "
            "path; choose a shorter --out"
        )
    places = Places(
        listen=f"unix:{folder / 'enclave.sock'}",
        evidence=f"unix:{longest}",
        release=str(folder / "release"),
        root=str(folder / ROOT_FILE),
        model=model.path,
    )
    yield _enclave_file(out / ENCLAVE_TOML, places, machines, model, out)
    text = relay_toml(
        gateways={"demo": f"unix:{folder / 'enclave.sock'}"},
        listen="127.0.0.1:8080",
        hosts=(),
        tls=False,
    )
    yield text_file(out / "relay.toml", "configuration of the relay", text)


def enclave(
    out: Path, machines: Machines, model: EnclaveModel, *, host: str
) -> Iterator[File]:
    """Yield the files of an enclave's operator."""
    yield from _compose(out, "enclave.yaml")
    folder = out / ENCLAVE
    places = Places(
        listen=f"unix:{GATEWAY_SOCKET}",
        evidence="unix:/run/evidence/evidence.sock",
        release=f"{INSIDE}/release",
        root="/run/evidence/root.pem",
        model=model.path,
    )
    yield _enclave_file(folder / ENCLAVE_TOML, places, machines, model, out)
    yield from _tls(folder / "tls", ENCLAVE, host)


def relay(out: Path, *, host: str, gateways: Mapping[str, str]) -> Iterator[File]:
    """Yield the files of a relay's operator."""
    yield from _compose(out, "relay.yaml")
    text = relay_toml(
        gateways=gateways,
        listen="0.0.0.0:8443",  # inside its container
        hosts=(host, "localhost", "127.0.0.1"),
        tls=True,
    )
    folder = out / RELAY
    yield text_file(folder / "etc" / "relay.toml", "configuration of the relay", text)
    yield from _tls(folder / "tls", RELAY, host)


def gateway(
    out: Path,
    *,
    host: str,
    relay_url: str,
    applications: Sequence[str],
    policy: str,
) -> Iterator[File]:
    """Yield the files of a department's gateway.

    Args:
        out: the folder.
        host: its name.
        relay_url: of the relay, with the enclave's name there.
        applications: each gets a key.
        policy: its text.
    """
    yield from _compose(out, "client.yaml")
    folder = out / "client"
    etc = folder / "etc"
    yield text_file(etc / POLICY_FILE, "the policy", policy)
    settings = etc / "gateway.toml"
    rows: list[str] = []
    if settings.exists():
        _require_applications(settings, applications)
    else:
        for name in applications:
            key, record = make_key(name)
            yield _key_file(folder / "keys" / name, name, key)
            rows.append(record.row())
    yield text_file(
        settings,
        "the gateway's settings, with digests of the applications' keys",
        gateway_toml(names=(host,), rows=rows),
        # Its rows are all that is left of keys that were given away.
        kept=Kept.ALWAYS,
    )
    yield text_file(
        folder / "client.env",
        "the container's environment",
        client_env(relay=relay_url),
    )
    yield from _tls(folder / "tls", "client", host)


def sections(out: Path, machines: Machines) -> str:
    """Return the sections of a policy that accepts this deployment.

    Raises:
        ConfigError: the emulator's root is not there yet.
        FileError: a file of the release cannot be read.
    """
    log = OwnLog(out / "log")
    root = out / ROOT_FILE
    pem = read_root(root) if machines.emulated else b""
    comment = "What a client must see of this deployment before it sends anything."
    if machines.emulated:
        comment = "FOR TRYING: emulated evidence, which proves no isolation."
    manifest = parse_manifest(log.manifest())
    trust = Trust(
        environment=machines.environment,
        roots=machines.roots(pem),
        kinds=machines.kinds,
        name=RELEASE_NAME,
        log=log.fields(),
        min_tcb=machines.min_tcb,
        sandboxes=[manifest.sandbox] if manifest.sandbox else [],
    )
    text = attestation_section(trust, comment=comment)
    return text + transport_section(manifest.transport)


def read_root(path: Path) -> bytes:
    """Read the root of emulated evidence.

    Raises:
        ConfigError: it is missing, or no certificate.
    """
    if not path.is_file():
        raise ConfigError(f"{path}: missing; the emulator writes it when it starts")
    pem = read_bounded(path, MAX_PEM_BYTES)
    try:
        x509.load_pem_x509_certificate(pem)
    except ValueError:
        raise ConfigError(
            f"{path}: no certificate in PEM; the emulator writes it when it starts"
        ) from None
    return pem


def _enclave_file(
    path: Path, places: Places, machines: Machines, model: EnclaveModel, out: Path
) -> File:
    def content() -> bytes:
        return enclave_toml(
            places,
            environment=machines.environment,
            roots=machines.roots(),
            model=model.sha256,
            isolation=model.isolation,
            log=OwnLog(out / "log").table(),
        ).encode()

    return File(path=path, what="configuration of the enclave", content=content)


def _compose(out: Path, name: str) -> Iterator[File]:
    filters = ("seccomp.json", "the containers' filter of system calls")
    for each, what in ((name, "for compose"), filters):
        yield File(path=out / each, what=what, content=partial(shipped, each))


def _tls(folder: Path, name: str, host: str) -> Iterator[File]:
    key = folder / f"{name}.key"
    yield File(
        path=key,
        what="the private key for TLS",
        content=private_key,
        kept=Kept.ALWAYS,
        mode=PRIVATE_FILE,
    )
    yield File(
        path=folder / f"{name}.csr",
        what=f"the request for a certificate of {host}",
        content=lambda: certificate_request(key, host),
        # By now the key may be readable for the containers' user alone.
        kept=Kept.UNLESS_ASKED if key.exists() else Kept.NEVER,
    )


def _key_file(path: Path, name: str, key: str) -> File:
    if path.exists():
        raise ConfigError(
            f"{path}: the key of {name} is there, and the settings with its digest are "
            "not; bring them back, or remove the key"
        )
    return File(
        path=path,
        what=f"the key of the application {name}, to give to it",
        content=f"{key}\n".encode,
        kept=Kept.ALWAYS,
        mode=PRIVATE_FILE,
    )


def _require_applications(settings: Path, applications: Sequence[str]) -> None:
    """Refuse an application that settings which are kept do not have."""
    known = {each.name for each in read_gateway_file(settings).records}
    for name in applications:
        if name not in known:
            raise ConfigError(
                f"{settings}: kept, and {name} has no row in it; `curtilage gateway "
                f"make-key {name}` prints a key and its row"
            )
