"""A witness, which remembers each log's last tree head and cosigns.

::

    WDIR/                   0700
      witness.key           0600; Ed25519 or ML-DSA-44
      witness.vkey          the public half, for distribution
      <log>.checkpoint      the last cosigned checkpoint, one file for each log
      <log>.known           records that there was one
      <log>.refused         the first checkpoint that proved a fork, signed by the log

A checkpoint is cosigned if the log's key signed it and it continues the last cosigned
one. A checkpoint with another root for the last cosigned size, in itself or by its
whole tree, is kept: the two together prove that the log has forked. An older one, or
one with an invalid proof, proves nothing and is only refused. The head is stored before
the cosignature is returned.
"""

import hashlib
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.mldsa import MLDSA44PrivateKey

from curtilage.attest.encoding.strict_json import malformed
from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.log.note import (
    Checkpoint,
    NoteKey,
    TrustedLog,
    encode_hashes,
    parse_decimal,
    parse_hashes,
    verify_checkpoint,
)
from curtilage.attest.log.signers import WitnessSigner
from curtilage.attest.log.tree import EMPTY_ROOT, verify_consistency
from curtilage.attest.log.vkeys import VerifierKey, is_key_name, parse_verifier_key
from curtilage.transparency.errors import FileError
from curtilage.transparency.files import (
    PRIVATE_FILE,
    PRIVATE_FOLDER,
    PUBLIC_FILE,
    create_file,
    locked,
    make_folder,
    read_key,
    read_text,
    replace_file,
    write_key,
)
from curtilage.transparency.log import (
    MAX_CHECKPOINT_BYTES,
    LogFolder,
    Progress,
    no_progress,
)

KEY: Final = "witness.key"
PUBLIC: Final = "witness.vkey"
COSIGNED: Final = "checkpoint"
KNOWN: Final = "known"
REFUSED: Final = "refused"
MAX_VKEY_BYTES: Final = 8192
_OLD: Final = "old "


@dataclass(frozen=True, slots=True, kw_only=True)
class WitnessRequest:
    """A request to cosign, in the form of tlog-witness's ``add-checkpoint``.

    Attributes:
        old_size: the size of the head at which the proof begins.
        hashes: consistency proof from there to the checkpoint.
        checkpoint: the signed note.
    """

    old_size: int
    hashes: tuple[bytes, ...]
    checkpoint: str

    def encode(self) -> str:
        """Write the body of the HTTP request."""
        proof = encode_hashes(self.hashes)
        return f"{_OLD}{self.old_size}\n{proof}\n{self.checkpoint}"


def parse_request(text: str) -> WitnessRequest:
    """Read the body of an ``add-checkpoint`` request.

    Raises:
        RefusedError: ``malformed``.
    """
    head, blank, checkpoint = text.partition("\n\n")
    old, _, proof = head.partition("\n")
    if not blank or not old.startswith(_OLD):
        raise malformed("request: no line of the old size")
    return WitnessRequest(
        old_size=parse_decimal(old.removeprefix(_OLD), "request: old size"),
        hashes=parse_hashes(f"{proof}\n") if proof else (),
        checkpoint=checkpoint,
    )


def request_for(folder: LogFolder, log: NoteKey, old_size: int) -> WitnessRequest:
    """Create a request to a witness to cosign a log's checkpoint.

    Raises:
        RefusedError: the folder does not match its checkpoint, or has fewer leaves
            than the witness has seen.
    """
    text = folder.checkpoint()
    head = verify_checkpoint(text, TrustedLog(origin=log.name, key=log, witnesses=()))
    if old_size > head.size:
        raise RefusedError(
            RefusalCode.PROOF_INVALID, f"the log has only {head.size} leaves"
        )
    tree = folder.tree(head)
    return WitnessRequest(
        old_size=old_size, hashes=tree.consistency(old_size), checkpoint=text
    )


