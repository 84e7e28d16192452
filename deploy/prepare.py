#!/usr/bin/env python3
"""Prepare the development deployment that compose.yaml starts.

Makes a development log with one release in it, and the enclave's configuration with the
log's keys. Development only: the evidence is emulated. Files in ``--out`` (default:
deploy/run):

    log/             the log, including its private keys; not for the enclave
    release/         the enclave's input: manifest, proof, checkpoint
    enclave.toml     deploy/enclave.toml, completed with the log's public keys

If a log exists, it and its keys are kept, and the rest is written again: a client's
policy names these keys. ``--replace-keys`` makes new ones. ``--refresh`` cosigns the
same log at the current time, which a running enclave picks up; ``--policy ROOT_PEM``
writes policy.yaml, which a client needs; ``--print-measurement`` prints the
measurement that the release names, which the emulator has to report
(``--measurement``).
"""

import argparse
import shlex
import shutil
import sys
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
USUAL = ROOT / "deploy" / "run"
KEPT = "kept, with its keys"
REPLACED = "a new log, the old keys are gone"
WRONG_USE = 2
sys.path.insert(0, str(ROOT / "dev"))

from cryptography import x509  # noqa: E402

from curtilage.attest.log.manifest import parse_manifest  # noqa: E402
from curtilage.inference.default_model import DEFAULT_SHA256  # noqa: E402
from curtilage_dev import devlog, policy  # noqa: E402
from curtilage_dev.deployment import MEASUREMENT  # noqa: E402


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=USUAL)
    parser.add_argument("--refresh", action="store_true", help="cosign again")
    parser.add_argument("--policy", type=Path, metavar="ROOT_PEM", help="write policy")
    parser.add_argument(
        "--replace-keys",
        action="store_true",
        help="make a new log with new keys in place of the existing one; "
        "enclaves and clients that know the old one refuse it",
    )
    parser.add_argument(
        "--print-measurement", action="store_true", help="print it, and make nothing"
    )
    options = parser.parse_args(arguments)
    out: Path = options.out
    try:
        if options.print_measurement:
            _say(MEASUREMENT.hex())
        elif options.policy is not None:
            _write_policy(out, options.policy)
        elif options.refresh:
            _refresh(out)
        else:
            _create(out, replace_keys=options.replace_keys)
    except OSError as failure:
        sys.stderr.write(f"{failure.filename}: {failure.strerror}\n")
        return WRONG_USE
    except MissingError as missing:
        sys.stderr.write(f"{missing}\n")
        return WRONG_USE
    return 0


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


class MissingError(Exception):
    """A file is missing that an earlier step makes; the message names the step."""


def _create(out: Path, *, replace_keys: bool) -> None:
    log = out / "log"
    there = (log / devlog.PRIVATE).exists()
    if there and not replace_keys:
        _require_log(out)
        _say(f"{log}: {KEPT} (--replace-keys makes new ones)")
    else:
        _make_log(log)
        what = REPLACED if there else "a new log"
        _say(f"{log}: {what}; its private keys are in {log / devlog.PRIVATE}")
    template = (ROOT / "deploy" / "enclave.toml").read_text("utf-8")
    table = devlog.log_table(log)
    (out / "enclave.toml").write_text(f"{template}\n{table}", "utf-8")
    _say(f"{out / 'enclave.toml'}: the enclave's configuration")
    _publish(out)
    _say(f"measurement of the release (--print-measurement): {MEASUREMENT.hex()}")
    _say(
        "next: start the emulator, the enclave and the relay, such as by\n"
        "  docker compose --profile development up --build --wait\n"
        f"then write the policy of a client:\n{_policy_steps(out)}\n"
        "the checkpoint is accepted for a day: --refresh cosigns it again"
    )


def _make_log(log: Path) -> None:
    release = devlog.ReleaseArguments(
        version="0.1.0",
        source="development",
        measurements=(MEASUREMENT.hex(),),
        models=(DEFAULT_SHA256,),
    )
    log.mkdir(parents=True, exist_ok=True)
    devlog.create(log, release, now=datetime.now(UTC))


def _refresh(out: Path) -> None:
    _require_log(out)
    devlog.refresh(out / "log", now=datetime.now(UTC))
    _publish(out)
    _say("a running enclave picks it up; nothing has to be restarted")


def _require_log(out: Path) -> None:
    """Refuse if there is no complete log.

    Raises:
        MissingError: names the step that makes one.
    """
    log = out / "log"
    names = (*devlog.PUBLIC_FILES, devlog.LOG_FILE, devlog.PRIVATE, devlog.SERVED)
    missing = [name for name in names if not (log / name).exists()]
    if len(missing) == len(names):
        raise MissingError(
            f"{log}: there is no log; `{_command(out)}` makes one, and must run first"
        )
    if missing:
        raise MissingError(
            f"{log}: {', '.join(missing)} is missing, so the log cannot be used; "
            f"`{_command(out)} --replace-keys` makes a new one"
        )


def _command(out: Path) -> str:
    place = "" if out == USUAL else f" --out {shlex.quote(str(out))}"
    return f"python deploy/prepare.py{place}"


def _policy_steps(out: Path) -> str:
    root = shlex.quote(str(out / "root.pem"))
    return (
        f"  docker compose cp emulator:/run/evidence/root.pem {root}\n"
        f"  {_command(out)} --policy {root}"
    )


def _publish(out: Path) -> None:
    """Copy only the files that the enclave reads; it runs as another user."""
    (out / "release").mkdir(exist_ok=True)
    for name in devlog.PUBLIC_FILES:
        shutil.copyfile(out / "log" / name, out / "release" / name)
    _say(f"{out / 'release'}: the log's files for the enclave")


def _write_policy(out: Path, root_pem: Path) -> None:
    _require_log(out)
    if not root_pem.is_file():
        raise MissingError(
            f"{root_pem}: no such file; it is the root of the emulated evidence, which "
            f"the emulator writes when it starts:\n{_policy_steps(out)}"
        )
    pem = root_pem.read_bytes()
    try:
        x509.load_pem_x509_certificate(pem)
    except ValueError:
        raise MissingError(
            f"{root_pem}: holds no certificate in PEM; the emulator writes it when it "
            f"starts:\n{_policy_steps(out)}"
        ) from None
    text = policy.development_policy(
        machine=policy.Emulated(root_pem=pem),
        log=(out / "log" / devlog.LOG_FILE).read_bytes(),
        transport=parse_manifest(
            (out / "log" / devlog.MANIFEST_FILE).read_bytes()
        ).transport,
    )
    path = out / "policy.yaml"
    path.write_text(text, "utf-8")
    _say(f"{path}: a client's policy for this deployment; ask it with")
    _say(f"  curtilage ask --policy {path} --relay http://127.0.0.1:8080/demo")


if __name__ == "__main__":
    sys.exit(main())
