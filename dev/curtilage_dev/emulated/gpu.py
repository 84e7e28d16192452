"""Emulated GPU reports, byte for byte in the layout of NVIDIA's.

The same messages, measurement blocks, opaque fields and chain of five as an
H100's, or a GB100's, but under a root of our own whose organisation is "Emulated
TEE - not NVIDIA". Every field can be changed before it is signed.
"""

import hashlib
import struct
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, Self

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from curtilage.attest.evidence import DeviceKind, GpuEvidence
from curtilage.attest.expectations import AnchorKind, GpuExpectations, TrustAnchor
from curtilage.attest.log.manifest import GpuRelease
from curtilage.attest.nvidia import spdm
from curtilage.attest.nvidia.dice import (
    BLACKWELL_TCB_INFO,
    DICE_TCB_INFO,
    FWID_BYTES,
)
from curtilage.attest.nvidia.verify import (
    CHAIN_LENGTH,
    OPAQUE_DRIVER,
    OPAQUE_FWID,
    OPAQUE_PROTECTED_PCIE,
    OPAQUE_VBIOS,
)
from curtilage_dev.emulated.changes import unchanged
from curtilage_dev.emulated.der import element
from curtilage_dev.emulated.p384_pki import (
    P384Fields,
    new_key,
    raw_signature,
    sign_certificate,
    sign_chain,
)
from curtilage_dev.emulated.p384_revocation import ChangeAnswer, sign_answers

ORGANIZATION: Final = "Emulated TEE - not NVIDIA"
PRODUCT: Final = "nvidia-gpu"
DRIVER: Final = "550.90.07"
VBIOS: Final = "96.00.9f.00.01"
BLOCKS: Final = 64
# As NVIDIA's: the certificates do not end in practice, an emulated root's do.
LIFE: Final = timedelta(days=30 * 365)
BACKDATE: Final = timedelta(hours=1)
FWID: Final = hashlib.sha384(b"emulated GPU firmware").digest()
_VBIOS_BYTES: Final = bytes.fromhex("009f009601000000")
# Where NVIDIA's sample reports measure something.
_MEASURED: Final = frozenset({*range(2, 9), 10, 12, *range(22, 42)}) - {24, 25, 29}
_DIGEST_TYPE: Final = 0x01
_OFF: Final = b"\x55"
_SHA384_OID: Final = bytes.fromhex("0609608648016503040202")
_BOARD_FIELDS: Final = (
    (14, bytes.fromhex("b1030000")),
    (17, b"1010\0"),
    (18, b"0200\0"),
    (19, bytes(2)),
)
_AUTHORITIES: Final = ("Identity", "Provisioner ICA 1", "BROM")

