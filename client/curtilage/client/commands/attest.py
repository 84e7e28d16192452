"""``curtilage attest``: verify a bundle of evidence and show every check."""

import argparse
import dataclasses
from datetime import UTC, datetime
from pathlib import Path

from curtilage.attest.errors import RefusedError
from curtilage.attest.steps import Step
from curtilage.attest.verify import VerifiedKey, verify
from curtilage.client.commands.terminal import (
    DONE,
    REFUSED,
    Commands,
    add_command,
    err,
    out,
    out_json,
)
from curtilage.client.config import read_policy
from curtilage.client.errors import ConfigError, UsageError
from curtilage.policy.trust import expectations_from

MAX_BUNDLE_BYTES = 1024 * 1024  # the verifier's own limit is lower and says so


def add(commands: "Commands[argparse.ArgumentParser]") -> None:
    """Add the command and its subcommands."""
    parser = add_command(
        commands,
        "attest",
        summary="verify an enclave's evidence",
        text="Work with attestation evidence. Nothing is fetched: a file is read.",
        example="curtilage attest verify --bundle bundle.json --policy clinic.yaml",
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    check = add_command(
        actions,
        "verify",
        summary="print each numbered check of a bundle",
        text="Verify a bundle against a policy, offline, and print each check with "
        "pass or fail.\nExit 1 when it is refused.",
        example="curtilage attest verify --bundle bundle.json --policy clinic.yaml "
        "--at 2026-11-21T12:00:00Z",
    )
    check.add_argument("--bundle", required=True, metavar="FILE")
    check.add_argument("--policy", required=True, metavar="FILE")
    check.add_argument(
        "--at", metavar="RFC3339", help="verify as of this time (default: now)"
    )
    check.add_argument("--json", action="store_true", help="one JSON object")
    check.set_defaults(run=run_verify)


def run_verify(arguments: argparse.Namespace) -> int:
    """Verify; exit 1 where the evidence is refused."""
    policy, _ = read_policy(arguments.policy)
    now = _time(arguments.at)
    bundle = _read(Path(arguments.bundle))
    try:
        key = verify(bundle, expectations_from(policy), now=now)
    except RefusedError as refusal:
        if arguments.json:
            out_json(_refusal_object(refusal))
        else:
            out(steps_text(refusal.steps))
            err(f"REFUSED: {refusal.code.value}")
        return REFUSED
    if arguments.json:
        out_json(_key_object(key))
    else:
        out(steps_text(key.steps))
        out(f"ACCEPTED until {key.expires_at:%Y-%m-%d %H:%M:%S} UTC")
    return DONE


def steps_text(steps: tuple[Step, ...]) -> str:
    """Lay the checks out as lines, number, outcome, name and detail."""
    width = max((len(step.name) for step in steps), default=0)
    return "\n".join(
        f"{step.number:>3}  {'pass' if step.passed else 'FAIL'}  "
        f"{step.name:<{width}}  {step.detail}".rstrip()
        for step in steps
    )


def _key_object(key: VerifiedKey) -> dict[str, object]:
    return {
        "accepted": True,
        "code": None,
        "expires_at": key.expires_at.isoformat(),
        "steps": _steps_object(key.steps),
        "claims": {
            "tee": key.tee,
            "emulated": key.emulated,
            "measurement": key.measurement,
            "release": f"{key.release_name} {key.release_version}",
            "key_configs": key.key_configs_digest,
            "transport": dataclasses.asdict(key.transport),
            "verdict": key.verdict_id,
        },
    }


def _refusal_object(refusal: RefusedError) -> dict[str, object]:
    return {
        "accepted": False,
        "code": refusal.code.value,
        "expires_at": None,
        "steps": _steps_object(refusal.steps),
        "claims": {},
    }


def _steps_object(steps: tuple[Step, ...]) -> list[dict[str, object]]:
    return [
        {
            "number": step.number,
            "name": step.name,
            "passed": step.passed,
            "detail": step.detail,
        }
        for step in steps
    ]


def _time(text: str | None) -> datetime:
    if text is None:
        return datetime.now(UTC)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise UsageError("--at needs a time such as 2026-11-21T12:00:00Z")
    return moment.astimezone(UTC)


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MAX_BUNDLE_BYTES + 1)
    except OSError as failure:
        raise ConfigError(f"{path}: {failure.strerror}") from None
