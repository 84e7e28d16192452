#!/usr/bin/env python3
"""Prepare the development deployment that compose.yaml starts.

Makes a log of its own with one release in it, and the enclave's configuration
that names the log's keys. Development only: the evidence is emulated. Files in
``--out`` (default: deploy/run):

    log/             the log, its private keys included; stays on this side
    release/         what the enclave reads: manifest, proof, checkpoint
    enclave.toml     deploy/enclave.toml, completed with the log's public keys

``--refresh`` cosigns the same log at the present time, which a running enclave
picks up; ``--policy ROOT_PEM`` writes policy.yaml, which a client needs.
"""

import argparse
import json
import shutil
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "dev"))

from curtilage.attest.manifest import parse_manifest  # noqa: E402
from curtilage.inference.default_model import DEFAULT_SHA256  # noqa: E402
from curtilage_dev import devlog, policy  # noqa: E402
from curtilage_dev.deployment import MEASUREMENT  # noqa: E402

PUBLIC = (devlog.MANIFEST_FILE, devlog.PROOF_FILE, devlog.CHECKPOINT_FILE)


def main(arguments: list[str] | None = None) -> int:
    """Do what was asked for; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=ROOT / "deploy" / "run")
    parser.add_argument("--refresh", action="store_true", help="cosign again")
    parser.add_argument("--policy", type=Path, metavar="ROOT_PEM", help="write policy")
    options = parser.parse_args(arguments)
    out: Path = options.out
    if options.policy is not None:
        _write_policy(out, options.policy)
    elif options.refresh:
        devlog.refresh(out / "log", now=datetime.now(UTC))
        _publish(out)
    else:
        _create(out)
    return 0


def _create(out: Path) -> None:
    release = devlog.ReleaseArguments(
        version="0.1.0",
        source="development",
        measurements=(MEASUREMENT.hex(),),
        models=(DEFAULT_SHA256,),
    )
    (out / "log").mkdir(parents=True, exist_ok=True)
    devlog.create(out / "log", release, now=datetime.now(UTC))
    log = json.loads((out / "log" / devlog.LOG_FILE).read_text("utf-8"))
    template = (ROOT / "deploy" / "enclave.toml").read_text("utf-8")
    (out / "enclave.toml").write_text(f"{template}\n{_log_table(log)}", "utf-8")
    _publish(out)


def _publish(out: Path) -> None:
    """Copy what the enclave reads, and nothing else; it runs as another user."""
    (out / "release").mkdir(exist_ok=True)
    for name in PUBLIC:
        shutil.copyfile(out / "log" / name, out / "release" / name)


def _write_policy(out: Path, root_pem: Path) -> None:
    text = policy.development_policy(
        root_pem=root_pem.read_bytes(),
        log=(out / "log" / devlog.LOG_FILE).read_bytes(),
        transport=parse_manifest(
            (out / "log" / devlog.MANIFEST_FILE).read_bytes()
        ).transport,
    )
    (out / "policy.yaml").write_text(text, "utf-8")


def _log_table(log: dict[str, object]) -> str:
    lines = ["[log]"]
    lines += [f"{key} = {json.dumps(log[key])}" for key in ("origin", "key", "quorum")]
    for witness in cast("list[dict[str, str]]", log["witnesses"]):
        lines.append("[[log.witnesses]]")
        lines += [f"{key} = {json.dumps(witness[key])}" for key in ("name", "key")]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
