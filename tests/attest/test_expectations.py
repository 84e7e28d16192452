# ruff: noqa: ANN401 - fields of every type are changed by name

from dataclasses import replace
from typing import Any, cast

import pytest

from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.evidence import DeviceKind, Tee
from curtilage.attest.expectations import (
    EMULATED_PRODUCTS,
    VENDOR_ROOT_FINGERPRINTS,
    AnchorKind,
    Environment,
    Expectations,
    GpuExpectations,
    TdxExpectations,
    TrustAnchor,
    anchors_for,
)
from curtilage.attest.expectations_checks import validate_expectations


def _refusal(expectations: Expectations) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        validate_expectations(expectations)
    return caught.value


def test_expectations_of_a_deployment_are_valid(expectations: Expectations) -> None:
    validate_expectations(expectations)


def _nested(expectations: Expectations, part: str, **changes: Any) -> Expectations:
    inner = replace(getattr(expectations, part), **changes)
    changed: dict[str, Any] = {part: inner}
    return replace(expectations, **changed)


@pytest.mark.parametrize(
    ("part", "name", "said"),
    [
        ("", "roots", "no trust anchors"),
        ("", "required_cpu_tees", "no required CPU TEEs"),
        ("", "release_names", "no release names"),
        ("", "transport", "no transport parameters"),
        ("log", "witnesses", "no log witnesses"),
        ("snp", "vmpl", "no privilege levels"),
        ("snp", "min_tcb", "no minimum TCBs"),
        ("snp", "host_data", "no host data"),
    ],
)
def test_empty_set_permits_nothing(
    expectations: Expectations, part: str, name: str, said: str
) -> None:
    changes = cast("dict[str, Any]", {name: {}})
    empty = (
        _nested(expectations, part, **changes)
        if part
        else replace(expectations, **changes)
    )
    error = _refusal(empty)
    assert error.code is RefusalCode.POLICY_INVALID
    assert said in error.detail


@pytest.mark.parametrize(
    ("part", "changes"),
    [
        ("log", {"public_key": bytes(31)}),
        ("log", {"witnesses": {"a": bytes(33)}}),
        ("log", {"witnesses": {"a": bytes(1311)}}),
        ("log", {"quorum": 0}),
        ("log", {"quorum": 2}),
        ("log", {"max_checkpoint_age_s": 0}),
        ("snp", {"min_version": 1}),
        ("snp", {"max_crl_age_s": 0}),
        ("freshness", {"max_key_lifetime_s": 0}),
        ("freshness", {"max_evidence_age_s": -1}),
        ("freshness", {"clock_skew_s": -1}),
    ],
    ids=str,
)
def test_senseless_number_is_refused(
    expectations: Expectations, part: str, changes: dict[str, Any]
) -> None:
    error = _refusal(_nested(expectations, part, **changes))
    assert error.code is RefusalCode.POLICY_INVALID


def test_no_clock_skew_is_fine(expectations: Expectations) -> None:
    validate_expectations(_nested(expectations, "freshness", clock_skew_s=0))


@pytest.mark.parametrize("twin", ["witness", "log"])
def test_no_key_counts_twice(expectations: Expectations, twin: str) -> None:
    known = expectations.log.witnesses
    (key,) = known.values()
    second = key if twin == "witness" else expectations.log.public_key
    log = {"witnesses": {**known, "second": second}, "quorum": 2}
    error = _refusal(_nested(expectations, "log", **log))
    assert error.code is RefusalCode.POLICY_INVALID


def test_only_amds_own_roots_pass_for_amds(expectations: Expectations) -> None:
    posing = TrustAnchor.of_certificate(
        AnchorKind.AMD, "Genoa", expectations.roots[0].certificate_der
    )
    error = _refusal(replace(expectations, roots=(posing,)))
    assert error.code is RefusalCode.POLICY_INVALID
    unknown = replace(posing, product="Rome")
    error = _refusal(replace(expectations, roots=(unknown,)))
    assert error.code is RefusalCode.POLICY_INVALID


H64, H96 = "ab" * 32, "cd" * 48
GPU = GpuExpectations(
    drivers=frozenset({"1"}), vbioses=frozenset({"2"}), golden=frozenset({H64})
)
PRODUCTION: dict[str, Any] = {
    "environment": Environment.PRODUCTION,
    "roots": (TrustAnchor.of_vendor(AnchorKind.AMD, "Genoa"),),
    "required_cpu_tees": frozenset({"sev-snp"}),
}


