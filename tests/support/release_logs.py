"""Logs of releases on disk, for tests of what keeps, proves and audits them."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from curtilage.attest.log.manifest import encode_manifest
from curtilage.attest.log.note import NoteKey, parse_checkpoint
from curtilage.attest.log.signers import WitnessSigner
from curtilage.transparency.files import read_key
from curtilage.transparency.log import (
    Added,
    LogFolder,
    create_log,
    open_log,
    read_signer,
)
from curtilage.transparency.witness import KEY, create_witness
from curtilage_dev import devlog
from curtilage_dev.deployment import make_manifest
from curtilage_dev.log import DEFAULT_WITNESS, DevelopmentLog

NOW = datetime(2027, 6, 1, 12, tzinfo=UTC)
ORIGIN = "log.example.com/enclave"
NAME = "curtilage-enclave"


def manifest(
    version: str = "1.0.0", *, name: str = NAME, life: timedelta = timedelta(days=90)
) -> bytes:
    """Encode a release's manifest."""
    made = replace(make_manifest(NOW), name=name, version=version)
    return encode_manifest(replace(made, not_after=int((NOW + life).timestamp())))


def load_log(out: Path) -> DevelopmentLog:
    """Read a development log and its private keys back from disk."""
    folder = LogFolder(out / devlog.SERVED)
    _, head = parse_checkpoint(folder.checkpoint())
    private = out / devlog.PRIVATE
    witness = read_key(private / "witness" / KEY)
    return DevelopmentLog(
        signer=read_signer(head.origin, private / "log.pem"),
        witnesses=(WitnessSigner(name=DEFAULT_WITNESS, key=witness),),
        leaves=tuple(
            leaf for _, bundle in folder.bundles(head.size) for leaf in bundle
        ),
    )


class KeptLog:
    """A log, its key outside of it, and a witness."""

    def __init__(self, base: Path) -> None:
        self.path = base / "served"
        self.key_path = base / "log.pem"
        self.signer = create_log(self.path, ORIGIN, self.key_path)
        self.witness = create_witness(base / "witness", "w.example")

    @property
    def folder(self) -> LogFolder:
        return LogFolder(self.path)

    @property
    def key(self) -> NoteKey:
        return self.signer.public

    @property
    def head_path(self) -> Path:
        return self.key_path.with_name("log.pem.head")

    def add(self, *entries: bytes) -> Added:
        with open_log(self.path, self.key_path) as log:
            return log.add(entries)
