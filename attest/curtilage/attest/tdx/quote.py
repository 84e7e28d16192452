"""The TDX quote, versions 4 and 5: exact parsing, nothing verified.

Offsets are those of Intel's "TDX DCAP Quoting Library API", appendix 3: A.3 for
version 4, A.4 for version 5, and of the enclave report body in A.3.10; those of
the TD report 1.5ex are those of Intel's header ``sgx_quote_5.h``. Everything is
little-endian.

    header, 48 bytes              TD report, 584, 648 or 885 bytes
    0x00  2  version, 4 or 5      0x000  16  tee_tcb_svn
    0x02  2  key type, 2          0x010  48  mrseam
    0x04  4  TEE type, 0x81       0x040  48  mrsignerseam
    0x0C 16  vendor               0x070   8  seam_attributes
    0x1C 20  user data            0x078   8  td_attributes
                                  0x080   8  xfam
    version 5 only, 6 bytes       0x088  48  mrtd
    0x00  2  body type, 2 to 4    0x0B8  48  mrconfigid
    0x02  4  body size            0x0E8  48  mrowner
                                  0x118  48  mrownerconfig
                                  0x148  4 x 48  rtmr0 to rtmr3
    signature data                0x208  64  report_data
    u32 length, then              TD report 1.5 and 1.5ex only
    64 signature                  0x248  16  tee_tcb_svn2
    64 attestation key            0x258  48  mrservicetd
    u16 type 6, u32 length,       TD report 1.5ex only
      384 QE report,              0x288   1  vmid
      64 signature,               0x289  32  td_id
      u16 length 32,              0x2A9  48  device_info
        QE authentication data    0x2D9  48  init_servicetd
      u16 type 5, u32 length,     0x309   8  init_servicetd_attributes
        PCK certificate chain     0x311  16  init_cpusvn
        (PEM)                     0x321  16  init_tee_tcb_svn
                                  0x331  12  init_model
                                  0x33D  48  current_servicetd
                                  0x36D   8  current_servicetd_attributes
"""

import re
from dataclasses import dataclass, field
from typing import Final

from curtilage.attest.encoding.reader import Reader
from curtilage.attest.encoding.strict_json import malformed, too_large
from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.evidence import MAX_QUOTE_BYTES

HEADER_BYTES: Final = 48
OFFSET_VERSION: Final = 0x00
OFFSET_KEY_TYPE: Final = 0x02
OFFSET_TEE_TYPE: Final = 0x04
OFFSET_VENDOR: Final = 0x0C
OFFSET_USER_DATA: Final = 0x1C

BODY_DESCRIPTOR_BYTES: Final = 6
TD_REPORT_10_BYTES: Final = 584
TD_REPORT_15_BYTES: Final = 648
TD_REPORT_15EX_BYTES: Final = 885
OFFSET_TEE_TCB_SVN: Final = 0x000
OFFSET_MRSEAM: Final = 0x010
OFFSET_MRSIGNERSEAM: Final = 0x040
OFFSET_SEAM_ATTRIBUTES: Final = 0x070
OFFSET_TD_ATTRIBUTES: Final = 0x078
OFFSET_XFAM: Final = 0x080
OFFSET_MRTD: Final = 0x088
OFFSET_MRCONFIGID: Final = 0x0B8
OFFSET_MROWNER: Final = 0x0E8
OFFSET_MROWNERCONFIG: Final = 0x118
OFFSET_RTMR: Final = 0x148
OFFSET_REPORT_DATA: Final = 0x208
OFFSET_TEE_TCB_SVN2: Final = 0x248
OFFSET_MRSERVICETD: Final = 0x258
OFFSET_VMID: Final = 0x288
OFFSET_TD_ID: Final = 0x289
OFFSET_DEVICE_INFO: Final = 0x2A9
OFFSET_INIT_SERVICETD: Final = 0x2D9
OFFSET_INIT_SERVICETD_ATTRIBUTES: Final = 0x309
OFFSET_INIT_CPUSVN: Final = 0x311
OFFSET_INIT_TEE_TCB_SVN: Final = 0x321
OFFSET_INIT_MODEL: Final = 0x331
OFFSET_CURRENT_SERVICETD: Final = 0x33D
OFFSET_CURRENT_SERVICETD_ATTRIBUTES: Final = 0x36D

