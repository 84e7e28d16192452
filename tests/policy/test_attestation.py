import base64
from collections.abc import Callable

import pytest

from curtilage.policy.errors import PolicyError, Problem
from curtilage.policy.load import load_policy
from curtilage.policy.sections import Attestation

KEY = base64.b64encode(bytes(range(32))).decode()
OTHER_KEY = base64.b64encode(bytes(range(1, 33))).decode()
DER = bytes([0x30, 3, 1, 1, 255])
PEM_BODY = base64.b64encode(DER).decode()
TEXT = f"""\
version: 1
rules: [{{id: any-uncertain, when: "uncertain.*", then: local}}]
attestation:
  environment: development
  trust_anchors:
  - kind: emulated
    product: Genoa
    certificate: |
      -----BEGIN CERTIFICATE-----
      {PEM_BODY}
      -----END CERTIFICATE-----
  required_cpu_tees: [emulated-sev-snp]
  releases:
    names: [curtilage-enclave]
    log:
      origin: dev.example/log
      key: {KEY}
      witnesses: [{{name: one, key: {OTHER_KEY}}}]
      quorum: 1
    max_checkpoint_age_s: 86400
  snp:
    min_version: 3
    vmpl: [0]
    allow_vlek: false
    allow_masked_chip: false
    min_tcb: [{{product: Genoa, bl: 10, tee: 0, snp: 23, ucode: 84}}]
  freshness:
    max_key_lifetime_s: 86400
    max_evidence_age_s: 43200
    clock_skew_s: 60
"""


def load(text: str) -> Attestation:
    attestation = load_policy(text).attestation
    assert attestation is not None
    return attestation


def problems_of(text: str) -> tuple[Problem, ...]:
    with pytest.raises(PolicyError) as caught:
        load_policy(text)
    return caught.value.problems


def test_attestation_is_read() -> None:
    attestation = load(TEXT)
    assert attestation.environment == "development"
    (anchor,) = attestation.trust_anchors
    assert (anchor.kind, anchor.product) == ("emulated", "Genoa")
    assert anchor.certificate == DER
    assert attestation.required_cpu_tees == ("emulated-sev-snp",)
    assert attestation.releases.names == ("curtilage-enclave",)
    assert attestation.releases.log.key == bytes(range(32))
    assert attestation.releases.log.witnesses[0].key == bytes(range(1, 33))
    assert attestation.releases.log.quorum == 1
    assert attestation.snp.vmpl == (0,)
    assert attestation.snp.min_tcb[0].ucode == 84
    assert attestation.freshness.clock_skew_s == 60


def test_certificate_in_one_quoted_line_is_read() -> None:
    start = TEXT.index("certificate: |")
    end = TEXT.index("  required_cpu_tees")
    quoted = (
        f'"-----BEGIN CERTIFICATE-----\\n{PEM_BODY}\\n-----END CERTIFICATE-----\\n"\n'
    )
    attestation = load(TEXT[:start] + "certificate: " + quoted + TEXT[end:])
    assert attestation.trust_anchors[0].certificate == DER


def test_empty_lists_are_read_and_refuse_later() -> None:
    text = (
        TEXT.replace("[emulated-sev-snp]", "[]")
        .replace("[curtilage-enclave]", "[]")
        .replace("vmpl: [0]", "vmpl: []")
        .replace(f"[{{name: one, key: {OTHER_KEY}}}]", "[]")
    )
    attestation = load(text)
    assert attestation.required_cpu_tees == ()
    assert attestation.releases.log.witnesses == ()


def test_no_key_may_be_left_out() -> None:
    text = TEXT[: TEXT.index("attestation:")] + "attestation: {}\n"
    told = {each.path: each.message for each in problems_of(text)}
    missing = {
        "attestation.environment",
        "attestation.trust_anchors",
        "attestation.required_cpu_tees",
        "attestation.releases",
        "attestation.snp",
        "attestation.freshness",
    }
    assert told == dict.fromkeys(missing, "this key is missing")


def test_production_refuses_emulated_roots_and_tees() -> None:
    found = problems_of(TEXT.replace("development", "production"))
    assert [(each.line, each.path) for each in found] == [
        (6, "attestation.trust_anchors[0].kind"),
        (12, "attestation.required_cpu_tees[0]"),
    ]
    assert all("development" in each.message for each in found)


def test_production_takes_genuine_roots_and_tees() -> None:
    text = (
        TEXT.replace("development", "production")
        .replace("kind: emulated", "kind: amd")
        .replace("[emulated-sev-snp]", "[sev-snp]")
    )
    assert load(text).environment == "production"


