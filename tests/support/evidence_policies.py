"""Policies for one piece of evidence, as files that the command line reads."""

import json
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from curtilage.policy.breaks import Default, known_breaks
from curtilage.policy.document.load import profile_text

KEY = b64encode(bytes(range(32))).decode()
WITNESS = b64encode(bytes(range(32, 64))).decode()
SNP_MINIMUM = {"product": "Milan", "bl": 0, "tee": 0, "snp": 0, "ucode": 0}
SNP = {
    "min_version": 3,
    "vmpl": [0],
    "allow_vlek": False,
    "allow_masked_chip": False,
    "min_tcb": [SNP_MINIMUM],
}
BASE: Mapping[str, object] = {
    "environment": "production",
    "releases": {
        "names": ["curtilage-enclave"],
        "log": {
            "origin": "log.example/curtilage",
            "key": KEY,
            "witnesses": [{"name": "witness.example", "key": WITNESS}],
            "quorum": 1,
        },
        "max_checkpoint_age_s": 86400,
    },
    "freshness": {
        "max_key_lifetime_s": 43200,
        "max_evidence_age_s": 43200,
        "clock_skew_s": 60,
    },
}


def everything_accepted(attestation: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return an entry for each known break whose consequence can be accepted."""
    kinds = {
        *attestation.get("required_cpu_tees", ()),
        *attestation.get("required_devices", ()),
    }
    products = {
        each.get("product", "")
        for each in attestation.get("trust_anchors", ())
        if each["kind"] == "amd"
    }
    return [
        {"id": row.id, "reason": "A test."}
        for row in known_breaks().of(kinds, products)
        if row.default in {Default.REFUSE, Default.RAISE}
    ]


def write_policy(path: Path, **attestation: object) -> str:
    """Write the default profile with such a section; return the file's name.

    The genuine samples are of broken products, or older than the fixes of others, so
    it accepts every known break that affects it unless the section says otherwise.
    """
    accepted = {"accept_broken": everything_accepted(attestation)}
    section = json.dumps({**BASE, **accepted, **attestation})
    path.write_text(f"{profile_text('default')}\nattestation: {section}\n", "utf-8")
    return str(path)


def emulated_policy(*demands: Mapping[str, object]) -> str:
    """Return the text of a policy for emulated enclaves that demands more."""
    section = {
        **BASE,
        "environment": "development",
        "trust_anchors": [
            {"kind": "emulated", "product": "Genoa", "fingerprint": "00" * 32}
        ],
        "required_cpu_tees": ["emulated-sev-snp", "sev-snp"],
        "snp": {**SNP, "min_tcb": [{**SNP_MINIMUM, "product": "Genoa"}]},
        "classes": demands,
    }
    return f"{profile_text('default')}\nattestation: {json.dumps(section)}\n"
