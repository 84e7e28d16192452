"""A development log on disk: one release, logged, witnessed and proved.

``create`` makes keys, manifest, log and proof; ``refresh`` adds a leaf to the log and
lets its witness cosign at the current time, as in a live log. The folder is that of
``curtilage.transparency.own_log``; here there are other leaves before and after the
release, so that no proof is empty.
"""

import argparse
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from curtilage.attest.evidence import Tee
from curtilage.attest.log.manifest import (
    GpuRelease,
    ReleaseManifest,
    encode_manifest,
    parse_manifest,
)
from curtilage.transparency.own_log import (
    LOG_FILE,
    MANIFEST_FILE,
    PRIVATE,
    PUBLIC_FILES,
    SERVED,
    OwnLog,
)
from curtilage.wire.shaping import PADDED, UNPADDED, TransportParameters
from curtilage_dev.deployment import RELEASE_NAME
from curtilage_dev.emulated.machines import KINDS, registers_of
from curtilage_dev.log import DEFAULT_ORIGIN, DEFAULT_WITNESS

__all__ = [
    "LOG_FILE",
    "MANIFEST_FILE",
    "PRIVATE",
    "PUBLIC_FILES",
    "SERVED",
    "ReleaseArguments",
    "create",
    "log_table",
    "main",
    "refresh",
]

MANIFEST_LIFE: Final = timedelta(days=90)
_EARLIER: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseArguments:
    """The contents of the manifest.

    Attributes:
        version: the release's version.
        source: what it was built from.
        measurements: launch measurements, 48 bytes each, lower-case hex.
        models: SHA-256 of model files, lower-case hex.
        transport: how it shapes its answers.
        tee: the kind of machine that it runs on.
        gpu: the GPUs that it may use.
    """

    version: str
    source: str
    measurements: tuple[str, ...]
    models: tuple[str, ...]
    transport: TransportParameters = PADDED
    tee: Tee = Tee.EMULATED_SEV_SNP
    gpu: GpuRelease = field(default_factory=GpuRelease)


def create(out: Path, release: ReleaseArguments, *, now: datetime) -> None:
    """Make a new log with one release in it; replaces an existing one."""
    wanted = ReleaseManifest(
        name=RELEASE_NAME,
        version=release.version,
        source=release.source,
        measurements={
            release.tee.value: tuple(
                registers_of(release.tee, bytes.fromhex(value))
                for value in release.measurements
            )
        },
        models=release.models,
        min_tcb={},
        not_after=int((now + MANIFEST_LIFE).timestamp()),
        transport=release.transport,
        gpu=release.gpu,
    )
    manifest = encode_manifest(wanted)
    # Only the parser decides whether a manifest is valid.
    parse_manifest(manifest)
    for name in (SERVED, PRIVATE):
        shutil.rmtree(out / name, ignore_errors=True)
    log = OwnLog.create(out, origin=DEFAULT_ORIGIN, witness=DEFAULT_WITNESS)
    *earlier, next_, later = (
        _other_release(wanted, number, now) for number in range(_EARLIER + 2)
    )
    log.add([*earlier, manifest, next_], now=now)
    proven = log.prove(manifest)
    log.add([later], now=now)
    log.write(manifest, proven)


def refresh(out: Path, *, now: datetime) -> None:
    """Cosign again, so that the proof is recent; then add a leaf to the log."""
    log = OwnLog(out)
    manifest = log.manifest()
    log.add([], now=now)
    proven = log.prove(manifest)
    log.add([_other_release(parse_manifest(manifest), proven.size, now)], now=now)
    log.write(manifest, proven)


def log_table(out: Path) -> str:
    """Return the ``[log]`` table of an enclave's configuration, as TOML."""
    return OwnLog(out).table()


def _other_release(like: ReleaseManifest, number: int, now: datetime) -> bytes:
    """Return a release of another version, which has expired already."""
    other = replace(
        like,
        version=f"{like.version}-other.{number}",
        not_after=int(now.timestamp()),
    )
    return encode_manifest(other)


class _Arguments(argparse.Namespace):
    action: str
    out: Path
    measurement: list[str]
    model: list[str]
    version: str
    source: str
    unsafe_unpadded: bool
    tee: Tee
    replace_keys: bool


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m curtilage_dev.devlog",
        description="Make or refresh a transparency log for development.",
    )
    parser.add_argument(
        "action", nargs="?", default="create", choices=["create", "refresh"]
    )
    parser.add_argument("--out", required=True, type=Path, metavar="DIR")
    parser.add_argument(
        "--measurement", action="append", default=[], metavar="HEX", help="repeatable"
    )
    parser.add_argument(
        "--model", action="append", default=[], metavar="SHA256", help="repeatable"
    )
    parser.add_argument("--version", default="0.0.1")
    parser.add_argument("--source", default="development")
    parser.add_argument(
        "--tee", default=Tee.EMULATED_SEV_SNP, type=Tee, choices=list(KINDS)
    )
    parser.add_argument(
        "--replace-keys",
        action="store_true",
        help="make a new log in place of the existing one",
    )
    parser.add_argument(
        "--unsafe-unpadded",
        action="store_true",
        help="a release whose answers disclose their lengths and their pace",
    )
    read = parser.parse_args(arguments, namespace=_Arguments())
    now = datetime.now(UTC)
    if read.action == "refresh":
        refresh(read.out, now=now)
        return 0
    if not read.measurement:
        parser.error("create needs at least one --measurement")
    if (read.out / PRIVATE).exists() and not read.replace_keys:
        # Every policy that names that log would refuse the new one.
        parser.error(f"{read.out} holds a log with keys; --replace-keys makes new ones")
    release = ReleaseArguments(
        version=read.version,
        source=read.source,
        measurements=tuple(read.measurement),
        models=tuple(read.model),
        transport=UNPADDED if read.unsafe_unpadded else PADDED,
        tee=read.tee,
    )
    create(read.out, release, now=now)
    return 0


if __name__ == "__main__":
    sys.exit(main())
