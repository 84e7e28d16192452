"""Keys and certificates in a policy: base64, vkey and PEM.

Syntax only; certificates are verified elsewhere.
"""

import base64
import binascii
from typing import Final

from curtilage.attest.errors import RefusedError
from curtilage.attest.log.note import COSIGNATURE_V1, ED25519, SUBTREE_V1
from curtilage.attest.log.vkeys import public_key_in

ED25519_KEY_BYTES: Final = 32
ML_DSA_44_KEY_BYTES: Final = 1312
CERTIFICATE_BYTES: Final = 8192  # an AMD root certificate has about 1,600
_DER_SEQUENCE: Final = 0x30
OTHER_VKEY: Final = "a vkey for another kind of signature"
NO_CERTIFICATE: Final = "expected one certificate in PEM, and nothing else"
_BEGIN: Final = "-----BEGIN CERTIFICATE-----"
_END: Final = "-----END CERTIFICATE-----"


def decode_key(value: object) -> bytes:
    """Return a log's Ed25519 public key, written in base64 or as a vkey.

    Raises:
        ValueError: it is none; fit for the author of a policy.
    """
    key = _decode(value, ED25519)
    if len(key) != ED25519_KEY_BYTES:
        raise ValueError(
            f"an Ed25519 public key has {ED25519_KEY_BYTES} bytes, not {len(key)}"
        )
    return key


def decode_witness_key(value: object) -> bytes:
    """Return a witness's public key, Ed25519 or ML-DSA-44, written likewise.

    Raises:
        ValueError: it is none; fit for the author of a policy.
    """
    key = _decode(value, COSIGNATURE_V1, SUBTREE_V1)
    if len(key) not in {ED25519_KEY_BYTES, ML_DSA_44_KEY_BYTES}:
        raise ValueError(
            f"a witness's key has {ED25519_KEY_BYTES} bytes (Ed25519) or "
            f"{ML_DSA_44_KEY_BYTES} (ML-DSA-44), not {len(key)}"
        )
    return key


def _decode(value: object, *types: int) -> bytes:
    if not isinstance(value, str):
        raise ValueError("expected text: the key in base64")  # noqa: TRY004 - pydantic
    try:
        key = public_key_in(value, *types)
    except RefusedError:
        raise ValueError(OTHER_VKEY) from None
    if key is not None:
        return key
    try:
        # ``validate``: otherwise it skips other characters, and two texts are one key.
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("not base64, and no vkey") from None


def decode_certificate(value: object) -> bytes:
    """Return the DER of one certificate that is written in PEM.

    Raises:
        ValueError: it is none; fit for the author of a policy.
    """
    # Found by prefix and suffix: a pattern with spaces on both sides of the base64
    # would backtrack over every way to divide them.
    text = value.strip() if isinstance(value, str) else ""
    body = text.removeprefix(_BEGIN).removesuffix(_END)
    whole = len(body) == len(text) - len(_BEGIN) - len(_END)
    if not whole or not body[0:1].isspace() or "-" in body:
        raise ValueError(NO_CERTIFICATE)
    try:
        der = base64.b64decode("".join(body.split()), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("the certificate is not base64 inside") from None
    if not 0 < len(der) <= CERTIFICATE_BYTES or der[0] != _DER_SEQUENCE:
        raise ValueError("the certificate is not DER inside")
    return der


def decode_certificates(content: bytes) -> tuple[bytes, ...]:
    """Return the DER of the certificates that a file holds in PEM, one at least.

    Raises:
        ValueError: it holds none, or anything else; fit for the author of a policy.
    """
    try:
        text = content.decode("ascii").strip()
    except UnicodeDecodeError:
        raise ValueError("the file is not PEM") from None
    parts = text.removesuffix(_END).split(_END)
    return tuple(decode_certificate(part + _END) for part in parts)
