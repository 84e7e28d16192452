import base64
from datetime import UTC, datetime

import pytest

from curtilage.attest.amd_tcb import Tcb
from curtilage.attest.claims import Claim
from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.expectations import (
    NO_HOST_DATA,
    AnchorKind,
    Environment,
    GpuExpectations,
    NitroExpectations,
    PlatformExpectations,
    Revocation,
    TdxExpectations,
    TrustAnchor,
)
from curtilage.attest.expectations_checks import validate_expectations
from curtilage.attest.requirements import Requirement
from curtilage.attest.verify import verify
from curtilage.policy.document.load import load_policy, profile_text
from curtilage.policy.expectations import expectations_from, requirement_for
from curtilage.policy.explain.attestation import (
    NEVER_MET,
    NO_PLACE,
    attestation_in_words,
)

# The translation looks at no certificate, so these are DER in name only.
DER = b"\x30\x03\x02\x01\x05"
PEM = base64.b64encode(DER).decode()
KEYS = {name: base64.b64encode(name.encode() * 32).decode() for name in "abc"}
SECTION = f"""
attestation:
  environment: development
  trust_anchors:
    - kind: emulated
      product: Turin
      certificate: |
        -----BEGIN CERTIFICATE-----
        {PEM}
        -----END CERTIFICATE-----
  required_cpu_tees: [emulated-sev-snp, sev-snp]
  releases:
    names: [one, two]
    log:
      origin: example.org/log
      key: {KEYS["a"]}
      witnesses:
        - {{name: first.example, key: {KEYS["b"]}}}
        - {{name: second.example, key: {KEYS["c"]}}}
      quorum: 2
    max_checkpoint_age_s: 11
  snp:
    min_version: 4
    vmpl: [1, 2]
    allow_vlek: true
    allow_masked_chip: true
    min_tcb:
      - {{product: Turin, fmc: 1, bl: 2, tee: 3, snp: 4, ucode: 5}}
      - {{product: Milan, bl: 6, tee: 7, snp: 8, ucode: 9}}
  freshness:
    max_key_lifetime_s: 12
    max_evidence_age_s: 13
    clock_skew_s: 14
"""


def test_every_field_is_translated() -> None:
    policy = load_policy(profile_text("default") + SECTION)
    expectations = expectations_from(policy)
    assert expectations.environment is Environment.DEVELOPMENT
    (root,) = expectations.roots
    assert (root.kind, root.product) == (AnchorKind.EMULATED, "Turin")
    assert root.certificate_der == DER
    assert expectations.required_cpu_tees == {"emulated-sev-snp", "sev-snp"}
    assert expectations.release_names == {"one", "two"}
    assert expectations.digest == policy.digest
    log = expectations.log
    assert (log.origin, log.public_key) == ("example.org/log", b"a" * 32)
    assert log.witnesses == {"first.example": b"b" * 32, "second.example": b"c" * 32}
    assert (log.quorum, log.max_checkpoint_age_s) == (2, 11)
    snp = expectations.snp
    assert (snp.min_version, set(snp.vmpl)) == (4, {1, 2})
    assert (snp.allow_vlek, snp.allow_masked_chip) == (True, True)
    assert snp.host_data == {NO_HOST_DATA}
    assert snp.min_tcb == {
        "Turin": Tcb(fmc=1, bl=2, tee=3, snp=4, ucode=5),
        "Milan": Tcb(bl=6, tee=7, snp=8, ucode=9),
    }
    freshness = expectations.freshness
    assert freshness.max_key_lifetime_s == 12
    assert freshness.max_evidence_age_s == 13
    assert freshness.clock_skew_s == 14
    validate_expectations(expectations)


