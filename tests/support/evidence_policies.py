"""Policies for one piece of evidence, as files that the command line reads."""

import json
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path

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


def write_policy(path: Path, **attestation: object) -> str:
    """Write the default profile with such a section; return the file's name."""
    section = json.dumps({**BASE, **attestation})
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
