"""JSON encoding and parsing of the bundle and of evidence; form and sizes only.

The kind is read first, since each kind has its own keys. A kind that is not
known here is ``unsupported_product``: it could not be verified.

What issuers say about revocation (``crls``, ``ocsp``) is a member of every bundle of
version 4, be it empty, and of none of version 3. Evidence alone has no version: there
it is left out where it is empty, so that a program that does not know it yet can read
an answer to its challenge.
"""

import json
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from curtilage.attest.encoding.strict_json import (
    Fields,
    encode_base64,
    malformed,
    parse_object,
)
from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.evidence import (
    BUNDLE_VERSION,
    DIGEST_BYTES,
    MAX_BUNDLE_BYTES,
    MAX_CERTIFICATE_BYTES,
    MAX_CHECKPOINT_BYTES,
    MAX_COLLATERAL_BYTES,
    MAX_CONSISTENCY_HASHES,
    MAX_CPU_EVIDENCE_BYTES,
    MAX_CRL_BYTES,
    MAX_CRLS,
    MAX_DEVICE_EVIDENCE_BYTES,
    MAX_DEVICES,
    MAX_DOCUMENT_BYTES,
    MAX_GPU_CHAIN,
    MAX_GPU_REPORT_BYTES,
    MAX_HCL_BYTES,
    MAX_KEY_CONFIGS_BYTES,
    MAX_MANIFEST_BYTES,
    MAX_OCSP_BYTES,
    MAX_ORIGIN_BYTES,
    MAX_PCR_BYTES,
    MAX_PCRS,
    MAX_PROOF_BYTES,
    MAX_QUOTE_BYTES,
    MAX_REPORT_BYTES,
    MAX_SANDBOX_BYTES,
    MAX_TPM_KEY_BYTES,
    MAX_TPM_MESSAGE_BYTES,
    MAX_TPM_SIGNATURE_BYTES,
    MAX_TRANSPORT_PARAMETERS_BYTES,
    PREVIOUS_BUNDLE_VERSION,
    Anchor,
    AzureEvidence,
    CpuEvidence,
    DeviceKind,
    EvidenceBundle,
    GpuEvidence,
    NitroEvidence,
    Release,
    SnpEvidence,
    TdxEvidence,
    Tee,
    TpmEvidence,
    TpmQuote,
    hardware_of,
)

_COMMON_KEYS: Final = (
    "v",
    "key_configs",
    "not_before",
    "not_after",
    "release",
    "anchor",
    "receipt_public_key",
    "transport_parameters",
    "cpu",
    "devices",
)
_SANDBOX_KEYS: Final[Mapping[int, tuple[str, ...]]] = MappingProxyType(
    {
        PREVIOUS_BUNDLE_VERSION: ("sandbox_policy_digest", "sandbox_result_digest"),
        BUNDLE_VERSION: ("sandbox",),
    }
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
# Longer than any name of a kind, and short enough to be looked up unread.
_KIND_LIMIT: Final = 64
_SNP_KEYS: Final = ("tee", "report", "vek", "ask", "crl", "ark")
_TDX_KEYS: Final = ("tee", "quote", "collateral")
_NITRO_KEYS: Final = ("tee", "document")
_AZURE_KEYS: Final = ("tee", "hcl", "hardware", "quote")
_TPM_KEYS: Final = ("tee", "quote", "ak")
_QUOTE_KEYS: Final = ("message", "signature", "pcrs")
_PCR_KEYS: Final = ("index", "value")
_GPU_KEYS: Final = ("kind", "report", "chain")
_CRLS: Final = "crls"
_OCSP: Final = "ocsp"


def encode_bundle(bundle: EvidenceBundle) -> bytes:
    """Encode a bundle as JSON; ``parse_bundle`` reads it back unchanged.

    Raises:
        ValueError: it holds something that its version has no member for.
    """
    octets = {
        "sandbox_policy_digest": bundle.sandbox_policy_digest,
        "sandbox_result_digest": bundle.sandbox_result_digest,
        "sandbox": bundle.sandbox,
    }
    keys = _SANDBOX_KEYS[bundle.v]
    # Left out, it would be bound and not shown: a bundle that every client refuses.
    if any(value for key, value in octets.items() if key not in keys):
        raise ValueError(f"version {bundle.v} has no member for this sandbox")
    cpu = cpu_object(bundle.cpu)
    if isinstance(bundle.cpu, NitroEvidence):
        cpu = _with_member(cpu, _CRLS, bundle.v)
    devices = [
        _with_member(device_object(device), _OCSP, bundle.v)
        for device in bundle.devices
    ]
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
            **{key: encode_base64(octets[key]) for key in keys},
            "transport_parameters": encode_base64(bundle.transport_parameters),
            "cpu": cpu,
            "devices": devices,
        }
    )


