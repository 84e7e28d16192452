"""Plain Oblivious HTTP (RFC 9458, section 4): one request, one response, whole.

::

    request  = hdr enc ctx.Seal("", bhttp)
    response = nonce Seal(key, aead_nonce, "", bhttp)

Our client sends the chunked form only (``chunked.py``); this one serves other
people's clients. The sealed content is not parsed here.
"""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from curtilage.wire.encapsulation import (
    HEADER_BYTES,
    MAX_MESSAGE_BYTES,
    PLAIN_LABELS,
    GatewayKey,
    ResponseSecret,
    accept_request,
    begin_request,
    select_key,
)
from curtilage.wire.errors import LimitExceededError
from curtilage.wire.hpke.suite import PrivateKey, Suite
from curtilage.wire.keyconfig import KeyConfig
from curtilage.wire.once import OneShot

__all__ = [
    "GatewayKey",
    "OpenedRequest",
    "ResponseOpener",
    "ResponseSealer",
    "SealedRequest",
    "open_request",
    "seal_request",
]


class ResponseOpener(OneShot):
    """Opens the one response to the request that it was made with."""

    __slots__ = ("_secret",)

    def __init__(self, secret: ResponseSecret) -> None:
        super().__init__()
        self._secret = secret

    def open(self, message: bytes) -> bytes:
        """Open the encapsulated response; only once, whatever comes of it.

        Raises:
            OpenError: it is not the gateway's answer to our request, or was cut.
            ConsumedError: the second call.
        """
        self._spend()
        nonce_bytes = self._secret.nonce_bytes
        # A message cut inside its nonce leaves nothing to decrypt, which fails
        # like every other forgery. The length is not checked first: that would be
        # another, distinguishable way to fail.
        keys = self._secret.keys(message[:nonce_bytes])
        return keys.open(0, message[nonce_bytes:], b"")


class ResponseSealer(OneShot):
    """Seals the one response to the request that it came from."""

    __slots__ = ("_secret",)

    def __init__(self, secret: ResponseSecret) -> None:
        super().__init__()
        self._secret = secret

    def seal(
        self, bhttp: bytes, *, random: Callable[[int], bytes] = secrets.token_bytes
    ) -> bytes:
        """Seal the response; a second one under the same secret is refused.

        Raises:
            LimitExceededError: ``bhttp`` is longer than 2^30 bytes.
            ConsumedError: the second call.
        """
        # Before anything can fail: a second answer, with any nonce, would show the
        # relay that this gateway answers one request twice.
        self._spend()
        _check_length(bhttp)
        nonce = self._secret.draw_nonce(random)
        return nonce + self._secret.keys(nonce).seal(0, bhttp, b"")


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedRequest:
    """An encapsulated request and the only thing that opens its response.

    Attributes:
        message: ``message/ohttp-req``, to be sent at most once.
        opener: for the response.
    """

    message: bytes = field(repr=False)
    opener: ResponseOpener


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedRequest:
    """A decapsulated request and the only thing that seals its response.

    Attributes:
        bhttp: what the client sealed, not yet decoded. It may be a replay.
        sealer: for the response.
    """

    bhttp: bytes = field(repr=False)
    sealer: ResponseSealer


def seal_request(
    config: KeyConfig,
    bhttp: bytes,
    *,
    suite: Suite | None = None,
    ephemeral: PrivateKey | None = None,
) -> SealedRequest:
    """Encapsulate one request (RFC 9458, section 4.3).

    Args:
        config: the gateway's; that it is the right one was settled before.
        bhttp: a binary HTTP request.
        suite: one that ``config`` offers; by default its first that we support.
        ephemeral: only for known-answer tests; see ``setup_sender``.

    Raises:
        UnsupportedError: no suite in common, or ``suite`` is not offered.
        MalformedError: the gateway's public key is no usable point.
        LimitExceededError: ``bhttp`` is longer than 2^30 bytes.
    """
    # Before a key is drawn: what cannot be sent leaves nothing half made behind.
    _check_length(bhttp)
    prefix, context, secret = begin_request(
        config, PLAIN_LABELS, suite=suite, ephemeral=ephemeral
    )
    # No additional data: the header is bound through ``info``.
    message = prefix + context.seal(bhttp, b"")
    return SealedRequest(message=message, opener=ResponseOpener(secret))


def open_request(keys: Mapping[int, GatewayKey], message: bytes) -> OpenedRequest:
    """Open one encapsulated request (RFC 9458, section 4.3).

    Trusts nothing in ``message``, bounds nothing (the body's length is the
    caller's to bound) and knows no replays. Never says which step failed.

    Args:
        keys: the live keys by key identifier.
        message: ``message/ohttp-req``.

    Raises:
        UnknownKeyError: the client holds an old key configuration.
        OpenError: everything else that an attacker can cause.
    """
    # Slices, never an index: a message that is too short becomes a header or an
    # ``enc`` that is too short, which the steps below refuse after the usual work.
    header = message[:HEADER_BYTES]
    key = select_key(keys, header)
    enc_end = HEADER_BYTES + key.nenc
    # The lengths are those of our own key, whatever KEM the header names: nothing in
    # the message says how it is to be cut.
    enc = message[HEADER_BYTES:enc_end]
    context, secret = accept_request(key, header, enc, PLAIN_LABELS)
    # The sealer exists only after this line: only a sender that sealed a request to us
    # gets a sealed answer.
    bhttp = context.open(message[enc_end:], b"")
    return OpenedRequest(bhttp=bhttp, sealer=ResponseSealer(secret))


def _check_length(bhttp: bytes) -> None:
    if len(bhttp) > MAX_MESSAGE_BYTES:
        raise LimitExceededError(f"message longer than {MAX_MESSAGE_BYTES} bytes")