def test_environment_of_another_type_is_no_development() -> None:
    found = problems_of(
        TEXT.replace("environment: development", "environment: [development]").replace(
            "[emulated-sev-snp]", "[[x], emulated-sev-snp]"
        )
    )
    assert any("emulated TEE" in each.message for each in found)


def replaced(old: str, new: str) -> Callable[[], str]:
    assert old in TEXT
    return lambda: TEXT.replace(old, new)


@pytest.mark.parametrize(
    ("text", "path", "said"),
    [
        (replaced(f"key: {KEY}", "key: 7"), "releases.log.key", "expected text"),
        (replaced(f"key: {KEY}", "key: '***'"), "releases.log.key", "not base64"),
        (replaced(f"key: {KEY}", "key: ü"), "releases.log.key", "not base64"),
        (replaced(f"key: {KEY}", "key: AAAA"), "releases.log.key", "32 bytes, not 3"),
        (replaced(OTHER_KEY, KEY), "releases.log", "of its own"),
        (
            replaced("witnesses: [", f"witnesses: [{{name: one, key: {'A' * 43}=}}, "),
            "releases.log",
            "of its own",
        ),
        (
            replaced("witnesses: [", f"witnesses: [{{name: two, key: {OTHER_KEY}}}, "),
            "releases.log",
            "of its own",
        ),
        (replaced("quorum: 1", "quorum: 2"), "releases.log", "larger than the number"),
        (replaced("quorum: 1", "quorum: 0"), "releases.log.quorum", "greater than"),
        (replaced("min_version: 3", "min_version: 2"), "snp.min_version", "greater"),
        (replaced("vmpl: [0]", "vmpl: [4]"), "snp.vmpl[0]", "less than"),
        (
            replaced(
                "min_tcb: [",
                "min_tcb: [{product: Genoa, bl: 0, tee: 0, snp: 0, ucode: 0}, ",
            ),
            "snp",
            "names a product twice",
        ),
        (replaced("bl: 10", "bl: 256"), "snp.min_tcb[0].bl", "less than"),
        (replaced("bl: 10", "bl: 10, fmc: 1"), "snp.min_tcb[0]", "for Turin alone"),
        (
            replaced("{product: Genoa,", "{product: Turin,"),
            "snp.min_tcb[0]",
            "for Turin alone",
        ),
        (
            replaced("clock_skew_s: 60", "clock_skew_s: 601"),
            "freshness.clock_skew_s",
            "less than",
        ),
        (replaced("kind: emulated", "kind: intel"), "trust_anchors[0].kind", "'amd'"),
        (replaced(PEM_BODY, "AAAA"), "trust_anchors[0].certificate", "not DER"),
        (replaced(PEM_BODY, "A"), "trust_anchors[0].certificate", "not base64"),
        (replaced(PEM_BODY, "MA==MA=="), "trust_anchors[0].certificate", "not base64"),
        (replaced(PEM_BODY, "MAAA" * 4000), "trust_anchors[0].certificate", "not DER"),
        (
            replaced(PEM_BODY, "-----BEGIN X-----"),
            "trust_anchors[0].certificate",
            "one certificate in PEM",
        ),
        (
            replaced("    certificate: |", "    certificate: 5\n    other: |"),
            "trust_anchors[0].certificate",
            "one certificate in PEM",
        ),
        (replaced("vmpl: [0]", "vmpl: [0]\n    skip: true"), "snp.skip", "unknown key"),
    ],
)
def test_attestation_refuses(text: Callable[[], str], path: str, said: str) -> None:
    told = {each.path: each.message for each in problems_of(text())}
    assert said in told[f"attestation.{path}"]


def test_development_may_have_everything_on_one_machine() -> None:
    section = """\
transport:
  mirror: http://127.0.0.1:1/keys
  gateway: http://127.0.0.1:2
"""
    transport = load_policy(TEXT + section).transport
    assert transport.mirror == "http://127.0.0.1:1/keys"
    problems = problems_of(
        TEXT.replace("environment: development", "environment: production") + section
    )
    told = {each.path for each in problems}
    assert {"transport.mirror", "transport.gateway"} <= told


def test_development_still_needs_two_owners_elsewhere() -> None:
    section = """\
transport:
  mirror: https://keys.example.org/x
  gateway: https://enclave.example.org
"""
    (problem,) = problems_of(TEXT + section)
    assert problem.path == "transport.mirror"
