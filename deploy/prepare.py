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
import shutil
import sys
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "dev"))

from curtilage.attest.log.manifest import parse_manifest  # noqa: E402
from curtilage.inference.default_model import DEFAULT_SHA256  # noqa: E402
from curtilage_dev import devlog, policy  # noqa: E402
from curtilage_dev.deployment import MEASUREMENT  # noqa: E402


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
    template = (ROOT / "deploy" / "enclave.toml").read_text("utf-8")
    table = devlog.log_table(out / "log")
    (out / "enclave.toml").write_text(f"{template}\n{table}", "utf-8")
    _publish(out)


def _publish(out: Path) -> None:
    """Copy what the enclave reads, and nothing else; it runs as another user."""
    (out / "release").mkdir(exist_ok=True)
    for name in devlog.PUBLIC_FILES:
        shutil.copyfile(out / "log" / name, out / "release" / name)


def _write_policy(out: Path, root_pem: Path) -> None:
    text = policy.development_policy(
        machine=policy.Emulated(root_pem=root_pem.read_bytes()),
        log=(out / "log" / devlog.LOG_FILE).read_bytes(),
        transport=parse_manifest(
            (out / "log" / devlog.MANIFEST_FILE).read_bytes()
        ).transport,
    )
    (out / "policy.yaml").write_text(text, "utf-8")


if __name__ == "__main__":
    sys.exit(main())
