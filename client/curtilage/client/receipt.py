"""The secret that a receipt is made with, and the exchange that it is about.

What asks the enclave and what keeps the records both handle these; neither needs to
know the other for it.
"""

import secrets
from dataclasses import dataclass, field

from curtilage.attest.receipt import SECRET_BYTES


@dataclass(slots=True, kw_only=True)
class Transcript:
    """An exchange as it stood inside the seal, kept because somebody asked for it.

    Attributes:
        question: the request's content.
        answer: the answer's content so far, filler included.
    """

    question: bytes = field(default=b"", repr=False)
    answer: bytearray = field(default_factory=bytearray, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiptSecret:
    """The secret that one request's receipt is made with.

    Attributes:
        receipt_id: what the organisation's key makes the secret from, 16 bytes;
            empty for a secret that nobody can make again.
        attempt: the number of the record that lets the request out.
        value: 32 bytes, sent inside the seal.
        transcript: where the exchange is written down; None: nowhere.
    """

    receipt_id: bytes = b""
    attempt: int = 0
    transcript: Transcript | None = field(default=None, repr=False)
    value: bytes = field(
        repr=False, default_factory=lambda: secrets.token_bytes(SECRET_BYTES)
    )
