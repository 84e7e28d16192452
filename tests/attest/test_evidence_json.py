import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.evidence import (
    AzureEvidence,
    CpuEvidence,
    DeviceKind,
    EvidenceBundle,
    GpuEvidence,
    NitroEvidence,
    SnpEvidence,
    TdxEvidence,
    Tee,
    TpmEvidence,
    TpmQuote,
    hardware_of,
)
from curtilage.attest.evidence_json import (
    encode_bundle,
    encode_cpu_evidence,
    encode_device_evidence,
    parse_bundle,
    parse_cpu_evidence,
    parse_device_evidence,
)


def _edited(bundle: EvidenceBundle, edit: Callable[[dict[str, Any]], object]) -> bytes:
    tree: dict[str, Any] = json.loads(encode_bundle(bundle))
    edit(tree)
    return json.dumps(tree).encode()


def _code(data: bytes) -> RefusalCode:
    with pytest.raises(RefusedError) as caught:
        parse_bundle(data)
    return caught.value.code


EDITS: dict[str, tuple[Callable[[dict[str, Any]], object], RefusalCode]] = {
    "no version": (lambda t: t.pop("v"), RefusalCode.MALFORMED),
    "version 1": (lambda t: t.update(v=1), RefusalCode.UNSUPPORTED_VERSION),
    "version 2": (lambda t: t.update(v=2), RefusalCode.UNSUPPORTED_VERSION),
    "version 5": (lambda t: t.update(v=5, new=1), RefusalCode.UNSUPPORTED_VERSION),
    "version 3 with the keys of 4": (lambda t: t.update(v=3), RefusalCode.MALFORMED),
    "version 4 with a key of 3": (
        lambda t: t.update(sandbox_policy_digest=""),
        RefusalCode.MALFORMED,
    ),
    "no sandbox": (lambda t: t.pop("sandbox"), RefusalCode.MALFORMED),
    "sandbox too large": (
        lambda t: t.update(sandbox="AAAA" * 5462),
        RefusalCode.TOO_LARGE,
    ),
    "missing": (lambda t: t.pop("anchor"), RefusalCode.MALFORMED),
    "unknown": (lambda t: t.update(note=""), RefusalCode.MALFORMED),
    "unknown below": (lambda t: t["cpu"].update(note=""), RefusalCode.MALFORMED),
    "unknown in anchor": (lambda t: t["anchor"].update(x=1), RefusalCode.MALFORMED),
    "unknown in release": (lambda t: t["release"].update(x=1), RefusalCode.MALFORMED),
    "no keys": (lambda t: t.update(key_configs=""), RefusalCode.MALFORMED),
    "keys too large": (
        lambda t: t.update(key_configs="AAAA" * 5462),
        RefusalCode.TOO_LARGE,
    ),
    "text window": (lambda t: t.update(not_after="1"), RefusalCode.MALFORMED),
    "true window": (lambda t: t.update(not_before=True), RefusalCode.MALFORMED),
    "null proof": (lambda t: t["release"].update(proof=None), RefusalCode.MALFORMED),
    "short root": (lambda t: t["anchor"].update(root="AAAA"), RefusalCode.MALFORMED),
    "long root": (
        lambda t: t["anchor"].update(root="AAAA" * 11),
        RefusalCode.TOO_LARGE,
    ),
    "short receipt key": (
        lambda t: t.update(receipt_public_key="AAAA"),
        RefusalCode.MALFORMED,
    ),
    "other kind": (lambda t: t["cpu"].update(tee="tdx"), RefusalCode.MALFORMED),
    "unknown kind": (
        lambda t: t["cpu"].update(tee="sgx"),
        RefusalCode.UNSUPPORTED_PRODUCT,
    ),
    "tee in capitals": (
        lambda t: t["cpu"].update(tee="SEV-SNP"),
        RefusalCode.UNSUPPORTED_PRODUCT,
    ),
    "a device": (
        lambda t: t["devices"].append({"kind": "tape"}),
        RefusalCode.UNSUPPORTED_PRODUCT,
    ),
    "many devices": (lambda t: t["devices"].extend([{}] * 17), RefusalCode.TOO_LARGE),
    "no consistency proof": (
        lambda t: t["anchor"].pop("consistency"),
        RefusalCode.MALFORMED,
    ),
    "short consistency hash": (
        lambda t: t["anchor"].update(consistency=["AAAA"]),
        RefusalCode.MALFORMED,
    ),
    "long consistency proof": (
        lambda t: t["anchor"].update(consistency=["AAAA"] * 65),
        RefusalCode.TOO_LARGE,
    ),
    "report too large": (
        lambda t: t["cpu"].update(report="AAAA" * 1366),
        RefusalCode.TOO_LARGE,
    ),
    "certificate too large": (
        lambda t: t["cpu"].update(ask="AAAA" * 1366),
        RefusalCode.TOO_LARGE,
    ),
    "list too large": (
        lambda t: t["cpu"].update(crl="AAAA" * 8193),
        RefusalCode.TOO_LARGE,
    ),
    "manifest too large": (
        lambda t: t["release"].update(manifest="AAAA" * 10923),
        RefusalCode.TOO_LARGE,
    ),
    "proof too large": (
        lambda t: t["release"].update(proof="x" * 32769),
        RefusalCode.TOO_LARGE,
    ),
    "checkpoint too large": (
        lambda t: t["anchor"].update(checkpoint="x" * 24577),
        RefusalCode.TOO_LARGE,
    ),
    "cpu is a list": (lambda t: t.update(cpu=[]), RefusalCode.MALFORMED),
}


