"""Transparency log texts: reading, offline verification, and writing.

Signed notes, checkpoints, cosignatures and inclusion proofs as the C2SP documents
signed-note, tlog-checkpoint, tlog-cosignature (both types) and tlog-proof (v1)
define them. Knows no log by name: the origin and every key are arguments. The
tree's hashes stand in ``tree``, keys as text in ``vkeys``, who signs in ``signers``.
"""

import hashlib
import re
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.mldsa import MLDSA44PublicKey

from curtilage.attest.encoding.strict_json import (
    decode_base64,
    encode_base64,
    malformed,
)
from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.log.tree import (
    EMPTY_ROOT,
    HASH_BYTES,
    hash_leaf,
    root_from_inclusion,
)

PROOF_HEADER: Final = "c2sp.org/tlog-proof@v1"
PUBLIC_KEY_BYTES: Final = 32
ML_DSA_44_KEY_BYTES: Final = 1312
KEY_ID_BYTES: Final = 4
TIME_BYTES: Final = 8
# "timestamp [...] MUST NOT exceed 2^63 - 1" (tlog-cosignature).
MAX_TIME: Final = 2**63 - 1
# signed-note lets verifiers bound the lines; Go's own verifier stops at 100.
MAX_SIGNATURES: Final = 100
# A tree of 2**63 leaves is 63 levels deep.
MAX_PROOF_HASHES: Final = 63
# Signature types of signed-note, part of each key id.
ED25519: Final = 0x01
COSIGNATURE_V1: Final = 0x04
SUBTREE_V1: Final = 0x06
# cosigner_name and log_origin are opaque<1..2^8-1> (tlog-cosignature).
MAX_NAMED_BYTES: Final = 255
_SIGNATURE_BYTES: Final[Mapping[int, int]] = {
    ED25519: 64,
    COSIGNATURE_V1: TIME_BYTES + 64,
    SUBTREE_V1: TIME_BYTES + 2420,
}
_SUBTREE_LABEL: Final = b"subtree/v1\n\0"
_DECIMAL: Final = re.compile(r"0|[1-9][0-9]{0,18}", re.ASCII)
# "MUST NOT contain any ASCII control characters (those below U+0020) other
# than newline" (signed-note).
_CONTROL: Final = re.compile(r"[\x00-\x09\x0b-\x1f]")
_SIGNATURE_LINE: Final = re.compile(r"\u2014 ([^\s+]+) ([A-Za-z0-9+/=]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteKey:
    """A name and the key that signs notes under it.

    Attributes:
        name: without spaces and plus signs.
        public_key: 32 bytes: Ed25519; 1312 bytes: ML-DSA-44. The length determines
            the algorithm, and with it how this key cosigns.
    """

    name: str
    public_key: bytes

    @property
    def cosignature_type(self) -> int:
        """Type of this key's cosignatures: ``COSIGNATURE_V1`` or ``SUBTREE_V1``."""
        ml_dsa = len(self.public_key) == ML_DSA_44_KEY_BYTES
        return SUBTREE_V1 if ml_dsa else COSIGNATURE_V1

    @property
    def log_type(self) -> int:
        """Type of this key's signatures as a log: ``ED25519`` or ``SUBTREE_V1``."""
        ml_dsa = len(self.public_key) == ML_DSA_44_KEY_BYTES
        return SUBTREE_V1 if ml_dsa else ED25519

    def key_id(self, signature_type: int) -> bytes:
        """Return the four bytes that announce this key in a note."""
        named = self.name.encode() + b"\n" + bytes([signature_type])
        return hashlib.sha256(named + self.public_key).digest()[:KEY_ID_BYTES]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustedLog:
    """One log and its witnesses, as a policy names them.

    Attributes:
        origin: the checkpoint's first line.
        key: the log's own key; by convention its name is the origin. An
            ML-DSA-44 key signs no extension lines, so they mean nothing then.
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
class UnverifiedHead:
    """A checkpoint's contents, before any signature was verified.

    Attributes:
        origin: the log that it names.
        size: number of leaves.
        root: root hash, 32 bytes.
        body: the signed text, including its last newline.
    """

    origin: str
    size: int
    root: bytes
    body: str


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
    # Terminals and diff tools act on them: what a person sees of a note must be what
    # was signed.
    if _CONTROL.search(text):
        raise malformed("note: control character")
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which JSON can spell
        raise malformed("note: not Unicode") from None
    # The last blank line: a signed text may contain blank lines itself, and everything
    # above the last one was signed (signed-note).
    body, blank, tail = text.rpartition("\n\n")
    if not body or not blank:
        raise malformed("note: no signatures")
    # A line that was cut off could be a shorter, other signature.
    if not tail.endswith("\n"):
        raise malformed("note: bytes after the last newline")
    return Note(body=body + "\n", signatures=_parse_signatures(tail))


def require_signed(note: Note, key: NoteKey) -> None:
    """Refuse a note that an Ed25519 key has not signed.

    Raises:
        RefusedError: ``unsigned``; or, of a line that bears the key's name and id,
            ``malformed`` or ``bad_signature``.
    """
    signatures = _signatures_by(note, key, ED25519)
    for signature in signatures:
        _verify_signature(key, signature, note.body.encode())
    if not signatures:
        raise RefusedError(RefusalCode.UNSIGNED, f"{key.name} has not signed")


def parse_checkpoint(text: str) -> tuple[Note, UnverifiedHead]:
    """Read a checkpoint without verifying anything."""
    note = parse_note(text)
    lines = note.body[:-1].split("\n")
    # "at least three non-empty lines" (tlog-checkpoint); extension lines after
    # the third are signed but mean nothing here.
    if len(lines) < 3 or not all(lines):  # noqa: PLR2004 - the three lines above
        raise malformed("checkpoint: fewer than three lines, or an empty one")
    head = UnverifiedHead(
        origin=lines[0],
        size=parse_decimal(lines[1], "checkpoint size"),
        root=_hash(lines[2]),
        body=note.body,
    )
    # The one root that anybody can compute; another would be a tree of which nothing
    # can ever be proven.
    if head.size == 0 and head.root != EMPTY_ROOT:
        raise malformed("checkpoint: an empty tree has another root")
    return note, head


def verify_checkpoint(text: str, log: TrustedLog) -> Checkpoint:
    """Verify a checkpoint's log signature and its known cosignatures.

    Signatures of unknown keys are passed over; a bad one of a known key
    refuses the whole note, as signed-note demands. Whether the cosignatures
    suffice is for ``Checkpoint.vouched_time``.
    """
    note, head = parse_checkpoint(text)
    # One key may sign for several logs. The origin is inside what is signed, so a head
    # of one is never a head of another.
    if head.origin != log.origin:
        raise RefusedError(RefusalCode.UNTRUSTED_ROOT, "checkpoint of another log")
    # Before the cosignatures: a witness vouches that a log has not forked, and never
    # for the log.
    _verify_log_signature(note, head, log.key)
    # Only of known witnesses. Anyone may add signature lines of unknown witnesses; they
    # do not count.
    times = ((w.name, cosignature_time(note, head, w)) for w in log.witnesses)
    cosigned = {name: time for name, time in times if time is not None}
    return Checkpoint(
        origin=head.origin, size=head.size, root=head.root, cosigned=cosigned
    )


def cosignature_time(note: Note, head: UnverifiedHead, witness: NoteKey) -> int | None:
    """Verify a witness's cosignatures; return the latest time, None for none.

    Says nothing about the log's own signature.

    Raises:
        RefusedError: the witness's name and id stand on a line that is not
            its cosignature.
    """
    kind = witness.cosignature_type
    times: list[int] = []
    for signature in _signatures_by(note, witness, kind):
        # In front of the signature and inside the signed message, so it cannot be
        # exchanged.
        (time,) = struct.unpack(">Q", signature[:TIME_BYTES])
        if time > MAX_TIME:
            raise malformed("cosignature: a time beyond 2**63 - 1")
        message = cosigned_message(witness, time, head)
        _verify_signature(witness, signature[TIME_BYTES:], message)
        times.append(time)
    return max(times, default=None)


def verify_proof(text: str, *, leaf: bytes, log: TrustedLog) -> Inclusion:
    """Verify that a log committed to ``leaf``, from a tlog-proof text."""
    proof = parse_proof(text)
    return proof.inclusion_of(leaf, verify_checkpoint(proof.checkpoint, log))


def parse_proof(text: str) -> "UnverifiedProof":
    """Split a tlog-proof into its parts without verifying anything."""
    head, blank, checkpoint = text.partition("\n\n")
    if not blank:
        raise malformed("proof: no checkpoint")
    lines = head.split("\n")
    if lines[0] != PROOF_HEADER:
        raise malformed("proof: unknown header")
    rest = lines[1:]
    # Opaque to us (tlog-proof), but it must be base64: any other line is not part of
    # the format.
    if rest and rest[0].startswith("extra "):
        decode_base64(rest.pop(0).removeprefix("extra "), "proof extra")
    if not rest or not rest[0].startswith("index "):
        raise malformed("proof: no index")
    index = parse_decimal(rest[0].removeprefix("index "), "proof index")
    # Counted before any is decoded.
    if len(rest) - 1 > MAX_PROOF_HASHES:
        raise malformed(f"proof: more than {MAX_PROOF_HASHES} hashes")
    hashes = tuple(_hash(line) for line in rest[1:])
    return UnverifiedProof(index=index, hashes=hashes, checkpoint=checkpoint)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnverifiedProof:
    """The parts of a tlog-proof.

    Attributes:
        index: the leaf's number.
        hashes: its inclusion proof, the leaf's sibling first.
        checkpoint: the checkpoint's text.
    """

    index: int
    hashes: tuple[bytes, ...]
    checkpoint: str

    def inclusion_of(self, leaf: bytes, checkpoint: Checkpoint) -> Inclusion:
        """Verify that this proof leads from a leaf to a verified checkpoint."""
        # Computed from the leaf upwards and compared once at the end: the proof gives
        # siblings, never a result that could be trusted.
        root = root_from_inclusion(
            index=self.index,
            size=checkpoint.size,
            leaf_hash=hash_leaf(leaf),
            hashes=self.hashes,
        )
        if root != checkpoint.root:
            raise RefusedError(
                RefusalCode.PROOF_INVALID,
                "proof does not lead to the checkpoint's root",
            )
        return Inclusion(index=self.index, checkpoint=checkpoint)


def checkpoint_body(origin: str, size: int, root: bytes) -> str:
    """Return the text that a log signs (tlog-checkpoint)."""
    return f"{origin}\n{size}\n{encode_base64(root)}\n"


def signature_line(key: NoteKey, signature_type: int, signature: bytes) -> str:
    """Return one signature line of a note, its newline included."""
    data = encode_base64(key.key_id(signature_type) + signature)
    return f"\u2014 {key.name} {data}\n"


def encode_hashes(hashes: Iterable[bytes]) -> str:
    """Write hashes as lines of base64, for proofs and witness requests."""
    return "".join(f"{encode_base64(each)}\n" for each in hashes)


def parse_hashes(text: str) -> tuple[bytes, ...]:
    """Read lines of base64, each with its newline; none is no hashes."""
    if not text:
        return ()
    if not text.endswith("\n"):
        raise malformed("hashes: bytes after the last newline")
    lines = text[:-1].split("\n")
    if len(lines) > MAX_PROOF_HASHES:
        raise malformed(f"hashes: more than {MAX_PROOF_HASHES}")
    return tuple(_hash(line) for line in lines)


def encode_proof(index: int, hashes: Iterable[bytes], checkpoint: str) -> str:
    """Write a tlog-proof from its parts; the checkpoint as it was signed."""
    return f"{PROOF_HEADER}\nindex {index}\n{encode_hashes(hashes)}\n{checkpoint}"


def cosigned_message(key: NoteKey, time: int, checkpoint: "UnverifiedHead") -> bytes:
    """Return the bytes that a witness signs, by its key's type.

    Args:
        key: the witness.
        time: Unix seconds; 0 states nothing about being the latest, and only
            an ML-DSA-44 witness may say that.
        checkpoint: what is cosigned.

    Raises:
        RefusedError: a name is longer than ML-DSA-44's message can hold.
    """
    # tlog-cosignature, "cosignature/v1": header, time, and the whole body of the note.
    if key.cosignature_type == COSIGNATURE_V1:
        return f"cosignature/v1\ntime {time}\n{checkpoint.body}".encode()
    return b"".join(
        (
            # tlog-cosignature, "subtree/v1": label, names, time, and the tree as the
            # range from 0 to its size.
            _SUBTREE_LABEL,
            _named(key.name),
            struct.pack(">Q", time),
            _named(checkpoint.origin),
            struct.pack(">QQ", 0, checkpoint.size),
            checkpoint.root,
        )
    )


def parse_decimal(text: str, where: str) -> int:
    """Read a number as the C2SP texts write it: ASCII digits, no leading zero."""
    if _DECIMAL.fullmatch(text) is None:
        raise malformed(f"{where}: not a plain decimal number")
    return int(text)


def _parse_signatures(tail: str) -> tuple[NoteSignature, ...]:
    lines = tail[:-1].split("\n")
    # Each line of a known key costs a verification; without a bound, a note would be a
    # way to keep a client busy.
    if len(lines) > MAX_SIGNATURES:
        raise malformed(f"note: more than {MAX_SIGNATURES} signatures")
    signatures: list[NoteSignature] = []
    for line in lines:
        match = _SIGNATURE_LINE.fullmatch(line)
        if match is None:
            raise malformed("note: not a signature line")
        data = decode_base64(match[2], "note signature")
        if len(data) <= KEY_ID_BYTES:
            raise malformed("note: signature too short")
        key_id, signature = data[:KEY_ID_BYTES], data[KEY_ID_BYTES:]
        signatures.append(
            NoteSignature(name=match[1], key_id=key_id, signature=signature)
        )
    return tuple(signatures)


def _hash(text: str) -> bytes:
    value = decode_base64(text, "log hash")
    if len(value) != HASH_BYTES:
        raise malformed(f"log hash: not {HASH_BYTES} bytes")
    return value


def _named(name: str) -> bytes:
    """Encode ``opaque<1..2^8-1>`` (RFC 8446, section 3.4)."""
    data = name.encode()
    if not 0 < len(data) <= MAX_NAMED_BYTES:
        raise malformed(f"cosignature: a name of more than {MAX_NAMED_BYTES} bytes")
    return bytes([len(data)]) + data


def _signatures_by(note: Note, key: NoteKey, kind: int) -> list[bytes]:
    """Return a key's signatures of one type, each of that type's length."""
    # Both: the id is four bytes long, and anybody can find a key with the same four.
    wanted = (key.name, key.key_id(kind))
    found = [s.signature for s in note.signatures if (s.name, s.key_id) == wanted]
    # A line under a known name and id that is none of its signatures refuses the note
    # (signed-note): passing over it would hide that somebody forges.
    if any(len(signature) != _SIGNATURE_BYTES[kind] for signature in found):
        raise malformed(f"signature of {key.name}: not as long as its type says")
    return found


def _verify_log_signature(note: Note, head: UnverifiedHead, key: NoteKey) -> None:
    if key.log_type == SUBTREE_V1:
        # Distinguished from a bad signature: a checkpoint that only witnesses signed is
        # not the log's.
        if cosignature_time(note, head, key) is None:
            raise RefusedError(RefusalCode.UNSIGNED, f"{key.name} has not signed")
        return
    require_signed(note, key)


def _verify_signature(key: NoteKey, signature: bytes, message: bytes) -> None:
    try:
        if len(key.public_key) == ML_DSA_44_KEY_BYTES:
            MLDSA44PublicKey.from_public_bytes(key.public_key).verify(
                signature, message
            )
        else:
            Ed25519PublicKey.from_public_bytes(key.public_key).verify(
                signature, message
            )
    except InvalidSignature:
        raise RefusedError(
            RefusalCode.BAD_SIGNATURE, f"signature of {key.name}"
        ) from None
    # A quorum that counts on ML-DSA must not shrink where the system cannot check it.
    except UnsupportedAlgorithm:
        raise RefusedError(
            RefusalCode.VERIFIER_UNAVAILABLE, "this system's OpenSSL has no ML-DSA"
        ) from None
    except ValueError:
        raise RefusedError(
            RefusalCode.POLICY_INVALID, f"the key of {key.name} is invalid"
        ) from None
