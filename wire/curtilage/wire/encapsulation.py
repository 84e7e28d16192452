"""The common part of plain and chunked Oblivious HTTP (RFC 9458, 4.1 to 4.4).

::

    hdr    = key_id(1) kem_id(2) kdf_id(2) aead_id(2)
    info   = request_label 00 hdr
    enc, context = SetupBaseS(public_key, info)
    secret = context.Export(response_label, max(Nn, Nk))
    nonce  = random(max(Nn, Nk))
    prk    = Extract(enc nonce, secret)
    key    = Expand(prk, "key", Nk)      aead_nonce = Expand(prk, "nonce", Nn)

Extract and Expand are raw HKDF, not HPKE's labelled ones.
"""

import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from curtilage.wire.errors import (
    MalformedError,
    OpenError,
    UnknownKeyError,
    UnsupportedError,
)
from curtilage.wire.hpke.aead import AEADS, NONCE_BYTES, NumberedKey
from curtilage.wire.hpke.hkdf import PRK, extract
from curtilage.wire.hpke.suite import (
    AEAD_AES_128_GCM,
    KDF_HKDF_SHA256,
    TAG_BYTES,
    PrivateKey,
    RecipientContext,
    SenderContext,
    Suite,
    setup_recipient,
    setup_sender,
)
from curtilage.wire.keyconfig import KeyConfig, choose_suite
from curtilage.wire.once import Uncopyable

HEADER_BYTES: Final = 7  # key_id, kem_id, kdf_id, aead_id

_HEADER: Final = struct.Struct(">BHHH")

# AES-128-GCM keeps its bounds at 2^20 messages of this size (2^-50).
MAX_MESSAGE_BYTES: Final = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    """The two texts that keep one message format from passing as another.

    Attributes:
        request: begins the HPKE info.
        response: the exporter context of the response's secret.
    """

    request: bytes
    response: bytes


