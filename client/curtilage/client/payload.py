"""The bytes that would be sealed of one query, with their digest.

Encoded once, when the query is inspected. What is inspected, decided, shown to a person
who is to agree, and sealed is this one value; what seals never sees the query.
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
        """Compute the digest here, so that the two cannot be of two texts."""
        object.__setattr__(self, "digest", hashlib.sha256(self.content).digest())
