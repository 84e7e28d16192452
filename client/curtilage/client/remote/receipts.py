"""Verification of receipts by the client: expected content and signature.

Pure. An enclave whose evidence binds a receipt key signs, at the end of every answer,
the question and the answer. If the receipt is missing or does not match, the answer
counts as truncated: no party could be held to it.
"""

import hmac
from datetime import datetime

from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.receipt import (
    RECEIPT_BYTES,
    RECEIPT_FIELD,
    Receipt,
    ReceiptExpectation,
    answer_mac,
    decode_field,
    request_mac,
    verify_receipt,
)
from curtilage.attest.verified_key import VerifiedKey
from curtilage.client.chat.receipt import ReceiptSecret
from curtilage.wire.bhttp import Field
from curtilage.wire.dates import WINDOW


def proves_question(receipt: Receipt, secret: bytes, content: bytes) -> bool:
    """Return whether a receipt is about this request's content.

    Args:
        receipt: whose signature was verified.
        secret: 32 bytes; without it, this cannot be known.
        content: as sealed.
    """
    # A MAC and not a digest: questions are short, and a holder of receipts could try
    # all of them against a digest.
    return hmac.compare_digest(request_mac(secret, content), receipt.request_mac)


def proves_answer(receipt: Receipt, secret: bytes, content: bytes) -> bool:
    """Return whether a receipt is about this answer's content, filler included."""
    mac = answer_mac(secret)
    mac.update(content)
    return hmac.compare_digest(mac.digest(), receipt.answer_mac)


class ReceiptCheck:
    """Follows one answer and verifies the receipt at its end.

    Args:
        key: that the request was sealed to; it has a receipt key.
        secret: sent with the request.
        content: the request's content.
        date: the request's date; the enclave opened it within its window.
        question: whether a model must have answered; not required if the release
            lists no model.
    """

    def __init__(
        self,
        key: VerifiedKey,
        secret: ReceiptSecret,
        content: bytes,
        *,
        date: datetime,
        question: bool = False,
    ) -> None:
        self._key = key
        self._date = date
        self._question = question
        # The content is not stored: its MAC and the running MAC of the answer suffice.
        self._request_mac = request_mac(secret.value, content)
        self._answer_mac = answer_mac(secret.value)
        self._transcript = secret.transcript
        self._status = 0
        if self._transcript is not None:
            self._transcript.question = content

    def head(self, status: int) -> None:
        """Record the answer's status."""
        self._status = status

    def content(self, data: bytes) -> None:
        """Record content as it arrives, filler included."""
        self._answer_mac.update(data)
        if self._transcript is not None:
            self._transcript.answer += data

    def end(self, trailers: tuple[Field, ...]) -> bytes:
        """Verify the receipt and return it, 235 bytes.

        Raises:
            RefusedError: ``receipt_invalid``: it is missing, not the only one,
                or not of this exchange.
        """
        # In a trailer at the very end, since it covers all that comes before. Of two,
        # each reader could choose another one.
        found = [value for name, value in trailers if name == RECEIPT_FIELD]
        if len(found) != 1:
            raise RefusedError(
                RefusalCode.RECEIPT_INVALID, f"receipt: {len(found)} of them, not one"
            )
        receipt = decode_field(found[0], length=RECEIPT_BYTES)
        key, sealed_at = self._key, int(self._date.timestamp())
        window_s = int(WINDOW.total_seconds())
        # All expected values are known here: none is taken from the receipt, so one of
        # another exchange, key or release does not verify.
        expected = ReceiptExpectation(
            status=self._status,
            # The enclave opens nothing whose date is outside its window, and nothing
            # outside the key's validity.
            earliest=max(sealed_at - window_s, int(key.not_before.timestamp())),
            latest=min(sealed_at + window_s, int(key.not_after.timestamp()) - 1),
            key_configs_digest=bytes.fromhex(key.key_configs_digest),
            release_digest=key.release_digest,
            model_digests=key.model_digests,
            # A cover request and a challenge run no model; a chat must have run one of
            # the release's, or the answer came from elsewhere.
            none_ran=not (self._question and key.model_digests),
            request_mac=self._request_mac,
            answer_mac=self._answer_mac.digest(),
        )
        # With the key that the evidence binds, never one that is sent along.
        verify_receipt(
            receipt,
            public_key=key.receipt_public_key,
            expected=expected,
        )
        return receipt
