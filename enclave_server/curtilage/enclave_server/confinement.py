"""The sandbox that this server is in, as its evidence states it.

The server locks itself, its engine's process too, and each tries to get out. What both
found becomes the statement, whose digest is that of what was loaded: a release that
names another one is refused, whatever it says.
"""

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from curtilage.attest.encoding.strict_json import canonical_json
from curtilage.attest.sandbox import (
    DESCRIPTION_FORM,
    Ephemerality,
    Isolation,
    Memory,
    ProcessResult,
    SandboxStatement,
    SelfTest,
)
from curtilage.enclave_server.errors import SandboxError
from curtilage.sandbox.memory import overwrites_freed
from curtilage.sandbox.parent import FORGETTING
from curtilage.sandbox.trial import (
    LOCKED,
    NO_SWAP,
    Trial,
    engine_description,
    landlock_version,
    lock_server,
    server_description,
)
from curtilage.sandbox.wall import Layer, Loaded, Wall

if TYPE_CHECKING:
    from curtilage.inference.protocol import EngineInfo

ENGINE: Final = "engine"
SERVER: Final = "server"
SETTINGS: Final = FORGETTING
"""Of the allocator, in the environment of both processes."""
_NEEDED: Final = (Layer.LANDLOCK, Layer.SECCOMP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Confined:
    """A server that has locked itself.

    Attributes:
        wall: the layers around it.
        trial: what it found when it tried to get out.
        overwrites: whether memory that it frees is overwritten.
    """

    wall: Wall
    trial: Trial
    overwrites: bool = False

    @property
    def connects(self) -> bool:
        """Whether it may still open connections."""
        return Layer.SECCOMP not in self.wall.standing


def lock() -> Confined:
    """Lock this process for good, as far as the kernel can.

    From now on it serves the sockets that it has, reads files, and does nothing else.
    """
    overwrites = overwrites_freed()
    wall, trial = lock_server()
    return Confined(wall=wall, trial=trial, overwrites=overwrites)


def require_closed(server: Confined, engine: Trial | None) -> None:
    """Refuse to serve from a sandbox that an attempt got out of.

    Raises:
        SandboxError: one succeeded.
    """
    for name, trial in ((SERVER, server.trial), (ENGINE, engine)):
        if trial is not None and trial.succeeded:
            escapes = ", ".join(trial.succeeded)
            raise SandboxError(f"self-test: the {name} can {escapes}")


def lacking(
    server: Confined, engine: Trial | None, info: "EngineInfo | None"
) -> tuple[str, ...]:
    """Return why this enclave states no sandbox; empty: it states one.

    Args:
        server: this process.
        engine: what the engine's process found; None: it has not tried.
        info: as that process describes itself; None: it is another program.
    """
    wall = server.wall
    absent = [
        next((why for why in wall.missing if why.startswith(layer)), f"no {layer}")
        for layer in _NEEDED
        if layer not in wall.standing
    ]
    found = [f"{SERVER}: {each}" for each in (*absent, *server.trial.early)]
    if engine is None or info is None:
        found.append(f"{ENGINE}: it is not a process of ours")
    else:
        found += [f"{ENGINE}: {each}" for each in engine.early]
        if not engine.answers:
            found.append(f"{ENGINE}: Landlock or seccomp is missing")
        if info.paging == "possible" or _memory(server.trial, engine) is None:
            found.append("memory may be swapped to a disk, and cannot be locked")
    return tuple(found)


def statement_of(
    server: Confined, engine: Trial, info: "EngineInfo"
) -> SandboxStatement:
    """Return what this enclave states; call it where nothing is ``lacking``.

    Args:
        server: this process.
        engine: what the engine's process found.
        info: as that process describes itself.
    """
    # The server holds each request, too.
    forgets = info.ephemerality if server.overwrites else Ephemerality.NONE
    parts = {SERVER: server.trial, ENGINE: engine}
    loaded = _digest({name: trial.loaded for name, trial in parts.items()})
    return SandboxStatement(
        loaded=loaded,
        result=SelfTest(
            landlock_abi=server.trial.landlock,
            memory=_memory(server.trial, engine) or Memory.LOCKED,
            processes=tuple(
                ProcessResult(
                    name=name,
                    denied=tuple(sorted(set(trial.answers) - set(trial.succeeded))),
                    succeeded=trial.succeeded,
                )
                for name, trial in sorted(parts.items())
            ),
        ),
        isolation=Isolation(info.isolation),
        ephemerality=Ephemerality(forgets),
    )


def description(
    *, machine: str = "", landlock: int = 0, devices: bool, forks: bool = False
) -> bytes:
    """Return the description whose digest a release names, without loading anything.

    Args:
        machine: as ``platform.machine()`` names it; empty: this one.
        landlock: the kernel's version of Landlock; 0: this kernel's.
        devices: whether the engine drives GPUs.
        forks: whether it answers each request in a process of its own.

    Raises:
        SandboxError: there is no sandbox for this machine or kernel.
    """
    machine = machine or platform.machine()
    landlock = landlock or landlock_version()
    if not landlock:
        raise SandboxError("this kernel has no Landlock")
    try:
        return _described(
            machine,
            {
                SERVER: server_description(machine, landlock),
                ENGINE: engine_description(
                    machine, landlock, devices=devices, forks=forks
                ),
            },
        )
    except KeyError:
        raise SandboxError(f"there is no sandbox for {machine}") from None


def require_described(digest: str, *, devices: bool, forks: bool = False) -> None:
    """Refuse a digest that this server, on this kernel, would not load.

    Args:
        digest: that the release names, hex.
        devices: whether the engine drives GPUs.
        forks: whether it answers each request in a process of its own.

    Raises:
        SandboxError: it is another one.
    """
    ours = sha256(description(devices=devices, forks=forks)).hexdigest()
    if digest != ours:
        raise SandboxError(f"it names the sandbox {digest}; here it would be {ours}")


def _digest(processes: Mapping[str, Loaded]) -> bytes:
    return sha256(_described(platform.machine(), processes)).digest()


def _described(machine: str, processes: Mapping[str, Loaded]) -> bytes:
    parts = {name: dict(each) for name, each in processes.items()}
    return canonical_json(
        {"v": DESCRIPTION_FORM, "machine": machine, "processes": parts}
    )


def _memory(server: Trial, engine: Trial) -> Memory | None:
    """Return why the memory of both is never swapped; None: it may be."""
    kept = {server.memory, engine.memory}
    if kept == {LOCKED}:
        return Memory.LOCKED
    # One machine and one control group have both: what cannot be swapped for one of
    # them needs no lock in the other.
    return Memory.NO_SWAP if kept <= {LOCKED, NO_SWAP} else None