@pytest.mark.parametrize("name", EDITS)
def test_bundle_is_refused(bundle: EvidenceBundle, name: str) -> None:
    edit, code = EDITS[name]
    assert _code(_edited(bundle, edit)) is code


def test_untouched_edit_is_accepted(bundle: EvidenceBundle) -> None:
    assert parse_bundle(_edited(bundle, lambda _: None)) == bundle


def test_duplicate_key_is_refused(bundle: EvidenceBundle) -> None:
    doubled = encode_bundle(bundle).replace(b'{"v":4', b'{"v":4,"v":4', 1)
    assert _code(doubled) is RefusalCode.MALFORMED


def test_optional_values_survive(bundle: EvidenceBundle) -> None:
    full = replace(
        bundle,
        receipt_public_key=bytes(range(32)),
        sandbox=b"s" * 16384,
        transport_parameters=b"x" * 1024,
    )
    assert parse_bundle(encode_bundle(full)) == full


# --- two versions --------------------------------------------------------------

OLD_KEYS = {
    *("v", "key_configs", "not_before", "not_after", "release", "anchor"),
    *("receipt_public_key", "sandbox_policy_digest", "sandbox_result_digest"),
    *("transport_parameters", "cpu", "devices"),
}


def test_version_3_is_spelt_as_before(bundle: EvidenceBundle) -> None:
    old = replace(
        bundle,
        v=3,
        sandbox_policy_digest=b"\1" * 32,
        sandbox_result_digest=b"\2" * 32,
        devices=(GPU,),
    )
    tree = json.loads(encode_bundle(old))
    assert set(tree) == OLD_KEYS
    assert set(tree["devices"][0]) == {"kind", "report", "chain"}
    assert parse_bundle(encode_bundle(old)) == old
    tree = json.loads(encode_bundle(replace(bundle, devices=(GPU,))))
    assert set(tree) == OLD_KEYS - {
        "sandbox_policy_digest",
        "sandbox_result_digest",
    } | {"sandbox"}
    assert tree["devices"][0]["ocsp"] == []


OLD_EDITS: dict[str, tuple[Callable[[dict[str, Any]], object], RefusalCode]] = {
    "short digest": (
        lambda t: t.update(sandbox_policy_digest="AAAA"),
        RefusalCode.MALFORMED,
    ),
    "short result": (
        lambda t: t.update(sandbox_result_digest="AAAA"),
        RefusalCode.MALFORMED,
    ),
    "a statement": (lambda t: t.update(sandbox=""), RefusalCode.MALFORMED),
    "revocation lists": (lambda t: t["cpu"].update(crls=[]), RefusalCode.MALFORMED),
    "answers": (lambda t: t["devices"][0].update(ocsp=[]), RefusalCode.MALFORMED),
}


@pytest.mark.parametrize("name", OLD_EDITS)
def test_a_bundle_of_version_3_is_refused(bundle: EvidenceBundle, name: str) -> None:
    edit, code = OLD_EDITS[name]
    nitro = NitroEvidence(tee=Tee.NITRO, document=b"d")
    old = replace(bundle, v=3, cpu=nitro, devices=(GPU,))
    assert _code(_edited(old, edit)) is code


