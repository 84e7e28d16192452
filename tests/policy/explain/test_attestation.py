import json
import re

import pytest

from curtilage.policy.document.load import load_policy, profile_text
from curtilage.policy.document.model import Policy
from curtilage.policy.explain.attestation import (
    CLAIMS,
    NEVER_MET,
    NO_ISOLATION,
    NO_ROOT,
    NOTHING,
    ONLY_TO,
    OTHERWISE,
    PROVES_NOTHING,
    attestation_in_words,
)

H64, H96 = "ab" * 32, "cd" * 48
CHIP = "0a" * 64
SECTION = f"""
attestation:
  environment: production
  trust_anchors:
  - {{kind: amd, product: Genoa}}
  - {{kind: nvidia}}
  required_cpu_tees: [sev-snp, tdx]
  required_devices: {{nvidia-gpu: 1}}
  releases:
    names: [one, two]
    denied: ["one 1.0"]
    log:
      origin: example.org/log
      key: {"A" * 42}E=
      witnesses: [{{name: first.example, key: {"A" * 42}I=}}]
      quorum: 1
    max_checkpoint_age_s: 172800
  measurements:
    sev-snp: [{{launch: {H96}}}]
  snp:
    min_version: 3
    vmpl: [0, 1]
    allow_vlek: true
    allow_masked_chip: true
    min_tcb: [{{product: Genoa, bl: 10, tee: 0, snp: 23, ucode: 84}}]
  tdx: {{statuses: [UpToDate], rejected_advisories: [INTEL-SA-00001]}}
  gpu: {{drivers: ["570.1"], vbioses: ["96.00"], golden: [{H64}]}}
  sandbox: [{H64}]
  platforms: {{deny: [{CHIP}]}}
  freshness: {{max_key_lifetime_s: 43200, max_evidence_age_s: 60, clock_skew_s: 0}}
  classes:
  - {{classes: [health], require: [hardware, no_write], cpu_tees: [sev-snp],
     max_evidence_age_s: 3600, challenge: true}}
"""


def policy(text: str = SECTION) -> Policy:
    return load_policy(profile_text("default") + text)


def words(text: str = SECTION) -> list[tuple[str, str]]:
    return list(attestation_in_words(policy(text)))


def test_everything_that_is_accepted_is_said() -> None:
    """The only test of these words; all others test what the words must name."""
    assert [each for each in words() if each[0] != "broken"] == [
        ("enclaves", "production: emulated evidence is never trusted"),
        ("hardware", "AMD SEV-SNP"),
        (
            "hardware",
            "Intel TDX; but no root is pinned for it, so it is refused",
        ),
        ("devices", "at least 1 NVIDIA GPU, bound to the CPU"),
        (
            "roots",
            (
                "AMD's root for Genoa (4c6598d19c18719c); "
                "NVIDIA's Device Identity CA (102bf659d5419614)"
            ),
        ),
        (
            "releases",
            (
                "one or two, but not one 1.0, in the log example.org/log, seen by 1 of "
                "1 witness in the last 2 days"
            ),
        ),
        (
            "pinned",
            "AMD SEV-SNP: only 1 measurement listed here (launch), and released",
        ),
        ("sandbox", "1 sandbox policy listed here count as writing nothing"),
        (
            "firmware",
            (
                "Genoa at bl 10, tee 0, snp 27, ucode 84 or later (with the fixes of "
                "BadRAM, EntrySign, RMPocalypse)"
            ),
        ),
        (
            "SEV-SNP",
            (
                "report version 3 or later, privilege level 0 or 1, revocation list at "
                "most 400 days old"
            ),
        ),
        ("SEV-SNP", "keys that a cloud has loaded into the chip are accepted"),
        ("SEV-SNP", "chips that hide their id are accepted"),
        (
            "TDX",
            (
                "status UpToDate, by Intel's evaluation 20 or later (with the fixes of "
                "Intel's TCB recovery 20); never with INTEL-SA-00001 open"
            ),
        ),
        ("GPUs", "driver 570.1, VBIOS 96.00, 1 set of measurements"),
        (
            "machines",
            "any, never 1 that are listed; evidence that names no machine is refused",
        ),
        (
            "evidence",
            (
                "at most 1 minute old, for keys that live at most 12 hours; clocks may "
                "differ by 0 seconds"
            ),
        ),
        (
            "demand",
            (
                "health: leaves only to an enclave with hardware that keeps its host "
                "out, a sandbox listed here, evidence of AMD SEV-SNP, evidence of the "
                "last 1 hour, a challenge answered in the last 1 hour; otherwise it is "
                "kept local"
            ),
        ),
        ("weak", "only one witness vouches for the log"),
        ("weak", "no measurement of tdx is listed: any that is released is accepted"),
        ("weak", "less privileged parts of a guest may speak for all of it"),
        ("weak", "a revoked GPU is refused only where NVIDIA's answer is stapled"),
    ]


