"""A development log on disk: one release, logged, witnessed and proved.

``create`` makes keys, manifest, log and proof; ``refresh`` adds a leaf to the log and
lets its witness cosign at the current time, as in a live log. The log, its tiles and
its witness are those of ``curtilage release``. In ``--out``:

    manifest.json       the release manifest, canonical JSON
    proof.txt           its tlog-proof, with a checkpoint of its own
    checkpoint.txt      a later checkpoint, cosigned, for the anchor
    consistency.txt     the proof that the later one extends the earlier
    log.json            origin, public keys, quorum, the manifest's index
    tlog/               the log, as a web server serves it
    private/            the log's key and the witness; mode 0700
"""

import argparse
import hashlib
import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from curtilage.attest.encoding.strict_json import encode_base64
from curtilage.attest.evidence import Tee
from curtilage.attest.log.manifest import (
    GpuRelease,
    ReleaseManifest,
    encode_manifest,
    parse_manifest,
)
from curtilage.attest.log.note import NoteKey, encode_hashes, parse_checkpoint
from curtilage.attest.log.tree import Tree
from curtilage.transparency.files import make_folder, replace_file
from curtilage.transparency.log import (
    LogFolder,
    add_cosignatures,
    create_log,
    open_log,
    read_signer,
)
from curtilage.transparency.proof import Proven, prove
from curtilage.transparency.witness import Witness, create_witness
from curtilage.wire.shaping import PADDED, UNPADDED, TransportParameters
from curtilage_dev.deployment import RELEASE_NAME
from curtilage_dev.emulated.machines import KINDS, registers_of
from curtilage_dev.log import DEFAULT_ORIGIN, DEFAULT_WITNESS

MANIFEST_FILE: Final = "manifest.json"
PROOF_FILE: Final = "proof.txt"
CHECKPOINT_FILE: Final = "checkpoint.txt"
CONSISTENCY_FILE: Final = "consistency.txt"
LOG_FILE: Final = "log.json"
SERVED: Final = "tlog"
PRIVATE: Final = "private"
# The files that an enclave reads; all of them are public.
PUBLIC_FILES: Final = (MANIFEST_FILE, PROOF_FILE, CONSISTENCY_FILE, CHECKPOINT_FILE)
MANIFEST_LIFE: Final = timedelta(days=90)
_LOG_KEY: Final = "log.pem"
_WITNESS: Final = "witness"
# Other leaves before and after it, so that the proofs are not empty.
_EARLIER: Final = 4
_PRIVATE_FOLDER: Final = 0o700


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
    make_folder(out / PRIVATE, _PRIVATE_FOLDER)
    signer = create_log(out / SERVED, DEFAULT_ORIGIN, out / PRIVATE / _LOG_KEY)
    witness = create_witness(out / PRIVATE / _WITNESS, DEFAULT_WITNESS)
    *earlier, next_, later = (
        _other_release(wanted, number, now) for number in range(_EARLIER + 2)
    )
    _add(out, [*earlier, manifest, next_], now)
    replace_file(out / MANIFEST_FILE, manifest)
    _write_public(out, signer.public, witness.verifier_key.key, manifest)
    proven = prove(LogFolder(out / SERVED), signer.public, manifest)
    _add(out, [later], now)
    _write_signed(out, proven)


def refresh(out: Path, *, now: datetime) -> None:
    """Cosign again, so that the proof is recent; then add a leaf to the log."""
    manifest = (out / MANIFEST_FILE).read_bytes()
    _add(out, [], now)
    log = _log_key(out)
    proven = prove(LogFolder(out / SERVED), log, manifest)
    _add(out, [_other_release(parse_manifest(manifest), proven.size, now)], now)
    _write_signed(out, proven)


def log_table(out: Path) -> str:
    """Return the ``[log]`` table of an enclave's configuration, as TOML."""
    log = json.loads((out / LOG_FILE).read_text("utf-8"))
    lines = ["[log]"]
    # JSON's texts and numbers are TOML's as well.
    lines += [f"{key} = {json.dumps(log[key])}" for key in ("origin", "key", "quorum")]
    for witness in log["witnesses"]:
        lines.append("[[log.witnesses]]")
        lines += [f"{key} = {json.dumps(witness[key])}" for key in ("name", "key")]
    return "\n".join(lines) + "\n"


def _add(out: Path, entries: Sequence[bytes], now: datetime) -> None:
    """Log leaves and have the witness cosign the new state."""
    with open_log(out / SERVED, out / PRIVATE / _LOG_KEY) as log:
        log.add(entries)
    witness, key = Witness(out / PRIVATE / _WITNESS), _log_key(out)
    line = witness.cosign_folder(LogFolder(out / SERVED), key, now=now)
    add_cosignatures(out / SERVED, key, [witness.verifier_key.key], line)


def _log_key(out: Path) -> NoteKey:
    return read_signer(DEFAULT_ORIGIN, out / PRIVATE / _LOG_KEY).public


def _other_release(like: ReleaseManifest, number: int, now: datetime) -> bytes:
    """Return a release of another version, which has expired already."""
    other = replace(
        like,
        version=f"{like.version}-other.{number}",
        not_after=int(now.timestamp()),
    )
    return encode_manifest(other)


def _write_signed(out: Path, proven: Proven) -> None:
    """Write proof, checkpoint and consistency proof, in immediate succession."""
    folder = LogFolder(out / SERVED)
    text = folder.checkpoint()
    _, head = parse_checkpoint(text)
    hashes = Tree(folder.leaf_hashes(head.size)).consistency(proven.size)
    replace_file(out / PROOF_FILE, proven.text.encode())
    replace_file(out / CONSISTENCY_FILE, encode_hashes(hashes).encode())
    replace_file(out / CHECKPOINT_FILE, text.encode())


def _write_public(out: Path, log: NoteKey, witness: NoteKey, manifest: bytes) -> None:
    public = {
        "origin": log.name,
        "key": encode_base64(log.public_key),
        "witnesses": [{"name": witness.name, "key": encode_base64(witness.public_key)}],
        "quorum": 1,
        "index": _EARLIER,
        "manifest_sha256": hashlib.sha256(manifest).hexdigest(),
    }
    text = json.dumps(public, indent=1, ensure_ascii=False)
    replace_file(out / LOG_FILE, f"{text}\n".encode())


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
