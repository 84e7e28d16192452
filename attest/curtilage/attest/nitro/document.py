"""The payload of a Nitro attestation document, field by field.

AWS, "Cryptographic attestation", section "Attestation document specification".
Checks types, sizes and which fields there are; ``verify`` decides whom to trust.
Nothing is encoded again: the signature covers the received bytes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from curtilage.attest.encoding.cbor import CborValue, decode
from curtilage.attest.encoding.cose import parse_cose_sign1
from curtilage.attest.encoding.strict_json import malformed, too_large
from curtilage.attest.evidence import MAX_DOCUMENT_BYTES

DIGEST: Final = "SHA384"
MAX_CERTIFICATES: Final = 8
MAX_NITRO_CERTIFICATE_BYTES: Final = 1024
MAX_PUBLIC_KEY_BYTES: Final = 1024
MAX_USER_DATA_BYTES: Final = 512
MAX_NONCE_BYTES: Final = 512
MAX_MODULE_ID_BYTES: Final = 256
PCR_COUNT: Final = 32
PCR_SIZES: Final = frozenset({32, 48, 64})
# The last millisecond of the year 9999, which is as far as a clock here reaches.
_LATEST_MS: Final = 253_402_300_799_999
_REQUIRED: Final = frozenset(
    {"module_id", "digest", "timestamp", "pcrs", "certificate", "cabundle"}
)
_OPTIONAL: Final = frozenset({"public_key", "user_data", "nonce"})


@dataclass(frozen=True, slots=True, kw_only=True)
class NitroDocument:
    """A document's fields; unverified.

    Attributes:
        module_id: the enclave's and its instance's name.
        timestamp_ms: when it was made, Unix milliseconds.
        pcrs: index to value of 32, 48 or 64 bytes.
        certificate: the leaf, DER.
        cabundle: the certificates above it, DER, root first.
        public_key: what the enclave put there, at most 1024 bytes, or None.
        user_data: what the enclave put there, at most 512 bytes, or None.
        nonce: what the enclave put there, at most 512 bytes, or None.
    """

    module_id: str
    timestamp_ms: int
    pcrs: Mapping[int, bytes]
    certificate: bytes = field(repr=False)
    cabundle: tuple[bytes, ...] = field(repr=False)
    public_key: bytes | None = field(repr=False)
    user_data: bytes | None = field(repr=False)
    nonce: bytes | None = field(repr=False)


def parse_nitro_document(payload: bytes) -> NitroDocument:
    """Parse a payload; form and sizes only, nothing is verified.

    Raises:
        RefusedError: ``malformed``, ``too_large`` or ``verifier_unavailable``.
    """
    fields = decode(payload, where="payload", limit_bytes=MAX_DOCUMENT_BYTES)
    if not isinstance(fields, dict):
        raise malformed("payload: not a map")
    names = frozenset(fields)
    # Exactly the fields of AWS's specification. An additional one would be signed by
    # the hypervisor but not checked here.
    missing = sorted(_REQUIRED - names)
    if missing:
        raise malformed(f"payload: missing {', '.join(missing)}")
    if names - _REQUIRED - _OPTIONAL:
        raise malformed("payload: unknown field")
    # Which hash the registers were made with. It has one value; another must not decide
    # how long a register is.
    if fields["digest"] != DIGEST:
        raise malformed(f"payload.digest: not {DIGEST}")
    return NitroDocument(
        module_id=_module_id(fields["module_id"]),
        timestamp_ms=_timestamp(fields["timestamp"]),
        pcrs=_pcrs(fields["pcrs"]),
        certificate=_certificate(fields["certificate"], "certificate"),
        cabundle=_cabundle(fields["cabundle"]),
        public_key=_optional(fields, "public_key", MAX_PUBLIC_KEY_BYTES, minimum=1),
        user_data=_optional(fields, "user_data", MAX_USER_DATA_BYTES),
        nonce=_optional(fields, "nonce", MAX_NONCE_BYTES),
    )


def certificates_of(document: bytes) -> tuple[bytes, ...]:
    """Return the certificates in a document, DER, root first; nothing is verified.

    Raises:
        RefusedError: as for the document.
    """
    signed = parse_cose_sign1(
        document, where="document", limit_bytes=MAX_DOCUMENT_BYTES
    )
    fields = parse_nitro_document(signed.payload)
    return (*fields.cabundle, fields.certificate)


def _module_id(value: CborValue) -> str:
    if not isinstance(value, str) or not value:
        raise malformed("payload.module_id: not a text")
    # It is shown to people, and compared with a policy's list.
    if len(value) > MAX_MODULE_ID_BYTES or not (
        value.isascii() and value.isprintable()
    ):
        raise malformed("payload.module_id: not a short printable ASCII text")
    return value


def _timestamp(value: CborValue) -> int:
    # CBOR's true is an integer in Python, and would be the first millisecond of 1970.
    if not isinstance(value, int) or isinstance(value, bool):
        raise malformed("payload.timestamp: not an integer")
    # Python has no date beyond the year 9999; the error would occur where none is
    # expected.
    if not 0 < value <= _LATEST_MS:
        raise malformed("payload.timestamp: out of range")
    return value


def _pcrs(value: CborValue) -> Mapping[int, bytes]:
    if not isinstance(value, dict) or not 1 <= len(value) <= PCR_COUNT:
        raise malformed(f"payload.pcrs: not a map of 1 to {PCR_COUNT}")
    pcrs: dict[int, bytes] = {}
    for index, register in value.items():
        # Register 32 does not exist. Under any other number there could be a second
        # value for a register that a release names.
        if not isinstance(index, int) or not 0 <= index < PCR_COUNT:
            raise malformed("payload.pcrs: no such register")
        if not isinstance(register, bytes) or len(register) not in PCR_SIZES:
            raise malformed(f"payload.pcrs: register {index} is not a digest")
        pcrs[index] = register
    return MappingProxyType(pcrs)


def _cabundle(value: CborValue) -> tuple[bytes, ...]:
    if not isinstance(value, list) or not value:
        raise malformed("payload.cabundle: not an array, or empty")
    # The leaf is one of the certificates that are counted.
    # Before any is parsed.
    if len(value) >= MAX_CERTIFICATES:
        raise too_large(f"payload.cabundle: more than {MAX_CERTIFICATES - 1}")
    return tuple(_certificate(each, "cabundle") for each in value)


def _certificate(value: CborValue, name: str) -> bytes:
    if not isinstance(value, bytes) or not value:
        raise malformed(f"payload.{name}: not bytes, or empty")
    if len(value) > MAX_NITRO_CERTIFICATE_BYTES:
        raise too_large(
            f"payload.{name}: more than {MAX_NITRO_CERTIFICATE_BYTES} bytes"
        )
    return value


def _optional(
    fields: Mapping[int | str, CborValue], name: str, maximum: int, *, minimum: int = 0
) -> bytes | None:
    # AWS writes null for a field that the enclave left out; absent is the same.
    value = fields.get(name)
    if value is None:
        return None
    if not isinstance(value, bytes) or len(value) < minimum:
        raise malformed(f"payload.{name}: not bytes, or empty")
    if len(value) > maximum:
        raise too_large(f"payload.{name}: more than {maximum} bytes")
    return value
