"""Statements of a sandbox, as a launcher makes them, and releases that name one."""

from dataclasses import replace
from typing import Final

from curtilage.attest.log.manifest import ReleaseManifest
from curtilage.attest.sandbox import (
    LEAST_ATTEMPTS,
    Ephemerality,
    Isolation,
    Memory,
    ProcessResult,
    SandboxStatement,
    SelfTest,
)

SANDBOX: Final = "5a" * 32
ATTEMPTS: Final = tuple(f"attempt_{number}" for number in range(LEAST_ATTEMPTS))
HELD: Final = SelfTest(
    landlock_abi=6,
    memory=Memory.LOCKED,
    processes=(
        ProcessResult(name="engine", denied=ATTEMPTS),
        ProcessResult(name="server", denied=ATTEMPTS),
    ),
)


def statement(
    *,
    loaded: str = SANDBOX,
    result: SelfTest = HELD,
    isolation: Isolation = Isolation.PROCESS,
    ephemerality: Ephemerality = Ephemerality.PROCESS,
) -> SandboxStatement:
    """Return a statement whose self-test holds."""
    return SandboxStatement(
        loaded=bytes.fromhex(loaded),
        result=result,
        isolation=isolation,
        ephemerality=ephemerality,
    )


def naming(manifest: ReleaseManifest, stated: SandboxStatement) -> ReleaseManifest:
    """Return the release that names what a statement says was loaded."""
    return replace(
        manifest,
        sandbox=stated.loaded.hex(),
        isolation=stated.isolation,
        ephemerality=stated.ephemerality,
    )
