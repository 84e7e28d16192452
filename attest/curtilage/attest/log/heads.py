"""The tree heads that a client has seen, to detect a log that shows two trees.

Remembers, for each log, sizes and roots; pure data that the caller keeps and
stores. A second root for a size that was seen, or a proof of consistency that
does not hold, is a refusal. Two sizes without a proof between them are both
remembered: a later proof may show that they belong to one log.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from curtilage.attest.encoding.strict_json import (
    canonical_json,
    encode_base64,
    parse_object,
)
from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.log.note import Checkpoint, UnverifiedHead
from curtilage.attest.log.tree import HASH_BYTES, verify_consistency

MAX_ORIGINS: Final = 4
MAX_HEADS: Final = 256
"""Number of heads of one log that are kept: the largest ones."""
MAX_HISTORY_BYTES: Final = 1024 * 1024
FORMAT: Final = "curtilage/tree-heads/v1"
_ORIGIN_LIMIT: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeHead:
    """A log at one size.

    Attributes:
        origin: the log.
        size: number of leaves.
        root: root hash, 32 bytes.
    """

    origin: str
    size: int
    root: bytes

    @classmethod
    def of(cls, head: Checkpoint | UnverifiedHead) -> "TreeHead":
        """Return what a checkpoint says."""
        return cls(origin=head.origin, size=head.size, root=head.root)


@dataclass(frozen=True, slots=True)
class HeadHistory:
    """Heads by log and size; immutable.

    Attributes:
        roots: for each origin, the root of each size.
    """

    roots: Mapping[str, Mapping[int, bytes]] = field(
        default_factory=dict[str, Mapping[int, bytes]]
    )

    def __post_init__(self) -> None:
        """Make the mappings immutable."""
        frozen = {
            origin: MappingProxyType(dict(heads))
            for origin, heads in self.roots.items()
        }
        object.__setattr__(self, "roots", MappingProxyType(frozen))

    @property
    def heads(self) -> tuple[TreeHead, ...]:
        """Every head, by origin and size."""
        return tuple(
            TreeHead(origin=origin, size=size, root=root)
            for origin, heads in sorted(self.roots.items())
            for size, root in sorted(heads.items())
        )

    def seen(self, *heads: TreeHead) -> "HeadHistory":
        """Return the history with these heads too; verified ones only.

        Raises:
            RefusedError: ``proof_invalid``: another root was seen for a size.
        """
        roots = {origin: dict(known) for origin, known in self.roots.items()}
        for head in heads:
            known = roots.setdefault(head.origin, {})
            # One size, two roots: the log has shown two trees, and one of them to
            # somebody else. There is no innocent explanation, so nothing is forgotten
            # or overwritten.
            if known.setdefault(head.size, head.root) != head.root:
                raise RefusedError(
                    RefusalCode.PROOF_INVALID,
                    f"the log has forked: two roots of size {head.size}",
                )
        # The logs just seen first: so a log that is in use is never pushed out by many
        # that were seen once.
        kept = dict.fromkeys([*(head.origin for head in heads), *roots])
        return HeadHistory(
            {
                # The largest: later heads are compared with them, and a fork behind
                # them would have to fork those too.
                origin: dict(sorted(roots[origin].items())[-MAX_HEADS:])
                for origin in list(kept)[:MAX_ORIGINS]
            }
        )

    def linked(
        self, first: TreeHead, second: TreeHead, hashes: Sequence[bytes]
    ) -> "HeadHistory":
        """Return the history with two heads that a proof of consistency connects.

        Args:
            first: one head.
            second: the other, of the same log, larger or smaller.
            hashes: the consistency proof from the smaller to the larger; empty
                where the sizes are equal or one of them is 0.

        Raises:
            RefusedError: ``proof_invalid``: not two heads of one log, or of
                another one than was seen before.
        """
        # Two logs that share an operator are two trees: a proof between them would
        # prove nothing.
        if first.origin != second.origin:
            raise RefusedError(RefusalCode.PROOF_INVALID, "heads of two logs")
        smaller, larger = sorted((first, second), key=lambda head: head.size)
        # Before either head is remembered: a head that was not proven must not be what
        # later ones are compared with.
        verify_consistency(smaller.size, smaller.root, larger.size, larger.root, hashes)
        return self.seen(smaller, larger)

    def encode(self) -> bytes:
        """Encode for storing: canonical JSON."""
        return canonical_json(
            {
                "format": FORMAT,
                "heads": [
                    {
                        "origin": head.origin,
                        "size": head.size,
                        "root": encode_base64(head.root),
                    }
                    for head in self.heads
                ],
            }
        )


def parse_history(data: bytes) -> HeadHistory:
    """Read a stored history.

    Raises:
        RefusedError: ``malformed`` or ``too_large``; ``proof_invalid`` where it
            names two roots of one size.
    """
    fields = parse_object(
        data,
        where="heads",
        limit_bytes=MAX_HISTORY_BYTES,
        max_opened=MAX_ORIGINS * MAX_HEADS + 2,
    )
    # As strict as for data from outside: editing this file could make a client forget
    # a fork.
    fields.require(("format", "heads"))
    if fields.text("format", limit=_ORIGIN_LIMIT) != FORMAT:
        raise RefusedError(RefusalCode.UNSUPPORTED_VERSION, "heads.format is another")
    heads: list[TreeHead] = []
    for entry in fields.children("heads", limit=MAX_ORIGINS * MAX_HEADS):
        entry.require(("origin", "size", "root"))
        root = entry.octets("root", limit=HASH_BYTES)
        # The file is our own, but a disk can lie and a person can edit.
        if len(root) != HASH_BYTES:
            raise RefusedError(RefusalCode.MALFORMED, "heads.root: not 32 bytes")
        heads.append(
            TreeHead(
                origin=entry.text("origin", limit=_ORIGIN_LIMIT),
                size=entry.integer("size"),
                root=root,
            )
        )
    return HeadHistory().seen(*heads)
