"""A small transparency log with witnesses, in memory.

The tree, the texts and the signatures are those of ``curtilage.attest``: only the fact
that one process is both the log and its witnesses is for development.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from curtilage.attest.log.note import encode_proof
from curtilage.attest.log.signers import LogSigner, WitnessSigner
from curtilage.attest.log.tree import Tree, hash_leaf

DEFAULT_ORIGIN: Final = "development.invalid/curtilage"
DEFAULT_WITNESS: Final = "witness.development.invalid"


def new_signer(name: str) -> LogSigner:
    """Make a log's signer with a fresh key."""
    return LogSigner(name=name, key=Ed25519PrivateKey.generate())


def new_witness(name: str) -> WitnessSigner:
    """Make a witness with a fresh key."""
    return WitnessSigner(name=name, key=Ed25519PrivateKey.generate())


@dataclass(frozen=True, slots=True, kw_only=True)
class DevelopmentLog:
    """A log of a few leaves, signed by its key and cosigned by its witnesses.

    Where a size is optional, the default is all leaves: an earlier size gives the log's
    state when it was smaller.
    """

    signer: LogSigner
    witnesses: tuple[WitnessSigner, ...]
    leaves: tuple[bytes, ...]

    @property
    def tree(self) -> Tree:
        """The tree over the leaves."""
        return Tree([hash_leaf(leaf) for leaf in self.leaves])

    @property
    def root(self) -> bytes:
        """The tree's root hash."""
        return self.tree.root()

    def checkpoint(self, now: datetime, size: int | None = None) -> str:
        """Sign and cosign a tree head."""
        tree = self.tree
        size = tree.size if size is None else size
        signed = self.signer.checkpoint(size, tree.root(size))
        time = int(now.timestamp())
        return signed + "".join(w.cosign(signed, time) for w in self.witnesses)

    def proof(self, index: int, now: datetime, size: int | None = None) -> str:
        """Write a tlog-proof for one leaf."""
        path = self.tree.inclusion(index, size)
        return encode_proof(index, path, self.checkpoint(now, size))

    def consistency(self, first: int, second: int | None = None) -> tuple[bytes, ...]:
        """Prove that the log of one size is a prefix of that of another."""
        return self.tree.consistency(first, second)