def _with_member(tree: dict[str, object], name: str, v: int) -> dict[str, object]:
    """Return evidence with exactly the members that a bundle's version has."""
    if v == BUNDLE_VERSION:
        return {name: [], **tree}
    if name in tree:
        raise ValueError(f"version {v} has no member for revocation")
    return tree


def parse_bundle(data: bytes) -> EvidenceBundle:
    """Parse a bundle; form and sizes only, nothing is verified.

    Raises:
        RefusedError: ``malformed``, ``too_large``, ``unsupported_version`` or
            ``unsupported_product`` (a kind of evidence not known here).
    """
    fields = parse_object(data, where="bundle", limit_bytes=MAX_BUNDLE_BYTES)
    # The version first: another version's keys are not "unknown", just others.
    v = fields.integer("v")
    if v not in _SANDBOX_KEYS:
        raise RefusedError(
            RefusalCode.UNSUPPORTED_VERSION,
            f"bundle.v is neither {PREVIOUS_BUNDLE_VERSION} nor {BUNDLE_VERSION}",
        )
    fields.require((*_COMMON_KEYS, *_SANDBOX_KEYS[v]))
    # Counted before any is read.
    devices = fields.children("devices", limit=MAX_DEVICES)
    # An empty list would be bound properly and open nothing.
    key_configs = fields.octets("key_configs", limit=MAX_KEY_CONFIGS_BYTES)
    if not key_configs:
        raise malformed("bundle.key_configs: empty")
    older = v == PREVIOUS_BUNDLE_VERSION
    return EvidenceBundle(
        v=v,
        key_configs=key_configs,
        not_before=fields.integer("not_before"),
        not_after=fields.integer("not_after"),
        release=_parse_release(fields.child("release")),
        anchor=_parse_anchor(fields.child("anchor")),
        receipt_public_key=_digest_or_empty(fields, "receipt_public_key"),
        sandbox=b"" if older else fields.octets("sandbox", limit=MAX_SANDBOX_BYTES),
        sandbox_policy_digest=(
            _digest_or_empty(fields, "sandbox_policy_digest") if older else b""
        ),
        sandbox_result_digest=(
            _digest_or_empty(fields, "sandbox_result_digest") if older else b""
        ),
        transport_parameters=fields.octets(
            "transport_parameters", limit=MAX_TRANSPORT_PARAMETERS_BYTES
        ),
        cpu=_parse_cpu_of(fields.child("cpu"), v),
        devices=tuple(_parse_device_of(device, v) for device in devices),
    )


def _parse_cpu_of(fields: Fields, v: int) -> CpuEvidence:
    evidence = parse_cpu(fields)
    if isinstance(evidence, NitroEvidence):
        _require_member(fields, _CRLS, v)
    return evidence


def _parse_device_of(fields: Fields, v: int) -> GpuEvidence:
    evidence = parse_device(fields)
    _require_member(fields, _OCSP, v)
    return evidence


def _require_member(fields: Fields, name: str, v: int) -> None:
    # There even if it is empty: a member that may be left out is one that a carrier may
    # remove without a trace.
    if (name in fields.names) is not (v == BUNDLE_VERSION):
        raise malformed(f"{name}: missing, or not of this version")


def encode_cpu_evidence(evidence: CpuEvidence) -> bytes:
    """Encode CPU evidence alone, as the acquisition protocol carries it."""
    return _dump(cpu_object(evidence))


def parse_cpu_evidence(data: bytes) -> CpuEvidence:
    """Parse CPU evidence alone; form and sizes only, nothing is verified."""
    return parse_cpu(
        parse_object(data, where="cpu", limit_bytes=MAX_CPU_EVIDENCE_BYTES)
    )


def encode_device_evidence(evidence: GpuEvidence) -> bytes:
    """Encode device evidence alone; ``parse_device_evidence`` reads it back."""
    return _dump(device_object(evidence))


def parse_device_evidence(data: bytes) -> GpuEvidence:
    """Parse device evidence alone; form and sizes only, nothing is verified."""
    return parse_device(
        parse_object(data, where="device", limit_bytes=MAX_DEVICE_EVIDENCE_BYTES)
    )