def test_production_of_genuine_kinds_is_valid(expectations: Expectations) -> None:
    every = frozenset(tee.value for tee in Tee if tee.isolates)
    roots = tuple(
        TrustAnchor.of_vendor(kind, product)
        for kind, products in VENDOR_ROOT_FINGERPRINTS.items()
        for product in products
    )
    rules = replace(
        expectations,
        **{**PRODUCTION, "roots": roots, "required_cpu_tees": every},
        required_devices={"nvidia-gpu": 16},
        gpu=GPU,
    )
    validate_expectations(rules)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        (
            {"roots": (TrustAnchor(kind=AnchorKind.TPM, product="", fingerprint=H64),)},
            RefusalCode.EMULATED_REFUSED,
        ),
        (
            {
                "roots": (
                    TrustAnchor(
                        kind=AnchorKind.EMULATED, product="tdx", fingerprint=H64
                    ),
                )
            },
            RefusalCode.EMULATED_REFUSED,
        ),
        *(
            (
                {"required_cpu_tees": frozenset({"sev-snp", tee.value})},
                RefusalCode.EMULATED_REFUSED,
            )
            for tee in Tee
            if not tee.isolates
        ),
        (
            {"required_devices": {"emulated-nvidia-gpu": 1}, "gpu": GPU},
            RefusalCode.EMULATED_REFUSED,
        ),
        ({"measurements": {"tpm": ()}}, RefusalCode.EMULATED_REFUSED),
        ({"measurements": {"emulated-tdx": ()}}, RefusalCode.EMULATED_REFUSED),
    ],
)
def test_production_refuses_what_shows_no_isolation(
    expectations: Expectations, changes: dict[str, Any], code: RefusalCode
) -> None:
    assert _refusal(replace(expectations, **{**PRODUCTION, **changes})).code is code


def test_production_refuses_reports_that_name_no_product(
    expectations: Expectations,
) -> None:
    rules = _nested(replace(expectations, **PRODUCTION), "snp", min_version=2)
    assert _refusal(rules).code is RefusalCode.POLICY_INVALID
    validate_expectations(_nested(expectations, "snp", min_version=2))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"required_cpu_tees": frozenset({"sgx"})}, "CPU evidence is unknown"),
        ({"measurements": {"sgx": ()}}, "CPU evidence is unknown"),
        ({"required_devices": {"tape": 1}}, "device is unknown"),
        ({"required_devices": {"nvidia-gpu": 0}, "gpu": GPU}, "number of devices"),
        ({"required_devices": {"nvidia-gpu": 17}, "gpu": GPU}, "number of devices"),
        ({"required_devices": {"nvidia-gpu": 1}}, "no GPU drivers, no GPU VBIOS"),
        (
            {
                "required_cpu_tees": frozenset({"emulated-tdx"}),
                "tdx": TdxExpectations(statuses=frozenset()),
            },
            "no TCB statuses",
        ),
        ({"tdx": TdxExpectations(min_tcb_evaluation_number=-1)}, "number is negative"),
        ({"measurements": {"tdx": ({"mrtd": H96},)}}, "names no rtmr0, no rtmr1"),
        ({"measurements": {"tpm": ({"pcr0": H96},)}}, "pcr0 is not 64 hex digits"),
    ],
)
def test_senseless_kinds_are_refused(
    expectations: Expectations, changes: dict[str, Any], said: str
) -> None:
    error = _refusal(replace(expectations, **changes))
    assert error.code is RefusalCode.POLICY_INVALID
    assert said in error.detail


@pytest.mark.parametrize("part", ["drivers", "vbioses", "golden"])
def test_a_gpu_needs_every_list(expectations: Expectations, part: str) -> None:
    changes: dict[str, Any] = {part: frozenset()}
    rules = replace(
        expectations,
        required_devices={"nvidia-gpu": 1},
        gpu=replace(GPU, **changes),
    )
    error = _refusal(rules)
    assert error.code is RefusalCode.POLICY_INVALID
    assert ": no GPU" in error.detail


