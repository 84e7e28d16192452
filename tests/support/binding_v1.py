"""Binding version 1, which is no longer in use: an independent known answer.

The labels are its own; the encoding is the product's, which is what the vector tests.
"""

import hashlib
from collections.abc import Sequence

from curtilage.attest.binding import (
    BindingInputs,
    SignedDevice,
    device_nonce_under,
    encode_common,
    report_data_under,
)

_BASE = b"attested-inference/binding/v1\0"
_DEVICE_NONCE = b"attested-inference/device-nonce/v1\0"
_REPORT_DATA = b"attested-inference/report-data/v1\0"
_REPORT_DATA_EMULATED = b"attested-inference/report-data-emulated/v1\0"
_QUALIFYING = b"attested-inference/tpm/v1\0"


def base_hash_v1(inputs: BindingInputs) -> bytes:
    """B0 of version 1, which ends after the anchor's time."""
    return hashlib.sha512(_BASE + encode_common(inputs)).digest()


def device_nonce_v1(b0: bytes, kind: str, index: int) -> bytes:
    """The nonce for one device's report, 32 bytes."""
    return device_nonce_under(_DEVICE_NONCE, b0, kind, index)


def report_data_v1(
    b0: bytes, devices: Sequence[SignedDevice], *, emulated: bool
) -> bytes:
    """The 64 bytes of report data."""
    label = _REPORT_DATA_EMULATED if emulated else _REPORT_DATA
    return report_data_under(label, b0, devices)


def qualifying_data_v1(report_data: bytes) -> bytes:
    """The qualifying data of a TPM quote, 32 bytes."""
    return hashlib.sha256(_QUALIFYING + report_data).digest()