# The enclave report body of the quoting enclave, 384 bytes.
QE_REPORT_BYTES: Final = 384
OFFSET_QE_CPUSVN: Final = 0
OFFSET_QE_MISCSELECT: Final = 16
OFFSET_QE_ATTRIBUTES: Final = 48
OFFSET_QE_MRENCLAVE: Final = 64
OFFSET_QE_MRSIGNER: Final = 128
OFFSET_QE_ISVPRODID: Final = 256
OFFSET_QE_ISVSVN: Final = 258
OFFSET_QE_REPORT_DATA: Final = 320

SVN_BYTES: Final = 16
MEASUREMENT_BYTES: Final = 48
REPORT_DATA_BYTES: Final = 64
TD_ID_BYTES: Final = 32
MODEL_BYTES: Final = 12
ATTRIBUTES_BYTES: Final = 8
SIGNATURE_BYTES: Final = 64
PUBLIC_KEY_BYTES: Final = 64
RTMR_COUNT: Final = 4
# The format leaves it open; Intel's enclave writes 32.
AUTHENTICATION_DATA_BYTES: Final = 32

VERSION_4: Final = 4
VERSION_5: Final = 5
KEY_TYPE_ECDSA_P256: Final = 2
TEE_TYPE_TDX: Final = 0x81
# Intel's own quoting enclave.
INTEL_VENDOR: Final = bytes.fromhex("939a7233f79c4ca9940a0db3957f0607")
BODY_TYPE_SGX: Final = 1
BODY_TYPE_TD_10: Final = 2
BODY_TYPE_TD_15: Final = 3
BODY_TYPE_TD_15EX: Final = 4
BODY_BYTES: Final = {
    BODY_TYPE_TD_10: TD_REPORT_10_BYTES,
    BODY_TYPE_TD_15: TD_REPORT_15_BYTES,
    BODY_TYPE_TD_15EX: TD_REPORT_15EX_BYTES,
}
CERTIFICATION_QE_REPORT: Final = 6
CERTIFICATION_PCK_CHAIN: Final = 5
# The frame of each certificate, white space around them, and the NUL of a C string that
# Intel's quoting service puts behind the last one.
_PEM_CHAIN: Final = re.compile(
    rb"\s*(?:-----BEGIN CERTIFICATE-----[\t\n\r\x20-\x2c\x2e-\x7e]*"
    rb"-----END CERTIFICATE-----\s*)+\0?"
)

# Two of those who hand out quotes hand out their whole buffer, zeros behind the
# quote: Intel's quoting service sizes it for the largest quote that it can make
# (version 5 around a TD report 1.5; a newer one, around a 1.5ex), and Google's has
# 8000 bytes. Zeros of exactly these lengths are cut off; they are not signed and
# reach no claim. Anything else behind the quote is refused.
LARGEST_BODIES: Final = (
    BODY_DESCRIPTOR_BYTES + TD_REPORT_15_BYTES,
    BODY_DESCRIPTOR_BYTES + TD_REPORT_15EX_BYTES,
)
FIXED_BUFFER_BYTES: Final = 8000


