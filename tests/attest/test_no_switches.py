"""Nothing that a policy can say turns a check off."""

import re
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest

from curtilage.attest import expectations as module
from curtilage.policy.document.load import load_policy
from curtilage.policy.errors import PolicyError
from support.evidence_policies import SNP, write_policy

ROOTS = {
    "sev-snp": {"kind": "amd", "product": "Milan"},
    "tdx": {"kind": "intel"},
    "nitro": {"kind": "aws"},
}
SWITCHES = {
    "snp": (
        *("allow_debug", "allow_migration", "crl", "crl_required"),
        *("skip", "verify", "allow_unsigned", "check_chip_id"),
    ),
    "tdx": ("allow_debug", "allow_service_td", "skip_crl", "allow_sept_ve"),
    "nitro": ("allow_debug", "debug", "allow_zero_pcrs"),
    "gpu": ("allow_debug", "allow_padding", "nras"),
    "freshness": ("required", "allow_expired"),
    "attestation": ("enforce", "optional", "skip", "allow_debug", "warn_only"),
}


def _policy(tmp_path: Path, section: str, **more: object) -> str:
    """Write a policy of everything, with something more in one section."""
    sections: dict[str, dict[str, object]] = {
        "snp": dict(SNP),
        "tdx": {"statuses": ["UpToDate"]},
        "nitro": {},
        "gpu": {"drivers": ["1"], "vbioses": ["1"], "golden": ["00" * 32]},
        "freshness": {
            "max_key_lifetime_s": 43200,
            "max_evidence_age_s": 43200,
            "clock_skew_s": 60,
        },
    }
    extra = more if section == "attestation" else {}
    if section in sections:
        sections[section] = {**sections[section], **more}
    entries: dict[str, object] = {
        "trust_anchors": [*ROOTS.values(), {"kind": "nvidia"}],
        "required_cpu_tees": list(ROOTS),
        "required_devices": {"nvidia-gpu": 1},
        **sections,
        **extra,
    }
    return Path(write_policy(tmp_path / "policy.yaml", **entries)).read_text("utf-8")


def test_the_policy_itself_is_read(tmp_path: Path) -> None:
    assert load_policy(_policy(tmp_path, "")).attestation is not None


@pytest.mark.parametrize("value", [True, False, "warn"], ids=str)
@pytest.mark.parametrize("section", SWITCHES)
def test_a_switch_is_a_load_error(tmp_path: Path, section: str, value: object) -> None:
    """Also one that states the default, so that it does not seem to have an effect."""
    text = _policy(tmp_path, section, **dict.fromkeys(SWITCHES[section], value))
    with pytest.raises(PolicyError) as caught:
        load_policy(text)
    place = "attestation" if section == "attestation" else f"attestation.{section}"
    reported = {each.path: each.message for each in caught.value.problems}
    assert reported == {f"{place}.{each}": "unknown key" for each in SWITCHES[section]}


def test_the_verifiers_rules_have_no_switch_either() -> None:
    """What may be allowed is a short list; nothing skips, disables or warns."""
    rules = [each for each in vars(module).values() if is_dataclass(each)]
    names = {field.name for rule in rules for field in fields(rule)}
    assert {name for name in names if name.startswith("allow")} == {
        "allow",  # platforms
        "allow_vlek",
        "allow_masked_chip",
    }
    off = re.compile(r"skip|disable|ignore|insecure|unsafe|debug|warn|optional|enforce")
    assert not {name for name in names if off.search(name)}
