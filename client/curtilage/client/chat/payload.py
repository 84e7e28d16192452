"""The encoded bytes of one query to be sealed, with their digest.

Encoded once, when the query is inspected. This one value is inspected, decided upon,
shown to the user for consent, and sealed; the sealing code never sees the query.
"""

import hashlib
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Payload:
    """One encoded chat request (JSON, UTF-8).

    Attributes:
        content: the bytes.
        digest: SHA-256 of them, 32 bytes; never to be published.
    """

    content: bytes = field(repr=False)
    digest: bytes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Compute the digest here, so that both are certainly about the same bytes."""
        object.__setattr__(self, "digest", hashlib.sha256(self.content).digest())