@dataclass(frozen=True, slots=True, kw_only=True)
class TdExtension:
    """The fields that a TD report 1.5ex has in addition to a 1.5.

    The fields named ``init_`` and ``current_`` are filled in for domains of the
    attribute SERVTD_EXT, and zero for all others.

    Attributes:
        vmid: which virtual machine inside the domain asked for the report; 0
            where the domain is not divided, or its own supervisor asked.
        td_id: 32 random bytes, new with every launch and kept through migration;
            zero where the host has not switched them on.
        device_info: hash over the devices of the domain, 48 bytes.
        init_servicetd: hash of the service domain, or of the migration policy,
            that was bound when the domain was made, 48 bytes.
        init_servicetd_attributes: how that hash was made, 8 bytes.
        init_cpusvn: the processor's security versions at that time, 16 bytes.
        init_tee_tcb_svn: as ``tee_tcb_svn``, at that time, 16 bytes.
        init_model: the model of processor at that time, 12 bytes; no FMSPC.
        current_servicetd: as ``init_servicetd``, now.
        current_servicetd_attributes: how that hash was made, 8 bytes.
    """

    vmid: int
    td_id: bytes
    device_info: bytes
    init_servicetd: bytes
    init_servicetd_attributes: bytes
    init_cpusvn: bytes
    init_tee_tcb_svn: bytes
    init_model: bytes
    current_servicetd: bytes
    current_servicetd_attributes: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class TdReport:
    """The TDX module's report about one trust domain.

    Attributes:
        tee_tcb_svn: security versions of module and processor, 16 bytes.
        mrseam: measurement of the TDX module, 48 bytes.
        mrsignerseam: its signer, zero for Intel, 48 bytes.
        seam_attributes: the module's attributes, 8 bytes.
        td_attributes: the domain's attributes, a bit field of 64.
        xfam: processor features that the domain may use, 8 bytes.
        mrtd: measurement of the initial contents, 48 bytes.
        mrconfigid: 48 bytes that the host chose.
        mrowner: 48 bytes that the host chose.
        mrownerconfig: 48 bytes that the host chose.
        rtmr: the four registers that are extended at run time, 48 bytes each.
        report_data: 64 bytes that the domain chose.
        tee_tcb_svn2: security versions of what runs now, or None in 1.0.
        mrservicetd: hash of the service domains bound to this one, 48 bytes;
            zero where there are none, None in 1.0.
        extension: what a 1.5ex says beyond that, or None.
    """

    tee_tcb_svn: bytes
    mrseam: bytes
    mrsignerseam: bytes
    seam_attributes: bytes
    td_attributes: int
    xfam: bytes
    mrtd: bytes
    mrconfigid: bytes
    mrowner: bytes
    mrownerconfig: bytes
    rtmr: tuple[bytes, ...]
    report_data: bytes
    tee_tcb_svn2: bytes | None
    mrservicetd: bytes | None
    extension: TdExtension | None = None

    @property
    def version(self) -> str:
        """Return Intel's name of the layout: 1.0, 1.5 or 1.5ex."""
        if self.mrservicetd is None:
            return "1.0"
        return "1.5" if self.extension is None else "1.5ex"


@dataclass(frozen=True, slots=True, kw_only=True)
class QeReport:
    """The processor's report about the quoting enclave.

    Attributes:
        miscselect: 4 bytes as they stand in the report.
        attributes: 16 bytes.
        mrenclave: the enclave's measurement, 32 bytes.
        mrsigner: the enclave's signer, 32 bytes.
        isvprodid: the product's number.
        isvsvn: its security version.
        report_data: 64 bytes that the enclave chose.
        encoded: all 384 bytes, which the PCK key signs.
    """

    miscselect: bytes
    attributes: bytes
    mrenclave: bytes
    mrsigner: bytes
    isvprodid: int
    isvsvn: int
    report_data: bytes
    encoded: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TdxQuote:
    """A quote's fields; unverified.

    Attributes:
        version: 4 or 5.
        report: what is said about the trust domain.
        signed_part: the bytes that the attestation key signs.
        signature: r and s, 32 bytes each, big-endian; (r, n-s) verifies too,
            so never use a signature as an identity.
        attestation_key: x and y on P-256, 32 bytes each, big-endian.
        qe: the quoting enclave's own report.
        qe_signature: by the PCK key, as ``signature``.
        qe_authentication_data: 32 bytes, hashed into the QE's report data.
        pck_chain: PEM certificates, leaf first.
        encoded: the quote without what stood behind it.
    """

    version: int
    report: TdReport
    signed_part: bytes = field(repr=False)
    signature: bytes = field(repr=False)
    attestation_key: bytes = field(repr=False)
    qe: QeReport
    qe_signature: bytes = field(repr=False)
    qe_authentication_data: bytes = field(repr=False)
    pck_chain: bytes = field(repr=False)
    encoded: bytes = field(repr=False)