Opaque = tuple[tuple[int, bytes], ...]
Blocks = tuple[tuple[int, bytes], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFields:
    """The content of a report, before it is signed.

    Attributes:
        nonce: the requester's, 32 bytes.
        chain: the certificates below the root, the leaf last.
        blocks: index and value of each measurement.
        opaque: type and value of each of NVIDIA's fields.
        responder_nonce: the GPU's own, 32 bytes.
        request: the request's version, code, attributes and operation.
        response: the response's version, code and two parameters.
        slot: which of the device's keys signs.
        specification: each block's measurement specification.
        more: bytes after the opaque data, covered by the signature.
    """

    nonce: bytes
    chain: tuple[P384Fields, ...] = field(repr=False)
    blocks: Blocks = field(repr=False)
    opaque: Opaque = field(repr=False)
    responder_nonce: bytes = bytes(32)
    request: bytes = bytes(
        (
            spdm.SPDM_VERSION,
            spdm.GET_MEASUREMENTS,
            spdm.SIGNATURE_REQUESTED,
            spdm.ALL_MEASUREMENTS,
        )
    )
    response: bytes = bytes((spdm.SPDM_VERSION, spdm.MEASUREMENTS, 0, 0))
    slot: int = 0
    specification: int = spdm.DMTF_SPECIFICATION
    more: bytes = b""

    def with_opaque(self, kind: int, value: bytes) -> Opaque:
        """Return the opaque fields with one of them replaced."""
        return tuple((k, value if k == kind else v) for k, v in self.opaque)


ChangeGpu = Callable[[GpuFields], GpuFields]


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulatedGpu:
    """One emulated GPU: its chain and its measurements.

    Attributes:
        root: the root certificate, DER.
        fwid: the firmware's identity, 48 bytes.
        blackwell: its certificate names the firmware as Blackwell's do.
    """

    root: bytes
    fwid: bytes
    blackwell: bool
    _root_fields: P384Fields = field(repr=False)
    _chain: tuple[P384Fields, ...] = field(repr=False)

    @classmethod
    def make(
        cls, *, now: datetime, fwid: bytes = FWID, blackwell: bool = False
    ) -> Self:
        """Make a root and a GPU below it."""
        root = _fields("Device Identity CA", new_key(), now)
        return cls(
            root=sign_certificate(root, root),
            fwid=fwid,
            blackwell=blackwell,
            _root_fields=root,
            _chain=_new_chain(now, fwid, blackwell=blackwell),
        )

    def sibling(self, *, now: datetime) -> "EmulatedGpu":
        """Make another GPU under the same root."""
        chain = _new_chain(now, self.fwid, blackwell=self.blackwell)
        return replace(self, _chain=chain)

    def anchor(self) -> TrustAnchor:
        """Return the root as a policy names it."""
        return TrustAnchor.of_certificate(AnchorKind.EMULATED, PRODUCT, self.root)

    def fields(self, nonce: bytes) -> GpuFields:
        """Return an ordinary report of this GPU, open to change."""
        return GpuFields(
            nonce=nonce,
            chain=self._chain,
            blocks=ordinary_blocks(),
            opaque=(
                (OPAQUE_VBIOS, _VBIOS_BYTES),
                *_BOARD_FIELDS,
                (OPAQUE_DRIVER, DRIVER.encode() + b"\0"),
                (OPAQUE_FWID, self.fwid),
                (OPAQUE_PROTECTED_PCIE, _OFF),
            ),
            responder_nonce=hashlib.sha256(nonce).digest(),
        )

    def answers(
        self,
        chain: tuple[bytes, ...],
        now: datetime,
        *,
        change: ChangeAnswer = unchanged,
    ) -> tuple[bytes, ...]:
        """Return what responders say of this GPU's certificates.

        Args:
            chain: DER, leaf first, as its evidence has them.
            now: when they are asked.
            change: edits each answer before it is signed.
        """
        authorities = (self._root_fields, *self._chain)
        return sign_answers(authorities, chain[::-1], now, change=change)

    def evidence(self, nonce: bytes, *, change: ChangeGpu = unchanged) -> GpuEvidence:
        """Sign a report over a nonce; ``change`` edits it before."""
        fields = change(self.fields(nonce))
        chain = (self.root, *sign_chain(self._root_fields, fields.chain))
        signed_part = encode_report(fields)
        return GpuEvidence(
            kind=DeviceKind.EMULATED_NVIDIA_GPU,
            report=signed_part + raw_signature(fields.chain[-1].key, signed_part),
            chain=chain[::-1],
        )


def ordinary_expectations() -> GpuExpectations:
    """Return the rules that an ordinary report satisfies."""
    record = encode_record(ordinary_blocks())
    return GpuExpectations(
        drivers=frozenset({DRIVER}),
        vbioses=frozenset({VBIOS}),
        golden=frozenset({hashlib.sha256(record).hexdigest()}),
    )


def ordinary_release() -> GpuRelease:
    """Return the part of a release about these GPUs."""
    expectations = ordinary_expectations()
    return GpuRelease(
        drivers=tuple(expectations.drivers),
        vbioses=tuple(expectations.vbioses),
        golden=tuple(expectations.golden),
    )


def ordinary_blocks() -> Blocks:
    """Return the measurements of an ordinary GPU: digests, and zeros."""
    return tuple(
        (
            index,
            hashlib.sha384(b"emulated measurement %d" % index).digest()
            if index in _MEASURED
            else bytes(48),
        )
        for index in range(1, BLOCKS + 1)
    )


def encode_record(
    blocks: Blocks, specification: int = spdm.DMTF_SPECIFICATION
) -> bytes:
    """Write a measurement record."""
    return b"".join(
        struct.pack(
            "<BBHBH",
            index,
            specification,
            spdm.VALUE_HEADER_BYTES + len(value),
            _DIGEST_TYPE,
            len(value),
        )
        + value
        for index, value in blocks
    )


def encode_opaque(opaque: Opaque) -> bytes:
    """Write NVIDIA's fields."""
    return b"".join(struct.pack("<HH", k, len(v)) + v for k, v in opaque)


def encode_report(fields: GpuFields) -> bytes:
    """Write the request and the response up to the signature."""
    record = encode_record(fields.blocks, fields.specification)
    opaque = encode_opaque(fields.opaque)
    return b"".join(
        (
            fields.request,
            fields.nonce,
            bytes([fields.slot]),
            fields.response,
            bytes([len(fields.blocks)]),
            len(record).to_bytes(3, "little"),
            record,
            fields.responder_nonce,
            len(opaque).to_bytes(2, "little"),
            opaque,
            fields.more,
        )
    )


def composite_device_id(key: ec.EllipticCurvePublicKey, fwid: bytes) -> bytes:
    """Encode the extension's older form, as an H100's leaf has it."""
    issuer = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return element(0x30, element(0x02, b"\x01") + issuer + encode_fwid(fwid))


def dice_tcb_info(*fwids: bytes) -> bytes:
    """Encode the extension's newer form: vendor, layer and firmware identities."""
    listed = b"".join(encode_fwid(fwid) for fwid in fwids)
    members = (
        element(0x80, b"emulated") + element(0x84, b"\x01") + element(0xA6, listed)
    )
    return element(0x30, members)


def encode_fwid(fwid: bytes, oid: bytes = _SHA384_OID) -> bytes:
    """Encode one firmware identity."""
    return element(0x30, oid + element(0x04, fwid))


def blackwell_tcb_info(fwid: bytes) -> tuple[str, bool, bytes]:
    """Return a GB100's extension: its own identifier, and a layer of zeros."""
    return (BLACKWELL_TCB_INFO, False, dice_tcb_info(fwid, bytes(FWID_BYTES)))


def _new_chain(
    now: datetime, fwid: bytes, *, blackwell: bool
) -> tuple[P384Fields, ...]:
    authorities = tuple(_fields(name, new_key(), now) for name in _AUTHORITIES)
    issuer = authorities[-1].key.public_key()
    hopper = (DICE_TCB_INFO, False, composite_device_id(issuer, fwid))
    leaf = P384Fields(
        common_name="Emulated GPU FMC LF",
        organization=ORGANIZATION,
        key=new_key(),
        not_before=now - BACKDATE,
        not_after=now - BACKDATE + LIFE,
        authority=None,
        signs_certificates=False,
        signs_data=True,
        extensions=(blackwell_tcb_info(fwid) if blackwell else hopper,),
    )
    chain = (*authorities, leaf)
    if len(chain) + 1 != CHAIN_LENGTH:
        raise ValueError("an emulated chain is not as long as a genuine one")
    return chain


def _fields(name: str, key: ec.EllipticCurvePrivateKey, now: datetime) -> P384Fields:
    return P384Fields(
        common_name=f"Emulated GPU {name}",
        organization=ORGANIZATION,
        key=key,
        not_before=now - BACKDATE,
        not_after=now - BACKDATE + LIFE,
    )