# RFC 9458, sections 4.3 and 4.4. The draft of the chunked form uses others, so that an
# intermediary cannot pass the first chunk of one form off as a whole message of the
# other: it is sealed under another ``info`` and does not open.
PLAIN_LABELS: Final = Labels(
    request=b"message/bhttp request", response=b"message/bhttp response"
)
CHUNKED_LABELS: Final = Labels(
    request=b"message/bhttp chunked request",
    response=b"message/bhttp chunked response",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayKey:
    """A key configuration and its private key.

    Attributes:
        config: the public part, for clients.
        private_key: never shown.

    Raises:
        MalformedError: at construction, if the two do not belong together.
    """

    config: KeyConfig
    private_key: PrivateKey
    _offered: Mapping[bytes, Suite] = field(init=False, repr=False, compare=False)
    _fallback: Suite = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Refuse a pair that could only produce failures later."""
        # Clients would seal to a key that we do not hold, and every one of their
        # requests would be refused as if it were forged.
        same_kem = self.private_key.kem_id == self.config.kem_id
        if not same_kem or self.private_key.public_key != self.config.public_key:
            raise MalformedError("gateway key: private and public key differ")
        # By the seven bytes as they come: whatever is not word for word one of
        # ours was not offered, and no field of a stranger's header is parsed.
        offered = {
            _encode_header(self.config.key_id, suite): suite
            for suite in self.config.suites()
        }
        # What is run for those who name something else.
        fallback = Suite(
            kem_id=self.config.kem_id,
            kdf_id=KDF_HKDF_SHA256,
            aead_id=AEAD_AES_128_GCM,
        )
        object.__setattr__(self, "_offered", offered)
        object.__setattr__(self, "_fallback", fallback)

    @property
    def nenc(self) -> int:
        """Bytes of an encapsulated key."""
        return self._fallback.nenc

    def choose(self, header: bytes, enc: bytes) -> tuple[Suite, bytes]:
        """Return what to run on a request: a suite, and its encapsulated key.

        Where the header names what we do not offer, or ``enc`` is too short,
        that is a suite that we could run and an encapsulated key to which
        no one knows the secret: our own public key, or for X-Wing its end, which
        has the right length. Such a request fails where a forged one does,
        after the same work.
        """
        # RFC 9458, section 4.3, has a gateway stop here. Then the time of a refusal
        # would say which part of a message was at fault; so the work is done for
        # nothing, and every refusal takes as long.
        suite = self._offered.get(header)
        if suite is not None and len(enc) == suite.nenc:
            return suite, enc
        return self._fallback, self.private_key.public_key[-self.nenc :]


class ResponseSecret(Uncopyable):
    """State that both ends of one request keep for its response.

    Attributes:
        nonce_bytes: bytes of the response nonce, 16 with AES-128-GCM, else 32.
    """

    __slots__ = ("_enc", "_secret", "_suite", "nonce_bytes")

    def __init__(
        self,
        suite: Suite,
        enc: bytes,
        context: SenderContext | RecipientContext,
        labels: Labels,
    ) -> None:
        self._suite = suite
        self._enc = enc
        # RFC 9458, section 4.4: max(Nn, Nk), for the secret and for the nonce alike.
        self.nonce_bytes = max(suite.nn, suite.nk)
        # HPKE's context goes one way only: its key in both directions would seal two
        # messages under one nonce, so the answer's is exported (RFC 9180, section 9.8).
        self._secret = context.export(labels.response, self.nonce_bytes)

    def draw_nonce(self, random: Callable[[int], bytes]) -> bytes:
        """Draw the nonce of the response.

        Raises:
            MalformedError: the source of randomness gave another length.
        """
        # A request that is replayed leads to the same secret. A nonce of its own keeps
        # two answers to it from being sealed under one key (RFC 9458, section 4.4).
        nonce = random(self.nonce_bytes)
        if len(nonce) != self.nonce_bytes:
            raise MalformedError(f"response nonce: {self.nonce_bytes} bytes expected")
        return nonce

    def keys(self, nonce: bytes) -> NumberedKey:
        """Derive the key of the response that carries ``nonce``.

        The message numbered ``i`` is its chunk ``i``; a plain response is chunk 0.
        """
        # ``enc`` in the salt binds the answer to its request: the relay cannot pass
        # the answer to one question off as the answer to another.
        suite = self._suite
        prk = PRK(extract(self._enc + nonce, self._secret))
        return NumberedKey(
            AEADS[suite.aead_id],
            prk.expand(b"key", suite.nk),
            prk.expand(b"nonce", NONCE_BYTES),
        )


def begin_request(
    config: KeyConfig,
    labels: Labels,
    *,
    suite: Suite | None,
    ephemeral: PrivateKey | None,
) -> tuple[bytes, SenderContext, ResponseSecret]:
    """Start a request towards ``config``.

    Returns:
        The bytes that open the message (header and ``enc``), the context to
        seal with, and the secret that opens the response.

    Raises:
        UnsupportedError: ``config`` offers no suite of ours, or not ``suite``.
        MalformedError: its public key is no usable point.
    """
    chosen = choose_suite(config) if suite is None else suite
    # The gateway would refuse a suite that is not in the verified list, after it had
    # distinguished this client from all others.
    if chosen not in config.suites():
        raise UnsupportedError("the key configuration does not offer this suite")
    header = _encode_header(config.key_id, chosen)
    # The header is not encrypted, but it is in ``info``: changed on the way, it leads
    # to another key, and nothing opens (RFC 9458, section 4.3).
    enc, context = setup_sender(
        chosen, config.public_key, _info(labels, header), ephemeral=ephemeral
    )
    return header + enc, context, ResponseSecret(chosen, enc, context, labels)


def select_key(keys: Mapping[int, GatewayKey], header: bytes) -> GatewayKey:
    """Find the key that a request's header names.

    Raises:
        UnknownKeyError: no key has its identifier.
        OpenError: there is no header.
    """
    if not header:
        raise OpenError
    # The only failure that is reported separately: the byte is not encrypted, and a
    # client whose keys are old has to learn it (RFC 9458, section 5.3).
    key = keys.get(header[0])
    if key is None:
        raise UnknownKeyError
    return key


def accept_request(
    key: GatewayKey, header: bytes, enc: bytes, labels: Labels
) -> tuple[RecipientContext, ResponseSecret]:
    """Take up a request whose header chose ``key``.

    Never fails for what is in the request; the context then opens nothing.

    Raises:
        ConsumedError: the private key was overwritten.
    """
    suite, enc = key.choose(header, enc)
    # The header as it came, not as ``choose`` mended it.
    context = setup_recipient(suite, enc, key.private_key, _info(labels, header))
    return context, ResponseSecret(suite, enc, context, labels)


def reject_implicitly(key: GatewayKey, header: bytes, labels: Labels) -> None:
    """Do the work of opening a request that is not there.

    For callers that refuse one before its encapsulated key is complete, so that the
    refusal takes as long as any other.
    """
    # ML-KEM's term: a secret is computed that no one else knows.
    context, _ = accept_request(key, header, b"", labels)
    with suppress(OpenError):
        context.open(bytes(TAG_BYTES), b"")


def _encode_header(key_id: int, suite: Suite) -> bytes:
    return _HEADER.pack(key_id, suite.kem_id, suite.kdf_id, suite.aead_id)


def _info(labels: Labels, header: bytes) -> bytes:
    return labels.request + b"\x00" + header
