"""The images, and what each holds: parts of ours, libraries, how it is started."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from deploy.image.rootfs import ENVIRONMENT, PYTHON, PYTHON_OPTIONS

from curtilage.sandbox.parent import FORGETTING

USER: Final = 65532
"""The number of the only user besides root; no account of usual systems has it."""
AUTHORITIES: Final = "etc/ssl/certs/ca-certificates.crt"
HEALTH: Final = "usr/lib/curtilage/health.py"
DOOR: Final = "usr/lib/curtilage/door.py"
STATE: Final = "/var/lib"

_ALL: Final = {
    "PATH": "/nonexistent",
    "HOME": "/nonexistent",
    "LANG": "C.UTF-8",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONUNBUFFERED": "1",
    "SSL_CERT_FILE": f"/{AUTHORITIES}",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """One image.

    Attributes:
        parts: folders of the tree whose code it holds.
        requirements: the file of hash-pinned libraries.
        module: what it runs.
        arguments: unless compose gives others.
        environment: further to that of all images.
        folders: where compose mounts something.
        state: where it mounts a volume that the program keeps its state in.
        engine: whether it holds the engine, and with it the embedded model, if wanted.
        door: whether it holds the program that ends TLS in front of a UNIX socket.
        development: whether it holds the development tools.
    """

    parts: Sequence[str]
    requirements: str
    module: str
    arguments: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    folders: Sequence[str] = ()
    state: Sequence[str] = ()
    engine: bool = False
    door: bool = False
    development: bool = False

    @property
    def entry(self) -> tuple[str, ...]:
        """The program and its first arguments."""
        return (PYTHON, *PYTHON_OPTIONS, "-m", self.module)

    @property
    def whole_environment(self) -> Mapping[str, str]:
        """Every variable that the program sees."""
        return {**_ALL, **self.environment}


ROLES: Final[Mapping[str, Role]] = {
    "relay": Role(
        parts=("relay",),
        requirements="relay.txt",
        module="curtilage.relay",
        arguments=("--config", "/etc/curtilage/relay.toml"),
        folders=("run/enclave",),
    ),
    # The server; the same image runs the evidence process, the stapler and the door.
    "enclave": Role(
        parts=("sandbox", "wire", "attest", "inference", "enclave_server"),
        requirements="enclave.txt",
        module="curtilage.enclave_server",
        arguments=("--config", "/etc/curtilage/enclave.toml"),
        environment=ENVIRONMENT,
        folders=(
            "run/enclave",
            "run/evidence",
            "run/identify",
            "run/endorsements",
            "models",
        ),
        engine=True,
        door=True,
    ),
    "client": Role(
        parts=(
            *("sandbox", "wire", "attest", "inference"),
            *("policy", "client", "transparency", "cli"),
        ),
        requirements="client.txt",
        module="curtilage.cli",
        arguments=("serve",),
        environment={
            **FORGETTING,
            "XDG_STATE_HOME": STATE,
            "XDG_DATA_HOME": "/usr/share",
        },
        folders=("usr/share/curtilage", "models"),
        state=("var/lib/curtilage",),
        engine=True,
    ),
    "emulator": Role(
        parts=("wire", "attest"),
        requirements="enclave.txt",
        module="curtilage_dev.emulator",
        arguments=(),
        folders=("run/evidence",),
        development=True,
    ),
}
