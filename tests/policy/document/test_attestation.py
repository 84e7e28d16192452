import base64
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import cast, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.attest.claims import Claim
from curtilage.attest.errors import RefusedError
from curtilage.attest.evidence import DeviceKind, Tee
from curtilage.attest.expectations import (
    EMULATED_PRODUCTS,
    VENDOR_ROOT_FINGERPRINTS,
    AnchorKind,
    Revocation,
)
from curtilage.attest.expectations_checks import validate_expectations
from curtilage.attest.log.note import COSIGNATURE_V1, ED25519, NoteKey
from curtilage.attest.log.vkeys import VerifierKey
from curtilage.policy.document.attestation import (
    Attestation,
    ClaimName,
    DeviceName,
    EmulatedProduct,
    RevocationName,
    TeeName,
)
from curtilage.policy.document.checks import Tree
from curtilage.policy.document.keys import (
    NO_CERTIFICATE,
    OTHER_VKEY,
    decode_certificate,
)
from curtilage.policy.document.load import PLAIN_WORDS, load_policy, read_tree
from curtilage.policy.errors import PolicyError, Problem
from curtilage.policy.expectations import expectations_from
from curtilage.policy.explain.attestation import attestation_in_words

KEY = base64.b64encode(bytes(range(32))).decode()
OTHER_KEY = base64.b64encode(bytes(range(1, 33))).decode()
DER = bytes([0x30, 3, 1, 1, 255])
PEM_BODY = base64.b64encode(DER).decode()
GENOA = VENDOR_ROOT_FINGERPRINTS[AnchorKind.AMD]["Genoa"]
ANCHOR = f"""\
  - kind: emulated
    product: Genoa
    certificate: |
      -----BEGIN CERTIFICATE-----
      {PEM_BODY}
      -----END CERTIFICATE-----
"""
TEXT = f"""\
version: 1
rules: [{{id: any-uncertain, when: "uncertain.*", then: local}}]
attestation:
  environment: development
  trust_anchors:
{ANCHOR}\
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
    assert attestation.snp is not None
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


BEGIN, END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


@pytest.mark.parametrize(
    "text",
    [
        f"{BEGIN}{' ' * 250_000}",
        f"{BEGIN}{' ' * 250_000}x-{END}",
        f"{' ' * 250_000}{BEGIN}{chr(10) * 250_000}",
        f"{BEGIN}{PEM_BODY}\n{END}",
        f"{BEGIN}\n{PEM_BODY}\n{END}\n{BEGIN}\n{PEM_BODY}\n{END}",
        f"x{BEGIN}\n{PEM_BODY}\n{END}",
        f"{BEGIN}\n{PEM_BODY}\n{END}x",
        f"{BEGIN[:-5]}{END}",
        "",
    ],
    ids=range(9),
)
def test_an_invalid_certificate_is_reported_at_once(text: str) -> None:
    """A policy may be as long as it likes; a pattern that tries must not run."""
    with pytest.raises(ValueError, match=NO_CERTIFICATE):
        decode_certificate(text)


def test_spaces_around_a_certificate_do_not_matter() -> None:
    spaces = " " * 100_000
    text = f"{spaces}{BEGIN}{spaces}{PEM_BODY}{spaces}{END}{spaces}"
    assert decode_certificate(text) == DER


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
    reported = {each.path: each.message for each in problems_of(text)}
    missing = {
        "attestation.environment",
        "attestation.trust_anchors",
        "attestation.required_cpu_tees",
        "attestation.releases",
        "attestation.freshness",
    }
    assert reported == dict.fromkeys(missing, PLAIN_WORDS["missing"])


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
        .replace(ANCHOR, "  - {kind: amd, product: Genoa}\n")
        .replace("[emulated-sev-snp]", "[sev-snp]")
    )
    attestation = load(text)
    assert attestation.environment == "production"
    assert attestation.trust_anchors[0].sha256 == GENOA


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
        (replaced("min_version: 3", "min_version: 1"), "snp.min_version", "greater"),
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
        (replaced("bl: 10", "bl: 10, fmc: 1"), "snp.min_tcb[0]", "only for Turin"),
        (
            replaced("{product: Genoa,", "{product: Turin,"),
            "snp.min_tcb[0]",
            "only for Turin",
        ),
        (
            replaced("clock_skew_s: 60", "clock_skew_s: 601"),
            "freshness.clock_skew_s",
            "less than",
        ),
        (replaced("kind: emulated", "kind: intel"), "trust_anchors[0]", "no meaning"),
        (replaced("kind: emulated", "kind: amd"), "trust_anchors[0]", "not the root"),
        (replaced("kind: emulated", "kind: arm"), "trust_anchors[0].kind", "'amd'"),
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
    reported = {each.path: each.message for each in problems_of(text())}
    assert said in reported[f"attestation.{path}"]


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
    reported = {each.path for each in problems}
    assert {"transport.mirror", "transport.gateway"} <= reported


def test_development_still_needs_two_owners_elsewhere() -> None:
    section = """\