@pytest.mark.parametrize(
    ("anchor", "said"),
    [
        (
            TrustAnchor(kind=AnchorKind.EMULATED, product="Genoa", fingerprint="AB"),
            "not a SHA-256",
        ),
        (
            TrustAnchor(
                kind=AnchorKind.EMULATED,
                product="Genoa",
                fingerprint=H64,
                certificate_der=b"x",
            ),
            "has another fingerprint",
        ),
        (
            TrustAnchor(kind=AnchorKind.EMULATED, product="arm", fingerprint=H64),
            "the root of nothing known",
        ),
        (
            TrustAnchor(kind=AnchorKind.INTEL, product="", fingerprint=H64),
            "of kind intel is not that vendor's root",
        ),
        (
            replace(TrustAnchor.of_vendor(AnchorKind.AMD, "Milan"), product="Genoa"),
            "of kind amd is not that vendor's root",
        ),
        (
            replace(TrustAnchor.of_vendor(AnchorKind.AWS), kind=AnchorKind.NVIDIA),
            "of kind nvidia is not that vendor's root",
        ),
    ],
)
def test_an_anchor_must_be_what_it_says(
    expectations: Expectations, anchor: TrustAnchor, said: str
) -> None:
    error = _refusal(replace(expectations, roots=(anchor,)))
    assert error.code is RefusalCode.POLICY_INVALID
    assert said in error.detail


def test_a_tpms_key_may_be_any(expectations: Expectations) -> None:
    anchor = TrustAnchor.of_certificate(AnchorKind.TPM, "", b"a key")
    validate_expectations(replace(expectations, roots=(anchor,)))


def test_a_served_root_is_used_only_if_it_is_the_pinned_one() -> None:
    pinned = TrustAnchor.of_certificate(AnchorKind.EMULATED, "tdx", b"root")
    named = replace(pinned, certificate_der=b"")
    assert pinned.root() == pinned.root(b"other") == b"root"
    assert named.root(b"root") == b"root"
    assert named.root(b"other") is None
    assert named.root() is None


@pytest.mark.parametrize("kind", [*Tee, *DeviceKind])
def test_only_roots_of_a_kind_vouch_for_it(kind: Tee | DeviceKind) -> None:
    everything = (
        *(
            TrustAnchor(kind=vendor, product=product, fingerprint=H64)
            for vendor in AnchorKind
            if vendor is not AnchorKind.EMULATED
            for product in VENDOR_ROOT_FINGERPRINTS.get(vendor, {"": ""})
        ),
        *(
            TrustAnchor(kind=AnchorKind.EMULATED, product=product, fingerprint=H64)
            for product in sorted(EMULATED_PRODUCTS)
        ),
    )
    found = anchors_for(everything, kind)
    assert {(root.kind, root.product) for root in found} == ROOTS[kind]


SNP_PRODUCTS = ("Milan", "Genoa", "Turin")
AMD = {(AnchorKind.AMD, product) for product in SNP_PRODUCTS}
EMULATED_AMD = {(AnchorKind.EMULATED, product) for product in SNP_PRODUCTS}
ROOTS: dict[Tee | DeviceKind, set[tuple[AnchorKind, str]]] = {
    Tee.SEV_SNP: AMD,
    Tee.AZURE_SNP: AMD,
    Tee.TDX: {(AnchorKind.INTEL, "")},
    Tee.AZURE_TDX: {(AnchorKind.INTEL, "")},
    Tee.NITRO: {(AnchorKind.AWS, "")},
    Tee.TPM: {(AnchorKind.TPM, "")},
    Tee.EMULATED_SEV_SNP: EMULATED_AMD,
    Tee.EMULATED_AZURE_SNP: EMULATED_AMD,
    Tee.EMULATED_TDX: {(AnchorKind.EMULATED, "tdx")},
    Tee.EMULATED_NITRO: {(AnchorKind.EMULATED, "nitro")},
    DeviceKind.NVIDIA_GPU: {(AnchorKind.NVIDIA, "")},
    DeviceKind.EMULATED_NVIDIA_GPU: {(AnchorKind.EMULATED, "nvidia-gpu")},
}


def test_pinned_measurements_cannot_be_changed(expectations: Expectations) -> None:
    rules = replace(expectations, measurements={"sev-snp": ({"launch": H96},)})
    for mapping in (
        rules.measurements,
        rules.measurements["sev-snp"][0],
        rules.required_devices,
    ):
        changed = cast("dict[str, Any]", mapping)
        with pytest.raises(TypeError):
            changed["x"] = ""


@pytest.mark.parametrize(("part", "name"), [("log", "witnesses"), ("snp", "min_tcb")])
def test_expectations_cannot_be_changed(
    expectations: Expectations, part: str, name: str
) -> None:
    mapping = cast("dict[str, Any]", getattr(getattr(expectations, part), name))
    with pytest.raises(TypeError):
        mapping["x"] = b""
