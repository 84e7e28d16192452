"""The evidence bundle: its fields, and its JSON encoding.

Everything here is unverified: shape and size, nothing else. What the fields
mean and whether they are believed is ``verify``'s business. The kinds of
evidence stand in ``evidence_kinds``, their JSON in ``evidence_json``; both are
to be had from here.
"""

import json
from dataclasses import dataclass
from typing import Final

from curtilage.attest.encoding.strict_json import (
    Fields,
    encode_base64,
    malformed,
    parse_object,
)
from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.evidence_json import (
    cpu_object,
    device_object,
    hardware_of,
    parse_cpu,
    parse_device,
)
from curtilage.attest.evidence_kinds import (
    AzureEvidence,
    CpuEvidence,
    DeviceKind,
    GpuEvidence,
    NitroEvidence,
    SnpEvidence,
    TdxEvidence,
    Tee,
    TpmEvidence,
    TpmQuote,
)

__all__ = [
    "BUNDLE_VERSION",
    "DIGEST_BYTES",
    "MAX_BUNDLE_BYTES",
    "MAX_CHECKPOINT_BYTES",
    "MAX_CPU_EVIDENCE_BYTES",
    "MAX_DEVICES",
    "MAX_DEVICE_EVIDENCE_BYTES",
    "MAX_MANIFEST_BYTES",
    "MAX_PROOF_BYTES",
    "Anchor",
    "AzureEvidence",
    "CpuEvidence",
    "DeviceKind",
    "EvidenceBundle",
    "GpuEvidence",
    "NitroEvidence",
    "Release",
    "SnpEvidence",
    "TdxEvidence",
    "Tee",
    "TpmEvidence",
    "TpmQuote",
    "encode_bundle",
    "encode_cpu_evidence",
    "encode_device_evidence",
    "hardware_of",
    "parse_bundle",
    "parse_cpu_evidence",
    "parse_device_evidence",
]

