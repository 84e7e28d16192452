"""Make the vectors of the sandbox statement, and of a manifest that names one.

Writes ``vectors.json`` next to itself. Uses only the standard library, so that it
is a second implementation of the text in ``docs/protocol.md``.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

LOADED = hashlib.sha256(b"description of what was loaded").hexdigest()
ATTEMPTS = [f"attempt_{number}" for number in range(50)]


def canonical(tree: object) -> str:
    """Encode with sorted keys and no spaces."""
    return json.dumps(tree, sort_keys=True, separators=(",", ":"))


def statement(
    isolation: str, ephemerality: str, *, succeeded: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Describe what an enclave of two processes states."""
    return {
        "v": 1,
        "loaded": LOADED,
        "isolation": isolation,
        "ephemerality": ephemerality,
        "result": {
            "landlock_abi": 6,
            "memory": "locked",
            "processes": [
                {"name": "engine", "denied": ATTEMPTS, "succeeded": []},
                {"name": "server", "denied": ATTEMPTS, "succeeded": list(succeeded)},
            ],
        },
    }


MANIFEST: dict[str, Any] = {
    "v": 5,
    "name": "curtilage-enclave",
    "version": "1.2.3",
    "source": "git:0123456789",
    "images": [],
    "models": ["12" * 32],
    "measurements": {"sev-snp": [{"launch": "ab" * 48, "hostdata": "cd" * 32}]},
    "min_tcb": [],
    "gpu": {"drivers": [], "vbioses": [], "golden": []},
    "sandbox": LOADED,
    "isolation": "process",
    "ephemerality": "process",
    "operator": "",
    "country": "",
    "region": "",
    "not_after": 1800000000,
    "transport": {
        "shape": "padded",
        "frame_bytes": 512,
        "period_ms": 50,
        "first_bucket": 64,
        "buckets": 7,
    },
}


def vector(name: str, tree: dict[str, Any], *, holds: bool) -> dict[str, Any]:
    """Describe one statement."""
    text = canonical(tree)
    return {
        "name": name,
        "loaded": tree["loaded"],
        "isolation": tree["isolation"],
        "ephemerality": tree["ephemerality"],
        "holds": holds,
        "canonical": text,
        "sha256": hashlib.sha256(text.encode()).hexdigest(),
    }


def make() -> dict[str, Any]:
    """Compute all vectors."""
    manifest = canonical(MANIFEST)
    opened = statement("process", "process", succeeded=("mkdir",))
    return {
        "statements": [
            vector("closed", statement("process", "process"), holds=True),
            vector("shared", statement("shared", "overwritten"), holds=True),
            vector("nothing promised", statement("shared", "none"), holds=True),
            vector("open", opened, holds=False),
        ],
        "manifest": manifest,
        "manifest_sha256": hashlib.sha256(manifest.encode()).hexdigest(),
    }


if __name__ == "__main__":
    path = Path(__file__).with_name("vectors.json")
    path.write_text(json.dumps(make(), indent=1) + "\n", encoding="utf-8")
