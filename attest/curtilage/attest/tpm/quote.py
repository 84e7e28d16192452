"""TPM 2.0 quotes: signed values of a TPM's registers.

Reads TPMS_ATTEST (TPM 2.0 Library, Part 2, section 10.12) and TPMT_SIGNATURE
(section 11.3), big-endian and to the last byte, and checks one quote under a
key. Whose key that is, the caller must know; that memory is encrypted or that
anything is isolated, no quote says.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from curtilage.attest.claims import Detail, Measurement, require_measurement
from curtilage.attest.encoding.reader import Reader
from curtilage.attest.encoding.strict_json import malformed
from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.evidence import Tee, TpmQuote
from curtilage.attest.steps import StepLog

# What a TPM puts before everything that it attests to, and refuses to sign
# with a restricted key where it comes from outside.
GENERATED_VALUE: Final = 0xFF544347
ATTEST_QUOTE: Final = 0x8018
PCR_BYTES: Final = 32
# TPM_PT_PCR_COUNT is 24 everywhere; four bytes of a selection name 32.
MAX_SELECT_BYTES: Final = 4
# TPM2B_DATA holds at most a TPMT_HA: an algorithm and a SHA-512 digest.
MAX_EXTRA_DATA_BYTES: Final = 66
# TPM2B_NAME has the same bound.
_MAX_NAME_BYTES: Final = 66
_MAX_DIGEST_BYTES: Final = 64
_MAX_RSA_BYTES: Final = 512
_MAX_ECC_BYTES: Final = 66
_RSA_BITS: Final = range(2048, 4097)
# Any other exponent is no TPM key's; a huge one would cost seconds.
_RSA_EXPONENT: Final = 65537
_DER_SEQUENCE: Final = 0x30


class AlgorithmId(IntEnum):
    """The identifiers that are understood (TPM_ALG_ID, Part 2, table 9)."""

    SHA1 = 0x0004
    SHA256 = 0x000B
    RSASSA = 0x0014
    RSAPSS = 0x0016
    ECDSA = 0x0018


class QuoteCheck(StrEnum):
    """The steps of a TPM quote, as a person reads them."""

    ATTESTATION_KEY = "attestation key"
    QUOTE_LAYOUT = "quote layout"
    QUOTE_SIGNATURE = "quote signature"
    PCR_SELECTION = "PCR selection"
    PCR_VALUES = "PCR values"
    MEASUREMENT = "quoted measurement"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attest:
    """Content of a quote's message; unverified.

    Attributes:
        extra_data: what the caller had the TPM sign, at most 66 bytes.
        reset_count: how often the TPM was reset.
        restart_count: how often it was resumed since.
        firmware_version: the vendor's number.
        banks: per bank its algorithm and the selected indices, ascending.
        pcr_digest: over the selected values, in ascending order of index.
    """

    extra_data: bytes
    reset_count: int
    restart_count: int
    firmware_version: int
    banks: tuple[tuple[int, tuple[int, ...]], ...]
    pcr_digest: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedQuote:
    """The verified contents of a quote.

    Attributes:
        extra_data: what must be compared with the binding.
        pcrs: the value of every selected register of the SHA-256 bank.
        firmware_version: the vendor's number.
        reset_count: how often the TPM was reset.
        restart_count: how often it was resumed since.
    """

    extra_data: bytes
    pcrs: Mapping[int, bytes]
    firmware_version: int
    reset_count: int
    restart_count: int

    def registers(self) -> dict[str, str]:
        """Return the values by name, ``pcr0`` and so on, lower-case hex."""
        return {f"pcr{index}": value.hex() for index, value in self.pcrs.items()}

    def details(self) -> dict[str, Detail]:
        """Return further details for people."""
        return {
            "tpm_firmware_version": f"{self.firmware_version:#018x}",
            "tpm_reset_count": self.reset_count,
            "tpm_restart_count": self.restart_count,
        }


def require_quote_key(
    key: PublicKeyTypes,
) -> rsa.RSAPublicKey | ec.EllipticCurvePublicKey:
    """Return the key if its kind may sign quotes.

    Raises:
        RefusedError: ``unsupported_algorithm``: neither RSA of 2048 to 4096 bits
            with the exponent 65537 nor ECDSA on P-256 or P-384.
    """
    # Bits and exponent: below 2048 a key can be factored, and a large exponent is a way
    # to keep us busy.
    if isinstance(key, rsa.RSAPublicKey):
        if key.key_size in _RSA_BITS and key.public_numbers().e == _RSA_EXPONENT:
            return key
    elif isinstance(key, ec.EllipticCurvePublicKey) and isinstance(
        key.curve, (ec.SECP256R1, ec.SECP384R1)
    ):
        return key
    raise RefusedError(RefusalCode.UNSUPPORTED_ALGORITHM, "no key that may sign quotes")


def verify_quote(
    quote: TpmQuote,
    key: rsa.RSAPublicKey | ec.EllipticCurvePublicKey,
    *,
    log: StepLog,
) -> VerifiedQuote:
    """Verify a quote under a key that the caller trusts, except the extra data.

    Args:
        quote: unverified bytes.
        key: from ``require_quote_key``.
        log: where each step is noted as it passes.

    Raises:
        RefusedError: the first step that does not hold.
    """
    # The values of the registers are supplied with the quote and signed only through
    # their digest: selection first, then values, or a value could be listed under
    # another register's number.
    log.begin(QuoteCheck.QUOTE_LAYOUT)
    attest = parse_attest(quote.message)
    log.passed(f"a quote, {len(quote.message)} bytes")
    log.begin(QuoteCheck.QUOTE_SIGNATURE)
    if isinstance(key, rsa.RSAPublicKey):
        scheme, holds = _verify_rsa(quote, key)
    else:
        scheme, holds = _verify_ecdsa(quote, key)
    if not holds:
        raise RefusedError(RefusalCode.BAD_SIGNATURE, "quote signature")
    log.passed(f"{scheme} with SHA-256")
    log.begin(QuoteCheck.PCR_SELECTION)
    # Exactly the SHA-256 bank, and exactly the registers whose values are
    # given: a value under another register's index would pass the digest.
    if len(attest.banks) != 1:
        raise malformed("quote: not exactly one PCR bank")
    algorithm, selected = attest.banks[0]
    # The SHA-1 bank is still there on many TPMs, and two images with one SHA-1 can be
    # made.
    if algorithm != AlgorithmId.SHA256:
        raise RefusedError(
            RefusalCode.UNSUPPORTED_ALGORITHM, "PCR bank is not the SHA-256 one"
        )
    if sorted(index for index, _ in quote.pcrs) != list(selected):
        raise malformed("the values given are not of the registers quoted")
    log.passed(f"SHA-256 bank, {len(selected)} registers")
    log.begin(QuoteCheck.PCR_VALUES)
    # Each value has 32 bytes, or bytes could move between neighbours under
    # the same digest.
    if any(len(value) != PCR_BYTES for _, value in quote.pcrs):
        raise malformed(f"a PCR value is not {PCR_BYTES} bytes")
    # In the order of the digest: ascending by index, whatever order
    # they came in.
    values = dict(sorted(quote.pcrs))
    if hashlib.sha256(b"".join(values.values())).digest() != attest.pcr_digest:
        raise RefusedError(
            RefusalCode.BAD_SIGNATURE, "PCR values are not those that were signed"
        )
    log.passed("the values are those that were quoted")
    return VerifiedQuote(
        extra_data=attest.extra_data,
        pcrs=values,
        firmware_version=attest.firmware_version,
        reset_count=attest.reset_count,
        restart_count=attest.restart_count,
    )


def check_registers(
    registers: Mapping[str, str],
    accepted: tuple[Measurement, ...],
    tee: Tee,
    *,
    log: StepLog,
) -> None:
    """Check, as the last step, that the boot measurement is accepted.

    Raises:
        RefusedError: ``measurement_not_allowed``; also where a register that an
            accepted measurement names was not quoted.
    """
    log.begin(QuoteCheck.MEASUREMENT)
    require_measurement(registers, accepted, tee)
    log.passed(f"accepted, of {len(registers)} registers")


def parse_attest(message: bytes) -> Attest:
    """Parse a quote's message; checks the form, not the signature.

    Raises:
        RefusedError: ``malformed``: made outside of a TPM, no quote, or any
            byte too few or too many.
    """
    # Big-endian throughout, and to the last byte: bytes behind the digest would be
    # signed but not read.
    reader = _Reader(message, "quote")
    # A restricted key signs nothing from outside that begins so (TPM 2.0 Library, Part
    # 1, on restricted signing keys). Without this, any text signed by the key could be
    # dressed up as a quote.
    if reader.number(4) != GENERATED_VALUE:
        raise malformed("quote: not generated by a TPM")
    # The same key signs statements about other keys, about time and audit sessions,
    # with the same frame.
    if reader.number(2) != ATTEST_QUOTE:
        raise malformed("quote: attests to something else")
    reader.sized(_MAX_NAME_BYTES)  # the key's name, which only its TPM can check
    extra_data = reader.sized(MAX_EXTRA_DATA_BYTES)
    reader.number(8)  # milliseconds that the TPM has been powered
    reset_count, restart_count = reader.number(4), reader.number(4)
    reader.flag()  # whether its clock cannot have gone back
    attest = Attest(
        extra_data=extra_data,
        reset_count=reset_count,
        restart_count=restart_count,
        firmware_version=reader.number(8),
        banks=_read_selection(reader),
        pcr_digest=reader.sized(_MAX_DIGEST_BYTES),
    )
    reader.end()
    return attest


def _read_selection(reader: "_Reader") -> tuple[tuple[int, tuple[int, ...]], ...]:
    # TPML_PCR_SELECTION holds one entry per bank; no TPM has more than 16.
    count = reader.number(4)
    if count > 16:  # noqa: PLR2004 - named above
        raise malformed("quote: too many PCR banks")
    banks: list[tuple[int, tuple[int, ...]]] = []
    for _ in range(count):
        algorithm = reader.number(2)
        size = reader.number(1)
        if size > MAX_SELECT_BYTES:
            raise malformed("quote: PCR selection is too long")
        # The least significant bit of the first byte is register 0 (Part 2,
        # TPMS_PCR_SELECTION); the structure around it is big-endian.
        bits = int.from_bytes(reader.take(size), "little")
        banks.append((algorithm, tuple(i for i in range(8 * size) if bits >> i & 1)))
    return tuple(banks)


def _verify_rsa(quote: TpmQuote, key: rsa.RSAPublicKey) -> tuple[str, bool]:
    # A bare signature is as long as its key, a TPMT_SIGNATURE 6 bytes longer.
    if len(quote.signature) == (key.key_size + 7) // 8:
        scheme, signature = AlgorithmId.RSASSA, quote.signature
    else:
        reader = _Reader(quote.signature, "quote signature")
        scheme = _read_scheme(reader, {AlgorithmId.RSASSA, AlgorithmId.RSAPSS})
        signature = reader.sized(_MAX_RSA_BYTES)
        reader.end()
    pad: padding.AsymmetricPadding = padding.PKCS1v15()
    if scheme is AlgorithmId.RSAPSS:
        # A TPM uses the longest salt that fits, or in FIPS mode the digest's
        # length; neither changes what a signature proves.
        pad = padding.PSS(padding.MGF1(hashes.SHA256()), padding.PSS.AUTO)
    try:
        key.verify(signature, quote.message, pad, hashes.SHA256())
    except InvalidSignature:
        return scheme.name, False
    return scheme.name, True


def _verify_ecdsa(quote: TpmQuote, key: ec.EllipticCurvePublicKey) -> tuple[str, bool]:
    # Bare signatures are DER; a TPMT_SIGNATURE starts with a zero byte.
    signature = quote.signature
    if signature[:1] != bytes([_DER_SEQUENCE]):
        reader = _Reader(signature, "quote signature")
        _read_scheme(reader, {AlgorithmId.ECDSA})
        r, s = reader.sized(_MAX_ECC_BYTES), reader.sized(_MAX_ECC_BYTES)
        reader.end()
        signature = encode_dss_signature(
            int.from_bytes(r, "big"), int.from_bytes(s, "big")
        )
    try:
        key.verify(signature, quote.message, ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        return AlgorithmId.ECDSA.name, False
    return AlgorithmId.ECDSA.name, True


def _read_scheme(reader: "_Reader", known: set[AlgorithmId]) -> AlgorithmId:
    scheme, digest = reader.number(2), reader.number(2)
    # Two messages with one SHA-1 can be made, so such a signature would hold for both.
    if digest != AlgorithmId.SHA256:
        raise RefusedError(
            RefusalCode.UNSUPPORTED_ALGORITHM, "quote signature: not with SHA-256"
        )
    # The scheme is in front of the signature and not signed: it may only choose among
    # those of the key's own kind.
    if scheme not in known:
        raise RefusedError(
            RefusalCode.UNSUPPORTED_ALGORITHM, "quote signature: not the key's scheme"
        )
    return AlgorithmId(scheme)


class _Reader(Reader):
    """Reads a TPM structure, whose numbers are big-endian."""

    def __init__(self, data: bytes, where: str) -> None:
        super().__init__(data, where, byteorder="big")

    def flag(self) -> bool:
        """Return the next byte as TPMI_YES_NO."""
        value = self.number(1)
        if value > 1:
            raise malformed("quote: neither yes nor no")
        return value == 1

    def sized(self, limit: int) -> bytes:
        """Return a TPM2B: 16 bits of length, then that many bytes."""
        size = self.number(2)
        if size > limit:
            raise malformed(f"quote: a field is longer than {limit} bytes")
        return self.take(size)
