"""Emulated Nitro attestation documents, byte for byte in AWS's layout.

The same framing, fields, order, certificates and lives as genuine ones, but
under a root of our own whose organisation is "Emulated TEE - not AWS". Every
field can be changed before it is signed.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Self

import cbor2
from cryptography.hazmat.primitives.asymmetric import ec

from curtilage.attest.claims import Measurement
from curtilage.attest.encoding.cose import ES384, SIGNATURE_BYTES, CoseSign1
from curtilage.attest.evidence import NitroEvidence, Tee
from curtilage.attest.expectations import AnchorKind, TrustAnchor
from curtilage.attest.nitro.document import DIGEST
from curtilage_dev.emulated.changes import unchanged
from curtilage_dev.emulated.p384_pki import (
    P384Fields,
    new_key,
    raw_signature,
    sign_certificate,
    sign_chain,
)
from curtilage_dev.emulated.p384_revocation import ChangeList, ListFields, sign_list

ORGANIZATION: Final = "Emulated TEE - not AWS"
PRODUCT: Final = "nitro"
# AWS's lives: the root's, a region's, a zone's, an instance's and an enclave's.
ROOT_LIFE: Final = timedelta(days=30 * 365)
LIVES: Final = (timedelta(days=20), timedelta(days=6), timedelta(days=1))
LEAF_LIFE: Final = timedelta(hours=3)
BACKDATE: Final = timedelta(hours=1)
LEAF_BACKDATE: Final = timedelta(seconds=3)
REGISTERS: Final = 16
REGISTER_BYTES: Final = 48
_INDEFINITE_MAP: Final = b"\xbf"
_BREAK: Final = b"\xff"
_PROTECTED: Final = cbor2.dumps({1: ES384})


@dataclass(frozen=True, slots=True, kw_only=True)
class NitroFields:
    """The content of a document, before it is signed.

    Attributes:
        module_id: the instance's and the enclave's name.
        timestamp_ms: Unix milliseconds.
        pcrs: index to value.
        chain: the certificates below the root, the leaf last.
        user_data: at most 512 bytes, or None.
        public_key: at most 1024 bytes, or None.
        nonce: at most 512 bytes, or None.
        digest: ``SHA384``.
        more: replaces fields of the payload, or adds some.
        without: fields of the payload to leave out.
        protected: the protected header, encoded.
        unprotected: the unprotected header.
    """

    module_id: str
    timestamp_ms: int
    pcrs: Mapping[int, bytes]
    chain: tuple[P384Fields, ...] = field(repr=False)
    user_data: bytes | None = None
    public_key: bytes | None = None
    nonce: bytes | None = None
    digest: str = DIGEST
    more: Mapping[object, object] = field(default_factory=dict[object, object])
    without: frozenset[str] = frozenset()
    protected: bytes = _PROTECTED
    unprotected: Mapping[object, object] = field(default_factory=dict[object, object])


ChangeNitro = Callable[[NitroFields], NitroFields]


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulatedNitro:
    """One emulated hypervisor and the enclave on it.

    Attributes:
        root: the root certificate, DER.
        module_id: the instance's and the enclave's name.
    """

    root: bytes
    module_id: str
    _root_fields: P384Fields = field(repr=False)
    _keys: tuple[ec.EllipticCurvePrivateKey, ...] = field(repr=False)

    @classmethod
    def make(cls, *, now: datetime) -> Self:
        """Make a root and the keys below it."""
        fields = P384Fields(
            common_name="emulated.nitro-enclaves",
            organization=ORGANIZATION,
            key=new_key(),
            not_before=now - BACKDATE,
            not_after=now - BACKDATE + ROOT_LIFE,
            signs_data=True,
        )
        instance = hashlib.sha256(str(now).encode()).hexdigest()
        return cls(
            root=sign_certificate(fields, fields),
            module_id=f"i-{instance[:17]}-enc{instance[17:33]}",
            _root_fields=fields,
            _keys=tuple(new_key() for _ in range(len(LIVES) + 1)),
        )

    def anchor(self) -> TrustAnchor:
        """Return the root as a policy names it."""
        return TrustAnchor.of_certificate(AnchorKind.EMULATED, PRODUCT, self.root)

    def fields(
        self, report_data: bytes | None, *, now: datetime, measurement: bytes
    ) -> NitroFields:
        """Return an ordinary document of this enclave, open to change."""
        registers = {index: bytes(REGISTER_BYTES) for index in range(REGISTERS)}
        return NitroFields(
            module_id=self.module_id,
            timestamp_ms=int(now.timestamp() * 1000),
            pcrs={
                **registers,
                **{
                    int(name.removeprefix("pcr")): bytes.fromhex(value)
                    for name, value in registers_of(measurement).items()
                },
            },
            chain=self._chain(now),
            user_data=report_data,
        )

    def evidence(
        self,
        report_data: bytes | None,
        *,
        now: datetime,
        measurement: bytes,
        change: ChangeNitro = unchanged,
    ) -> NitroEvidence:
        """Sign a document; ``change`` edits it before."""
        fields = change(self.fields(report_data, now=now, measurement=measurement))
        return NitroEvidence(tee=Tee.EMULATED_NITRO, document=self.sign(fields))

    def lists(
        self, now: datetime, *, change: ChangeList = unchanged
    ) -> tuple[bytes, ...]:
        """Return the authorities' revocation lists, as AWS publishes them.

        Those of the root and of the region; ``change`` edits each before it is signed.
        """
        issuers = (self._root_fields, self._chain(now)[0])
        return tuple(
            sign_list(change(ListFields.ordinary(each, now))) for each in issuers
        )

    def sign(self, fields: NitroFields) -> bytes:
        """Encode and sign a document with its leaf's key."""
        *bundle, leaf = (
            self.root,
            *sign_chain(self._root_fields, fields.chain),
        )
        payload = encode_payload(fields, leaf, bundle)
        unsigned = CoseSign1(
            protected=fields.protected,
            payload=payload,
            signature=bytes(SIGNATURE_BYTES),
        )
        signature = raw_signature(fields.chain[-1].key, unsigned.signed_part)
        return cbor2.dumps(
            [fields.protected, dict(fields.unprotected), payload, signature]
        )

    def _chain(self, now: datetime) -> tuple[P384Fields, ...]:
        instance, enclave = self.module_id.rsplit("-", 1)
        names = ("region.emulated", "zonal.region.emulated", instance)
        authorities = tuple(
            P384Fields(
                common_name=f"{name}.nitro-enclaves",
                organization=ORGANIZATION,
                key=key,
                not_before=now - BACKDATE,
                not_after=now - BACKDATE + life,
                path_length=len(names) - 1 - place,
            )
            for place, (name, key, life) in enumerate(
                zip(names, self._keys, LIVES, strict=False)
            )
        )
        leaf = P384Fields(
            common_name=f"{instance}-{enclave}.emulated",
            organization=ORGANIZATION,
            key=self._keys[-1],
            not_before=now - LEAF_BACKDATE,
            not_after=now - LEAF_BACKDATE + LEAF_LIFE,
            authority=False,
            signs_certificates=False,
            signs_data=True,
        )
        return (*authorities, leaf)


def registers_of(measurement: bytes) -> Measurement:
    """Return the registers of an image with this measurement, 48 bytes.

    The image is register 0; kernel and application, which a real image's
    measurement also covers, have measurements of their own that follow from it.
    """
    kernel, application = (
        hashlib.sha384(label + measurement).hexdigest()
        for label in (b"kernel", b"application")
    )
    return {"pcr0": measurement.hex(), "pcr1": kernel, "pcr2": application}


def encode_payload(fields: NitroFields, leaf: bytes, cabundle: list[bytes]) -> bytes:
    """Encode the payload as the hypervisor does: a map of indefinite length."""
    values: dict[object, object] = {
        "module_id": fields.module_id,
        "digest": fields.digest,
        "timestamp": fields.timestamp_ms,
        "pcrs": dict(fields.pcrs),
        "certificate": leaf,
        "cabundle": cabundle,
        "public_key": fields.public_key,
        "user_data": fields.user_data,
        "nonce": fields.nonce,
        **fields.more,
    }
    members = (
        cbor2.dumps(name) + cbor2.dumps(value)
        for name, value in values.items()
        if name not in fields.without
    )
    return _INDEFINITE_MAP + b"".join(members) + _BREAK