TDX_LINE = "  tdx: {statuses: [UpToDate], rejected_advisories: [INTEL-SA-00001]}\n"
GPU_LINE = f'  gpu: {{drivers: ["570.1"], vbioses: ["96.00"], golden: [{H64}]}}\n'
STRICT = (
    SECTION.replace("required_cpu_tees: [sev-snp, tdx]", "required_cpu_tees: [sev-snp]")
    .replace("[0, 1]", "[0]")
    .replace(
        "  tdx: {statuses: [UpToDate], rejected_advisories: [INTEL-SA-00001]}\n", ""
    )
    .replace("quorum: 1", "quorum: 2")
    .replace(f"golden: [{H64}]}}", f"golden: [{H64}], revocation: required}}")
    .replace("I=}]", f"I=}}, {{name: b, key: {'A' * 42}M=}}]")
    .replace("max_evidence_age_s: 60,", "max_evidence_age_s: 86400,")
    .replace("clock_skew_s: 0", "clock_skew_s: 60")
)
ZERO = "{product: Turin, fmc: 0, bl: 0, tee: 0, snp: 0, ucode: 0}"


def weak(text: str) -> list[str]:
    return [sentence for label, sentence in words(text) if label == "weak"]


def test_a_strict_policy_has_nothing_weak() -> None:
    assert weak(STRICT) == []
    assert weak(STRICT[: STRICT.index("  measurements:")] + after("  snp:")) == []


def after(mark: str) -> str:
    return STRICT[STRICT.index(mark) :]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("quorum: 2", "quorum: 1", "one witness"),
        ("vmpl: [0]", "vmpl: [0, 3]", "less privileged"),
        ("key_lifetime_s: 43200", "key_lifetime_s: 86401", "keys may live longer"),
        ("evidence_age_s: 86400", "evidence_age_s: 86401", "evidence may be older"),
        ("skew_s: 60", "skew_s: 61", "differ by 61 seconds"),
        ("vmpl:", "max_crl_age_s: 34646400\n    vmpl:", "may be 401 days old"),
        ("vmpl:", f"host_data: [{H64}]\n    vmpl:", "host_data"),
        ("min_tcb: [", f"min_tcb: [{ZERO}, ", "any firmware of Turin"),
        (H96, "00" * 48, "a measurement of sev-snp is all zeros"),
        ("revocation: required", "revocation: if_stapled", "a revoked GPU"),
    ],
)
def test_weak_settings_are_reported(old: str, new: str, said: str) -> None:
    assert old in STRICT
    (sentence,) = weak(STRICT.replace(old, new, 1))
    assert said in sentence


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ("{statuses: [UpToDate], min_tcb_evaluation_number: 17}", []),
        ("{statuses: [UpToDate]}", []),
        (
            "{statuses: [OutOfDate], min_tcb_evaluation_number: 17}",
            ["that lack Intel's security fixes"],
        ),
        (
            "{statuses: [SWHardeningNeeded], min_tcb_evaluation_number: 17}",
            ["wants configured otherwise"],
        ),
    ],
)
def test_weak_settings_of_tdx_are_reported(section: str, said: list[str]) -> None:
    text = STRICT[: STRICT.index("  measurements:")] + after("  snp:")
    text = text.replace("tees: [sev-snp]\n", "tees: [sev-snp, tdx]\n")
    found = weak(text.replace("  gpu:", f"  tdx: {section}\n  gpu:"))
    assert len(found) == len(said)
    assert all(part in sentence for part, sentence in zip(said, found, strict=True))


MRTD: dict[str, str] = {"mrtd": H96}
RTMRS: dict[str, str] = {f"rtmr{index}": "00" * 48 for index in range(4)}


