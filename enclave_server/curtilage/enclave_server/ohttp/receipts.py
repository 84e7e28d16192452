"""Receipts on answers: the content of one is collected while the answer is sealed.

Knows when a receipt is due and for what; the format is ``attest.receipt``'s. The
content itself only passes through a running MAC under the client's own secret; nothing
here stores it, and receipts are sent only inside the seal.
"""

import hashlib
from dataclasses import replace
from typing import Final, Protocol

from curtilage.attest.errors import RefusedError
from curtilage.attest.receipt import (
    KEY_FIELD,
    NO_MODEL,
    RECEIPT_FIELD,
    SECRET_BYTES,
    ContentMac,
    Receipt,
    ReceiptKey,
    answer_mac,
    decode_field,
    encode_field,
    request_mac,
    sign_receipt,
)
from curtilage.wire import bhttp
from curtilage.wire.bhttp import Fields
from curtilage.wire.errors import MalformedError
from curtilage.wire.shaping import Shape, TransportParameters

MIN_FRAME_BYTES: Final = 384
"""The trailer takes about 340 bytes, and it must fit into one frame."""


class Receipting(Protocol):
    """Takes the parts of one answer, in order."""

    def begin(self, status: int) -> None:
        """Take the status of the answer's head."""
        ...

    def add(self, content: bytes) -> None:
        """Take the next sealed content, including filler."""
        ...

    def model_ran(self) -> None:
        """Record that the model took the request."""
        ...

    def trailers(self) -> Fields:
        """Return the answer's trailers; once, after all content was added."""
        ...


class NoReceipt:
    """For an answer whose client wanted none, or whose release offers none."""

    def begin(self, status: int) -> None:
        """Do nothing; see the Protocol."""

    def add(self, content: bytes) -> None:
        """Do nothing; see the Protocol."""

    def model_ran(self) -> None:
        """Do nothing; see the Protocol."""

    def trailers(self) -> Fields:
        """Return none; see the Protocol."""
        return ()


NO_RECEIPT: Final = NoReceipt()


class ReceiptIssuer:
    """Makes the receipts of one set of HPKE keys, until it is dropped.

    Args:
        key_configs: the list that evidence binds together with our public key.
        release_digest: SHA-256 of the manifest that it binds, 32 bytes.
        model_digest: SHA-256 of the loaded model, 32 bytes.

    Attributes:
        public_key: 32 bytes, for the bundle.
    """

    __slots__ = ("_key", "_key_configs_digest", "_model", "_release", "public_key")

    def __init__(
        self, *, key_configs: bytes, release_digest: bytes, model_digest: bytes
    ) -> None:
        self._key: ReceiptKey | None = ReceiptKey.generate()
        self.public_key: Final = self._key.public_key
        self._key_configs_digest = hashlib.sha256(key_configs).digest()
        self._release = release_digest
        self._model = model_digest

    def begin(self, secret: bytes, content: bytes, served_at: int) -> Receipting:
        """Begin the receipt of one answer.

        Args:
            secret: the client's, 32 bytes; empty for no receipt.
            content: of the request; only its MAC is kept.
            served_at: when the request was opened, Unix seconds.
        """
        # None without the client's secret: a receipt that it did not request would
        # prove to others what was answered.
        if self._key is None or not secret:
            return NO_RECEIPT
        # Initially an error without a model: a receipt that is cut short must not claim
        # more than was done.
        draft = Receipt(
            status=500,
            served_at=served_at,
            key_configs_digest=self._key_configs_digest,
            release_digest=self._release,
            model_digest=NO_MODEL,
            request_mac=request_mac(secret, content),
            answer_mac=bytes(32),
        )
        return _AnswerReceipt(self._key, draft, answer_mac(secret), self._model)

    def overwrite(self) -> None:
        """Release the key; its memory is cleared with the last running answer.

        Requests that were opened in time are answered completely, with receipt.
        """
        self._key = None


class _AnswerReceipt:
    """One receipt in progress."""

    __slots__ = ("_draft", "_key", "_mac", "_model")

    def __init__(
        self, key: ReceiptKey, draft: Receipt, mac: ContentMac, model: bytes
    ) -> None:
        self._key = key
        self._draft = draft
        self._mac = mac
        self._model = model

    def begin(self, status: int) -> None:
        # The sealed status, not the intended one: an error after the head has no
        # status.
        self._draft = replace(self._draft, status=status)

    def add(self, content: bytes) -> None:
        self._mac.update(content)

    def model_ran(self) -> None:
        self._draft = replace(self._draft, model_digest=self._model)

    def trailers(self) -> Fields:
        # Signed at the very end, over everything: a truncated answer has no receipt.
        receipt = replace(self._draft, answer_mac=self._mac.digest())
        return ((RECEIPT_FIELD, encode_field(sign_receipt(receipt, self._key))),)


def offers_receipts(transport: TransportParameters) -> bool:
    """Return whether an answer of this shape has room for a receipt."""
    # Unpadded, trailers may have any length.
    if transport.shape is not Shape.PADDED:
        return True
    return transport.frame_bytes >= MIN_FRAME_BYTES


def take_secret(request: bhttp.Request) -> tuple[bhttp.Request, bytes]:
    """Extract the client's receipt secret from a request.

    Returns:
        The request without that field, and 32 bytes, or none if it had none.

    Raises:
        MalformedError: two of them, or an invalid one.
    """
    # Extracted before anything else reads the request: with this secret, a holder of
    # the receipt can test guesses at the request's content.
    values = [value for name, value in request.fields if name == KEY_FIELD]
    if not values:
        return request, b""
    try:
        (value,) = values
        secret = decode_field(value, length=SECRET_BYTES)
    except (RefusedError, ValueError):
        raise MalformedError("request: receipt key") from None
    fields = tuple(each for each in request.fields if each[0] != KEY_FIELD)
    return replace(request, fields=fields), secret
