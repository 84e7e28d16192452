"""COSE_Sign1 (RFC 9052, section 4.2), in the one form that Nitro sends.

Untagged, ES384, nothing in the unprotected header. That header and the tag are
not signed, so a carrier of the document could write into them; both must
therefore have their fixed values. Handles framing only, not the owner of the key.
"""

from dataclasses import dataclass, field
from typing import Final

from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from curtilage.attest.encoding.cbor import decode, encode_octets
from curtilage.attest.encoding.strict_json import malformed
from curtilage.attest.errors import RefusalCode, RefusedError

# RFC 9053, section 2.1: ECDSA with SHA-384; for this project over P-384 only.
ES384: Final = -35
SIGNATURE_BYTES: Final = 96
# RFC 9052, section 3.1: the header parameter that names the algorithm.
_ALGORITHM: Final = 1
_PARTS: Final = 4
_MAX_HEADER_BYTES: Final = 64
# The array of four and the text "Signature1" that each Sig_structure begins with.
_SIG_STRUCTURE: Final = b"\x84\x6aSignature1"
_NO_EXTERNAL_DATA: Final = b"\x40"


@dataclass(frozen=True, slots=True, kw_only=True)
class CoseSign1:
    """A signed message's parts; unverified.

    Attributes:
        protected: the protected header, as it was encoded.
        payload: the signed content, as it was encoded.
        signature: r and s, 48 bytes each, big-endian.
    """

    protected: bytes = field(repr=False)
    payload: bytes = field(repr=False)
    signature: bytes = field(repr=False)

    @property
    def signed_part(self) -> bytes:
        """The Sig_structure (section 4.4) over the very bytes that came."""
        return (
            _SIG_STRUCTURE
            + encode_octets(self.protected)
            + _NO_EXTERNAL_DATA
            + encode_octets(self.payload)
        )

    @property
    def der_signature(self) -> bytes:
        """The signature as X9.62 encodes it."""
        return der_signature(self.signature)


def parse_cose_sign1(data: bytes, *, where: str, limit_bytes: int) -> CoseSign1:
    """Take a COSE_Sign1 apart; shape and algorithm only, nothing is verified.

    Raises:
        RefusedError: ``malformed``, ``too_large``, ``unsupported_algorithm`` or
            ``verifier_unavailable``.
    """
    parts = decode(data, where=where, limit_bytes=limit_bytes)
    if not isinstance(parts, list) or len(parts) != _PARTS:
        raise malformed(f"{where}: not an array of {_PARTS}")
    protected, unprotected, payload, signature = parts
    if not (
        isinstance(protected, bytes)
        and isinstance(payload, bytes)
        and isinstance(signature, bytes)
    ):
        raise malformed(f"{where}: header, payload or signature is not bytes")
    # Not signed (RFC 9052, section 3): anyone could have written into it.
    if unprotected != {}:
        raise malformed(f"{where}: the unprotected header is not empty")
    # The signed header, byte for byte as it came. One that named another algorithm
    # would ask us to check in the sender's way.
    header = decode(
        protected,
        where=f"{where}: protected header",
        limit_bytes=_MAX_HEADER_BYTES,
        canonical=True,
    )
    # A parameter marked critical (RFC 9052, section 3.1) must be understood; so none
    # but the algorithm is let in.
    if not isinstance(header, dict) or set(header) - {_ALGORITHM}:
        raise malformed(f"{where}: the protected header holds more than an algorithm")
    if header.get(_ALGORITHM) != ES384:
        raise RefusedError(
            RefusalCode.UNSUPPORTED_ALGORITHM, f"{where}: not signed with ES384"
        )
    # r and s of fixed length (RFC 9053, section 2.1): a shorter one would be cut in the
    # wrong place.
    if len(signature) != SIGNATURE_BYTES:
        raise malformed(f"{where}: the signature is not {SIGNATURE_BYTES} bytes")
    return CoseSign1(protected=protected, payload=payload, signature=signature)


def der_signature(raw: bytes) -> bytes:
    """Encode r and s of equal length, big-endian, as X9.62 does."""
    half = len(raw) // 2
    return encode_dss_signature(
        int.from_bytes(raw[:half], "big"), int.from_bytes(raw[half:], "big")
    )