@pytest.mark.parametrize(
    "changes",
    [
        {"v": 3, "sandbox": b"s"},
        {"sandbox_policy_digest": bytes(32)},
        {"sandbox_result_digest": bytes(32)},
        {"v": 3, "cpu": NitroEvidence(tee=Tee.NITRO, document=b"d", crls=(b"c",))},
        {
            "v": 3,
            "devices": (
                GpuEvidence(
                    kind=DeviceKind.NVIDIA_GPU, report=b"r", chain=(), ocsp=(b"o",)
                ),
            ),
        },
    ],
)
def test_what_a_version_cannot_say_is_not_left_out(
    bundle: EvidenceBundle, changes: dict[str, Any]
) -> None:
    with pytest.raises(ValueError, match="has no member"):
        encode_bundle(replace(bundle, **changes))


@pytest.mark.parametrize("count", [0, 1, 8])
def test_what_is_stapled_survives(bundle: EvidenceBundle, count: int) -> None:
    """In a bundle always as a member; alone, only where there is something."""
    nitro = NitroEvidence(tee=Tee.NITRO, document=b"d", crls=(b"c",) * count)
    gpu = replace(GPU, ocsp=(b"o",) * count)
    whole = replace(bundle, cpu=nitro, devices=(gpu, GPU))
    tree = json.loads(encode_bundle(whole))
    assert len(tree["cpu"]["crls"]) == len(tree["devices"][0]["ocsp"]) == count
    assert parse_bundle(encode_bundle(whole)) == whole
    alone = encode_cpu_evidence(nitro), encode_device_evidence(gpu)
    assert parse_cpu_evidence(alone[0]) == nitro
    assert parse_device_evidence(alone[1]) == gpu
    named = "crls" in json.loads(alone[0]), "ocsp" in json.loads(alone[1])
    assert named == (count > 0, count > 0)


def test_an_empty_member_alone_is_read_too() -> None:
    """A later release may write it."""
    nitro = NitroEvidence(tee=Tee.NITRO, document=b"d")
    tree = json.loads(encode_cpu_evidence(nitro)) | {"crls": []}
    assert parse_cpu_evidence(json.dumps(tree).encode()) == nitro
    tree = json.loads(encode_device_evidence(GPU)) | {"ocsp": []}
    assert parse_device_evidence(json.dumps(tree).encode()) == GPU


def test_cpu_evidence_survives_alone(bundle: EvidenceBundle) -> None:
    assert parse_cpu_evidence(encode_cpu_evidence(bundle.cpu)) == bundle.cpu


SNP = SnpEvidence(tee=Tee.SEV_SNP, report=b"r", vek=b"v", ask=b"a", crl=b"c", ark=b"k")
TDX = TdxEvidence(tee=Tee.TDX, quote=b"q", collateral=b"{}")
QUOTE = TpmQuote(message=b"m", signature=b"s", pcrs=((0, bytes(32)), (23, b"")))
KINDS: list[CpuEvidence] = [
    SNP,
    replace(SNP, tee=Tee.EMULATED_SEV_SNP, crl=b"", ark=b""),
    TDX,
    replace(TDX, tee=Tee.EMULATED_TDX),
    NitroEvidence(tee=Tee.NITRO, document=b"d"),
    NitroEvidence(tee=Tee.EMULATED_NITRO, document=b""),
    AzureEvidence(tee=Tee.AZURE_SNP, hcl=b"h", hardware=SNP, quote=QUOTE),
    AzureEvidence(tee=Tee.AZURE_TDX, hcl=b"h", hardware=TDX, quote=QUOTE),
    AzureEvidence(
        tee=Tee.EMULATED_AZURE_SNP,
        hcl=b"",
        hardware=replace(SNP, tee=Tee.EMULATED_SEV_SNP),
        quote=replace(QUOTE, pcrs=()),
    ),
    TpmEvidence(tee=Tee.TPM, quote=QUOTE, ak=b"k"),
]
AZURE = KINDS[6]
GPU = GpuEvidence(kind=DeviceKind.NVIDIA_GPU, report=b"r", chain=(b"1", b"2"))
MISSING: dict[str, tuple[CpuEvidence | GpuEvidence, str]] = {
    "crls": (KINDS[4], "cpu"),
    "ocsp": (GPU, "devices"),
}


