"""An emulated Azure confidential VM: emulated SEV-SNP below an emulated vTPM.

The blob, the runtime data and the quote have the genuine layouts; the root is
the emulated platform's own.
"""

import hashlib
import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from cryptography.hazmat.primitives.asymmetric import rsa

from curtilage.attest.azure import hcl as layout
from curtilage.attest.azure.hcl import MAGIC, HardwareKind
from curtilage.attest.claims import HOST_DATA
from curtilage.attest.encoding.strict_json import encode_base64url
from curtilage.attest.evidence import AzureEvidence, Tee
from curtilage.attest.expectations import NO_HOST_DATA, TrustAnchor
from curtilage.attest.sev_snp.report import REPORT_BYTES
from curtilage_dev.emulated.changes import unchanged
from curtilage_dev.emulated.snp_pki import EmulatedPlatform
from curtilage_dev.emulated.snp_reports import ReportFields
from curtilage_dev.emulated.tpm import EmulatedTpm, QuoteFields, make_tpm, ordinary_pcrs

# The size of the non-volatile index.
BLOB_BYTES: Final = 2600
DEFAULT_MEASUREMENT: Final = hashlib.sha384(b"emulated paravisor").digest()


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobFields:
    """The content of the paravisor's non-volatile index.

    Attributes:
        report: the hardware's report, at most 1184 bytes.
        runtime_data: the JSON text.
        kind: the kind of report.
        magic: four bytes.
        version: of the header.
        request: the kind of request.
        runtime_version: of the runtime data's header.
        hash_type: 1 is SHA-256.
        size: of the runtime data as the headers have it; None: the true one.
        blob_bytes: the whole blob's size.
    """

    report: bytes
    runtime_data: bytes
    kind: int = HardwareKind.SNP
    magic: bytes = MAGIC
    version: int = 2
    request: int = 2
    runtime_version: int = 1
    hash_type: int = 1
    size: int | None = None
    blob_bytes: int = BLOB_BYTES


def encode_blob(fields: BlobFields) -> bytes:
    """Write the blob."""
    size = len(fields.runtime_data) if fields.size is None else fields.size
    runtime = struct.pack(
        "<5I",
        20 + size,
        fields.runtime_version,
        fields.kind,
        fields.hash_type,
        size,
    )
    used = 32 + REPORT_BYTES + len(runtime) + size
    header = struct.pack(
        "<4s4I12s", fields.magic, fields.version, used, fields.request, 0, bytes(12)
    )
    parts = header, fields.report.ljust(REPORT_BYTES, b"\0"), runtime
    return (b"".join(parts) + fields.runtime_data).ljust(fields.blob_bytes, b"\0")


def encode_td_report(report_data: bytes, registers: Mapping[str, str]) -> bytes:
    """Write a TDREPORT with the values of a TDX quote's registers.

    Args:
        report_data: 64 bytes.
        registers: by name, hex; missing ones are zeros.
    """
    data = bytearray(layout.TD_REPORT_BYTES)
    data[0] = layout.TEE_TYPE_TDX
    start = layout.REPORT_DATA_AT
    data[start : start + len(report_data)] = report_data
    for number, name in enumerate(layout.REGISTERS):
        value = bytes.fromhex(registers.get(name, "00" * layout.DIGEST_BYTES))
        start = layout.REGISTERS_AT + layout.DIGEST_BYTES * number
        data[start : start + len(value)] = value
    return bytes(data)


def web_key(name: str, key: rsa.RSAPublicKey) -> dict[str, object]:
    """Return an RSA key in the runtime data's format."""
    numbers = key.public_numbers()
    return {
        "kid": name,
        "key_ops": ["sign"],
        "kty": "RSA",
        "e": encode_base64url(numbers.e.to_bytes(3, "big")),
        "n": encode_base64url(numbers.n.to_bytes((key.key_size + 7) // 8, "big")),
    }


def runtime_object(key: rsa.RSAPublicKey) -> dict[str, object]:
    """Return the paravisor's runtime data for a vTPM with this key."""
    return {
        "keys": [web_key("HCLAkPub", key), web_key("HCLEkPub", key)],
        "vm-configuration": {
            "console-enabled": True,
            "root-cert-thumbprint": "",
            "secure-boot": True,
            "tpm-enabled": True,
            "tpm-persisted": False,
            "vmUniqueId": "00000000-0000-4000-8000-000000000000",
        },
        "user-data": "00" * 64,
    }


def encode_runtime(value: Mapping[str, object]) -> bytes:
    """Write runtime data as the paravisor does, without spaces."""
    return json.dumps(value, separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Deviations in a VM's evidence, with all signatures valid.

    Attributes:
        quote: changes the quote's fields.
        report: changes the hardware report's fields.
        runtime_data: another JSON text; the report covers it.
    """

    quote: Callable[[QuoteFields], QuoteFields] = unchanged
    report: Callable[[ReportFields], ReportFields] = unchanged
    runtime_data: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulatedAzure:
    """One emulated VM.

    Attributes:
        platform: its hardware.
        tpm: its vTPM, with an RSA key.
        measurement: of the paravisor, 48 bytes.
        pcrs: the registers of the vTPM.
    """

    platform: EmulatedPlatform
    tpm: EmulatedTpm
    measurement: bytes = DEFAULT_MEASUREMENT
    pcrs: Mapping[int, bytes] = field(default_factory=ordinary_pcrs)

    @property
    def root(self) -> bytes:
        """The hardware's root certificate, DER."""
        return self.platform.root

    def anchor(self) -> TrustAnchor:
        """Return the hardware's root as a policy pins it."""
        return self.platform.anchor()

    def registers(self) -> dict[str, str]:
        """Return this VM's measurement."""
        pcrs = {f"pcr{index}": value.hex() for index, value in self.pcrs.items()}
        return {
            "launch": self.measurement.hex(),
            HOST_DATA: NO_HOST_DATA.hex(),
            **pcrs,
        }

    def runtime_data(self) -> bytes:
        """Return the JSON text that names the vTPM's key."""
        key = self.tpm.key.public_key()
        if not isinstance(key, rsa.RSAPublicKey):
            raise TypeError("an Azure vTPM has an RSA key")
        return encode_runtime(runtime_object(key))

    def report_fields(self, runtime_data: bytes) -> ReportFields:
        """Return the hardware's report over a JSON text."""
        digest = hashlib.sha256(runtime_data).digest()
        return self.platform.report_fields(
            report_data=digest.ljust(64, b"\0"), measurement=self.measurement
        )

    def evidence(
        self, qualifying: bytes, *, now: datetime, changes: Changes | None = None
    ) -> AzureEvidence:
        """Quote some qualifying data, and add everything else to it."""
        asked = changes or Changes()
        runtime_data = asked.runtime_data or self.runtime_data()
        fields = asked.report(self.report_fields(runtime_data))
        hardware = self.platform.evidence(fields, now=now)
        blob = BlobFields(report=hardware.report, runtime_data=runtime_data)
        quote = asked.quote(QuoteFields(extra_data=qualifying, pcrs=self.pcrs))
        return AzureEvidence(
            tee=Tee.EMULATED_AZURE_SNP,
            hcl=encode_blob(blob),
            hardware=hardware,
            quote=self.tpm.quote(quote),
        )


def make_azure(platform: EmulatedPlatform) -> EmulatedAzure:
    """Make a VM on an emulated platform."""
    return EmulatedAzure(platform=platform, tpm=make_tpm())