def parse_quote(data: bytes) -> TdxQuote:
    """Parse a quote's fields; checks the form, not the signature.

    Every length inside must be exactly what is there. Behind the quote there
    may be nothing, or the zeros of one of the two known buffers.

    Raises:
        RefusedError: ``malformed``, ``too_large``, ``unsupported_version``,
            ``unsupported_product`` or ``unsupported_algorithm``.
    """
    # Before anything is read: the bytes come from the party to be verified.
    if len(data) > MAX_QUOTE_BYTES:
        raise too_large(f"quote has {len(data)} bytes, limit {MAX_QUOTE_BYTES}")
    reader = Reader(data, "quote")
    version = _check_header(reader.take(HEADER_BYTES))
    report = _read_report(_take_body(reader, version))
    # Header and report, as they stand: what the attestation key signs.
    signed_part = data[: reader.position]
    # A length that the sender chose. ``take`` refuses one beyond the message, and what
    # follows it is checked next.
    signature_bytes = reader.number(4)
    outer = Reader(reader.take(signature_bytes), "signature data")
    end = reader.position
    # Zeros of arbitrary length would be unsigned bytes, and a place to hide data from a
    # verifier that reads on.
    buffers = {HEADER_BYTES + body + 4 + signature_bytes for body in LARGEST_BODIES}
    if end != len(data) and (
        len(data) not in buffers | {FIXED_BUFFER_BYTES} or any(data[end:])
    ):
        raise malformed(f"quote: {len(data) - end} bytes behind the signature data")
    signature = outer.take(SIGNATURE_BYTES)
    # Two bare coordinates. That they are a point of the curve is found out when the
    # signature is checked; others have been attacked with points that are not.
    attestation_key = outer.take(PUBLIC_KEY_BYTES)
    # Nested, each with a length of its own: every reader must end exactly where its
    # length says.
    inner = Reader(
        _certification_data(outer, CERTIFICATION_QE_REPORT), "certification data"
    )
    qe = _read_qe_report(inner.take(QE_REPORT_BYTES))
    qe_signature = inner.take(SIGNATURE_BYTES)
    length = inner.number(2)
    # It is hashed behind the attestation key without a length of its own, so bytes
    # could move from one to the other if this could vary.
    if length != AUTHENTICATION_DATA_BYTES:
        raise malformed(f"quote: {length} bytes of QE authentication data")
    authentication_data = inner.take(length)
    pck_chain = _certification_data(inner, CERTIFICATION_PCK_CHAIN)
    # The certificates are verified with their authorities; here, that they
    # are all that there is.
    if _PEM_CHAIN.fullmatch(pck_chain) is None:
        raise malformed("quote: the PCK chain is not PEM certificates")
    return TdxQuote(
        version=version,
        report=report,
        signed_part=signed_part,
        signature=signature,
        attestation_key=attestation_key,
        qe=qe,
        qe_signature=qe_signature,
        qe_authentication_data=authentication_data,
        pck_chain=pck_chain,
        # Without the zeros behind it: the second opinion is asked about exactly what
        # was parsed.
        encoded=data[:end],
    )


def _check_header(header: bytes) -> int:
    version = int.from_bytes(header[OFFSET_VERSION:OFFSET_KEY_TYPE], "little")
    # Version 3 is SGX's. A version is chosen by the sender and covered by the
    # signature, like the rest of the header.
    if version not in {VERSION_4, VERSION_5}:
        raise RefusedError(RefusalCode.UNSUPPORTED_VERSION, f"version {version}")
    tee_type = int.from_bytes(header[OFFSET_TEE_TYPE : OFFSET_TEE_TYPE + 4], "little")
    # An SGX enclave's quote is signed by the same keys of the same platform: only this
    # number says that a trust domain is spoken of, and an enclave anybody may write.
    if tee_type != TEE_TYPE_TDX:
        raise RefusedError(
            RefusalCode.UNSUPPORTED_PRODUCT, f"TEE type {tee_type:#x} is not TDX's"
        )
    key_type = int.from_bytes(header[OFFSET_KEY_TYPE:OFFSET_TEE_TYPE], "little")
    # Type 3 is P-384, which Intel's document only reserves: another algorithm is a
    # decision for a release, never for the sender.
    if key_type != KEY_TYPE_ECDSA_P256:
        raise RefusedError(
            RefusalCode.UNSUPPORTED_ALGORITHM,
            f"attestation key type {key_type} is not ECDSA P-256",
        )
    # Others may write quoting enclaves too; Intel's collateral says nothing of theirs.
    if header[OFFSET_VENDOR:OFFSET_USER_DATA] != INTEL_VENDOR:
        raise RefusedError(
            RefusalCode.UNSUPPORTED_PRODUCT, "the quoting enclave is not Intel's"
        )
    return version


def _take_body(reader: Reader, version: int) -> bytes:
    if version == VERSION_4:
        return reader.take(TD_REPORT_10_BYTES)
    body_type = reader.number(2)
    size = reader.number(4)
    # Like the TEE type above: it occurs twice, so it is checked twice.
    if body_type == BODY_TYPE_SGX:
        raise RefusedError(RefusalCode.UNSUPPORTED_PRODUCT, "an SGX enclave's report")
    expected = BODY_BYTES.get(body_type)
    if expected is None:
        # A type of later only where the rest is framed around it; else these six bytes
        # are something else, such as the body of another version.
        reader.take(size)
        if reader.number(4) > reader.left or size < TD_REPORT_10_BYTES:
            raise malformed(f"quote: body type {body_type} of {size} bytes")
        raise RefusedError(RefusalCode.UNSUPPORTED_VERSION, f"body type {body_type}")
    # The type decides the layout, and the size must agree. A shorter body would shift
    # every field behind it.
    if size != expected:
        raise malformed(f"quote: body has {size} bytes, not {expected}")
    return reader.take(size)