@pytest.mark.parametrize(
    ("tee", "measurement", "said"),
    [
        ("tdx", MRTD | RTMRS, ["zeros in RTMR 0 to 3"]),
        ("tdx", MRTD | RTMRS | {"rtmr1": H96}, []),
        ("tdx", {"mrtd": "00" * 48} | RTMRS, ["is all zeros"]),
        # There the vTPM's registers say what was started.
        ("azure-tdx", MRTD | RTMRS | {"pcr11": H64}, []),
    ],
    ids=["zeros", "one measured", "all zeros", "azure"],
)
def test_run_time_registers_of_zeros_are_reported(
    tee: str, measurement: dict[str, str], said: list[str]
) -> None:
    text = STRICT[: STRICT.index("  measurements:")] + after("  snp:")
    text = text.replace("tees: [sev-snp]\n", f"tees: [sev-snp, {tee}]\n")
    tdx = "{statuses: [UpToDate], min_tcb_evaluation_number: 17}"
    listed = json.dumps({"sev-snp": [{"launch": H96}], tee: [measurement]})
    sections = f"  measurements: {listed}\n  tdx: {tdx}\n  gpu:"
    found = weak(text.replace("  gpu:", sections))
    assert len(found) == len(said)
    assert all(part in sentence for part, sentence in zip(said, found, strict=True))


def test_an_evaluation_of_any_age_is_weak_where_its_fixes_are_not_demanded() -> None:
    text = STRICT[: STRICT.index("  measurements:")] + after("  snp:")
    text = text.replace("tees: [sev-snp]\n", "tees: [sev-snp, tdx]\n")
    text = text.replace("  gpu:", "  tdx: {statuses: [UpToDate]}\n  gpu:")
    assert weak(text) == []
    accepted = "  accept_broken: [{id: intel-2026-08, reason: A reason.}]\n"
    for changed in (
        text.replace("  gpu:", f"{accepted}  gpu:"),
        text.replace("production", "development"),
    ):
        (sentence,) = weak(changed)
        assert "an evaluation of Intel's of any age" in sentence


@pytest.mark.parametrize(
    ("section", "reported"),
    [("", True), ("  nitro: {revocation: required}\n", False)],
    ids=["left out", "required"],
)
def test_revocation_lists_of_nitro_may_be_required(
    section: str, *, reported: bool
) -> None:
    text = STRICT[: STRICT.index("  measurements:")] + after("  snp:")
    text = text.replace("tees: [sev-snp]\n", "tees: [sev-snp, nitro]\n")
    found = weak(text.replace("  gpu:", f"{section}  gpu:"))
    assert any("AWS's revocation lists" in each for each in found) is reported


@pytest.mark.parametrize(
    ("demand", "old", "new"),
    [
        ("require: [gpu]", "", ""),
        ("require: [no_write]", "", ""),
        ("require: [custody]", "quorum: 2", "quorum: 2"),
        ("require: [gpu]", "required_devices: {nvidia-gpu: 1}", ""),
        ("require: [no_write]", f"sandbox: [{H64}]", ""),
        ("cpu_tees: []", "", ""),
        ("require: [hardware]", "", ""),
        ("require: [hardware]", "[sev-snp]\n", "[emulated-sev-snp]\n"),
    ],
)
def test_a_demand_that_nothing_meets_is_said(demand: str, old: str, new: str) -> None:
    text = STRICT[: STRICT.index("  classes:")]
    text = f"{text}  classes: [{{classes: [health], {demand}}}]\n"
    assert old in text
    if "emulated" in new:
        text = text.replace("production", "development")
        text = text[: text.index("  measurements:")] + text[text.index("  snp:") :]
    if "devices" in old:
        text = text.replace(
            GPU_LINE.replace("]}", "], revocation: required}"),
            "",
        )
    sentence = dict(words(text.replace(old, new)))["demand"]
    never = bool(old) or demand == "cpu_tees: []"
    assert sentence.endswith(NEVER_MET) is never


def test_a_device_without_a_root_is_said() -> None:
    devices = dict(words(SECTION.replace("  - {kind: nvidia}\n", "")))["devices"]
    assert devices.endswith(NO_ROOT)


def test_which_registers_are_pinned_is_said() -> None:
    old = f"    sev-snp: [{{launch: {H96}}}]\n"
    assert old in SECTION
    new = (
        f"    azure-snp: [{{launch: {H96}, pcr4: {H64}}}, "
        f"{{pcr11: {H64}, launch: {H96}}}]\n"
    )
    text = SECTION.replace(old, new).replace("[sev-snp, tdx]", "[azure-snp, tdx]")
    text = text.replace("cpu_tees: [sev-snp]", "cpu_tees: [azure-snp]")
    pinned = dict(words(text))["pinned"]
    assert " 2 measurements " in pinned
    assert "(launch, pcr11; launch, pcr4)" in pinned


