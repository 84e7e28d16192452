"""A log with one witness, both of one party, and a release of it, in one folder.

For a deployment whose operator publishes its releases, and for development. Everything
else here is what ``curtilage release`` does step by step::

    manifest.json       the release manifest, canonical JSON
    proof.txt           its tlog-proof, with a checkpoint of its own
    checkpoint.txt      a checkpoint of the same size or later, cosigned: the anchor
    consistency.txt     the proof that the later one extends the earlier
    log.json            origin, public keys, quorum, the manifest's index
    tlog/               the log, as a web server serves it
    private/            the log's key and the witness; mode 0700

The witness shows when the log had which state. It is the publisher's own, so it does
not show that the log has one history for everybody; witnesses of others do.
"""

import hashlib
import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

from curtilage.attest.encoding.strict_json import Fields, encode_base64, parse_object
from curtilage.attest.evidence import MAX_MANIFEST_BYTES
from curtilage.attest.log.note import NoteKey, encode_hashes, parse_checkpoint
from curtilage.attest.log.tree import Tree
from curtilage.transparency.errors import FileError
from curtilage.transparency.files import (
    PRIVATE_FOLDER,
    make_folder,
    read_bounded,
    replace_file,
)
from curtilage.transparency.log import (
    LogFolder,
    add_cosignatures,
    create_log,
    open_log,
    read_signer,
)
from curtilage.transparency.proof import Proven, prove
from curtilage.transparency.witness import Witness, create_witness

MANIFEST_FILE: Final = "manifest.json"
PROOF_FILE: Final = "proof.txt"
CHECKPOINT_FILE: Final = "checkpoint.txt"
CONSISTENCY_FILE: Final = "consistency.txt"
LOG_FILE: Final = "log.json"
SERVED: Final = "tlog"
PRIVATE: Final = "private"
# The files that an enclave reads; all of them are public.
PUBLIC_FILES: Final = (MANIFEST_FILE, PROOF_FILE, CONSISTENCY_FILE, CHECKPOINT_FILE)
MAX_LOG_FILE_BYTES: Final = 64 * 1024
_LOG_KEY: Final = "log.pem"
_WITNESS: Final = "witness"
_QUORUM: Final = 1


