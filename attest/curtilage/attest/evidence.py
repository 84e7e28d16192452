"""The evidence bundle: its fields, and its JSON encoding.

Everything here is unverified: shape and size, nothing else. What the fields
mean and whether they are believed is ``verify``'s business.
"""

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.strictjson import (
    Fields,
    encode_base64,
    malformed,
    parse_object,
)

BUNDLE_VERSION: Final = 2
MAX_BUNDLE_BYTES: Final = 256 * 1024
# The acquisition protocol carries one evidence object, never a bundle.
MAX_CPU_EVIDENCE_BYTES: Final = 64 * 1024
# RFC 9458 lists are a few dozen bytes per key; the wire part's own cap.
MAX_KEY_CONFIGS_BYTES: Final = 16 * 1024
MAX_MANIFEST_BYTES: Final = 32 * 1024
# 63 hashes of 45 characters, plus a checkpoint.
MAX_PROOF_BYTES: Final = 16 * 1024
MAX_CHECKPOINT_BYTES: Final = 8 * 1024
MAX_ORIGIN_BYTES: Final = 256
MAX_TRANSPORT_PARAMETERS_BYTES: Final = 1024
# A report has 1184 bytes; longer ones are let in so that their own step can
# say what is wrong with them.
MAX_REPORT_BYTES: Final = 4096
# AMD's certificates take 1360 to 1700 bytes.
MAX_CERTIFICATE_BYTES: Final = 4096
# AMD's lists take 900 bytes; this leaves room for some hundred entries.
MAX_CRL_BYTES: Final = 24 * 1024
DIGEST_BYTES: Final = 32


class Tee(StrEnum):
    """The kinds of CPU evidence that this release can verify."""

    SEV_SNP = "sev-snp"
    EMULATED_SEV_SNP = "emulated-sev-snp"

    @property
    def emulated(self) -> bool:
        """Whether no hardware stands behind this kind."""
        return self is Tee.EMULATED_SEV_SNP


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
    """

    origin: str
    size: int
    root: bytes
    time: int
    checkpoint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SnpEvidence:
    """A SEV-SNP report with everything needed to check it offline.

    Attributes:
        tee: genuine or emulated; says only which roots apply.
        report: 1184 bytes.
        vek: the VCEK or VLEK certificate, DER.
        ask: the ASK or ASVK certificate, DER.
        crl: the ARK's revocation list, DER; empty if the server has none.
    """

    tee: Tee
    report: bytes
    vek: bytes
    ask: bytes
    crl: bytes


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
        devices: evidence of other devices; none exist yet.
        v: the version of this format and of the binding.
    """

    key_configs: bytes
    not_before: int
    not_after: int
    release: Release
    anchor: Anchor
    cpu: SnpEvidence
    receipt_public_key: bytes = b""
    sandbox_policy_digest: bytes = b""
    sandbox_result_digest: bytes = b""
    transport_parameters: bytes = b""
    devices: tuple[()] = ()
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
_ANCHOR_KEYS: Final = ("origin", "size", "root", "time", "checkpoint")
_SNP_KEYS: Final = ("tee", "report", "vek", "ask", "crl")


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
            },
            "receipt_public_key": encode_base64(bundle.receipt_public_key),
            "sandbox_policy_digest": encode_base64(bundle.sandbox_policy_digest),
            "sandbox_result_digest": encode_base64(bundle.sandbox_result_digest),
            "transport_parameters": encode_base64(bundle.transport_parameters),
            "cpu": _snp_object(bundle.cpu),
            "devices": [],
        }
    )


def parse_bundle(data: bytes) -> EvidenceBundle:
    """Parse a bundle; shape and sizes only, nothing is verified.

    Raises:
        RefusedError: ``malformed``, ``too_large``, ``unsupported_version`` or
            ``verifier_unavailable`` (a kind of evidence not known here).
    """
    fields = parse_object(data, where="bundle", limit_bytes=MAX_BUNDLE_BYTES)
    # The version first: another version's keys are not "unknown", just others.
    if fields.integer("v") != BUNDLE_VERSION:
        raise RefusedError(
            RefusalCode.UNSUPPORTED_VERSION, f"bundle.v is not {BUNDLE_VERSION}"
        )
    fields.require(_BUNDLE_KEYS)
    if fields.children("devices", limit=16):
        raise RefusedError(
            RefusalCode.VERIFIER_UNAVAILABLE, "bundle.devices: no verifier for these"
        )
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
        cpu=_parse_snp(fields.child("cpu")),
    )


def encode_cpu_evidence(evidence: SnpEvidence) -> bytes:
    """Encode CPU evidence alone, as the acquisition protocol carries it."""
    return _dump(_snp_object(evidence))


def parse_cpu_evidence(data: bytes) -> SnpEvidence:
    """Parse CPU evidence alone; shape and sizes only, nothing is verified."""
    return _parse_snp(
        parse_object(data, where="cpu", limit_bytes=MAX_CPU_EVIDENCE_BYTES)
    )


def _dump(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _snp_object(evidence: SnpEvidence) -> dict[str, str]:
    return {
        "tee": evidence.tee.value,
        "report": encode_base64(evidence.report),
        "vek": encode_base64(evidence.vek),
        "ask": encode_base64(evidence.ask),
        "crl": encode_base64(evidence.crl),
    }


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
    )


def _parse_snp(fields: Fields) -> SnpEvidence:
    # Each kind of evidence has its own keys, so the kind is looked at first.
    # TDX, Nitro and Azure take their own branch here when they are built.
    kind = fields.text("tee", limit=64)
    if kind not in {tee.value for tee in Tee}:
        raise RefusedError(
            RefusalCode.VERIFIER_UNAVAILABLE, "cpu.tee: no verifier for this kind"
        )
    fields.require(_SNP_KEYS)
    return SnpEvidence(
        tee=Tee(kind),
        report=fields.octets("report", limit=MAX_REPORT_BYTES),
        vek=fields.octets("vek", limit=MAX_CERTIFICATE_BYTES),
        ask=fields.octets("ask", limit=MAX_CERTIFICATE_BYTES),
        crl=fields.octets("crl", limit=MAX_CRL_BYTES),
    )


def _digest_or_empty(fields: Fields, name: str) -> bytes:
    value = fields.octets(name, limit=DIGEST_BYTES)
    if len(value) not in {0, DIGEST_BYTES}:
        raise malformed(f"bundle.{name}: neither empty nor {DIGEST_BYTES} bytes")
    return value
