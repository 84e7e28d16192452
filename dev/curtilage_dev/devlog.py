"""A development log on disk: one release, logged, witnessed and proved.

``create`` makes keys, manifest, log and proof; ``refresh`` cosigns the same
tree at the present time, as a witness of a live log would. Files in ``--out``:

    manifest.json       the release manifest, canonical JSON
    proof.txt           its tlog-proof, with a checkpoint of its own
    checkpoint.txt      the cosigned checkpoint, for the anchor
    log.json            origin, public keys, quorum, the manifest's index
    tile/               the log's tiles (C2SP tlog-tiles)
    private/keys.json   the log's and the witness's keys; mode 0600
"""

import argparse
import base64
import hashlib
import json
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from curtilage.attest.evidence import Tee
from curtilage.attest.manifest import ReleaseManifest, encode_manifest, parse_manifest
from curtilage.attest.strictjson import parse_object
from curtilage.attest.tlog import hash_leaf
from curtilage.wire.shaping import PADDED, UNPADDED, TransportParameters
from curtilage_dev.deployment import RELEASE_NAME
from curtilage_dev.log import (
    DEFAULT_ORIGIN,
    DEFAULT_WITNESS,
    DevelopmentLog,
    load_signer,
    new_signer,
)

MANIFEST_FILE: Final = "manifest.json"
PROOF_FILE: Final = "proof.txt"
CHECKPOINT_FILE: Final = "checkpoint.txt"
LOG_FILE: Final = "log.json"
KEYS_FILE: Final = "private/keys.json"
MANIFEST_LIFE: Final = timedelta(days=90)
# Earlier and later leaves, so that the proof has something to prove.
_EARLIER: Final = 4
_LATER: Final = 2
_PRIVATE: Final = 0o600
_PRIVATE_FOLDER: Final = 0o700
_FILE_LIMIT: Final = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseArguments:
    """What goes into the manifest.

    Attributes:
        version: the release's version.
        source: what it was built from.
        measurements: launch measurements, lower-case hex.
        models: SHA-256 of model files, lower-case hex.
        transport: how it shapes its answers.
    """

    version: str
    source: str
    measurements: tuple[str, ...]
    models: tuple[str, ...]
    transport: TransportParameters = PADDED


def create(out: Path, release: ReleaseArguments, *, now: datetime) -> None:
    """Make a new log with one release in it; replaces what is there."""
    manifest = encode_manifest(_manifest(release, now))
    # The parser is the one judge of what a manifest may say.
    parse_manifest(manifest)
    log = DevelopmentLog(
        signer=new_signer(DEFAULT_ORIGIN),
        witnesses=(new_signer(DEFAULT_WITNESS),),
        leaves=(
            *(_other_leaf(number) for number in range(_EARLIER)),
            manifest,
            *(_other_leaf(_EARLIER + 1 + number) for number in range(_LATER)),
        ),
    )
    out.mkdir(parents=True, exist_ok=True)
    (out / MANIFEST_FILE).write_bytes(manifest)
    _write_tiles(out, log)
    _write_keys(out, log)
    _write_public(out, log)
    _write_signed(out, log, now)


def refresh(out: Path, *, now: datetime) -> None:
    """Cosign the log again, so that proof and checkpoint are recent."""
    _write_signed(out, load_log(out), now)


def load_log(out: Path) -> DevelopmentLog:
    """Read a log and its private keys back from disk."""
    keys = parse_object(
        (out / KEYS_FILE).read_bytes(), where="keys", limit_bytes=_FILE_LIMIT
    )
    return DevelopmentLog(
        signer=load_signer(DEFAULT_ORIGIN, keys.octets("log", limit=32)),
        witnesses=(load_signer(DEFAULT_WITNESS, keys.octets("witness", limit=32)),),
        leaves=_read_entries(out),
    )


def _manifest(release: ReleaseArguments, now: datetime) -> ReleaseManifest:
    return ReleaseManifest(
        name=RELEASE_NAME,
        version=release.version,
        source=release.source,
        measurements={Tee.EMULATED_SEV_SNP.value: release.measurements},
        models=release.models,
        min_tcb={},
        not_after=int((now + MANIFEST_LIFE).timestamp()),
        transport=release.transport,
    )


def _other_leaf(number: int) -> bytes:
    return f"another development release, number {number}\n".encode()


def _write_signed(out: Path, log: DevelopmentLog, now: datetime) -> None:
    index = log.leaves.index((out / MANIFEST_FILE).read_bytes())
    _replace(out / CHECKPOINT_FILE, log.checkpoint(now))
    _replace(out / PROOF_FILE, log.proof(index, now))


def _replace(path: Path, text: str) -> None:
    """Replace a file in one step, for a reader may look at any moment."""
    fresh = path.with_suffix(".new")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(path)


def _write_tiles(out: Path, log: DevelopmentLog) -> None:
    size = len(log.leaves)
    hashes = b"".join(hash_leaf(leaf) for leaf in log.leaves)
    entries = b"".join(struct.pack(">H", len(e)) + e for e in log.leaves)
    for folder, data in (("tile/0", hashes), ("tile/entries", entries)):
        path = out / folder / "000.p" / str(size)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def _read_entries(out: Path) -> tuple[bytes, ...]:
    (path,) = (out / "tile/entries/000.p").iterdir()
    data = path.read_bytes()
    entries: list[bytes] = []
    while data:
        (length,) = struct.unpack(">H", data[:2])
        entries.append(data[2 : 2 + length])
        data = data[2 + length :]
    return tuple(entries)


def _write_keys(out: Path, log: DevelopmentLog) -> None:
    path = out / KEYS_FILE
    path.parent.mkdir(mode=_PRIVATE_FOLDER, exist_ok=True)
    path.touch(mode=_PRIVATE)
    signers = {"log": log.signer, "witness": log.witnesses[0]}
    keys = {name: _base64(signer.private_bytes) for name, signer in signers.items()}
    path.write_text(json.dumps(keys), encoding="ascii")


def _write_public(out: Path, log: DevelopmentLog) -> None:
    manifest = (out / MANIFEST_FILE).read_bytes()
    public = {
        "origin": log.signer.name,
        "key": _base64(log.signer.public.public_key),
        "witnesses": [
            {"name": w.name, "key": _base64(w.public.public_key)} for w in log.witnesses
        ],
        "quorum": len(log.witnesses),
        "index": log.leaves.index(manifest),
        "manifest_sha256": hashlib.sha256(manifest).hexdigest(),
    }
    text = json.dumps(public, indent=1, ensure_ascii=False)
    (out / LOG_FILE).write_text(text + "\n", encoding="utf-8")


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


class _Arguments(argparse.Namespace):
    action: str
    out: Path
    measurement: list[str]
    model: list[str]
    version: str
    source: str
    unsafe_unpadded: bool


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
        "--unsafe-unpadded",
        action="store_true",
        help="a release whose answers show their lengths and their pace",
    )
    read = parser.parse_args(arguments, namespace=_Arguments())
    now = datetime.now(UTC)
    if read.action == "refresh":
        refresh(read.out, now=now)
        return 0
    if not read.measurement:
        parser.error("create needs at least one --measurement")
    release = ReleaseArguments(
        version=read.version,
        source=read.source,
        measurements=tuple(read.measurement),
        models=tuple(read.model),
        transport=UNPADDED if read.unsafe_unpadded else PADDED,
    )
    create(read.out, release, now=now)
    return 0


if __name__ == "__main__":
    sys.exit(main())
