"""Keys and certificates as they are written in a policy: base64 and PEM.

Shapes only; what a certificate says is verified elsewhere.
"""

import base64
import binascii
import re
from typing import Final

ED25519_KEY_BYTES: Final = 32
CERTIFICATE_BYTES: Final = 8192  # an AMD root certificate has about 1,600
_DER_SEQUENCE: Final = 0x30

_PEM = re.compile(
    r"\s*-----BEGIN CERTIFICATE-----\s+([A-Za-z0-9+/=\s]+?)\s*"
    r"-----END CERTIFICATE-----\s*"
)


def decode_key(value: object) -> bytes:
    """Return an Ed25519 public key that is written in base64.

    Raises:
        ValueError: it is none; fit for the author of a policy.
    """
    if not isinstance(value, str):
        raise ValueError("expected text: the key in base64")  # noqa: TRY004 - pydantic
    try:
        key = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("not base64") from None
    if len(key) != ED25519_KEY_BYTES:
        raise ValueError(
            f"an Ed25519 public key has {ED25519_KEY_BYTES} bytes, not {len(key)}"
        )
    return key


def decode_certificate(value: object) -> bytes:
    """Return the DER of one certificate that is written in PEM.

    Raises:
        ValueError: it is none; fit for the author of a policy.
    """
    match = _PEM.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError("expected one certificate in PEM, and nothing else")
    try:
        der = base64.b64decode("".join(match[1].split()), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("the certificate is not base64 inside") from None
    if not 0 < len(der) <= CERTIFICATE_BYTES or der[0] != _DER_SEQUENCE:
        raise ValueError("the certificate is not DER inside")
    return der