@pytest.mark.parametrize("name", MISSING)
def test_a_bundle_without_a_member_for_revocation_is_refused(
    bundle: EvidenceBundle, name: str
) -> None:
    evidence, where = MISSING[name]
    whole = (
        replace(bundle, devices=(evidence,))
        if isinstance(evidence, GpuEvidence)
        else replace(bundle, cpu=evidence)
    )

    def remove(tree: dict[str, Any]) -> None:
        found = tree[where]
        del (found[0] if isinstance(found, list) else found)[name]

    assert _code(_edited(whole, remove)) is RefusalCode.MALFORMED


def test_every_kind_is_among_these() -> None:
    assert {evidence.tee for evidence in KINDS} == set(Tee)


@pytest.mark.parametrize("evidence", KINDS, ids=lambda evidence: evidence.tee)
def test_every_kind_survives_alone_and_in_a_bundle(
    bundle: EvidenceBundle, evidence: CpuEvidence
) -> None:
    assert parse_cpu_evidence(encode_cpu_evidence(evidence)) == evidence
    whole = replace(bundle, cpu=evidence)
    assert parse_bundle(encode_bundle(whole)) == whole


@pytest.mark.parametrize("kind", DeviceKind)
def test_devices_survive_alone_and_in_a_bundle(
    bundle: EvidenceBundle, kind: DeviceKind
) -> None:
    device = replace(GPU, kind=kind)
    assert parse_device_evidence(encode_device_evidence(device)) == device
    whole = replace(bundle, devices=(device, replace(device, chain=())) * 8)
    assert parse_bundle(encode_bundle(whole)) == whole


def test_a_consistency_proof_survives(bundle: EvidenceBundle) -> None:
    hashes = (bytes(32), b"\1" * 32)
    whole = replace(bundle, anchor=replace(bundle.anchor, consistency=hashes))
    assert parse_bundle(encode_bundle(whole)) == whole


Tree = dict[str, Any]
OTHER_EDITS: dict[
    str, tuple[CpuEvidence | GpuEvidence, Callable[[Tree], object], RefusalCode]
] = {
    "hardware of another kind": (
        AZURE,
        lambda t: t["hardware"].update(tee="emulated-sev-snp"),
        RefusalCode.MALFORMED,
    ),
    "hardware that is Azure's": (
        AZURE,
        lambda t: t["hardware"].update(tee="azure-snp"),
        RefusalCode.MALFORMED,
    ),
    "hardware of an unknown kind": (
        AZURE,
        lambda t: t["hardware"].update(tee="sgx"),
        RefusalCode.MALFORMED,
    ),
    "hardware without a report": (
        AZURE,
        lambda t: t["hardware"].pop("report"),
        RefusalCode.MALFORMED,
    ),
    "no quote": (AZURE, lambda t: t.pop("quote"), RefusalCode.MALFORMED),
    "unknown in the quote": (
        AZURE,
        lambda t: t["quote"].update(x=1),
        RefusalCode.MALFORMED,
    ),
    "unknown in a register": (
        AZURE,
        lambda t: t["quote"]["pcrs"][0].update(x=1),
        RefusalCode.MALFORMED,
    ),
    "register 24": (
        AZURE,
        lambda t: t["quote"]["pcrs"][0].update(index=24),
        RefusalCode.MALFORMED,
    ),
    "25 registers": (
        AZURE,
        lambda t: t["quote"].update(pcrs=t["quote"]["pcrs"][:1] * 25),
        RefusalCode.TOO_LARGE,
    ),
    "register too large": (
        AZURE,
        lambda t: t["quote"]["pcrs"][0].update(value="AAAA" * 22),
        RefusalCode.TOO_LARGE,
    ),
    "message too large": (
        AZURE,
        lambda t: t["quote"].update(message="AAAA" * 1366),
        RefusalCode.TOO_LARGE,
    ),
    "signature too large": (
        AZURE,
        lambda t: t["quote"].update(signature="AAAA" * 342),
        RefusalCode.TOO_LARGE,
    ),
    "blob too large": (
        AZURE,
        lambda t: t.update(hcl="AAAA" * 2731),
        RefusalCode.TOO_LARGE,
    ),
    "key too large": (
        KINDS[-1],
        lambda t: t.update(ak="AAAA" * 342),
        RefusalCode.TOO_LARGE,
    ),
    "quote too large": (
        TDX,
        lambda t: t.update(quote="AAAA" * 5462),
        RefusalCode.TOO_LARGE,
    ),
    "collateral too large": (
        TDX,
        lambda t: t.update(collateral="AAAA" * 16385),
        RefusalCode.TOO_LARGE,
    ),
    "document too large": (
        KINDS[4],
        lambda t: t.update(document="AAAA" * 10923),
        RefusalCode.TOO_LARGE,
    ),
    "root too large": (
        SNP,
        lambda t: t.update(ark="AAAA" * 1366),
        RefusalCode.TOO_LARGE,
    ),
    "nine lists": (
        KINDS[4],
        lambda t: t.update(crls=["AAAA"] * 9),
        RefusalCode.TOO_LARGE,
    ),
    "large list": (
        KINDS[4],
        lambda t: t.update(crls=["AAAA" * 8193]),
        RefusalCode.TOO_LARGE,
    ),
    "nine answers": (
        GPU,
        lambda t: t.update(ocsp=["AAAA"] * 9),
        RefusalCode.TOO_LARGE,
    ),
    "large answer": (
        GPU,
        lambda t: t.update(ocsp=["AAAA" * 1366]),
        RefusalCode.TOO_LARGE,
    ),
    "list for another kind": (SNP, lambda t: t.update(crls=[]), RefusalCode.MALFORMED),
    "no root": (SNP, lambda t: t.pop("ark"), RefusalCode.MALFORMED),
    "unknown device": (
        GPU,
        lambda t: t.update(kind="tape"),
        RefusalCode.UNSUPPORTED_PRODUCT,
    ),
    "device with more": (GPU, lambda t: t.update(x=1), RefusalCode.MALFORMED),
    "nine certificates": (
        GPU,
        lambda t: t.update(chain=["AAAA"] * 9),
        RefusalCode.TOO_LARGE,
    ),
    "large certificate": (
        GPU,
        lambda t: t.update(chain=["AAAA" * 1366]),
        RefusalCode.TOO_LARGE,
    ),
    "certificate that is no base64": (
        GPU,
        lambda t: t.update(chain=["*"]),
        RefusalCode.MALFORMED,
    ),
    "device's report too large": (
        GPU,
        lambda t: t.update(report="AAAA" * 10923),
        RefusalCode.TOO_LARGE,
    ),
}


