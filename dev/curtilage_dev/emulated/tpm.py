"""An emulated TPM: exact quotes, under a key in memory.

It quotes any values, so it proves nothing about a machine; its quotes can contain
what no TPM would report, for the tests of refusals.
"""

import hashlib
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from curtilage.attest.evidence import Tee, TpmEvidence, TpmQuote
from curtilage.attest.expectations import AnchorKind, TrustAnchor
from curtilage.attest.tpm.quote import ATTEST_QUOTE, GENERATED_VALUE, AlgorithmId

PCR_COUNT: Final = 24
# Registers that an operating system may reset start at ones.
_RESETTABLE: Final = range(17, 23)
_FIRMWARE_VERSION: Final = 0x2020031200120003
_SELECT_BYTES: Final = 3


def ordinary_pcrs() -> dict[int, bytes]:
    """Return registers as a machine that has started leaves them."""
    values = {
        index: hashlib.sha256(b"emulated pcr %d" % index).digest()
        for index in range(PCR_COUNT)
    }
    return values | dict.fromkeys(_RESETTABLE, b"\xff" * 32)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuoteFields:
    """The content of a quote, before it is signed.

    Attributes:
        extra_data: the qualifying data.
        pcrs: the values that the digest is made of; returned with the quote.
        selected: the indices that the message names; None: those of ``pcrs``.
        banks: the algorithms of the banks; each names the same indices.
        select_bytes: how many bytes a selection takes.
        pcr_digest: None: over the values.
        magic: what marks a TPM's own structures.
        kind: the type of the attestation.
        signer: the key's qualified name.
        safe: TPMI_YES_NO.
        tail: bytes after the end.
    """

    extra_data: bytes
    pcrs: Mapping[int, bytes] = field(default_factory=ordinary_pcrs)
    selected: tuple[int, ...] | None = None
    banks: tuple[int, ...] = (AlgorithmId.SHA256,)
    select_bytes: int = _SELECT_BYTES
    pcr_digest: bytes | None = None
    magic: int = GENERATED_VALUE
    kind: int = ATTEST_QUOTE
    signer: bytes = b"\x00\x0b" + bytes(range(32))
    safe: int = 1
    tail: bytes = b""


def encode_attest(fields: QuoteFields) -> bytes:
    """Write a quote's message."""
    digest = fields.pcr_digest
    if digest is None:
        values = (value for _, value in sorted(fields.pcrs.items()))
        digest = hashlib.sha256(b"".join(values)).digest()
    clock = struct.pack(">QIIB", 0x1B6F9C, 2, 0, fields.safe)
    return (
        struct.pack(">IH", fields.magic, fields.kind)
        + sized(fields.signer)
        + sized(fields.extra_data)
        + clock
        + struct.pack(">Q", _FIRMWARE_VERSION)
        + _selection(fields)
        + sized(digest)
        + fields.tail
    )


def _selection(fields: QuoteFields) -> bytes:
    indices = fields.pcrs if fields.selected is None else fields.selected
    bits = sum(1 << index for index in indices)
    select = bits.to_bytes(fields.select_bytes, "little")
    banks = b"".join(
        struct.pack(">HB", bank, fields.select_bytes) + select for bank in fields.banks
    )
    return struct.pack(">I", len(fields.banks)) + banks


def sized(data: bytes) -> bytes:
    """Write a TPM2B: 16 bits of length, then the bytes."""
    return struct.pack(">H", len(data)) + data


def sign_quote(
    message: bytes,
    key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey,
    *,
    scheme: AlgorithmId | None = None,
    digest: AlgorithmId = AlgorithmId.SHA256,
) -> bytes:
    """Sign as a TPM does; returns TPMT_SIGNATURE.

    Args:
        message: TPMS_ATTEST.
        key: of the kind that the scheme wants.
        scheme: None: RSASSA or ECDSA, by the key.
        digest: SHA-256 or SHA-1.
    """
    algorithm = hashes.SHA256() if digest is AlgorithmId.SHA256 else hashes.SHA1()  # noqa: S303 - what must be refused
    if isinstance(key, ec.EllipticCurvePrivateKey):
        scheme = AlgorithmId.ECDSA
        numbers = decode_dss_signature(key.sign(message, ec.ECDSA(algorithm)))
        size = (key.key_size + 7) // 8
        body = b"".join(sized(number.to_bytes(size, "big")) for number in numbers)
    else:
        scheme = scheme or AlgorithmId.RSASSA
        pad: padding.AsymmetricPadding = padding.PKCS1v15()
        if scheme is AlgorithmId.RSAPSS:
            pad = padding.PSS(padding.MGF1(algorithm), padding.PSS.MAX_LENGTH)
        body = sized(key.sign(message, pad, algorithm))
    return struct.pack(">HH", scheme, digest) + body


def bare_signature(tpmt: bytes) -> bytes:
    """Return what an RSA TPMT_SIGNATURE holds, without its header."""
    return tpmt[6:]


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulatedTpm:
    """One emulated TPM with one attestation key.

    Attributes:
        key: signs quotes.
    """

    key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey = field(repr=False)

    @property
    def ak(self) -> bytes:
        """The attestation key, SubjectPublicKeyInfo DER."""
        return self.key.public_key().public_bytes(
            Encoding.DER, PublicFormat.SubjectPublicKeyInfo
        )

    def anchor(self) -> TrustAnchor:
        """Return the key as a policy pins it."""
        return TrustAnchor.of_certificate(AnchorKind.TPM, "", self.ak)

    def quote(self, fields: QuoteFields) -> TpmQuote:
        """Sign a quote and return it with the values."""
        message = encode_attest(fields)
        return TpmQuote(
            message=message,
            signature=sign_quote(message, self.key),
            pcrs=tuple(sorted(fields.pcrs.items())),
        )

    def evidence(self, fields: QuoteFields) -> TpmEvidence:
        """Quote, by itself."""
        return TpmEvidence(tee=Tee.TPM, quote=self.quote(fields), ak=self.ak)


def make_tpm(*, elliptic: bool = False) -> EmulatedTpm:
    """Make a TPM with an RSA-2048 key, as Azure's has, or one on P-256."""
    if elliptic:
        return EmulatedTpm(key=ec.generate_private_key(ec.SECP256R1()))
    return EmulatedTpm(key=rsa.generate_private_key(65537, 2048))