def _read_report(body: bytes) -> TdReport:
    def octets(offset: int, count: int = MEASUREMENT_BYTES) -> bytes:
        return body[offset : offset + count]

    # By the length that was just checked against the type, so that no layout is
    # guessed.
    extended = len(body) >= TD_REPORT_15_BYTES
    extension = None
    if len(body) == TD_REPORT_15EX_BYTES:
        extension = TdExtension(
            vmid=body[OFFSET_VMID],
            td_id=octets(OFFSET_TD_ID, TD_ID_BYTES),
            device_info=octets(OFFSET_DEVICE_INFO),
            init_servicetd=octets(OFFSET_INIT_SERVICETD),
            init_servicetd_attributes=octets(
                OFFSET_INIT_SERVICETD_ATTRIBUTES, ATTRIBUTES_BYTES
            ),
            init_cpusvn=octets(OFFSET_INIT_CPUSVN, SVN_BYTES),
            init_tee_tcb_svn=octets(OFFSET_INIT_TEE_TCB_SVN, SVN_BYTES),
            init_model=octets(OFFSET_INIT_MODEL, MODEL_BYTES),
            current_servicetd=octets(OFFSET_CURRENT_SERVICETD),
            current_servicetd_attributes=octets(
                OFFSET_CURRENT_SERVICETD_ATTRIBUTES, ATTRIBUTES_BYTES
            ),
        )
    return TdReport(
        tee_tcb_svn=octets(OFFSET_TEE_TCB_SVN, SVN_BYTES),
        mrseam=octets(OFFSET_MRSEAM),
        mrsignerseam=octets(OFFSET_MRSIGNERSEAM),
        seam_attributes=octets(OFFSET_SEAM_ATTRIBUTES, 8),
        td_attributes=int.from_bytes(octets(OFFSET_TD_ATTRIBUTES, 8), "little"),
        xfam=octets(OFFSET_XFAM, 8),
        mrtd=octets(OFFSET_MRTD),
        mrconfigid=octets(OFFSET_MRCONFIGID),
        mrowner=octets(OFFSET_MROWNER),
        mrownerconfig=octets(OFFSET_MROWNERCONFIG),
        rtmr=tuple(
            octets(OFFSET_RTMR + number * MEASUREMENT_BYTES)
            for number in range(RTMR_COUNT)
        ),
        report_data=octets(OFFSET_REPORT_DATA, REPORT_DATA_BYTES),
        # None and not zeros for a 1.0: zeros would be a very old module.
        tee_tcb_svn2=octets(OFFSET_TEE_TCB_SVN2, SVN_BYTES) if extended else None,
        mrservicetd=octets(OFFSET_MRSERVICETD) if extended else None,
        extension=extension,
    )


def _certification_data(reader: Reader, wanted: int) -> bytes:
    kind = reader.number(2)
    # Only a PCK chain inside a QE report: the other types name the platform's key by
    # its PPID, plain or encrypted, for which somebody would have to be asked.
    if kind != wanted:
        raise malformed(f"quote: certification data of type {kind}, not {wanted}")
    # What the length says is the rest, and exactly that.
    certified = reader.take(reader.number(4))
    reader.end()
    return certified


def _read_qe_report(data: bytes) -> QeReport:
    return QeReport(
        miscselect=data[OFFSET_QE_MISCSELECT : OFFSET_QE_MISCSELECT + 4],
        attributes=data[OFFSET_QE_ATTRIBUTES:OFFSET_QE_MRENCLAVE],
        mrenclave=data[OFFSET_QE_MRENCLAVE : OFFSET_QE_MRENCLAVE + 32],
        mrsigner=data[OFFSET_QE_MRSIGNER : OFFSET_QE_MRSIGNER + 32],
        isvprodid=int.from_bytes(data[OFFSET_QE_ISVPRODID:OFFSET_QE_ISVSVN], "little"),
        isvsvn=int.from_bytes(data[OFFSET_QE_ISVSVN : OFFSET_QE_ISVSVN + 2], "little"),
        report_data=data[OFFSET_QE_REPORT_DATA:QE_REPORT_BYTES],
        encoded=data,
    )
