"""Signers of a transparency log's texts: the log and a witness.

Writes what ``note`` reads. Holds private keys in memory and nothing else: where
they come from, and that a tree is worth signing, is the caller's business.
"""

import struct
from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.mldsa import MLDSA44PrivateKey

from curtilage.attest.log.note import (
    ED25519,
    NoteKey,
    UnverifiedHead,
    checkpoint_body,
    cosigned_message,
    parse_checkpoint,
    signature_line,
)
from curtilage.attest.log.vkeys import VerifierKey


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSigner:
    """A log: its origin, and the Ed25519 key that signs its checkpoints.

    Attributes:
        name: the origin, which is also the key's name.
        key: the private key.
    """

    name: str
    key: Ed25519PrivateKey = field(repr=False)

    @property
    def public(self) -> NoteKey:
        """The name and its public key."""
        return NoteKey(
            name=self.name, public_key=self.key.public_key().public_bytes_raw()
        )

    @property
    def verifier_key(self) -> VerifierKey:
        """The public half, for distribution."""
        return VerifierKey(key=self.public, signature_type=ED25519)

    def checkpoint(self, size: int, root: bytes) -> str:
        """Sign a tree head; the caller must ensure that it is append-only."""
        # The private key signs whatever it is given. Only the caller can prevent
        # signing two trees; witnesses exist to detect it.
        return self.note(checkpoint_body(self.name, size, root))

    def note(self, body: str) -> str:
        """Sign a text that ends in a newline; the caller must mean what it says."""
        line = signature_line(self.public, ED25519, self.key.sign(body.encode()))
        return f"{body}\n{line}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WitnessSigner:
    """A witness: its name and its cosigning key.

    Attributes:
        name: the key's name.
        key: Ed25519 or ML-DSA-44.
    """

    name: str
    key: Ed25519PrivateKey | MLDSA44PrivateKey = field(repr=False)

    @property
    def public(self) -> NoteKey:
        """The name and its public key."""
        return NoteKey(
            name=self.name, public_key=self.key.public_key().public_bytes_raw()
        )

    @property
    def verifier_key(self) -> VerifierKey:
        """The public half, for distribution."""
        return VerifierKey(key=self.public, signature_type=self.public.cosignature_type)

    def cosign(self, checkpoint: str, time: int) -> str:
        """Return a cosignature line; the caller has verified the checkpoint.

        Args:
            checkpoint: the signed note.
            time: Unix seconds.

        Raises:
            RefusedError: ``malformed``: it is no checkpoint.
        """
        _, head = parse_checkpoint(checkpoint)
        return self.cosign_head(head, time)

    def cosign_head(self, head: UnverifiedHead, time: int) -> str:
        """Return a cosignature line for a checkpoint's tree head."""
        signature = self.key.sign(cosigned_message(self.public, time, head))
        # The time once more in front: a verifier needs it to build the message again.
        stamped = struct.pack(">Q", time) + signature
        return signature_line(self.public, self.public.cosignature_type, stamped)