H64, H96 = "ab" * 32, "cd" * 48
CHIP, PPID = "0a" * 64, "0b" * 16
MORE = (
    SECTION.replace("[emulated-sev-snp, sev-snp]", "[sev-snp, tdx, nitro]")
    + f"""\
  required_devices: {{nvidia-gpu: 3}}
  measurements:
    nitro: [{{pcr0: {H96}, pcr1: {H96}, pcr2: {H96}}}]
  tdx:
    statuses: [UpToDate, OutOfDate]
    min_tcb_evaluation_number: 18
    rejected_advisories: [INTEL-SA-00837]
  nitro: {{revocation: required}}
  gpu: {{drivers: [a b, c], vbioses: [d], golden: [{H64}], revocation: required}}
  sandbox: [{H64}]
  platforms: {{deny: [{CHIP}], allow: [{PPID}]}}
  classes:
  - {{classes: [health, financial.account], require: [hardware], challenge: true}}
  - {{classes: [health], require: [gpu], cpu_tees: [sev-snp, tdx],
     max_evidence_age_s: 600}}
  - {{classes: ["health.*"], cpu_tees: [tdx, nitro], max_evidence_age_s: 900}}
"""
)


def test_every_kind_is_translated() -> None:
    text = MORE.replace("names: [one, two]", 'names: [one]\n    denied: ["one 1"]')
    text = text.replace(
        "min_version: 4",
        f"min_version: 4\n    max_crl_age_s: 5\n    host_data: [{H64}]",
    )
    expectations = expectations_from(load_policy(profile_text("default") + text))
    assert expectations.required_devices == {"nvidia-gpu": 3}
    assert expectations.measurements == {
        "nitro": ({"pcr0": H96, "pcr1": H96, "pcr2": H96},)
    }
    assert expectations.tdx == TdxExpectations(
        statuses=frozenset({"UpToDate", "OutOfDate"}),
        min_tcb_evaluation_number=18,
        rejected_advisories=frozenset({"INTEL-SA-00837"}),
    )
    assert expectations.gpu == GpuExpectations(
        drivers=frozenset({"a b", "c"}),
        vbioses=frozenset({"d"}),
        golden=frozenset({H64}),
        revocation=Revocation.REQUIRED,
    )
    assert expectations.nitro == NitroExpectations(revocation=Revocation.REQUIRED)
    assert expectations.sandbox == {H64}
    assert expectations.platforms == PlatformExpectations(
        deny=frozenset({CHIP}), allow=frozenset({PPID})
    )
    assert expectations.denied_releases == {"one 1"}
    assert expectations.snp.max_crl_age_s == 5
    assert expectations.snp.host_data == {bytes.fromhex(H64)}
    validate_expectations(expectations)


def test_revocation_is_asked_where_something_is_stapled_unless_the_policy_says() -> (
    None
):
    for section in ("  nitro: {revocation: required}\n", ", revocation: required"):
        assert section in MORE
    text = MORE.replace("  nitro: {revocation: required}\n", "").replace(
        ", revocation: required", ""
    )
    expectations = expectations_from(load_policy(profile_text("default") + text))
    assert expectations.nitro.revocation is Revocation.IF_STAPLED
    assert expectations.gpu.revocation is Revocation.IF_STAPLED


def test_a_vendor_may_be_named_without_a_certificate() -> None:
    anchor = SECTION[
        SECTION.index("    - kind: emulated") : SECTION.index("  required")
    ]
    text = SECTION.replace(anchor, "    - {kind: amd, product: Milan}\n")
    policy = load_policy(profile_text("default") + text)
    assert expectations_from(policy).roots == (
        TrustAnchor.of_vendor(AnchorKind.AMD, "Milan"),
    )


HARDWARE, GPU = Claim.HARDWARE, Claim.GPU


@pytest.mark.parametrize(
    ("classes", "expected"),
    [
        ((), Requirement()),
        (("identifier.direct.email",), Requirement()),
        (
            ("financial.account",),
            Requirement(claims=frozenset({HARDWARE}), challenge_age_s=60),
        ),
        (("financial.iban",), Requirement()),
        (
            ("health.condition",),
            Requirement(
                claims=frozenset({HARDWARE, GPU}),
                cpu_tees=frozenset({"tdx"}),
                max_evidence_age_s=600,
                challenge_age_s=60,
            ),
        ),
    ],
    ids=["nothing", "other", "one", "next to it", "all"],
)
def test_demands_of_classes_add_up(
    classes: tuple[str, ...], expected: Requirement
) -> None:
    policy = load_policy(profile_text("default") + MORE)
    assert requirement_for(policy, classes) == expected


