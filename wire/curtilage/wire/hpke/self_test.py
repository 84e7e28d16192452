"""Self-test at start: our HPKE and an independent one open each other's messages.

One path seals and opens everything here: our order of bytes on the primitives of
``cryptography``. Should an update of a library, or one of ours, change what it
computes, both of our ends would still agree, on something that is not HPKE. Hence,
before anything is sealed or opened, each suite is tried against a stranger:

- DHKEM(X25519) against pyhpke, both ways, several messages, exports included;
- X-Wing, which pyhpke does not have, against ``cryptography``'s own one-shot HPKE,
  both ways. It is written in Rust and shares neither KEM nor key schedule with us,
  but seals one message and exports nothing.

This is the only door to pyhpke.
"""

import hashlib
import secrets
from collections.abc import Callable, Iterable
from typing import Final

from cryptography.hazmat.primitives import hpke
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import (
    X25519PrivateKey,
    X25519PublicKey,
)

from curtilage.wire.errors import SelfTestError
from curtilage.wire.hpke.aead import AEAD_AES_128_GCM, AEAD_CHACHA20_POLY1305
from curtilage.wire.hpke.suite import (
    KEM_X25519,
    SUITES,
    Suite,
    private_key_from_bytes,
    setup_recipient,
    setup_sender,
)

_INFO: Final = b"curtilage self-test"
_LABEL: Final = b"curtilage self-test export"
_SEED_BYTES: Final = 32  # of either KEM's private key
# The additional data of chunked Oblivious HTTP. Two messages, since the nonce of the
# first is the base nonce and would be right without any counting.
_AADS: Final = (b"", b"final")
_ONE_SHOT_AEADS: Final = {
    AEAD_AES_128_GCM: hpke.AEAD.AES_128_GCM,
    AEAD_CHACHA20_POLY1305: hpke.AEAD.CHACHA20_POLY1305,
}

_Random = Callable[[int], bytes]


def self_test(
    suites: Iterable[Suite] = SUITES, *, random: _Random = secrets.token_bytes
) -> None:
    """Try every suite against another implementation; takes some milliseconds.

    Args:
        suites: those in use.
        random: of the keys and the message, which are thrown away.

    Raises:
        SelfTestError: one suite does not agree. Nothing may be sealed or opened
            in this process, with whatever suite.
    """
    for suite in suites:
        x25519 = suite.kem_id == KEM_X25519
        agrees = _agrees_with_pyhpke if x25519 else _agrees_with_one_shot
        name = f"KEM {suite.kem_id:#06x}, AEAD {suite.aead_id:#06x}"
        try:
            agreed = agrees(suite, random)
        except Exception as error:  # noqa: BLE001 - whatever a changed library raises
            raise SelfTestError(f"{name}: {type(error).__name__}") from None
        if not agreed:
            raise SelfTestError(f"{name}: another result")


def _agrees_with_pyhpke(suite: Suite, random: _Random) -> bool:
    # Here, since it is needed once, and by those alone who seal or open.
    from pyhpke import (  # noqa: PLC0415
        AEADId,
        CipherSuite,
        KDFId,
        KEMId,
        KEMKey,
        KEMKeyPair,
    )

    load = KEMKey.from_pyca_cryptography_key
    # The registered identifiers are the values of its enumerations.
    other = CipherSuite.new(
        KEMId(suite.kem_id), KDFId(suite.kdf_id), AEADId(suite.aead_id)
    )
    # One seed, loaded by each in its own way: public keys are compared as well.
    seed, text = random(_SEED_BYTES), random(_SEED_BYTES)
    key = private_key_from_bytes(suite.kem_id, seed)
    other_key = load(X25519PrivateKey.from_private_bytes(seed))

    ephemeral = private_key_from_bytes(KEM_X25519, random(_SEED_BYTES))
    enc, sender = setup_sender(suite, key.public_key, _INFO, ephemeral=ephemeral)
    other_recipient = other.create_recipient_context(enc, other_key, _INFO)

    drawn = X25519PrivateKey.from_private_bytes(random(_SEED_BYTES))
    other_enc, other_sender = other.create_sender_context(
        load(X25519PublicKey.from_public_bytes(key.public_key)),
        _INFO,
        eks=KEMKeyPair(load(drawn), load(drawn.public_key())),
    )
    recipient = setup_recipient(suite, other_enc, key, _INFO)

    # Each opens what the other sealed; what does not open raises.
    for aad in _AADS:
        if other_recipient.open(sender.seal(text, aad), aad) != text:
            return False
        if recipient.open(other_sender.seal(text, aad), aad) != text:
            return False
    # What seals the answer comes from here (RFC 9458, section 4.4).
    return sender.export(_LABEL, suite.nk) == other_recipient.export(
        _LABEL, suite.nk
    ) and recipient.export(_LABEL, suite.nk) == other_sender.export(_LABEL, suite.nk)


def _agrees_with_one_shot(suite: Suite, random: _Random) -> bool:
    other = hpke.Suite(
        hpke.KEM.MLKEM768_X25519,
        hpke.KDF.HKDF_SHA256,
        _ONE_SHOT_AEADS[suite.aead_id],
    )
    seed, text = random(_SEED_BYTES), random(_SEED_BYTES)
    key = private_key_from_bytes(suite.kem_id, seed)
    # Not ``XWingPrivateKey``'s expansion, so that this is compared, too.
    expanded = hashlib.shake_256(seed).digest(96)
    other_key = hpke.MLKEM768X25519PrivateKey(
        MLKEM768PrivateKey.from_seed_bytes(expanded[:64]),
        X25519PrivateKey.from_private_bytes(expanded[64:]),
    )

    enc, sender = setup_sender(suite, key.public_key, _INFO)
    found = other.decrypt(enc + sender.seal(text, b""), other_key, _INFO)

    sealed = other.encrypt(text, other_key.public_key(), _INFO)
    recipient = setup_recipient(suite, sealed[: suite.nenc], key, _INFO)
    return found == text == recipient.open(sealed[suite.nenc :], b"")
