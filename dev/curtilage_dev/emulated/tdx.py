"""Emulated TDX quotes: any field, in the genuine layout, then signed.

The verifier accepts them under the emulated root and under no other. They are
labelled "emulated" everywhere: no hardware is involved.
"""

import hashlib
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from curtilage.attest.evidence import TdxEvidence, Tee
from curtilage.attest.expectations import AnchorKind, TrustAnchor
from curtilage.attest.tdx import quote as layout
from curtilage.attest.tdx.certificates import PckPlatform
from curtilage.attest.tdx.verify import TD_SEPT_VE_DISABLE
from curtilage_dev.emulated.changes import unchanged
from curtilage_dev.emulated.collateral import QE_MRSIGNER
from curtilage_dev.emulated.dcap import (
    ChangeCertificate,
    CollateralFields,
    DcapKeys,
    Provisioning,
    make_provisioning,
    sign_raw,
)

# Module 1 in version 6, and the processor's third component in version 3.
TEE_TCB_SVN: Final = bytes([6, 1, 3]) + bytes(13)
QE_ISVSVN: Final = 7
_XFAM: Final = bytes.fromhex("e702060000000000")
# Initialised, 64 bit, with provisioning rights; not debuggable.
_QE_ATTRIBUTES: Final = bytes.fromhex("1500000000000000e700000000000000")
_USER_DATA_BYTES: Final = 20
# The extension in a 1.5ex TD report for a domain without other parties.
TD_EXTENSION: Final = layout.TdExtension(
    vmid=0,
    td_id=bytes(range(32)),
    device_info=bytes(48),
    init_servicetd=bytes(48),
    init_servicetd_attributes=bytes(8),
    init_cpusvn=bytes(16),
    init_tee_tcb_svn=bytes(16),
    init_model=bytes(12),
    current_servicetd=bytes(48),
    current_servicetd_attributes=bytes(8),
)
_BODY_TYPES: Final = {
    "1.0": layout.BODY_TYPE_TD_10,
    "1.5": layout.BODY_TYPE_TD_15,
    "1.5ex": layout.BODY_TYPE_TD_15EX,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class QeFields:
    """The content of the quoting enclave's report, before it is signed.

    Attributes:
        miscselect: 4 bytes.
        attributes: 16 bytes.
        mrenclave: 32 bytes.
        mrsigner: 32 bytes.
        isvprodid: the product's number.
        isvsvn: its security version.
        report_data: 64 bytes; None: what names the attestation key.
    """

    miscselect: bytes = bytes(4)
    attributes: bytes = _QE_ATTRIBUTES
    mrenclave: bytes = b"\x0e" * 32
    mrsigner: bytes = QE_MRSIGNER
    isvprodid: int = 2
    isvsvn: int = QE_ISVSVN
    report_data: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuoteFields:
    """The content of a quote, before it is signed.

    Attributes:
        report: the TD report; 1.5 where it has a ``mrservicetd``, and 1.5ex where
            it has an ``extension`` too.
        version: 4 or 5.
        key_type: 2 is ECDSA P-256.
        tee_type: 0x81 is TDX.
        vendor: 16 bytes.
        body_type: version 5 only; None: what fits the report.
        body_size: version 5 only; None: the report's.
        qe: the quoting enclave.
        authentication_data: hashed into its report data.
        outer_type: certification data of the quote; 6 is a QE report.
        inner_type: certification data of the enclave; 5 is a PCK chain.
        pck_chain: PEM; None: the platform's.
        behind: bytes after the quote.
    """

    report: layout.TdReport
    version: int = layout.VERSION_4
    key_type: int = layout.KEY_TYPE_ECDSA_P256
    tee_type: int = layout.TEE_TYPE_TDX
    vendor: bytes = layout.INTEL_VENDOR
    body_type: int | None = None
    body_size: int | None = None
    qe: QeFields = field(default_factory=QeFields)
    authentication_data: bytes = bytes(layout.AUTHENTICATION_DATA_BYTES)
    outer_type: int = layout.CERTIFICATION_QE_REPORT
    inner_type: int = layout.CERTIFICATION_PCK_CHAIN
    pck_chain: bytes | None = None
    behind: bytes = b""


ChangeQuote = Callable[[QuoteFields], QuoteFields]
ChangeCollateral = Callable[[CollateralFields], CollateralFields]


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulatedTdx:
    """One emulated platform that makes quotes.

    Attributes:
        provisioning: its keys and certificates.
        mrtd: what was launched, 48 bytes.
        rtmr: the four run-time registers, 48 bytes each.
    """

    provisioning: Provisioning
    mrtd: bytes = b"\x3d" * 48
    rtmr: tuple[bytes, ...] = (b"\xa0" * 48, b"\xa1" * 48, b"\xa2" * 48, bytes(48))

    @property
    def root(self) -> bytes:
        """The emulated root certificate, DER."""
        return self.provisioning.root

    @property
    def measurement(self) -> dict[str, str]:
        """The registers that a release or a policy would name, in hex."""
        registers = {f"rtmr{number}": each for number, each in enumerate(self.rtmr)}
        registers["mrtd"] = self.mrtd
        return {name: value.hex() for name, value in registers.items()}

    def anchor(self) -> TrustAnchor:
        """Return what a development policy pins."""
        return TrustAnchor.of_certificate(AnchorKind.EMULATED, "tdx", self.root)

    def evidence(
        self,
        report_data: bytes,
        *,
        now: datetime,
        quote: ChangeQuote = unchanged,
        collateral: ChangeCollateral = unchanged,
    ) -> TdxEvidence:
        """Make a quote and fresh collateral.

        Args:
            report_data: 64 bytes.
            now: aware UTC; the collateral is current from an hour before.
            quote: alters the quote before it is signed.
            collateral: alters the collateral before it is signed.
        """
        stapled = collateral(self.provisioning.fields(now=now))
        return TdxEvidence(
            tee=Tee.EMULATED_TDX,
            quote=self.quote(quote(self.quote_fields(report_data))),
            collateral=self.provisioning.collateral(stapled),
        )

    def quote_fields(self, report_data: bytes) -> QuoteFields:
        """Return an ordinary version 4 quote, open to change."""
        return QuoteFields(
            report=layout.TdReport(
                tee_tcb_svn=TEE_TCB_SVN,
                mrseam=b"\x5e" * 48,
                mrsignerseam=bytes(48),
                seam_attributes=bytes(8),
                td_attributes=TD_SEPT_VE_DISABLE,
                xfam=_XFAM,
                mrtd=self.mrtd,
                mrconfigid=bytes(48),
                mrowner=bytes(48),
                mrownerconfig=bytes(48),
                rtmr=self.rtmr,
                report_data=report_data,
                tee_tcb_svn2=None,
                mrservicetd=None,
            )
        )

    def quote(self, fields: QuoteFields) -> bytes:
        """Sign a quote."""
        keys = self.provisioning.keys
        header = struct.pack(
            "<HHIHH", fields.version, fields.key_type, fields.tee_type, 0, 0
        )
        signed_part = header + fields.vendor + bytes(_USER_DATA_BYTES) + _body(fields)
        point = keys.attestation.public_key().public_bytes(
            Encoding.X962, PublicFormat.UncompressedPoint
        )[1:]
        qe_report = _qe_report(fields, point)
        chain = fields.pck_chain
        inner = (
            qe_report
            + bytes.fromhex(sign_raw(qe_report, keys.pck))
            + struct.pack("<H", len(fields.authentication_data))
            + fields.authentication_data
            + _certification_data(
                fields.inner_type,
                self.provisioning.pck_chain() if chain is None else chain,
            )
        )
        signature_data = (
            bytes.fromhex(sign_raw(signed_part, keys.attestation))
            + point
            + _certification_data(fields.outer_type, inner)
        )
        length = struct.pack("<I", len(signature_data))
        return signed_part + length + signature_data + fields.behind


def make_tdx_platform(
    keys: DcapKeys,
    *,
    now: datetime,
    platform: PckPlatform | None = None,
    change: ChangeCertificate = lambda _, fields: fields,
) -> EmulatedTdx:
    """Make a platform with certificates of its own under the given keys."""
    return EmulatedTdx(
        provisioning=make_provisioning(keys, now=now, platform=platform, change=change)
    )


def _body(fields: QuoteFields) -> bytes:
    report = encode_report(fields.report)
    if fields.version == layout.VERSION_4:
        return report
    fitting = _BODY_TYPES[fields.report.version]
    kind = fitting if fields.body_type is None else fields.body_type
    size = len(report) if fields.body_size is None else fields.body_size
    return struct.pack("<HI", kind, size) + report


def encode_report(report: layout.TdReport) -> bytes:
    """Write a TD report, 584, 648 or 885 bytes."""
    parts = [
        report.tee_tcb_svn,
        report.mrseam,
        report.mrsignerseam,
        report.seam_attributes,
        struct.pack("<Q", report.td_attributes),
        report.xfam,
        report.mrtd,
        report.mrconfigid,
        report.mrowner,
        report.mrownerconfig,
        *report.rtmr,
        report.report_data,
        report.tee_tcb_svn2 or b"",
        report.mrservicetd or b"",
    ]
    extension = report.extension
    if extension is not None:
        parts += [
            bytes([extension.vmid]),
            extension.td_id,
            extension.device_info,
            extension.init_servicetd,
            extension.init_servicetd_attributes,
            extension.init_cpusvn,
            extension.init_tee_tcb_svn,
            extension.init_model,
            extension.current_servicetd,
            extension.current_servicetd_attributes,
        ]
    return b"".join(parts)


def _qe_report(fields: QuoteFields, point: bytes) -> bytes:
    qe = fields.qe
    named = hashlib.sha256(point + fields.authentication_data).digest()
    report_data = named + bytes(32) if qe.report_data is None else qe.report_data
    data = bytearray(layout.QE_REPORT_BYTES)
    values = {
        layout.OFFSET_QE_MISCSELECT: qe.miscselect,
        layout.OFFSET_QE_ATTRIBUTES: qe.attributes,
        layout.OFFSET_QE_MRENCLAVE: qe.mrenclave,
        layout.OFFSET_QE_MRSIGNER: qe.mrsigner,
        layout.OFFSET_QE_ISVPRODID: struct.pack("<HH", qe.isvprodid, qe.isvsvn),
        layout.OFFSET_QE_REPORT_DATA: report_data,
    }
    for offset, value in values.items():
        data[offset : offset + len(value)] = value
    return bytes(data)


def _certification_data(kind: int, data: bytes) -> bytes:
    return struct.pack("<HI", kind, len(data)) + data
