"""The secret of a receipt, and the exchange that it is about.

Shared by the enclave's client and the audit trail, so that neither needs to import the
other.
"""

import secrets
from dataclasses import dataclass, field

from curtilage.attest.receipt import SECRET_BYTES


@dataclass(slots=True, kw_only=True)
class Transcript:
    """The sealed content of an exchange, recorded on request.

    Attributes:
        question: the request's content.
        answer: the answer's content so far, filler included.
    """

    question: bytes = field(default=b"", repr=False)
    answer: bytearray = field(default_factory=bytearray, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiptSecret:
    """The secret of one request's receipt.

    Attributes:
        receipt_id: 16 bytes from which the organisation's key derives the secret;
            empty for a secret that cannot be derived again.
        attempt: the number of the record that permits the request.
        value: 32 bytes, sent inside the seal.
        transcript: records the exchange; None: not recorded.
    """

    receipt_id: bytes = b""
    attempt: int = 0
    transcript: Transcript | None = field(default=None, repr=False)
    value: bytes = field(
        repr=False, default_factory=lambda: secrets.token_bytes(SECRET_BYTES)
    )
