"""``curtilage models rollout``, from the publisher to the device that follows."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from curtilage.attest.log.model_manifest import ModelFiles, parse_model_manifest
from curtilage.cli import main as cli
from curtilage.client.routing.trace import model_tag
from support.rollouts import FollowedRollout

POLICY = "version: 1\nrules: [{id: any-uncertain, when: 'uncertain.*', then: local}]\n"
LOG_KEY = ("--log-key", "log.vkey")
MANIFEST = ("manifest", "--name", "clinic-home", "--previous", "old")
FROM_NOW = ("--not-after", "+60d")
Run = Callable[..., int]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FollowedRollout:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("CURTILAGE_POLICY", raising=False)
    home = FollowedRollout(tmp_path, data=tmp_path / "curtilage")
    home.trace = tmp_path / "state" / "curtilage" / "routing.jsonl"
    Path("mine.yaml").write_text(POLICY + home.policy_text(), "utf-8")
    return home


@pytest.fixture
def run(home: FollowedRollout, capsys: pytest.CaptureFixture[str]) -> Run:
    del home

    def call(action: str, *arguments: str) -> int:
        capsys.readouterr()
        policy = () if action == "manifest" else ("--policy", "mine.yaml")
        return cli.main(["models", "rollout", action, *arguments, *policy])

    return call


def release(*arguments: str) -> None:
    assert cli.main(["release", *arguments]) == 0


def take(
    home: FollowedRollout, run: Run, serial: int, model: ModelFiles | None = None
) -> int:
    manifest = replace(home.manifest(serial, model=model), not_after=2**40)
    leaf, proof = home.logged(manifest)
    Path("m.json").write_bytes(leaf)
    Path("proof.txt").write_text(proof)
    return run("take", "--manifest", "m.json", "--proof", "proof.txt")


def status(run: Run, capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, Any]:
    assert run("status", "--json", *more) == 0
    value: dict[str, Any] = json.loads(capsys.readouterr().out)
    return value


def test_a_model_is_published_taken_and_taken_back(
    home: FollowedRollout, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    # The publisher: a manifest in a log that a witness cosigned.
    assert run(*MANIFEST, "--arm", "new", "1", "850", *FROM_NOW, "--out", "1.json") == 0
    assert run("manifest", "--next", "1.json", *FROM_NOW, "--out", "2.json") == 0
    stages = [parse_model_manifest(Path(f"{n}.json").read_bytes()) for n in (1, 2)]
    assert [(each.serial, each.arms[0].percent) for each in stages] == [(1, 1), (2, 5)]
    assert stages[0].subject == stages[1].subject
    assert stages[1].arms[0].model == home.new
    whole = replace(
        stages[1], serial=3, arms=(replace(stages[1].arms[0], percent=100),)
    )
    Path("3.json").write_bytes(home.logged(whole)[0])
    release("log", "init", "served", "--origin", "log.example/x", "--key", "log.pem")
    release("log", "add", "served", "--key", "log.pem", "1.json", "2.json", "3.json")
    release("witness", "init", "w", "--name", "w.example")
    release("witness", "cosign", "w", "--log", "served", *LOG_KEY, "--write")
    release(
        *("prove", "served", *LOG_KEY, "--manifest", "3.json", "--out", "proof.txt")
    )
    # The device, whose policy names both keys.
    log, witness = Path("log.vkey").read_text(), Path("w/witness.vkey").read_text()
    keys = {
        "origin": "log.example/x",
        "key": log.strip(),
        "witnesses": [{"name": "w.example", "key": witness.strip()}],
        "quorum": 1,
    }
    rollout = json.dumps({"name": "clinic-home", "log": keys})
    Path("mine.yaml").write_text(
        POLICY + "routing:\n  tiers: [{id: device, kind: in_process}]\n"
        f"  rollout: {rollout}\n"
    )
    assert run("take", "--manifest", "3.json", "--proof", "proof.txt") == 0
    said = capsys.readouterr().out
    assert "manifest   clinic-home 3" in said
    assert re.search(r"^stage +100 % ", said, re.MULTILINE)
    assert f"runs       new, {model_tag(home.new.sha256)}" in said
    found = status(run, capsys)
    assert (found["manifest"]["percent"], found["taken"]) == ([100], True)
    assert run("rollback") == 0
    assert "rolled back here" in capsys.readouterr().out
    assert status(run, capsys)["runs"] == model_tag(home.old.sha256)


def test_a_manifest_of_the_same_number_is_logged_once(
    home: FollowedRollout, run: Run
) -> None:
    release("log", "init", "served", "--origin", "log.example/x", "--key", "log.pem")
    for model in ("new", "other"):
        arm = ("--arm", model, "1", "850")
        assert run(*MANIFEST, *arm, *FROM_NOW, "--out", f"{model}.json") == 0
    release("log", "add", "served", "--key", "log.pem", "new.json")
    add = ["release", "log", "add", "served", "--key", "log.pem", "other.json"]
    assert cli.main(add) == 2
    del home


def test_an_older_manifest_changes_nothing_and_says_so(
    home: FollowedRollout, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert take(home, run, 5) == 0
    assert take(home, run, 4, home.other) == 2
    assert re.search(r"stale: .* 4 .* 5\b", capsys.readouterr().err)
    assert status(run, capsys)["manifest"]["serial"] == 5


def test_what_is_missing_is_said_with_the_command_that_gets_it(
    home: FollowedRollout, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    unknown = home.file("unknown", registered=False)
    assert take(home, run, 1, unknown) == 2
    assert f"--from FILES --sha256 {unknown.sha256}" in (capsys.readouterr().err)
    known = "6a1a2eb6d15622bf3c96857206351ba97e1af16c30d7a74ee38970e434e9407e"
    assert take(home, run, 1, replace(unknown, sha256=known)) == 2
    assert "models pull qwen2.5-1.5b" in capsys.readouterr().err
    tuned = replace(unknown, adapter="ab" * 32, adapter_bytes=1)
    assert take(home, run, 1, tuned) == 2
    assert f"--sha256 {'ab' * 32} --adapter-of MODEL" in capsys.readouterr().err


def test_grades_of_many_devices_are_compared(
    home: FollowedRollout, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert take(home, run, 1) == 0
    traces = [home.base / name for name in ("a.jsonl", "b.jsonl")]
    for trace in traces:
        home.trace = trace
        home.grade(home.new, good=30, bad=10)
        home.grade(home.old, good=9, bad=1)
    found = status(run, capsys, "--trace", *map(str, traces))["models"]
    assert [(each["graded"], each["good"]) for each in found] == [(20, 18), (80, 60)]
    assert 0.6 < found[1]["low"] < 0.75 < found[1]["high"] < 0.85
    assert run("status", "--trace", *map(str, traces)) == 0
    said = capsys.readouterr().out
    assert f"graded     {model_tag(home.new.sha256)}: 60 of 80 good (64.1 % to" in said


def test_an_alarm_is_shown(
    home: FollowedRollout, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert take(home, run, 1) == 0
    home.trace.parent.mkdir(parents=True)
    home.grade(home.new, bad=100)
    assert run("status") == 0
    said = capsys.readouterr().out
    assert re.search(r"^ALARM .* 100\b", said, re.MULTILINE)
    assert status(run, capsys)["runs"] == model_tag(home.old.sha256)


def test_before_anything_was_taken_the_embedded_model_runs(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("status", "--trace", "none.jsonl") == 0
    shown = capsys.readouterr()
    assert "no manifest" in shown.err
    assert "embedded model runs" in shown.out
    assert run("rollback") == 2


@pytest.mark.parametrize(
    "more",
    [
        (),
        ("--arm", "new", "x", "850"),
        ("--arm", "new", "101", "850"),
        ("--arm", "new", "1", "1000"),
        ("--arm", "nobody", "1", "850"),
        ("--arm", "old", "1", "850"),
        ("--arm", "new", "60", "850", "--arm", "other", "60", "850"),
        ("--arm", "new", "1", "850", "--next", "1.json"),
        ("--arm", "new", "1", "850", "--name", "Clinic"),
    ],
    ids=" ".join,
)
def test_what_says_nothing_is_no_manifest(run: Run, more: tuple[str, ...]) -> None:
    assert run(*MANIFEST, *more, *FROM_NOW) == 2


def test_the_stage_after_the_last_is_none(run: Run) -> None:
    assert run(*MANIFEST, "--arm", "new", "100", "850", *FROM_NOW, "--out", "m") == 0
    assert run("manifest", "--next", "m", *FROM_NOW) == 2
    both = ("--arm", "new", "50", "850", "--arm", "other", "50", "850")
    assert run(*MANIFEST, *both, *FROM_NOW, "--out", "m") == 0
    assert run("manifest", "--next", "m", *FROM_NOW) == 2
    Path("m").write_bytes(b"{}")
    assert run("manifest", "--next", "m", *FROM_NOW) == 2


def test_a_policy_that_follows_none_says_so(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("mine.yaml").write_text(POLICY)
    assert run("status") == 2
    assert "routing.rollout" in capsys.readouterr().err


def test_a_policy_that_is_not_signed_says_nothing(
    home: FollowedRollout, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["policy", "keygen", "key.pem"]) == 0
    leaf, proof = home.logged(replace(home.manifest(), not_after=2**40))
    Path("m.json").write_bytes(leaf)
    Path("proof.txt").write_text(proof)
    taking = ("take", "--manifest", "m.json", "--proof", "proof.txt")
    assert run(*taking, "--policy-key", "key.pub.pem") == 3
    assert status(run, capsys)["manifest"] is None
    sign = ["policy", "sign", "mine.yaml", "--key", "key.pem", "--valid-days", "9"]
    assert cli.main(sign) == 0
    assert run(*taking, "--policy-key", "key.pub.pem") == 0
