"""A small transparency log with one witness, in memory.

Writes what ``curtilage.attest.tlog`` reads; the two share only the hashes.
"""

import base64
import struct
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from curtilage.attest.tlog import (
    COSIGNATURE_V1,
    ED25519,
    PROOF_HEADER,
    NoteKey,
    hash_children,
    hash_leaf,
)

DEFAULT_ORIGIN: Final = "development.invalid/curtilage"
DEFAULT_WITNESS: Final = "witness.development.invalid"


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteSigner:
    """A name and its private key."""

    name: str
    key: Ed25519PrivateKey = field(repr=False)

    @property
    def public(self) -> NoteKey:
        """The name and its public key."""
        raw = self.key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        return NoteKey(name=self.name, public_key=raw)

    @property
    def private_bytes(self) -> bytes:
        """The private key's 32 bytes, to be kept between two runs."""
        return self.key.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption())

    def sign(self, body: str) -> str:
        """Return a log's signature line."""
        return self._line(ED25519, self.key.sign(body.encode()))

    def cosign(self, body: str, time: int) -> str:
        """Return a witness's signature line (cosignature/v1)."""
        message = f"cosignature/v1\ntime {time}\n{body}".encode()
        signature = struct.pack(">Q", time) + self.key.sign(message)
        return self._line(COSIGNATURE_V1, signature)

    def _line(self, kind: int, signature: bytes) -> str:
        data = self.public.key_id(kind) + signature
        return f"\u2014 {self.name} {base64.b64encode(data).decode()}\n"


def new_signer(name: str) -> NoteSigner:
    """Make a signer with a fresh key."""
    return NoteSigner(name=name, key=Ed25519PrivateKey.generate())


def load_signer(name: str, private_bytes: bytes) -> NoteSigner:
    """Make a signer with a kept key."""
    return NoteSigner(
        name=name, key=Ed25519PrivateKey.from_private_bytes(private_bytes)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DevelopmentLog:
    """A log of a few leaves, signed by its key and cosigned by its witnesses."""

    signer: NoteSigner
    witnesses: tuple[NoteSigner, ...]
    leaves: tuple[bytes, ...]

    @property
    def root(self) -> bytes:
        """The tree's root hash."""
        return tree_root([hash_leaf(leaf) for leaf in self.leaves])

    def checkpoint(self, now: datetime) -> str:
        """Sign and cosign the tree head."""
        root = base64.b64encode(self.root).decode()
        body = f"{self.signer.name}\n{len(self.leaves)}\n{root}\n"
        time = int(now.timestamp())
        cosignatures = (witness.cosign(body, time) for witness in self.witnesses)
        return f"{body}\n{self.signer.sign(body)}{''.join(cosignatures)}"

    def proof(self, index: int, now: datetime) -> str:
        """Write a tlog-proof for one leaf."""
        path = inclusion_path([hash_leaf(leaf) for leaf in self.leaves], index)
        hashes = "".join(f"{base64.b64encode(node).decode()}\n" for node in path)
        return f"{PROOF_HEADER}\nindex {index}\n{hashes}\n{self.checkpoint(now)}"


def tree_root(hashes: list[bytes]) -> bytes:
    """Compute a root (RFC 6962, section 2.1); at least one leaf."""
    if len(hashes) == 1:
        return hashes[0]
    split = _split(len(hashes))
    return hash_children(tree_root(hashes[:split]), tree_root(hashes[split:]))


def inclusion_path(hashes: list[bytes], index: int) -> list[bytes]:
    """Compute an inclusion proof, leaf's sibling first (RFC 6962, 2.1.1)."""
    if len(hashes) == 1:
        return []
    split = _split(len(hashes))
    left, right = hashes[:split], hashes[split:]
    if index < split:
        return [*inclusion_path(left, index), tree_root(right)]
    return [*inclusion_path(right, index - split), tree_root(left)]


def _split(size: int) -> int:
    """Return the largest power of two below ``size``."""
    return 1 << (size - 1).bit_length() - 1