@pytest.mark.parametrize("name", OTHER_EDITS)
def test_evidence_is_refused(name: str) -> None:
    evidence, edit, code = OTHER_EDITS[name]
    gpu = isinstance(evidence, GpuEvidence)
    data = (
        encode_device_evidence(evidence)
        if isinstance(evidence, GpuEvidence)
        else encode_cpu_evidence(evidence)
    )
    tree: dict[str, Any] = json.loads(data)
    edit(tree)
    parse = parse_device_evidence if gpu else parse_cpu_evidence
    with pytest.raises(RefusedError) as caught:
        parse(json.dumps(tree).encode())
    assert caught.value.code is code


def test_evidence_does_not_show_in_its_repr() -> None:
    for evidence in (*KINDS, GPU):
        shown = repr(evidence)
        assert "report=" not in shown
        assert "message=" not in shown


def test_hardware_is_named_for_azure_alone() -> None:
    assert hardware_of(Tee.AZURE_TDX) is Tee.TDX
    with pytest.raises(KeyError):
        hardware_of(Tee.TDX)


@pytest.mark.parametrize(
    ("tee", "emulated", "isolates", "quoted"),
    [
        (Tee.SEV_SNP, False, True, False),
        (Tee.TDX, False, True, False),
        (Tee.NITRO, False, True, False),
        (Tee.AZURE_SNP, False, True, True),
        (Tee.AZURE_TDX, False, True, True),
        (Tee.TPM, False, False, True),
        (Tee.EMULATED_SEV_SNP, True, False, False),
        (Tee.EMULATED_TDX, True, False, False),
        (Tee.EMULATED_NITRO, True, False, False),
        (Tee.EMULATED_AZURE_SNP, True, False, True),
    ],
)
def test_kinds_are_what_they_are(
    *, tee: Tee, emulated: bool, isolates: bool, quoted: bool
) -> None:
    assert (tee.emulated, tee.isolates, tee.quoted) == (emulated, isolates, quoted)


def test_cpu_evidence_is_bounded() -> None:
    with pytest.raises(RefusedError) as caught:
        parse_cpu_evidence(b" " * (96 * 1024 + 1))
    assert caught.value.code is RefusalCode.TOO_LARGE


@given(data=st.binary(max_size=300))
def test_any_bytes_are_refused(data: bytes) -> None:
    assert isinstance(_code(data), RefusalCode)