def test_absent_entries_are_not_described() -> None:
    """A policy for one kind, without any optional entry."""
    kept = SECTION
    for line in (
        "  required_devices: {nvidia-gpu: 1}\n",
        '  gpu: {drivers: ["570.1"], vbioses: ["96.00"], golden: [' + H64 + "]}\n",
        f"  sandbox: [{H64}]\n",
        f"  platforms: {{deny: [{CHIP}]}}\n",
        '    denied: ["one 1.0"]\n',
    ):
        assert line in kept
        kept = kept.replace(line, "")
    kept = kept[: kept.index("  classes:")]
    kept = kept.replace("allow_vlek: true", "allow_vlek: false").replace(
        "allow_masked_chip: true", "allow_masked_chip: false"
    )
    kept = kept.replace(", rejected_advisories: [INTEL-SA-00001]", "")
    labels = [label for label, _ in words(kept)]
    assert labels == [
        "enclaves",
        "hardware",
        "hardware",
        "roots",
        "releases",
        "pinned",
        "firmware",
        "SEV-SNP",
        "TDX",
        "evidence",
        *["weak"] * 3,
        *["broken"] * 9,
    ]
    only = kept.replace("[sev-snp, tdx]", "[nitro]")
    start, end = only.index("  measurements:"), only.index("  freshness:")
    only = only[:start] + only[end:]
    assert dict(words(only))["hardware"] == f"AWS Nitro Enclaves; {NO_ROOT}"
    empty = words(only.replace("[nitro]", "[]"))
    assert ("hardware", NOTHING) in empty


def test_every_demand_is_said_by_itself() -> None:
    for demand, said in (
        ("require: [gpu]", CLAIMS["gpu"]),
        ("require: [weights]", CLAIMS["weights"]),
        ("max_evidence_age_s: 61", "evidence of the last 61 seconds"),
        ("challenge: true", "a challenge answered in the last 1 minute"),
    ):
        start = SECTION.index("  classes:")
        text = f"{SECTION[:start]}  classes: [{{classes: [health], {demand}}}]\n"
        sentence = dict(words(text))["demand"]
        assert sentence == f"health: {ONLY_TO} {said}; {OTHERWISE}"


def test_turin_has_a_level_more() -> None:
    old = "{product: Genoa, bl: 10, tee: 0, snp: 23, ucode: 84}"
    assert old in SECTION
    new = "{product: Turin, fmc: 1, bl: 2, tee: 3, snp: 5, ucode: 5}"
    said = dict(words(SECTION.replace(old, new)))["firmware"]
    assert said.startswith("Turin ")
    levels = {"fmc": "1", "bl": "2", "tee": "3", "snp": "5", "ucode": "5"}
    assert dict(re.findall(r"(\w+) (\d)", said)) == levels


def test_without_the_section_nothing_may_leave() -> None:
    assert words("") == [("enclaves", NOTHING)]


@pytest.mark.parametrize(
    ("old", "new", "label", "said"),
    [
        ("[one, two]", "[]", "releases", NOTHING),
        ("vmpl: [0, 1]", "vmpl: []", "SEV-SNP", "none, so all are refused"),
        ("environment: production", "environment: development", "enclaves", "DEVELOP"),
        (
            f"deny: [{CHIP}]",
            f"deny: [], allow: [{CHIP}]",
            "machines",
            "only 1 that are listed;",
        ),
        ("cpu_tees: [sev-snp]", "cpu_tees: []", "demand", "evidence of no kind at all"),
    ],
)
def test_dangerous_or_empty_settings_are_reported(
    old: str, new: str, label: str, said: str
) -> None:
    assert old in SECTION
    found = [text for name, text in words(SECTION.replace(old, new)) if name == label]
    assert any(said in text for text in found)


def test_emulation_is_called_by_its_name() -> None:
    text = SECTION.replace("production", "development").replace(
        "[sev-snp, tdx]", "[emulated-sev-snp, tpm, tdx, sev-snp]"
    )
    text = text.replace("{nvidia-gpu: 1}", "{emulated-nvidia-gpu: 2}")
    said = dict(reversed(words(text)))
    hardware = [sentence for name, sentence in words(text) if name == "hardware"]
    assert PROVES_NOTHING in hardware[0]
    assert NO_ISOLATION in hardware[1]
    assert PROVES_NOTHING in said["devices"]
