"""``curtilage attest show`` asks a live service: relay, enclave, emulated machine."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from curtilage.attest.errors import RefusalCode
from curtilage.attest.verify import verify
from curtilage.cli.attest.verdict_json import key_object
from curtilage.cli.main import main
from curtilage.policy.document.load import load_policy
from curtilage.policy.expectations import expectations_from
from curtilage_dev.deployment import RELEASE_NAME
from curtilage_dev.stack import Stack

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
KEYS = {
    *("version", "kind", "at", "accepted", "code", "detail", "step"),
    *("expires_at", "claims", "links", "expiries", "steps", "not_ruled_out"),
}
CLAIMS = {
    *("tee", "emulated", "isolates", "measurement", "registers", "platform"),
    *("details", "devices", "shows", "release", "release_digest", "models"),
    *("key_configs", "not_before", "not_after", "evidence_since", "receipt_key"),
    *("sandbox", "isolation", "ephemerality", "transport", "policy", "verdict"),
}
PARTS = {
    "links": {"subject", "issuer", "role", "fingerprint", "expires_at"},
    "expiries": {"name", "expires_at"},
    "steps": {"number", "name", "passed", "detail"},
}


def show(stack: Stack, policy: Path, *more: str) -> int:
    command = ["attest", "show", "--relay", stack.relay_url, "--policy", str(policy)]
    return main([*command, *more])


def test_a_live_service_is_drawn_as_a_tree(
    stack: Stack, capsys: pytest.CaptureFixture[str]
) -> None:
    assert show(stack, stack.policy) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("TRUSTED until ")
    for words in ("EMULATED", "└─ SEV-VCEK", "Expiry times", "What no evidence"):
        assert words in shown


def test_a_live_services_verdict_has_the_schema(
    stack: Stack, capsys: pytest.CaptureFixture[str]
) -> None:
    assert show(stack, stack.policy, "--json") == 0
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert set(report) == KEYS
    assert set(report["claims"]) == CLAIMS
    for part, keys in PARTS.items():
        assert report[part]
        assert all(set(each) == keys for each in report[part])
    assert (report["version"], report["kind"], report["accepted"]) == (
        1,
        "bundle",
        True,
    )
    assert (report["code"], report["detail"], report["step"]) == (None, None, None)
    assert all(each["passed"] for each in report["steps"])
    assert TIME.fullmatch(report["at"])
    assert report["expires_at"] == min(
        each["expires_at"] for each in report["expiries"]
    )


def test_a_live_services_verdict_is_that_of_its_bundle(
    stack: Stack, capsys: pytest.CaptureFixture[str]
) -> None:
    assert show(stack, stack.policy, "--json") == 0
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    expectations = expectations_from(load_policy(stack.policy.read_text("utf-8")))
    bundle = stack.fetch_bundle().read_bytes()
    now = datetime.now(UTC)
    ours = key_object(verify(bundle, expectations, now=now), (), at=now)
    assert report["claims"] == json.loads(json.dumps(ours["claims"]))


def test_a_live_service_that_the_policy_refuses_exits_with_1(
    stack: Stack, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.yaml"
    text = stack.policy.read_text("utf-8")
    assert f"names: [{RELEASE_NAME}]" in text
    text = text.replace(f"names: [{RELEASE_NAME}]", "names: [another]")
    other.write_text(text, "utf-8")
    assert show(stack, other, "--json") == 1
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert set(report) == KEYS - {"expiries", "not_ruled_out"}
    assert (report["accepted"], report["code"]) == (False, "release_not_logged")
    assert show(stack, other) == 1
    printed = capsys.readouterr()
    assert "FAIL" in printed.out
    assert f"REFUSED: {RefusalCode.RELEASE_NOT_LOGGED.value} " in printed.err


def test_a_live_services_verdict_is_exported(
    stack: Stack, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(tmp_path / "verdict.json")
    policy = ["--policy", str(stack.policy)]
    live = ["--relay", stack.relay_url, *policy]
    assert main(["attest", "export", *live, "--out", file]) == 0
    assert main(["attest", "verify", "--export", file, "--as-made", "--json"]) == 0
    verdict = json.loads(capsys.readouterr().out)
    assert verdict["claims"]["release"].startswith(RELEASE_NAME)
    exported = json.loads(Path(file).read_bytes())
    assert exported["verdict"] == verdict
    assert exported["policy"]["text"] == stack.policy.read_text("utf-8")
    # With a time, a live enclave's old evidence would look trusted.
    early = ["--at", "2026-11-21T12:00:00Z"]
    assert main(["attest", "export", *live, *early]) == 2


def test_an_unreachable_service_exits_with_3(
    stack: Stack, capsys: pytest.CaptureFixture[str]
) -> None:
    nowhere = f"{stack.relay_url}-nowhere"
    command = ["attest", "show", "--relay", nowhere, "--policy", str(stack.policy)]
    assert main(command) == 3
    assert capsys.readouterr().out == ""
