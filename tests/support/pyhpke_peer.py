"""pyhpke as the other end of an HPKE context, for tests that compare with it.

It has no X-Wing: it is given ours as its KEM, so that for X-Wing it judges the key
schedule and the contexts alone.
"""

from types import SimpleNamespace
from typing import cast

from cryptography.hazmat.primitives.asymmetric.x25519 import (
    X25519PrivateKey,
    X25519PublicKey,
)
from pyhpke import (
    AEADId,
    CipherSuite,
    ContextInterface,
    KDFId,
    KEMId,
    KEMInterface,
    KEMKey,
    KEMKeyInterface,
    KEMKeyPair,
)
from pyhpke import aead as pyhpke_aead
from pyhpke import kdf as pyhpke_kdf
from typing_extensions import override

from curtilage.wire.hpke.suite import KEM_XWING, Suite
from curtilage.wire.hpke.xwing import XWingPrivateKey, XWingPublicKey


class _XWingKey(KEMKeyInterface):
    """A key of X-Wing, of either kind, in the library's clothes."""


class _XWingKEM(KEMInterface):
    @property
    @override
    def id(self) -> KEMId:
        # The library's enumeration is closed, but only ``value`` is read.
        return cast("KEMId", SimpleNamespace(value=KEM_XWING))

    @override
    def encap(
        self,
        pkr: KEMKeyInterface,
        sks: KEMKeyInterface | None = None,
        eks: KEMKeyPair | None = None,
    ) -> tuple[bytes, bytes]:
        return cast("XWingPublicKey", pkr.raw).encapsulate(None)

    @override
    def decap(
        self, enc: bytes, skr: KEMKeyInterface, pks: KEMKeyInterface | None = None
    ) -> bytes:
        return cast("XWingPrivateKey", skr.raw).decapsulate(enc)


def pyhpke_sender(
    suite: Suite, public_key: bytes, info: bytes, *, ephemeral_seed: bytes | None = None
) -> tuple[bytes, ContextInterface]:
    """Begin a context; an ephemeral key for X25519 alone."""
    if suite.kem_id == KEM_XWING:
        key: KEMKeyInterface = _XWingKey(XWingPublicKey(public_key))
    else:
        key = _load(X25519PublicKey.from_public_bytes(public_key))
    pair = None
    if ephemeral_seed is not None:
        ephemeral = X25519PrivateKey.from_private_bytes(ephemeral_seed)
        pair = KEMKeyPair(_load(ephemeral), _load(ephemeral.public_key()))
    return _cipher_suite(suite).create_sender_context(key, info, eks=pair)


def pyhpke_recipient(
    suite: Suite, enc: bytes, seed: bytes, info: bytes
) -> ContextInterface:
    """Take up a context with the private key of ``seed``."""
    if suite.kem_id == KEM_XWING:
        key: KEMKeyInterface = _XWingKey(XWingPrivateKey(seed))
    else:
        key = _load(X25519PrivateKey.from_private_bytes(seed))
    return _cipher_suite(suite).create_recipient_context(enc, key, info)


_load = KEMKey.from_pyca_cryptography_key


def _cipher_suite(suite: Suite) -> CipherSuite:
    aead, kdf = AEADId(suite.aead_id), KDFId(suite.kdf_id)
    if suite.kem_id == KEM_XWING:
        # ``CipherSuite.new`` knows the library's own KEMs only. Its KDF gets its
        # suite identifier at every use; this one is never read.
        return CipherSuite(
            _XWingKEM(), pyhpke_kdf.KDF(kdf, b""), pyhpke_aead.AEAD(aead)
        )
    return CipherSuite.new(KEMId(suite.kem_id), kdf, aead)