transport:
  mirror: https://keys.example.org/x
  gateway: https://enclave.example.org
"""
    (problem,) = problems_of(TEXT + section)
    assert problem.path == "transport.mirror"


# --- other kinds of evidence --------------------------------------------------


H64, H96 = "ab" * 32, "cd" * 48
CHIP, PPID, NITRO = "0a" * 64, "0b" * 16, "i-0123456789abcdef0"
TDX = f"mrtd: {H96}, rtmr0: {H96}, rtmr1: {H96}, rtmr2: {H96}, rtmr3: {H96}"
SNP_SECTION = TEXT[TEXT.index("  snp:") : TEXT.index("  freshness:")]
GPU_SECTION = f"""\
  required_devices: {{emulated-nvidia-gpu: 2}}
  gpu: {{drivers: ["570.1"], vbioses: ["96.00"], golden: [{H64}]}}
"""
MANY = (
    TEXT.replace(
        ANCHOR,
        ANCHOR
        + f"""\
  - {{kind: emulated, product: tdx, fingerprint: {H64}}}
  - {{kind: tpm, fingerprint: {H64}}}
  - {{kind: amd, product: Milan}}
  - {{kind: amd, product: Genoa, fingerprint: {GENOA}}}
  - {{kind: intel}}
  - {{kind: aws}}
  - {{kind: nvidia}}
""",
    ).replace("[emulated-sev-snp]", "[emulated-sev-snp, emulated-tdx, tpm, nitro]")
    + f"""\
  measurements:
    tpm: [{{pcr4: {H64}}}]
    emulated-tdx: [{{{TDX}}}, {{{TDX}, mrconfigid: {H96}}}]
  tdx:
    statuses: [UpToDate, SWHardeningNeeded]
    rejected_advisories: [INTEL-SA-00001]
  nitro: {{}}
  sandbox: [{H64}]
  platforms: {{deny: [{CHIP}, {PPID}], allow: [{NITRO}, {NITRO}-enc019a]}}
  classes:
  - {{classes: [health, financial.account], require: [hardware, no_write]}}
  - {{classes: ["identifier.*"], cpu_tees: [tpm], challenge: true}}