# Not canonical on purpose: nothing signs a bundle's JSON, and nothing may be keyed by
# it.
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
    # Of exact size, so that no hash can be cut or joined differently in the tree.
    if any(len(value) != DIGEST_BYTES for value in hashes):
        raise malformed(f"bundle.anchor.consistency: not {DIGEST_BYTES} bytes each")
    return hashes


def _digest_or_empty(fields: Fields, name: str) -> bytes:
    value = fields.octets(name, limit=DIGEST_BYTES)
    # Empty means "none", and is bound as such; half a digest means nothing.
    if len(value) not in {0, DIGEST_BYTES}:
        raise malformed(f"bundle.{name}: neither empty nor {DIGEST_BYTES} bytes")
    return value


def cpu_object(evidence: CpuEvidence) -> dict[str, object]:
    """Return CPU evidence as the object that its JSON holds."""
    # By type, never by the name of the kind: genuine and emulated evidence of one kind
    # have the same keys.
    if isinstance(evidence, SnpEvidence):
        return {
            "tee": evidence.tee.value,
            "report": encode_base64(evidence.report),
            "vek": encode_base64(evidence.vek),
            "ask": encode_base64(evidence.ask),
            "crl": encode_base64(evidence.crl),
            "ark": encode_base64(evidence.ark),
        }
    if isinstance(evidence, TdxEvidence):
        return {
            "tee": evidence.tee.value,
            "quote": encode_base64(evidence.quote),
            "collateral": encode_base64(evidence.collateral),
        }
    if isinstance(evidence, NitroEvidence):
        return {
            "tee": evidence.tee.value,
            "document": encode_base64(evidence.document),
            **_stapled(_CRLS, evidence.crls),
        }
    if isinstance(evidence, AzureEvidence):
        return {
            "tee": evidence.tee.value,
            "hcl": encode_base64(evidence.hcl),
            "hardware": cpu_object(evidence.hardware),
            "quote": _quote_object(evidence.quote),
        }
    return {
        "tee": evidence.tee.value,
        "quote": _quote_object(evidence.quote),
        "ak": encode_base64(evidence.ak),
    }


def device_object(evidence: GpuEvidence) -> dict[str, object]:
    """Return device evidence as the object that its JSON holds."""
    return {
        "kind": evidence.kind.value,
        "report": encode_base64(evidence.report),
        "chain": [encode_base64(certificate) for certificate in evidence.chain],
        **_stapled(_OCSP, evidence.ocsp),
    }


def _stapled(name: str, values: tuple[bytes, ...]) -> dict[str, list[str]]:
    return {name: [encode_base64(value) for value in values]} if values else {}


def parse_cpu(fields: Fields) -> CpuEvidence:
    """Read CPU evidence of any kind.

    Raises:
        RefusedError: ``malformed``, ``too_large`` or ``unsupported_product``.
    """
    # The kind before its keys: of an unknown kind nothing is read.
    kind = fields.text("tee", limit=_KIND_LIMIT)
    if kind not in {tee.value for tee in Tee}:
        raise RefusedError(
            RefusalCode.UNSUPPORTED_PRODUCT, "cpu.tee: not a kind that is known here"
        )
    tee = Tee(kind)
    return _PARSERS[tee](fields, tee)


def parse_device(fields: Fields) -> GpuEvidence:
    """Read device evidence of any kind.

    Raises:
        RefusedError: ``malformed``, ``too_large`` or ``unsupported_product``.
    """
    kind = fields.text("kind", limit=_KIND_LIMIT)
    if kind not in {known.value for known in DeviceKind}:
        raise RefusedError(
            RefusalCode.UNSUPPORTED_PRODUCT,
            "device.kind: not a kind that is known here",
        )
    _require_with(fields, _GPU_KEYS, _OCSP)
    return GpuEvidence(
        kind=DeviceKind(kind),
        report=fields.octets("report", limit=MAX_GPU_REPORT_BYTES),
        chain=fields.octets_list(
            "chain", limit=MAX_GPU_CHAIN, item_limit=MAX_CERTIFICATE_BYTES
        ),
        ocsp=_parse_stapled(fields, _OCSP, MAX_GPU_CHAIN, MAX_OCSP_BYTES),
    )


def _require_with(fields: Fields, keys: tuple[str, ...], may: str) -> None:
    fields.require((*keys, may) if may in fields.names else keys)


def _parse_stapled(
    fields: Fields, name: str, limit: int, item_limit: int
) -> tuple[bytes, ...]:
    if name not in fields.names:
        return ()
    return fields.octets_list(name, limit=limit, item_limit=item_limit)