BUNDLE_VERSION: Final = 3
MAX_BUNDLE_BYTES: Final = 256 * 1024
# The acquisition protocol carries one evidence object, never a bundle: a quote
# and its collateral, in base64.
MAX_CPU_EVIDENCE_BYTES: Final = 96 * 1024
# A report of 32 KiB and a chain of 8, in base64.
MAX_DEVICE_EVIDENCE_BYTES: Final = 96 * 1024
MAX_DEVICES: Final = 16
# RFC 9458 lists are a few dozen bytes per key; the wire part's own cap.
MAX_KEY_CONFIGS_BYTES: Final = 16 * 1024
MAX_MANIFEST_BYTES: Final = 32 * 1024
# A cosignature line takes 150 bytes with Ed25519, 3300 with ML-DSA-44.
MAX_CHECKPOINT_BYTES: Final = 24 * 1024
# 63 hashes of 45 characters, plus a checkpoint.
MAX_PROOF_BYTES: Final = 32 * 1024
# A proof between two trees of fewer than 2**63 leaves (RFC 6962, section 2.1.2).
MAX_CONSISTENCY_HASHES: Final = 64
MAX_ORIGIN_BYTES: Final = 256
MAX_TRANSPORT_PARAMETERS_BYTES: Final = 1024
DIGEST_BYTES: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A release manifest and the proof that it was logged.

    Attributes:
        manifest: the canonical JSON bytes, which are the log's leaf.
        proof: a ``c2sp.org/tlog-proof@v1`` text.
    """

    manifest: bytes
    proof: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """The public beacon inside the binding: a witnessed checkpoint.

    Attributes:
        origin: the log's origin line.
        size: the tree's size.
        root: the tree's root hash, 32 bytes.
        time: a time that a quorum of witnesses vouches for, Unix seconds.
        checkpoint: the signed and cosigned note itself.
        consistency: RFC 6962 consistency proof between the release proof's
            tree and this one, whichever is the smaller; empty where their sizes
            are equal.
    """

    origin: str
    size: int
    root: bytes
    time: int
    checkpoint: str
    consistency: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceBundle:
    """Everything a client needs to believe in one list of key configurations.

    Attributes:
        key_configs: the exact RFC 9458 list, u16-prefixed entries.
        not_before: first second of the key's life, Unix time.
        not_after: the second at which it ends.
        release: what is running.
        anchor: when at the earliest the evidence was made.
        cpu: the CPU's evidence.
        receipt_public_key: 32 bytes, or empty where there is none.
        sandbox_policy_digest: 32 bytes, or empty.
        sandbox_result_digest: 32 bytes, or empty.
        transport_parameters: encoded, the same as the release manifest's.
        devices: evidence of other devices, at most 16; their order is signed.
        v: the version of this format and of the binding.
    """

    key_configs: bytes
    not_before: int
    not_after: int
    release: Release
    anchor: Anchor
    cpu: CpuEvidence
    receipt_public_key: bytes = b""
    sandbox_policy_digest: bytes = b""
    sandbox_result_digest: bytes = b""
    transport_parameters: bytes = b""
    devices: tuple[GpuEvidence, ...] = ()
    v: int = BUNDLE_VERSION


_BUNDLE_KEYS: Final = (
    "v",
    "key_configs",
    "not_before",
    "not_after",
    "release",
    "anchor",
    "receipt_public_key",
    "sandbox_policy_digest",
    "sandbox_result_digest",
    "transport_parameters",
    "cpu",
    "devices",
)
_RELEASE_KEYS: Final = ("manifest", "proof")
_ANCHOR_KEYS: Final = (
    "origin",
    "size",
    "root",
    "time",
    "checkpoint",
    "consistency",
)


def encode_bundle(bundle: EvidenceBundle) -> bytes:
    """Encode a bundle as JSON; ``parse_bundle`` reads it back unchanged."""
    return _dump(
        {
            "v": bundle.v,
            "key_configs": encode_base64(bundle.key_configs),
            "not_before": bundle.not_before,
            "not_after": bundle.not_after,
            "release": {
                "manifest": encode_base64(bundle.release.manifest),
                "proof": bundle.release.proof,
            },
            "anchor": {
                "origin": bundle.anchor.origin,
                "size": bundle.anchor.size,
                "root": encode_base64(bundle.anchor.root),
                "time": bundle.anchor.time,
                "checkpoint": bundle.anchor.checkpoint,
                "consistency": [
                    encode_base64(value) for value in bundle.anchor.consistency
                ],
            },
            "receipt_public_key": encode_base64(bundle.receipt_public_key),
            "sandbox_policy_digest": encode_base64(bundle.sandbox_policy_digest),
            "sandbox_result_digest": encode_base64(bundle.sandbox_result_digest),
            "transport_parameters": encode_base64(bundle.transport_parameters),
            "cpu": cpu_object(bundle.cpu),
            "devices": [device_object(device) for device in bundle.devices],
        }
    )


def parse_bundle(data: bytes) -> EvidenceBundle:
    """Parse a bundle; shape and sizes only, nothing is verified.

    Raises:
        RefusedError: ``malformed``, ``too_large``, ``unsupported_version`` or
            ``unsupported_product`` (a kind of evidence not known here).
    """
    fields = parse_object(data, where="bundle", limit_bytes=MAX_BUNDLE_BYTES)
    # The version first: another version's keys are not "unknown", just others.
    if fields.integer("v") != BUNDLE_VERSION:
        raise RefusedError(
            RefusalCode.UNSUPPORTED_VERSION, f"bundle.v is not {BUNDLE_VERSION}"
        )
    fields.require(_BUNDLE_KEYS)
    devices = fields.children("devices", limit=MAX_DEVICES)
    key_configs = fields.octets("key_configs", limit=MAX_KEY_CONFIGS_BYTES)
    if not key_configs:
        raise malformed("bundle.key_configs: empty")
    return EvidenceBundle(
        key_configs=key_configs,
        not_before=fields.integer("not_before"),
        not_after=fields.integer("not_after"),
        release=_parse_release(fields.child("release")),
        anchor=_parse_anchor(fields.child("anchor")),
        receipt_public_key=_digest_or_empty(fields, "receipt_public_key"),
        sandbox_policy_digest=_digest_or_empty(fields, "sandbox_policy_digest"),
        sandbox_result_digest=_digest_or_empty(fields, "sandbox_result_digest"),
        transport_parameters=fields.octets(
            "transport_parameters", limit=MAX_TRANSPORT_PARAMETERS_BYTES
        ),
        cpu=parse_cpu(fields.child("cpu")),
        devices=tuple(parse_device(device) for device in devices),
    )


def encode_cpu_evidence(evidence: CpuEvidence) -> bytes:
    """Encode CPU evidence alone, as the acquisition protocol carries it."""
    return _dump(cpu_object(evidence))


def parse_cpu_evidence(data: bytes) -> CpuEvidence:
    """Parse CPU evidence alone; shape and sizes only, nothing is verified."""
    return parse_cpu(
        parse_object(data, where="cpu", limit_bytes=MAX_CPU_EVIDENCE_BYTES)
    )


def encode_device_evidence(evidence: GpuEvidence) -> bytes:
    """Encode device evidence alone; ``parse_device_evidence`` reads it back."""
    return _dump(device_object(evidence))


def parse_device_evidence(data: bytes) -> GpuEvidence:
    """Parse device evidence alone; shape and sizes only, nothing is verified."""
    return parse_device(
        parse_object(data, where="device", limit_bytes=MAX_DEVICE_EVIDENCE_BYTES)
    )


def _dump(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _parse_release(fields: Fields) -> Release:
    fields.require(_RELEASE_KEYS)
    return Release(
        manifest=fields.octets("manifest", limit=MAX_MANIFEST_BYTES),
        proof=fields.text("proof", limit=MAX_PROOF_BYTES),
    )


def _parse_anchor(fields: Fields) -> Anchor:
    fields.require(_ANCHOR_KEYS)
    root = fields.octets("root", limit=DIGEST_BYTES)
    if len(root) != DIGEST_BYTES:
        raise malformed(f"bundle.anchor.root: not {DIGEST_BYTES} bytes")
    return Anchor(
        origin=fields.text("origin", limit=MAX_ORIGIN_BYTES),
        size=fields.integer("size"),
        root=root,
        time=fields.integer("time"),
        checkpoint=fields.text("checkpoint", limit=MAX_CHECKPOINT_BYTES),
        consistency=_parse_consistency(fields),
    )


def _parse_consistency(fields: Fields) -> tuple[bytes, ...]:
    hashes = fields.octets_list(
        "consistency", limit=MAX_CONSISTENCY_HASHES, item_limit=DIGEST_BYTES
    )
    if any(len(value) != DIGEST_BYTES for value in hashes):
        raise malformed(f"bundle.anchor.consistency: not {DIGEST_BYTES} bytes each")
    return hashes


def _digest_or_empty(fields: Fields, name: str) -> bytes:
    value = fields.octets(name, limit=DIGEST_BYTES)
    if len(value) not in {0, DIGEST_BYTES}:
        raise malformed(f"bundle.{name}: neither empty nor {DIGEST_BYTES} bytes")
    return value
