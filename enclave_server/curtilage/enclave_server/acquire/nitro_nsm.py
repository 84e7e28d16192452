"""Evidence from the Nitro Secure Module: one ioctl on /dev/nsm.

The device takes a request in CBOR and returns a response in CBOR (Linux 6.8,
include/uapi/linux/nsm.h; the messages are those of AWS's nsm-api). Ours requests one
attestation document, with the report data as its user data. Verifies nothing; the
document contains its certificates, for whose authorities revocation lists are stapled.
"""

import ctypes  # noqa: TID251 - a door
import errno
import fcntl
import os
import struct
from pathlib import Path
from typing import Final, Protocol

from curtilage.attest.encoding.cbor import decode
from curtilage.attest.errors import RefusedError
from curtilage.attest.evidence import (
    MAX_DOCUMENT_BYTES,
    CpuEvidence,
    NitroEvidence,
    Tee,
)
from curtilage.attest.nitro.document import certificates_of
from curtilage.enclave_server.acquire.endorsements import Endorsements
from curtilage.enclave_server.errors import AcquisitionError

NSM_DEVICE: Final = Path("/dev/nsm")
NSM_IOCTL: Final = 0xC0200A00
"""``_IOWR(0x0A, 0, struct nsm_raw)``: two pairs of address and length."""
MAX_RESPONSE_BYTES: Final = 0x3000
REPORT_DATA_BYTES: Final = 64
_VECTORS: Final = struct.Struct("=QQQQ")
# {"Attestation": {"user_data": h'..64 bytes', "nonce": null, "public_key": null}}
_REQUEST_HEAD: Final = b"\xa1\x6bAttestation\xa3\x69user_data\x58\x40"
_REQUEST_TAIL: Final = b"\x65nonce\xf6\x6apublic_key\xf6"


class NsmDoor(Protocol):
    """The only call of the device; it may raise ``OSError``."""

    def request(self, message: bytes) -> bytes:
        """Send a request, at most 4 KiB; return the response, at most 12 KiB."""
        ...


class NsmDevice:
    """The kernel's device.

    Args:
        path: the device.
    """

    def __init__(self, path: Path = NSM_DEVICE) -> None:
        self._path = path

    def request(self, message: bytes) -> bytes:
        """Exchange one message; see the Protocol."""
        sent = ctypes.create_string_buffer(message, len(message))
        received = ctypes.create_string_buffer(MAX_RESPONSE_BYTES)
        vectors = bytearray(
            _VECTORS.pack(
                ctypes.addressof(sent),
                len(message),
                ctypes.addressof(received),
                MAX_RESPONSE_BYTES,
            )
        )
        descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.ioctl(descriptor, NSM_IOCTL, vectors)
        finally:
            os.close(descriptor)
        # The driver replaces the buffer's length with the length of what it wrote.
        *_, length = _VECTORS.unpack(vectors)
        if length > MAX_RESPONSE_BYTES:
            raise OSError(errno.EMSGSIZE, "response longer than its buffer")
        return received.raw[:length]


class NsmProvider:
    """Acquires Nitro evidence.

    Args:
        door: the device.
    """

    def __init__(self, door: NsmDoor | None = None) -> None:
        self._door = NsmDevice() if door is None else door

    def acquire(self, report_data: bytes, endorsements: Endorsements) -> CpuEvidence:
        """Have 64 bytes signed.

        Raises:
            AcquisitionError: the device returned no document.
        """
        try:
            response = self._door.request(encode_attestation_request(report_data))
        except OSError as error:
            name = errno.errorcode.get(error.errno or 0, type(error).__name__)
            raise AcquisitionError(f"no document: {name}") from None
        document = parse_attestation_response(response)
        return NitroEvidence(
            tee=Tee.NITRO,
            document=document,
            crls=endorsements.lists(_authorities(document)),
        )


def _authorities(document: bytes) -> tuple[bytes, ...]:
    try:
        return certificates_of(document)[:-1]
    except RefusedError:
        # Its verifier says what is wrong with it.
        return ()


def encode_attestation_request(report_data: bytes) -> bytes:
    """Encode the request for a document over 64 bytes.

    Raises:
        AcquisitionError: not 64 bytes.
    """
    if len(report_data) != REPORT_DATA_BYTES:
        raise AcquisitionError(f"report data is not {REPORT_DATA_BYTES} bytes")
    return _REQUEST_HEAD + report_data + _REQUEST_TAIL


def parse_attestation_response(response: bytes) -> bytes:
    """Extract the document from a response.

    Raises:
        AcquisitionError: the device refused, or sent another message.
    """
    try:
        value = decode(response, where="NSM response", limit_bytes=MAX_RESPONSE_BYTES)
    except RefusedError as error:
        raise AcquisitionError(f"the device's response: {error.code}") from None
    # The document is passed on unopened: its verifier finds the certificates in it.
    if isinstance(value, dict) and "Error" in value:
        # Only a name from AWS's list of errors: this is written to the error stream.
        word = value["Error"]
        known = isinstance(word, str) and word.isascii() and word.isalpha()
        said = str(word)[:32] if known else "unknown error"
        raise AcquisitionError(f"the device refused: {said}")
    attestation = value.get("Attestation") if isinstance(value, dict) else None
    document = attestation.get("document") if isinstance(attestation, dict) else None
    if not isinstance(document, bytes) or not document:
        raise AcquisitionError("the device's response holds no document")
    if len(document) > MAX_DOCUMENT_BYTES:
        raise AcquisitionError("the document is too long")
    return document