"""
    + GPU_SECTION
)


def test_every_kind_is_read() -> None:
    attestation = load(MANY)
    assert attestation.required_devices == {"emulated-nvidia-gpu": 2}
    assert len(attestation.measurements["emulated-tdx"]) == 2
    assert attestation.tdx is not None
    assert attestation.tdx.min_tcb_evaluation_number == 0
    assert attestation.classes[0].require == ("hardware", "no_write")
    vendors = [anchor.sha256 for anchor in attestation.trust_anchors[3:]]
    assert vendors == [
        VENDOR_ROOT_FINGERPRINTS[AnchorKind(kind)][product]
        for kind, product in (
            ("amd", "Milan"),
            ("amd", "Genoa"),
            ("intel", ""),
            ("aws", ""),
            ("nvidia", ""),
        )
    ]


def test_words_of_the_file_are_the_words_of_the_verifier() -> None:
    assert set(get_args(TeeName)) == {tee.value for tee in Tee}
    assert set(get_args(DeviceName)) == {kind.value for kind in DeviceKind}
    assert set(get_args(ClaimName)) == {claim.value for claim in Claim}
    assert set(get_args(EmulatedProduct)) == EMULATED_PRODUCTS
    assert set(get_args(RevocationName)) == {each.value for each in Revocation}


def test_production_refuses_whatever_shows_no_isolation() -> None:
    text = MANY.replace("environment: development", "environment: production").replace(
        "min_version: 3", "min_version: 2"
    )
    reported = {each.path: each.message for each in problems_of(text)}
    assert set(reported) == {
        "attestation.trust_anchors[0].kind",
        "attestation.trust_anchors[1].kind",
        "attestation.trust_anchors[2].kind",
        "attestation.required_cpu_tees[0]",
        "attestation.required_cpu_tees[1]",
        "attestation.required_cpu_tees[2]",
        "attestation.measurements.tpm",
        "attestation.measurements.emulated-tdx",
        "attestation.required_devices.emulated-nvidia-gpu",
        "attestation.snp.min_version",
    }
    assert all("environment: development" in message for message in reported.values())


def test_development_takes_report_version_2() -> None:
    snp = load(TEXT.replace("min_version: 3", "min_version: 2")).snp
    assert snp is not None
    assert snp.min_version == 2


TDX_SECTION = MANY[MANY.index("  tdx:\n") : MANY.index("  nitro:")]


def changed(old: str, new: str) -> Callable[[], str]:
    assert old in MANY
    return lambda: MANY.replace(old, new)


def added(line: str) -> Callable[[], str]:
    return lambda: f"{TEXT}  {line}\n"


ONE = "{classes: [health, financial.account], require: [hardware, no_write]}"


@pytest.mark.parametrize(
    ("text", "path", "said"),
    [
        (changed(SNP_SECTION, ""), "", "emulated-sev-snp needs the section 'snp'"),
        (changed(TDX_SECTION, ""), "", "needs the section 'tdx'"),
        (added("tdx: {statuses: [UpToDate]}"), "tdx", "no kind of evidence that"),
        (added("nitro: {}"), "nitro", "no kind of evidence that"),
        (added("tpm: {}"), "tpm", "no kind of evidence that"),
        (
            added(GPU_SECTION.split("\n", 1)[1].strip()),
            "gpu",
            "no device that is required",
        ),
        (
            added("required_devices: {nvidia-gpu: 1}"),
            "",
            "a required GPU needs the section 'gpu'",
        ),
        (
            added("required_devices: {nvidia-gpu: 0}"),
            "required_devices.nvidia-gpu",
            "greater than",
        ),
        (
            added(f"measurements: {{nitro: [{{pcr0: {H96}}}]}}"),
            "measurements.nitro",
            "not among required_cpu_tees",
        ),
        (
            changed(f"pcr4: {H64}", f"pcr4: {H96}"),
            "measurements.tpm[0]",
            "pcr4 is not 64 hex digits",
        ),
        (
            changed(f"pcr4: {H64}", f"launch: {H96}"),
            "measurements.tpm[0]",
            "does not exist in such evidence",
        ),
        *(
            (
                changed(f"pcr4: {H64}", f"pcr{number}: {H64}"),
                "measurements.tpm[0]",
                "names no TPM register of the image: pcr4, pcr8",
            )
            for number in (0, 7, 16, 17, 23)
        ),
        (
            changed(f"pcr4: {H64}", f"pcr24: {H64}"),
            "measurements.tpm[0]",
            "does not exist",
        ),
        (
            changed(f"rtmr3: {H96}}}", "}"),
            "measurements.emulated-tdx[0]",
            "names no rtmr3",
        ),
        (
            changed(f"rtmr3: {H96}}}", f"rtmr4: {H96}}}"),
            "measurements.emulated-tdx[0]",
            "a register that does not exist",
        ),
        (
            changed("product: tdx, fingerprint", "fingerprint"),
            "trust_anchors[1]",
            "the root of",
        ),
        (
            changed(f"product: tdx, fingerprint: {H64}", "product: tdx"),
            "trust_anchors[1]",
            "say which root",
        ),
        (
            changed(f"tpm, fingerprint: {H64}", "tpm"),
            "trust_anchors[2]",
            "say which root",
        ),
        (
            changed("{kind: intel}", "{kind: intel}\n  - {kind: intel}"),
            "trust_anchors[6]",
            "the same root twice",
        ),
        (changed("amd, product: Milan", "amd"), "trust_anchors[3]", "each product"),
        (changed(GENOA, H64), "trust_anchors[4]", "not the root that amd publishes"),
        (changed("kind: intel", "kind: intel, product: tdx"), "trust_anchors[5]", "no"),
        (
            changed("kind: aws", f"kind: aws, fingerprint: {H64}"),
            "trust_anchors[6]",
            "not the root that aws",
        ),
        (changed("UpToDate, ", "Revoked, "), "tdx.statuses[0]", "'UpToDate'"),
        *(
            (changed(f"deny: [{CHIP}", f"deny: [{text}"), "platforms.deny[0]", "match")
            for text in (
                "abc",
                CHIP.upper(),
                CHIP[:64],
                f"{PPID}00",
                "i-0b.c",
                f"{NITRO}-enc",
                f"{NITRO}-ENC01",
            )
        ),
        *(
            (
                added(f"platforms: {{{key}: [{machine}]}}"),
                f"platforms.{key}[0]",
                "no kind among required_cpu_tees names a machine so",
            )
            for key in ("deny", "allow")
            for machine in (PPID, NITRO, "00" * 64)
        ),
        (added("platforms: {}"), "platforms", "lists no machine"),
        (added("platforms: {deny: []}"), "platforms", "lists no machine"),
        (
            changed("cpu_tees: [tpm]", "cpu_tees: [tdx]"),
            "classes[1].cpu_tees[0]",
            "not among required_cpu_tees",
        ),
        (changed(ONE, "{classes: [health]}"), "classes[0]", "demands nothing"),
        (
            changed(ONE, "{classes: [health], countries: [de]}"),
            "classes[0].countries[0]",
            "match pattern",
        ),
        (
            changed(ONE, "{classes: [health], regions: ['']}"),
            "classes[0].regions[0]",
            "match pattern",
        ),
        (
            changed(ONE, "{classes: [health], operators: ['']}"),
            "classes[0].operators[0]",
            "match pattern",
        ),
        (
            changed(ONE, "{classes: [], challenge: true}"),
            "classes[0].classes",
            "at least",
        ),
        (
            changed(ONE, "{classes: [wealth], challenge: true}"),
            "classes[0].classes[0]",
            "unknown class",
        ),
        (
            changed(ONE, "{classes: [health], require: [gpu, gpu]}"),
            "classes[0].require",
            "twice",
        ),
        (
            changed(ONE, "{classes: [health], require: [luck]}"),
            "classes[0].require[0]",
            "'hardware'",
        ),
    ],
)
def test_other_kinds_are_refused(text: Callable[[], str], path: str, said: str) -> None:
    reported = {each.path: each.message for each in problems_of(text())}
    where = f"attestation.{path}" if path else "attestation"
    assert said in reported[where]


def test_two_roots_in_one_anchor_are_refused() -> None:
    text = TEXT.replace(
        "    product: Genoa\n", f"    product: Genoa\n    fingerprint: {H64}\n"
    )
    (problem,) = problems_of(text)
    assert "two roots" in problem.message


def test_a_tpms_key_is_named_by_its_fingerprint_alone() -> None:
    text = TEXT.replace("kind: emulated\n    product: Genoa", "kind: tpm")
    (problem,) = problems_of(text)
    assert "TPM" in problem.message


def test_measurements_of_an_unknown_kind_are_refused() -> None:
    (problem,) = problems_of(f"{TEXT}  measurements: {{sgx: [{{launch: {H96}}}]}}\n")
    assert problem.path == "attestation.measurements.sgx"


def test_a_witness_may_have_a_post_quantum_key() -> None:
    key = base64.b64encode(bytes(1312)).decode()
    log = load(TEXT.replace(OTHER_KEY, key)).releases.log
    assert len(log.witnesses[0].key) == 1312
    (problem,) = problems_of(TEXT.replace(OTHER_KEY, base64.b64encode(b"x").decode()))
    assert "ML-DSA-44" in problem.message


LOG_KEY = VerifierKey(
    key=NoteKey(name="log.example", public_key=bytes(range(32))), signature_type=ED25519
).text
WITNESS_KEY = VerifierKey(
    key=NoteKey(name="one", public_key=bytes(range(1, 33))),
    signature_type=COSIGNATURE_V1,
).text


def test_keys_may_be_written_as_their_makers_give_them() -> None:
    log = load(TEXT.replace(OTHER_KEY, WITNESS_KEY).replace(KEY, LOG_KEY)).releases.log
    assert log == load(TEXT).releases.log


@pytest.mark.parametrize(("old", "new"), [(KEY, WITNESS_KEY), (OTHER_KEY, LOG_KEY)])
def test_a_witness_is_no_log_and_a_log_no_witness(old: str, new: str) -> None:
    (problem,) = problems_of(TEXT.replace(old, new))
    assert OTHER_VKEY in problem.message


def test_a_vkey_with_another_keys_id_is_none() -> None:
    wrong = LOG_KEY.replace(LOG_KEY.split("+")[1], "00000000")
    (problem,) = problems_of(TEXT.replace(KEY, wrong))
    assert "no vkey" in problem.message


Path = tuple[str | int, ...]


def _paths(tree: Tree, path: Path = ()) -> Iterator[Path]:
    yield path
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from _paths(value, (*path, key))
    elif isinstance(tree, list):
        for index, value in enumerate(tree):
            yield from _paths(value, (*path, index))


def _put(tree: Tree, path: Path, value: Tree) -> Tree:
    if not path:
        return value
    first, rest = path[0], path[1:]
    if isinstance(tree, dict):
        key = str(first)
        return {**tree, key: _put(tree[key], rest, value)}
    assert isinstance(tree, list)
    index = int(first)
    return [*tree[:index], _put(tree[index], rest, value), *tree[index + 1 :]]


WHOLE = cast("dict[str, Tree]", read_tree(MANY, lambda _: (), source="test"))
PLACES = [("attestation", *path) for path in _paths(WHOLE["attestation"])]
JUNK: list[Tree] = [
    None,
    True,
    7,
    "",
    "tdx",
    [],
    [[]],
    [None],
    {},
    {"x": 1},
    ["tpm", {}],
    H64,
]


@given(place=st.sampled_from(PLACES), junk=st.sampled_from(JUNK))
def test_junk_anywhere_is_a_problem_or_a_policy(place: Path, junk: Tree) -> None:
    """A load error or a policy whose expectations can be described and applied."""
    text = json.dumps(_put(WHOLE, place, junk))
    try:
        policy = load_policy(text)
    except PolicyError:
        return
    expectations = expectations_from(policy)
    assert list(attestation_in_words(policy))
    with suppress(RefusedError):
        validate_expectations(expectations)
