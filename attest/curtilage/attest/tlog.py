"""Transparency log texts, verified offline.

Signed notes, checkpoints, cosignatures and inclusion proofs as the C2SP
documents signed-note, tlog-checkpoint, tlog-cosignature (v1) and tlog-proof
(v1) define them, with Ed25519 keys and RFC 6962 hashes. Knows no log by name:
the origin and every key are arguments.
"""

import hashlib
import re
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.strictjson import decode_base64, malformed

PROOF_HEADER: Final = "c2sp.org/tlog-proof@v1"
HASH_BYTES: Final = 32
PUBLIC_KEY_BYTES: Final = 32
KEY_ID_BYTES: Final = 4
SIGNATURE_BYTES: Final = 64
TIME_BYTES: Final = 8
# signed-note lets verifiers bound the lines; Go's own verifier stops at 100.
MAX_SIGNATURES: Final = 100
# A tree of 2**63 leaves is 63 levels deep.
MAX_PROOF_HASHES: Final = 63
# Signature types of signed-note, part of each key id.
ED25519: Final = 0x01
COSIGNATURE_V1: Final = 0x04
_DECIMAL: Final = re.compile(r"0|[1-9][0-9]{0,18}", re.ASCII)
# "MUST NOT contain any ASCII control characters (those below U+0020) other
# than newline" (signed-note).
_CONTROL: Final = re.compile(r"[\x00-\x09\x0b-\x1f]")
_SIGNATURE_LINE: Final = re.compile(r"\u2014 ([^\s+]+) ([A-Za-z0-9+/=]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteKey:
    """A name and the Ed25519 key that signs notes under it."""

    name: str
    public_key: bytes

    def key_id(self, signature_type: int) -> bytes:
        """Return the four bytes that announce this key in a note."""
        named = self.name.encode() + b"\n" + bytes([signature_type])
        return hashlib.sha256(named + self.public_key).digest()[:KEY_ID_BYTES]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustedLog:
    """One log and its witnesses, as a policy names them.

    Attributes:
        origin: the checkpoint's first line.
        key: the log's own key; by convention its name is the origin.
        witnesses: who may cosign; the caller has made sure that no two share
            a key, else one witness would count twice.
    """

    origin: str
    key: NoteKey
    witnesses: tuple[NoteKey, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteSignature:
    """One signature line of a note, unverified."""

    name: str
    key_id: bytes
    signature: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A signed text, unverified.

    Attributes:
        body: the signed text, including its last newline.
        signatures: one per line, in order; at least one.
    """

    body: str
    signatures: tuple[NoteSignature, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A tree head whose log signature was verified.

    Attributes:
        origin: the log.
        size: number of leaves.
        root: root hash, 32 bytes.
        cosigned: for each witness that was verified, its latest time.
    """

    origin: str
    size: int
    root: bytes
    cosigned: Mapping[str, int]

    def vouched_time(self, quorum: int) -> int:
        """Return the latest time that ``quorum`` witnesses have reached.

        One witness with a clock that runs ahead, or a stolen key, cannot move
        this alone where the quorum is more than one.
        """
        times = sorted(self.cosigned.values(), reverse=True)
        if quorum < 1 or len(times) < quorum:
            raise RefusedError(
                RefusalCode.QUORUM_NOT_MET, f"{len(times)} of {quorum} cosignatures"
            )
        return times[quorum - 1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Inclusion:
    """A leaf that a verified checkpoint commits to."""

    index: int
    checkpoint: Checkpoint


def parse_note(text: str) -> Note:
    """Split a signed note into its body and its signature lines."""
    if _CONTROL.search(text):
        raise malformed("note: control character")
    body, blank, tail = text.rpartition("\n\n")
    if not body or not blank:
        raise malformed("note: no signatures")
    if not tail.endswith("\n"):
        raise malformed("note: bytes after the last newline")
    lines = tail[:-1].split("\n")
    if len(lines) > MAX_SIGNATURES:
        raise malformed(f"note: more than {MAX_SIGNATURES} signatures")
    return Note(
        body=body + "\n", signatures=tuple(_parse_signature(line) for line in lines)
    )


def verify_checkpoint(text: str, log: TrustedLog) -> Checkpoint:
    """Verify a checkpoint's log signature and its known cosignatures.

    Signatures of unknown keys are passed over; a bad one of a known key
    refuses the whole note, as signed-note demands. Whether the cosignatures
    suffice is for ``Checkpoint.vouched_time``.
    """
    note = parse_note(text)
    origin, size, root = _parse_checkpoint_body(note.body)
    if origin != log.origin:
        raise RefusedError(RefusalCode.UNTRUSTED_ROOT, "checkpoint of another log")
    _verify_log_signature(note, log.key)
    times = ((w.name, _cosignature_times(note, w)) for w in log.witnesses)
    cosigned = {name: max(seen) for name, seen in times if seen}
    return Checkpoint(origin=origin, size=size, root=root, cosigned=cosigned)


def verify_proof(text: str, *, leaf: bytes, log: TrustedLog) -> Inclusion:
    """Verify that a log committed to ``leaf``, from a tlog-proof text."""
    head, blank, checkpoint_text = text.partition("\n\n")
    if not blank:
        raise malformed("proof: no checkpoint")
    index, hashes = _parse_proof_head(head.split("\n"))
    checkpoint = verify_checkpoint(checkpoint_text, log)
    root = root_from_inclusion(
        index=index, size=checkpoint.size, leaf_hash=hash_leaf(leaf), hashes=hashes
    )
    if root != checkpoint.root:
        raise RefusedError(
            RefusalCode.PROOF_INVALID, "proof does not lead to the checkpoint's root"
        )
    return Inclusion(index=index, checkpoint=checkpoint)


def hash_leaf(leaf: bytes) -> bytes:
    """Return a leaf's hash (RFC 6962, section 2.1)."""
    return hashlib.sha256(b"\x00" + leaf).digest()


def hash_children(left: bytes, right: bytes) -> bytes:
    """Return an inner node's hash (RFC 6962, section 2.1)."""
    return hashlib.sha256(b"\x01" + left + right).digest()


def root_from_inclusion(
    *, index: int, size: int, leaf_hash: bytes, hashes: Sequence[bytes]
) -> bytes:
    """Compute the root that a proof leads to (RFC 9162, section 2.1.3.2)."""
    if not 0 <= index < size:
        raise RefusedError(RefusalCode.PROOF_INVALID, "index is outside of the tree")
    node, last, root = index, size - 1, leaf_hash
    for sibling in hashes:
        if last == 0:
            raise RefusedError(RefusalCode.PROOF_INVALID, "too many hashes")
        if node & 1 or node == last:
            root = hash_children(sibling, root)
            while node and not node & 1:
                node, last = node >> 1, last >> 1
        else:
            root = hash_children(root, sibling)
        node, last = node >> 1, last >> 1
    if last != 0:
        raise RefusedError(RefusalCode.PROOF_INVALID, "too few hashes")
    return root


def _parse_signature(line: str) -> NoteSignature:
    match = _SIGNATURE_LINE.fullmatch(line)
    if match is None:
        raise malformed("note: not a signature line")
    data = decode_base64(match[2], "note signature")
    if len(data) <= KEY_ID_BYTES:
        raise malformed("note: signature too short")
    return NoteSignature(
        name=match[1], key_id=data[:KEY_ID_BYTES], signature=data[KEY_ID_BYTES:]
    )


def _parse_checkpoint_body(body: str) -> tuple[str, int, bytes]:
    lines = body[:-1].split("\n")
    # "at least three non-empty lines" (tlog-checkpoint); extension lines after
    # the third are signed but mean nothing here.
    if len(lines) < 3 or not all(lines):  # noqa: PLR2004 - the three lines above
        raise malformed("checkpoint: fewer than three lines, or an empty one")
    return lines[0], _decimal(lines[1], "checkpoint size"), _hash(lines[2])


def _parse_proof_head(lines: Sequence[str]) -> tuple[int, tuple[bytes, ...]]:
    if lines[0] != PROOF_HEADER:
        raise malformed("proof: unknown header")
    rest = list(lines[1:])
    if rest and rest[0].startswith("extra "):
        decode_base64(rest.pop(0).removeprefix("extra "), "proof extra")
    if not rest or not rest[0].startswith("index "):
        raise malformed("proof: no index")
    index = _decimal(rest[0].removeprefix("index "), "proof index")
    if len(rest) - 1 > MAX_PROOF_HASHES:
        raise malformed(f"proof: more than {MAX_PROOF_HASHES} hashes")
    return index, tuple(_hash(line) for line in rest[1:])


def _decimal(text: str, where: str) -> int:
    if _DECIMAL.fullmatch(text) is None:
        raise malformed(f"{where}: not a plain decimal number")
    return int(text)


def _hash(text: str) -> bytes:
    value = decode_base64(text, "log hash")
    if len(value) != HASH_BYTES:
        raise malformed(f"log hash: not {HASH_BYTES} bytes")
    return value


def _signatures_by(note: Note, key: NoteKey, kind: int) -> Iterable[bytes]:
    wanted = (key.name, key.key_id(kind))
    return (s.signature for s in note.signatures if (s.name, s.key_id) == wanted)


def _verify_log_signature(note: Note, key: NoteKey) -> None:
    signatures = list(_signatures_by(note, key, ED25519))
    if not signatures:
        raise RefusedError(RefusalCode.UNSIGNED, "the log's key has not signed")
    for signature in signatures:
        _verify_ed25519(key, signature, note.body.encode())


def _cosignature_times(note: Note, witness: NoteKey) -> list[int]:
    times: list[int] = []
    for signature in _signatures_by(note, witness, COSIGNATURE_V1):
        if len(signature) != TIME_BYTES + SIGNATURE_BYTES:
            raise malformed("cosignature: not 72 bytes")
        (time,) = struct.unpack(">Q", signature[:TIME_BYTES])
        message = f"cosignature/v1\ntime {time}\n{note.body}".encode()
        _verify_ed25519(witness, signature[TIME_BYTES:], message)
        times.append(time)
    return times


def _verify_ed25519(key: NoteKey, signature: bytes, message: bytes) -> None:
    try:
        Ed25519PublicKey.from_public_bytes(key.public_key).verify(signature, message)
    except InvalidSignature:
        raise RefusedError(
            RefusalCode.BAD_SIGNATURE, f"signature of {key.name}"
        ) from None