@pytest.mark.parametrize(
    ("first", "second", "age_s"),
    [
        ("challenge: true", "max_evidence_age_s: 43200", 60),
        ("max_evidence_age_s: 43200", "challenge: true", 60),
        ("challenge: true, max_evidence_age_s: 600", "challenge: true", 60),
        ("challenge: true, max_evidence_age_s: 30", "challenge: true", 30),
        ("max_evidence_age_s: 30", "require: [hardware]", None),
    ],
)
def test_no_entry_makes_the_challenge_of_another_count_longer(
    first: str, second: str, age_s: int | None
) -> None:
    entries = f"  classes:\n  - {{classes: [health], {first}}}\n"
    entries += f"  - {{classes: [health], {second}}}\n"
    policy = load_policy(profile_text("default") + SECTION + entries)
    assert requirement_for(policy, ("health",)).challenge_age_s == age_s


def test_every_entry_must_accept_the_place() -> None:
    entries = (
        "  classes:\n"
        "  - {classes: [health], countries: [CH, DE], operators: [Example AG]}\n"
        "  - {classes: [health, legal], countries: [DE, FR], regions: [fra-1]}\n"
    )
    policy = load_policy(profile_text("default") + SECTION + entries)
    assert requirement_for(policy, ("health.lab",)) == Requirement(
        operators=frozenset({"Example AG"}),
        countries=frozenset({"DE"}),
        regions=frozenset({"fra-1"}),
    )
    assert requirement_for(policy, ("legal.docket",)) == Requirement(
        countries=frozenset({"DE", "FR"}), regions=frozenset({"fra-1"})
    )
    assert requirement_for(policy, ("special.union",)) == Requirement()


def test_no_place_is_in_the_words_and_cannot_be_met() -> None:
    entries = "  classes: [{classes: [health], countries: [], regions: [a, b]}]\n"
    policy = load_policy(profile_text("default") + SECTION + entries)
    said = [words for label, words in attestation_in_words(policy) if label == "demand"]
    (sentence,) = said
    assert f" country: {NO_PLACE}, " in sentence
    assert " region: a or b; " in sentence
    assert sentence.endswith(NEVER_MET)


def test_an_unknown_class_demands_everything() -> None:
    policy = load_policy(profile_text("default") + MORE)
    everything = requirement_for(policy, ("health.condition", "financial.account"))
    assert requirement_for(policy, ("no.such.class",)) == everything


def test_a_policy_without_the_section_demands_nothing() -> None:
    """And permits nothing, so there is nothing to demand it of."""
    policy = load_policy(profile_text("default"))
    assert requirement_for(policy, ("health.condition",)) == Requirement()


def test_switches_are_translated_when_off() -> None:
    off = SECTION.replace("allow_vlek: true", "allow_vlek: false")
    off = off.replace("allow_masked_chip: true", "allow_masked_chip: false")
    snp = expectations_from(load_policy(profile_text("default") + off)).snp
    assert (snp.allow_vlek, snp.allow_masked_chip) == (False, False)


def test_a_policy_without_the_section_permits_nothing() -> None:
    policy = load_policy(profile_text("default"))
    assert policy.attestation is None
    expectations = expectations_from(policy)
    assert expectations.digest == policy.digest
    assert expectations.environment is Environment.PRODUCTION
    with pytest.raises(RefusedError) as caught:
        verify(b"{}", expectations, now=datetime.now(UTC))
    assert caught.value.code is RefusalCode.POLICY_INVALID
    assert caught.value.detail.partition(", ")[0].endswith(" trust anchors")


@pytest.mark.parametrize(
    "name", ["trust_anchors", "required_cpu_tees", "vmpl", "min_tcb"]
)
def test_an_empty_list_permits_nothing(name: str) -> None:
    lines = SECTION.split("\n")
    start = next(i for i, line in enumerate(lines) if line.strip().startswith(name))
    indent = len(lines[start]) - len(lines[start].lstrip())
    end = start + 1
    while len(lines[end]) - len(lines[end].lstrip()) > indent:
        end += 1
    emptied = [*lines[:start], " " * indent + f"{name}: []", *lines[end:]]
    policy = load_policy(profile_text("default") + "\n".join(emptied))
    with pytest.raises(RefusedError) as caught:
        validate_expectations(expectations_from(policy))
    assert caught.value.code is RefusalCode.POLICY_INVALID