class OwnLog:
    """The folder, made by ``create``.

    Args:
        folder: see there.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def create(cls, folder: Path, *, origin: str, witness: str) -> "OwnLog":
        """Make an empty log and its witness, with new keys.

        Args:
            folder: where; the parents are made.
            origin: the log's name.
            witness: the witness's name.

        Raises:
            FileError: there is one, or the folder cannot be written to.
        """
        made = cls(folder)
        make_folder(folder)
        make_folder(made._private, PRIVATE_FOLDER)
        create_log(made._served.path, origin, made._log_key)
        create_witness(made._private / _WITNESS, witness)
        return made

    @property
    def exists(self) -> bool:
        """Whether there is a log, or a part of one that must not be replaced."""
        return self._private.exists() or self._served.path.exists()

    def require_complete(self) -> None:
        """Refuse a folder that lacks one of its files.

        Raises:
            FileError: names them.
        """
        names = (*PUBLIC_FILES, LOG_FILE, PRIVATE, SERVED)
        missing = [name for name in names if not (self.folder / name).exists()]
        if missing:
            raise FileError(
                f"{self.folder}: {', '.join(missing)} is missing, so this log cannot "
                "be used; a backup has it, or another folder gets a new log"
            )

    def add(self, entries: Sequence[bytes], *, now: datetime) -> None:
        """Log leaves, and have the witness cosign the new state.

        Args:
            entries: the leaves; none: the state is cosigned again.
            now: the time of the cosignature, aware.
        """
        with open_log(self._served.path, self._log_key) as log:
            log.add(entries)
        key = self.key
        line = self._witness.cosign_folder(self._served, key, now=now)
        add_cosignatures(self._served.path, key, [self.witness_key], line)

    def prove(self, manifest: bytes) -> Proven:
        """Prove that a manifest is a leaf, under the present checkpoint.

        Raises:
            RefusedError: ``release_not_logged``.
        """
        return prove(self._served, self.key, manifest)

    def publish(self, manifest: bytes, *, now: datetime) -> None:
        """Log a release and write the files of it.

        Args:
            manifest: its exact bytes.
            now: the time of the cosignature, aware.
        """
        self.add([manifest], now=now)
        self.write(manifest, self.prove(manifest))

    def refresh(self, *, now: datetime) -> None:
        """Cosign the release's log again, so that the proof is recent.

        Raises:
            FileError: the folder is not complete.
        """
        self.require_complete()
        manifest = self.manifest()
        self.add([], now=now)
        self.write(manifest, self.prove(manifest))

    def manifest(self) -> bytes:
        """Return the release's manifest.

        Raises:
            FileError: it cannot be read.
        """
        return read_bounded(self.folder / MANIFEST_FILE, MAX_MANIFEST_BYTES)

    def write(self, manifest: bytes, proven: Proven) -> None:
        """Write a release's files; the log may have grown since it was proven."""
        text = self._served.checkpoint()
        _, head = parse_checkpoint(text)
        hashes = Tree(self._served.leaf_hashes(head.size)).consistency(proven.size)
        # In immediate succession: a reader of a mixture reads again.
        for name, content in (
            (MANIFEST_FILE, manifest),
            (LOG_FILE, self._described(manifest, proven.index)),
            (PROOF_FILE, proven.text.encode()),
            (CONSISTENCY_FILE, encode_hashes(hashes).encode()),
            (CHECKPOINT_FILE, text.encode()),
        ):
            replace_file(self.folder / name, content)

    def copy_release(self, target: Path) -> None:
        """Copy what an enclave reads: it runs as another user, and gets no key.

        Raises:
            FileError: a file cannot be read or written.
        """
        make_folder(target)
        for name in PUBLIC_FILES:
            data = read_bounded(self.folder / name, MAX_LOG_FILE_BYTES)
            replace_file(target / name, data)

    def fields(self) -> Fields:
        """Return ``log.json``: what policies and configurations name of the log.

        Raises:
            FileError: it cannot be read.
            RefusedError: ``malformed``.
        """
        data = read_bounded(self.folder / LOG_FILE, MAX_LOG_FILE_BYTES)
        return parse_object(data, where="log", limit_bytes=MAX_LOG_FILE_BYTES)

    def table(self) -> str:
        """Return the ``[log]`` table of an enclave's configuration, as TOML.

        Raises:
            FileError: the log's public file cannot be read.
        """
        log = json.loads(read_bounded(self.folder / LOG_FILE, MAX_LOG_FILE_BYTES))
        lines = ["[log]"]
        # JSON's texts and numbers are TOML's as well.
        lines += [
            f"{key} = {json.dumps(log[key])}" for key in ("origin", "key", "quorum")
        ]
        for witness in log["witnesses"]:
            lines.append("[[log.witnesses]]")
            lines += [f"{key} = {json.dumps(witness[key])}" for key in ("name", "key")]
        return "\n".join(lines) + "\n"

    @property
    def key(self) -> NoteKey:
        """The log's public key.

        Raises:
            FileError: the log or its key cannot be read.
        """
        # The folder says which name the log has, and the key signs under it.
        _, head = parse_checkpoint(self._served.checkpoint())
        return read_signer(head.origin, self._log_key).public

    @property
    def witness_key(self) -> NoteKey:
        """The witness's public key.

        Raises:
            FileError: it cannot be read.
        """
        return self._witness.verifier_key.key

    def _described(self, manifest: bytes, index: int) -> bytes:
        log, witness = self.key, self.witness_key
        public = {
            "origin": log.name,
            "key": encode_base64(log.public_key),
            "witnesses": [
                {"name": witness.name, "key": encode_base64(witness.public_key)}
            ],
            "quorum": _QUORUM,
            "index": index,
            "manifest_sha256": hashlib.sha256(manifest).hexdigest(),
        }
        text = json.dumps(public, indent=1, ensure_ascii=False)
        return f"{text}\n".encode()

    @property
    def _served(self) -> LogFolder:
        return LogFolder(self.folder / SERVED)

    @property
    def _private(self) -> Path:
        return self.folder / PRIVATE

    @property
    def _log_key(self) -> Path:
        return self._private / _LOG_KEY

    @property
    def _witness(self) -> Witness:
        return Witness(self._private / _WITNESS)