class Witness:
    """A witness's folder.

    Args:
        path: the folder, made by ``create_witness``.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def verifier_key(self) -> VerifierKey:
        """The public half, as a log policy names it."""
        text = read_text(self._path / PUBLIC, MAX_VKEY_BYTES)
        return parse_verifier_key(text.removesuffix("\n"))

    def last(self, log: NoteKey) -> Checkpoint | None:
        """Return the last cosigned head of a log, or None before the first time.

        Raises:
            RefusedError: the stored checkpoint is not signed by that key, or has
                disappeared.
        """
        path = self._file(log.name, COSIGNED)
        if not path.exists():
            # Starting over with a log would cosign whatever it shows now, even a fork
            # of what was cosigned before.
            if self._file(log.name, KNOWN).exists():
                raise RefusedError(
                    RefusalCode.PROOF_INVALID,
                    f"this witness's last cosigned head of {log.name} is missing: "
                    f"restore {path.name}, or create a new witness",
                )
            return None
        return _verified(read_text(path, MAX_CHECKPOINT_BYTES), log)

    def cosign_folder(
        self,
        folder: LogFolder,
        log: NoteKey,
        *,
        now: datetime,
        progress: Progress = no_progress,
    ) -> str:
        """Cosign the checkpoint of a log's folder, or of a copy of it.

        Compares every leaf and tile with the checkpoint first.

        Returns:
            One signature line, to be added to the checkpoint.

        Raises:
            RefusedError: ``proof_invalid``: the folder does not match its checkpoint,
                or does not continue what was cosigned before; ``unsigned``,
                ``bad_signature``, ``untrusted_root``: it is not that log's.
            HeldError: another process is using this witness.
        """
        with locked(self._path):
            text = folder.checkpoint()
            head = _verified(text, log)
            tree = folder.tree(head, progress)
            size = self._last_size(log)
            known = size <= head.size
            request = WitnessRequest(
                old_size=size,
                hashes=tree.consistency(size) if known else (),
                checkpoint=text,
            )
            shown = tree.root(size) if known else None
            return self._cosign(request, log, shown, now=now)

    def cosign_request(
        self, request: WitnessRequest, log: NoteKey, *, now: datetime
    ) -> str:
        """Cosign the checkpoint of a request; the log itself is not read.

        Raises:
            RefusedError: as ``cosign_folder``; ``stale`` if the proof begins at another
                size than this witness knows (the detail names it).
        """
        with locked(self._path):
            size = self._last_size(log)
            if request.old_size != size:
                raise RefusedError(RefusalCode.STALE, f"this witness is at size {size}")
            head = _verified(request.checkpoint, log)
            shown = head.root if head.size == size else None
            return self._cosign(request, log, shown, now=now)

    def _last_size(self, log: NoteKey) -> int:
        last = self.last(log)
        return 0 if last is None else last.size

    def _cosign(
        self,
        request: WitnessRequest,
        log: NoteKey,
        shown: bytes | None,
        *,
        now: datetime,
    ) -> str:
        """Cosign a continuation of the last head.

        Args:
            request: what to cosign.
            log: its key.
            shown: the root that the log shows for the last cosigned size, or None if
                that is not proven.
            now: aware UTC.
        """
        text = request.checkpoint
        head, last = _verified(text, log), self.last(log)
        size, root = (last.size, last.root) if last else (0, EMPTY_ROOT)
        try:
            verify_consistency(size, root, head.size, head.root, request.hashes)
        except RefusedError:
            # A wrong proof alone shows nothing: anyone can write one. Another root for
            # the same size shows that the log signed two histories.
            if shown not in {None, root} and not self._file(log.name, REFUSED).exists():
                self._keep(log, REFUSED, text)
            raise
        key = read_key(self._path / KEY)
        signer = WitnessSigner(name=self.verifier_key.key.name, key=key)
        # Stored before it is signed: after a crash in between, there is no cosignature
        # of a head that this witness does not remember.
        self._keep(log, COSIGNED, text)
        self._keep(log, KNOWN, "")
        return signer.cosign(text, int(now.timestamp()))

    def _keep(self, log: NoteKey, kind: str, text: str) -> None:
        replace_file(self._file(log.name, kind), text.encode(), PRIVATE_FILE)

    def _file(self, origin: str, kind: str) -> Path:
        # An origin may be any text; its digest is a valid file name.
        name = hashlib.sha256(origin.encode()).hexdigest()[:32]
        return self._path / f"{name}.{kind}"


def create_witness(path: Path, name: str, *, ml_dsa: bool = False) -> Witness:
    """Make a witness's folder and its key.

    Args:
        path: the folder.
        name: the key's name, such as ``witness.example.com/hospital``.
        ml_dsa: an ML-DSA-44 key rather than an Ed25519 one.

    Raises:
        FileError: a witness already exists there, or the name is invalid.
    """
    if not is_key_name(name):
        raise FileError(f"{name!r}: a name has no spaces and no plus sign")
    make_folder(path, PRIVATE_FOLDER)
    key = MLDSA44PrivateKey.generate() if ml_dsa else Ed25519PrivateKey.generate()
    write_key(path / KEY, key)
    text = WitnessSigner(name=name, key=key).verifier_key.text
    create_file(path / PUBLIC, f"{text}\n".encode(), PUBLIC_FILE)
    return Witness(path)


def _verified(text: str, log: NoteKey) -> Checkpoint:
    return verify_checkpoint(text, TrustedLog(origin=log.name, key=log, witnesses=()))