def _quote_object(quote: TpmQuote) -> dict[str, object]:
    return {
        "message": encode_base64(quote.message),
        "signature": encode_base64(quote.signature),
        "pcrs": [
            {"index": index, "value": encode_base64(value)}
            for index, value in quote.pcrs
        ],
    }


def _parse_snp(fields: Fields, tee: Tee) -> SnpEvidence:
    # Exactly these: an additional key would be carried, stored and shown, but never
    # checked.
    fields.require(_SNP_KEYS)
    return SnpEvidence(
        tee=tee,
        report=fields.octets("report", limit=MAX_REPORT_BYTES),
        vek=fields.octets("vek", limit=MAX_CERTIFICATE_BYTES),
        ask=fields.octets("ask", limit=MAX_CERTIFICATE_BYTES),
        crl=fields.octets("crl", limit=MAX_CRL_BYTES),
        ark=fields.octets("ark", limit=MAX_CERTIFICATE_BYTES),
    )


def _parse_tdx(fields: Fields, tee: Tee) -> TdxEvidence:
    fields.require(_TDX_KEYS)
    return TdxEvidence(
        tee=tee,
        quote=fields.octets("quote", limit=MAX_QUOTE_BYTES),
        collateral=fields.octets("collateral", limit=MAX_COLLATERAL_BYTES),
    )


def _parse_nitro(fields: Fields, tee: Tee) -> NitroEvidence:
    _require_with(fields, _NITRO_KEYS, _CRLS)
    return NitroEvidence(
        tee=tee,
        document=fields.octets("document", limit=MAX_DOCUMENT_BYTES),
        crls=_parse_stapled(fields, _CRLS, MAX_CRLS, MAX_CRL_BYTES),
    )


def _parse_azure(fields: Fields, tee: Tee) -> AzureEvidence:
    fields.require(_AZURE_KEYS)
    inner = fields.child("hardware")
    kind = hardware_of(tee)
    # Compared before it is read, so that evidence never nests deeper than this.
    if inner.text("tee", limit=_KIND_LIMIT) != kind.value:
        raise malformed("cpu.hardware: of another kind")
    # One level and no more: Azure's evidence holds hardware evidence, and never Azure's
    # again.
    snp = kind in {Tee.SEV_SNP, Tee.EMULATED_SEV_SNP}
    return AzureEvidence(
        tee=tee,
        hcl=fields.octets("hcl", limit=MAX_HCL_BYTES),
        hardware=_parse_snp(inner, kind) if snp else _parse_tdx(inner, kind),
        quote=_parse_quote(fields.child("quote")),
    )


def _parse_tpm(fields: Fields, tee: Tee) -> TpmEvidence:
    fields.require(_TPM_KEYS)
    return TpmEvidence(
        tee=tee,
        quote=_parse_quote(fields.child("quote")),
        ak=fields.octets("ak", limit=MAX_TPM_KEY_BYTES),
    )


def _parse_quote(fields: Fields) -> TpmQuote:
    fields.require(_QUOTE_KEYS)
    entries = fields.children("pcrs", limit=MAX_PCRS)
    for entry in entries:
        entry.require(_PCR_KEYS)
    return TpmQuote(
        message=fields.octets("message", limit=MAX_TPM_MESSAGE_BYTES),
        signature=fields.octets("signature", limit=MAX_TPM_SIGNATURE_BYTES),
        pcrs=tuple(
            (
                # The quote's own steps check that each is listed once, and is one of
                # those that were quoted.
                entry.integer("index", maximum=MAX_PCRS - 1),
                entry.octets("value", limit=MAX_PCR_BYTES),
            )
            for entry in entries
        ),
    )


# A table with every kind: one that is missing is a KeyError in the first test, not a
# kind that is read as another.
_PARSERS: Final[Mapping[Tee, Callable[[Fields, Tee], CpuEvidence]]] = MappingProxyType(
    {
        Tee.SEV_SNP: _parse_snp,
        Tee.EMULATED_SEV_SNP: _parse_snp,
        Tee.TDX: _parse_tdx,
        Tee.EMULATED_TDX: _parse_tdx,
        Tee.NITRO: _parse_nitro,
        Tee.EMULATED_NITRO: _parse_nitro,
        Tee.AZURE_SNP: _parse_azure,
        Tee.AZURE_TDX: _parse_azure,
        Tee.EMULATED_AZURE_SNP: _parse_azure,
        Tee.TPM: _parse_tpm,
    }
)
