"""The sandbox statement: what an enclave loaded, and what its self-test found.

Canonical JSON, so that one statement has one spelling; the binding covers these
octets. The enclave states it of itself, and its measurement says which code does.
Knows the form of a statement and whether its result suffices; that it is the
release's is for ``bundle_checks`` to compare.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from curtilage.attest.encoding.strict_json import (
    Fields,
    canonical_json,
    malformed,
    parse_object,
)
from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.evidence import DIGEST_BYTES, MAX_SANDBOX_BYTES

STATEMENT_VERSION: Final = 1
DESCRIPTION_FORM: Final = "curtilage/sandbox/v1"
"""``v`` of the description whose digest a statement and a release have."""
LEAST_ATTEMPTS: Final = 50
"""Escapes that each process must have tried."""
PROCESSES: Final = ("engine", "server")
"""The processes that hold content; each of them must have been tested."""
MAX_PROCESSES: Final = 8
MAX_ATTEMPTS: Final = 256
_NAME_LIMIT: Final = 64
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_KEYS: Final = ("v", "loaded", "result", "isolation", "ephemerality")
_RESULT_KEYS: Final = ("landlock_abi", "memory", "processes")
_PROCESS_KEYS: Final = ("name", "denied", "succeeded")


class Isolation(StrEnum):
    """What separates the requests that one engine answers."""

    # One process answers them, each in a sequence of its own.
    SHARED = "shared"
    # Each is answered by a process of its own.
    PROCESS = "process"


class Ephemerality(StrEnum):
    """What becomes of the memory that held a request, once it is answered."""

    # Nothing is promised.
    NONE = "none"
    # It is overwritten.
    OVERWRITTEN = "overwritten"
    # It ends with the process that answered.
    PROCESS = "process"


PROMISED: Final[Mapping[Isolation, Ephemerality]] = {
    Isolation.SHARED: Ephemerality.OVERWRITTEN,
    Isolation.PROCESS: Ephemerality.PROCESS,
}
"""What our enclaves state, by what separates requests, with the allocator's settings
in force."""


class Memory(StrEnum):
    """Why memory is never swapped to a disk; where it may be, there is no statement."""

    LOCKED = "locked"
    NO_SWAP = "no_swap"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessResult:
    """The result of one process's self-test.

    Attributes:
        name: such as ``engine``.
        denied: the escapes that were tried and failed.
        succeeded: those that succeeded.
    """

    name: str
    denied: tuple[str, ...]
    succeeded: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfTest:
    """What the enclave found when it tried to leave its sandbox.

    Attributes:
        landlock_abi: the kernel's version of Landlock; 0 where it has none.
        memory: why memory is not swapped.
        processes: one result for each process.
    """

    landlock_abi: int
    memory: Memory
    processes: tuple[ProcessResult, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxStatement:
    """An enclave's statement about its own sandbox.

    Attributes:
        loaded: SHA-256 of the description of what was loaded, 32 bytes.
        result: of the self-test under it.
        isolation: what separates requests.
        ephemerality: what becomes of their memory.
    """

    loaded: bytes
    result: SelfTest
    isolation: Isolation
    ephemerality: Ephemerality

    def __post_init__(self) -> None:
        """Refuse a digest of another length."""
        if len(self.loaded) != DIGEST_BYTES:
            raise ValueError(f"loaded is not {DIGEST_BYTES} bytes")


def encode_statement(statement: SandboxStatement) -> bytes:
    """Encode a statement; these are the octets that the binding covers."""
    result = statement.result
    return canonical_json(
        {
            "v": STATEMENT_VERSION,
            "loaded": statement.loaded.hex(),
            "result": {
                "landlock_abi": result.landlock_abi,
                "memory": result.memory.value,
                "processes": [
                    {
                        "name": process.name,
                        "denied": list(process.denied),
                        "succeeded": list(process.succeeded),
                    }
                    for process in result.processes
                ],
            },
            "isolation": statement.isolation.value,
            "ephemerality": statement.ephemerality.value,
        }
    )


def parse_statement(data: bytes) -> SandboxStatement:
    """Parse a statement; anything but its canonical encoding is refused.

    Raises:
        RefusedError: ``malformed``, ``too_large`` or ``unsupported_version``.
    """
    fields = parse_object(data, where="sandbox", limit_bytes=MAX_SANDBOX_BYTES)
    if fields.integer("v") != STATEMENT_VERSION:
        raise RefusedError(
            RefusalCode.UNSUPPORTED_VERSION, f"sandbox.v is not {STATEMENT_VERSION}"
        )
    fields.require(_KEYS)
    loaded = fields.text("loaded", limit=2 * DIGEST_BYTES)
    if _SHA256.fullmatch(loaded) is None:
        raise malformed("sandbox.loaded: not a SHA-256 in lower-case hex")
    statement = SandboxStatement(
        loaded=bytes.fromhex(loaded),
        result=_parse_result(fields.child("result")),
        isolation=Isolation(word_of(fields, "isolation", Isolation)),
        ephemerality=Ephemerality(word_of(fields, "ephemerality", Ephemerality)),
    )
    if encode_statement(statement) != data:
        raise malformed("sandbox: not in canonical form")
    return statement


def word_of(fields: Fields, name: str, words: type[StrEnum]) -> str:
    """Return a field that is one of the given words.

    Raises:
        RefusedError: ``malformed``.
    """
    text = fields.text(name, limit=_NAME_LIMIT)
    if text not in {word.value for word in words}:
        raise malformed(f"{name}: not a word that is known here")
    return text


def require_held(result: SelfTest) -> None:
    """Refuse a self-test that does not show a closed sandbox.

    Raises:
        RefusedError: ``sandbox_open``.
    """
    # Without it the filter alone would have kept files closed, and it cannot see paths.
    if result.landlock_abi == 0:
        raise _open("Landlock is not in force")
    tested = {process.name for process in result.processes}
    missing = sorted(set(PROCESSES) - tested)
    if missing:
        raise _open(f"no self-test of the {', of the '.join(missing)}")
    for process in result.processes:
        if process.succeeded:
            raise _open(f"{process.name}: {', '.join(process.succeeded)} succeeded")
        # Whoever tries little finds little.
        if len(process.denied) < LEAST_ATTEMPTS:
            raise _open(
                f"{process.name}: {len(process.denied)} attempts, "
                f"at least {LEAST_ATTEMPTS} wanted"
            )


def _open(detail: str) -> RefusedError:
    return RefusedError(RefusalCode.SANDBOX_OPEN, detail)


def _parse_result(fields: Fields) -> SelfTest:
    fields.require(_RESULT_KEYS)
    processes = tuple(
        _parse_process(each)
        for each in fields.children("processes", limit=MAX_PROCESSES)
    )
    # Of two results for one process, the better one could be the other's.
    if len({process.name for process in processes}) < len(processes):
        raise malformed("sandbox.result.processes: one is named twice")
    return SelfTest(
        landlock_abi=fields.integer("landlock_abi", maximum=255),
        memory=Memory(word_of(fields, "memory", Memory)),
        processes=processes,
    )


def _parse_process(fields: Fields) -> ProcessResult:
    fields.require(_PROCESS_KEYS)
    name = fields.text("name", limit=_NAME_LIMIT)
    denied = _names(fields, "denied")
    succeeded = _names(fields, "succeeded")
    # An attempt that is listed twice would count twice.
    if len({*denied, *succeeded}) < len(denied) + len(succeeded):
        raise malformed("sandbox.result: an attempt is listed twice")
    if _NAME.fullmatch(name) is None:
        raise malformed("sandbox.result: not a process's name")
    return ProcessResult(name=name, denied=denied, succeeded=succeeded)


def _names(fields: Fields, key: str) -> tuple[str, ...]:
    names = fields.texts(key, limit=MAX_ATTEMPTS, item_limit=_NAME_LIMIT)
    # Refusals repeat them.
    if not all(_NAME.fullmatch(name) for name in names):
        raise malformed("sandbox.result: not an attempt's name")
    return names
