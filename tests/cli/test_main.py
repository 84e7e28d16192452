import base64
import json
import os
import re
import subprocess
import sys
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from curtilage.cli import main as cli
from curtilage.cli.attest.words import CLOCK
from curtilage.cli.deploy.sections import transport_section
from curtilage.cli.policy import command as policy_command
from curtilage.cli.terminal import EXIT_CODES
from curtilage.client.chat.query import Settings, single_query
from curtilage.client.failure_texts import FAILURE_TEXTS
from curtilage.client.queue.deferred import Deferred, request_of
from curtilage.client.queue.deferred_store import queue_store
from curtilage.policy.decision.tiers import RoutingClass
from curtilage.policy.document.load import load_policy, load_profile, profile_text
from curtilage.policy.document.model import Policy
from curtilage.policy.document.routing_settings import Queue
from curtilage_dev.policy import Emulated, attestation_section
from support.memory_enclave import NOW, QUICK, MemoryEnclave, deployment

ROOT = Path(__file__).resolve().parents[2]
CANARY = "canary-66e0"
COMMANDS = (
    (),
    ("demo",),
    ("ask",),
    ("serve",),
    ("decide",),
    ("explain",),
    ("policy",),
    ("policy", "check"),
    ("models",),
    ("models", "recommend"),
    ("models", "list"),
    ("models", "add"),
    ("models", "pull"),
    ("models", "rollout"),
    ("models", "rollout", "manifest"),
    ("models", "rollout", "rollback"),
    ("models", "rollout", "status"),
    ("models", "rollout", "take"),
    ("models", "verify"),
    ("attest",),
    ("attest", "verify"),
    ("queue",),
    ("queue", "drain"),
    ("queue", "drop"),
    ("queue", "list"),
    ("queue", "show"),
    ("route",),
    ("route", "advise"),
    ("route", "calibrate"),
    ("route", "compare"),
    ("route", "explain"),
    ("route", "feedback"),
    ("route", "stats"),
)


WORDS = {  # at least one command of each group
    "audit": ["verify"],
    "decide": ["--jsonl"],
    "deploy": ["refresh", "folder"],
    "evaluate": ["--data", "folder"],
    "explain": ["text"],
    "gateway": ["make-key", "letters"],
    "models rollout rollback": [],
    "models rollout status": [],
    "models rollout take": ["--manifest", "file", "--proof", "file"],
    "policy": ["check"],
    "queue drop": ["ticket"],
    "queue list": [],
    "queue show": ["ticket"],
    "route advise": [],
    "route answer": ["--data", "file", "--out", "other"],
    "route calibrate": ["--data", "file"],
    "route certify": ["--data", "file"],
    "route explain": ["text"],
    "route feedback": ["good"],
    "route stats": [],
}


@pytest.fixture(autouse=True)
def own_surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("CURTILAGE_POLICY", "CURTILAGE_RELAY", "CURTILAGE_MODEL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_teaches(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main([*command, "--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert "example" in shown
    assert EXIT_CODES in shown


def test_the_document_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    shown = capsys.readouterr().out.partition("\nexample:")[0]
    document = (ROOT / "docs" / "commands.md").read_text("utf-8")
    for line in shown.splitlines():
        assert line.strip() in document


def test_policy_check_accepts_the_shipped_profile(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["policy", "check"]) == 0
    shown = capsys.readouterr().out
    assert load_profile("default").digest in shown
    assert "nothing may leave" in shown


def test_policy_check_names_every_problem_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "policy.yaml"
    text = profile_text("default").replace("strict_topics: false", "strict: maybe")
    file.write_text(text.replace("sticky: conversation", "sticky: no"), "utf-8")
    assert cli.main(["policy", "check", str(file)]) == 2
    shown = capsys.readouterr().err
    assert "2 problems" in shown
    assert shown.count("line ") == 2
    assert cli.main(["policy", "check", "--json", str(file)]) == 2
    value = json.loads(capsys.readouterr().out)
    assert value["ok"] is False
    assert {problem["path"] for problem in value["problems"]} == {"strict", "sticky"}


def test_policy_check_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["policy", "check", "--json"]) == 0
    value = json.loads(capsys.readouterr().out)
    assert value == {
        "ok": True,
        "digest": load_profile("default").digest,
        "problems": [],
    }


def test_policy_summary_names_the_enclaves() -> None:
    shown = "\n".join(policy_command.summary(development_policy(), "x"))
    assert "enclaves  DEVELOPMENT: " in shown
    assert "  emulated SEV-SNP, " in shown


@pytest.mark.parametrize(
    "arguments",
    [
        ["policy", "check", "/nonexistent/policy.yaml"],
        ["decide"],
        ["ask", ""],
        ["attest", "verify", "--bundle", "/nonexistent", "--policy", "/nonexistent"],
        ["models", "add", "x", "/nonexistent", "--sha256", "00"],
    ],
    ids=lambda arguments: " ".join(arguments[:2]),
)
def test_wrong_use_exits_with_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(arguments) == 2
    assert capsys.readouterr().err.startswith("curtilage: ")


def test_an_unknown_command_exits_with_2() -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["sing"])
    assert ended.value.code == 2


# --- attest verify --------------------------------------------------------------


def development_policy_text() -> str:
    root = x509.load_der_x509_certificate(deployment().platform.ark)
    signer = deployment().log.signer
    witness = deployment().log.witnesses[0]
    log = {
        "origin": signer.name,
        "key": _base64(signer.public.public_key),
        "witnesses": [
            {"name": witness.name, "key": _base64(witness.public.public_key)}
        ],
        "quorum": 1,
        "index": 0,
    }
    section = attestation_section(
        machine=Emulated(root_pem=root.public_bytes(Encoding.PEM)),
        log=json.dumps(log).encode(),
    )
    return f"{profile_text('default')}\n{section}{transport_section(QUICK)}"


def development_policy() -> Policy:
    return load_policy(development_policy_text())


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


@pytest.fixture
def evidence(tmp_path: Path) -> list[str]:
    bundle, policy = tmp_path / "bundle.json", tmp_path / "policy.yaml"
    bundle.write_bytes(MemoryEnclave().bundle)
    policy.write_text(development_policy_text(), "utf-8")
    return ["attest", "verify", "--bundle", str(bundle), "--policy", str(policy)]


def test_attest_verify_prints_every_check(
    evidence: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*evidence, "--at", NOW.isoformat()]) == 0
    shown = capsys.readouterr().out
    lines = [line.split() for line in shown.splitlines()]
    assert [line[0] for line in lines[:-1]] == [str(n) for n in range(1, len(lines))]
    assert {line[1] for line in lines[:-1]} == {"pass"}
    assert shown.splitlines()[-1].startswith("ACCEPTED until ")


def test_attest_verify_refuses_with_the_code(
    evidence: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*evidence, "--at", "2027-11-21T12:00:00Z"]) == 1
    shown = capsys.readouterr()
    assert "FAIL" in shown.out.splitlines()[-1]
    assert "REFUSED: stale" in shown.err


@pytest.mark.parametrize(("days", "word"), [(40, "fast"), (-40, "slow")])
def test_attest_verify_names_a_clock_that_is_days_off(
    days: int, word: str, evidence: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    at = (NOW + timedelta(days=days)).isoformat()
    assert cli.main([*evidence, "--at", at]) == 1
    said = " ".join(capsys.readouterr().err.split())
    assert re.search(rf"(39|40) days {word}", said)
    assert CLOCK in said
    assert cli.main([*evidence, "--json", "--at", at]) == 1
    assert f"days {word}" in json.loads(capsys.readouterr().out)["detail"]
    soon = (NOW + timedelta(hours=20)).isoformat()
    assert cli.main([*evidence, "--at", soon]) == 1
    assert "Likely cause" not in capsys.readouterr().err


def test_attest_verify_as_json(
    evidence: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*evidence, "--json", "--at", NOW.isoformat()]) == 0
    value = json.loads(capsys.readouterr().out)
    assert value["accepted"] is True
    assert value["claims"]["emulated"] is True
    assert value["claims"]["transport"] == {
        "shape": "padded",
        "frame_bytes": 128,
        "period_ms": 1,
        "first_bucket": 4,
        "buckets": 8,
    }
    assert len(value["steps"]) == 28
    assert cli.main([*evidence, "--json", "--at", "2027-11-21T12:00:00Z"]) == 1
    value = json.loads(capsys.readouterr().out)
    assert (value["accepted"], value["code"]) == (False, "stale")


@pytest.mark.parametrize("at", ["yesterday", "2026-11-21", "2026-11-21T12:00:00"])
def test_attest_verify_needs_a_whole_time(
    evidence: list[str], at: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*evidence, "--at", at]) == 2
    assert "--at" in capsys.readouterr().err


# --- as programs ----------------------------------------------------------------


def run(*arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "curtilage.cli", *arguments],
        input=given,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_decide_answers_every_line_in_order_and_never_the_text() -> None:
    lines = [
        {"id": 1, "text": f"what is a {CANARY.replace('-', ' ')}"},
        {"id": "two", "text": "my card is 4111 1111 1111 1111"},
        {"id": 3, "messages": [{"role": "user", "content": "What is HIV?"}]},
    ]
    given = "\n".join([*(json.dumps(line) for line in lines), "not json"])
    done = run("decide", "--jsonl", given=given)
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["id"] for answer in answers[:3]] == [1, "two", 3]
    assert [answer["route"] for answer in answers[1:]] == ["local", "enclave", "local"]
    assert "financial.pan" in answers[1]["classes"]
    assert "payment-card" in answers[1]["rules"]
    assert CANARY.split("-", maxsplit=1)[0] not in done.stdout + done.stderr
    assert set(answers[0]) == {"id", "route", "classes", "rules", "uncertain"}


def test_explain_never_prints_the_text() -> None:
    done = run("explain", f"I was diagnosed with HIV, {CANARY}")
    assert done.returncode == 0, done.stderr
    assert "phi" in done.stdout
    assert CANARY not in done.stdout + done.stderr
    value = json.loads(run("explain", "--json", "What is HIV?").stdout)
    assert value["route"] == "enclave"


@pytest.mark.model
def test_ask_without_a_relay_is_answered_here() -> None:
    done = run("ask", "--max-tokens", "8", "--seed", "1", "What is HIV?")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert "answered locally" in done.stderr
    assert FAILURE_TEXTS["no_enclave_named"] in done.stderr


@pytest.mark.model
def test_ask_as_json() -> None:
    done = run("ask", "--json", "--max-tokens", "8", "my card is 4111 1111 1111 1111")
    assert done.returncode == 0, done.stderr
    value = json.loads(done.stdout)
    assert (value["route"], value["rule"]) == ("local", "payment-card")
    assert value["fallback"] is None


@pytest.mark.model
def test_ask_continues_a_file_of_questions(tmp_path: Path) -> None:
    questions, answers = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    # The policy forbids the second's requirement; the third fails temporarily.
    lines = [
        {"id": "a", "text": "What is HIV?", "seed": 1},
        {"id": 7, "text": "my card is 4111 1111 1111 1111", "require": "enclave"},
        {"id": 8, "text": "What is HIV?", "require": "enclave"},
    ]
    questions.write_text("\n".join(map(json.dumps, lines)), "utf-8")
    command = ("ask", "--max-tokens", "4", "--jsonl", str(questions))
    assert run(*command).returncode == 2, "without --out"
    for result in ("", "2 of 3 already have a line, 1 of them refused"):
        done = run(*command, "--out", str(answers))
        assert done.returncode == 3, done.stderr
        assert "(required_unmet: 1)" in done.stderr
        assert result in done.stderr
        found = [json.loads(each) for each in answers.read_text().splitlines()]
        by_id = {each["id"]: each for each in found}
        assert by_id.keys() == {"a", 7}
        assert by_id["a"]["answer"]["route"] == "local"
        assert by_id[7]["error"]["code"] == "required_unmet"
    # Without the open one, the exit code is that of the policy's refusal.
    questions.write_text("\n".join(map(json.dumps, lines[:2])), "utf-8")
    assert run(*command, "--out", str(answers)).returncode == 1


def test_nothing_is_started_for_questions_that_have_an_answer(tmp_path: Path) -> None:
    questions, answers = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    questions.write_text('{"id": 1, "text": "What is HIV?"}', "utf-8")
    answers.write_text('{"id": 1, "answer": {}}\n', "utf-8")
    missing = ("--model", str(tmp_path / "missing.gguf"), "--model-sha256", "0" * 64)
    done = run("ask", *missing, "--jsonl", str(questions), "--out", str(answers))
    assert done.returncode == 0, done.stderr
    (said,) = done.stderr.splitlines()
    assert said.startswith("1 of 1 ")


@pytest.mark.model
def test_queued_questions_are_retried(
    tmp_path: Path, state_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, policy = tmp_path / "queue.key", tmp_path / "policy.yaml"
    key.write_text("5a" * 32)
    key.chmod(0o600)
    plain = profile_text("default").partition("\nrouting:")[0]
    policy.write_text(
        f"{plain}\nrouting:\n  tiers: [{{id: device, kind: in_process}}]\n"
        f"  queue: {{store: file, key_file: {key}}}\n"
    )
    monkeypatch.setenv("CURTILAGE_POLICY", str(policy))
    now_ms = time.time_ns() // 1_000_000
    item = Deferred(
        ticket="0a" * 16,
        routing_class=RoutingClass.PUBLIC,
        policy="sha256:00",
        cause="local_busy",
        put_ms=now_ms,
        until_ms=now_ms + 600_000,
    )
    plan = Queue(store="file", key_file=str(key))
    store = queue_store(plan, state_home / "curtilage")
    asked = replace(single_query("What is HIV?"), settings=Settings(max_tokens=4))
    store.put(item, request_of(asked), "")
    store.close()
    done = run("queue", "drain")
    assert done.returncode == 0, done.stderr
    assert re.search(r"\b1 answered, 0 refused, 0 ", done.stderr)
    done = run("queue", "show", "0a" * 16)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert "answered locally" in done.stderr


@pytest.mark.parametrize(
    "wrong",
    [("--temperature", "nan"), ("--max-tokens", "0"), ("--seed", "-1")],
    ids=["temperature", "max-tokens", "seed"],
)
def test_ask_refuses_a_number_that_the_endpoint_refuses(wrong: tuple[str, str]) -> None:
    done = run("ask", *wrong, "What is HIV?")
    assert done.returncode == 2
    assert wrong[0].strip("-").replace("-", "_") in done.stderr


def test_question_and_system_message_may_come_without_an_argument(
    tmp_path: Path,
) -> None:
    system = tmp_path / "system.txt"
    system.write_text("Say where patient Jane Doe of 12 Elm Street is.", "utf-8")
    missing = ("--model", str(tmp_path / "missing.gguf"), "--model-sha256", "0" * 64)
    done = run("ask", *missing, "--system-file", str(system), given="Where?")
    assert done.returncode == 3
    assert "must stay here" in done.stderr, "for what the file says"
    done = run("ask", "--system", "x", "--system-file", str(system), given="Where?")
    assert done.returncode == 2
    assert "exclude each other" in done.stderr


def test_ask_without_a_model_shows_what_to_do(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.gguf")
    done = run(
        "ask", "--model", missing, "--model-sha256", "0" * 64, "my ssn is 536-22-1234"
    )
    assert done.returncode == 3
    assert done.stdout == ""
    assert "must stay here" in done.stderr


def test_a_blocked_query_exits_with_1(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    rule = '- id: never\n  when: "financial.pan"\n  then: block\n  reason: no\n\n'
    text = profile_text("default").replace("rules:\n", "rules:\n" + rule, 1)
    file.write_text(text, "utf-8")
    asked = "my card is 4111 1111 1111 1111"
    for command in ("ask", "explain"):
        done = run(command, "--policy", str(file), asked)
        assert done.returncode == 1, done.stderr
        assert "4111 1111" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    "command", ["policy check", "models list", "--version", "--help", "ask --help"]
)
def test_a_full_disk_is_no_traceback(command: str) -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        done = subprocess.run(
            [sys.executable, "-m", "curtilage.cli", *command.split()],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 3
    assert "Traceback" not in done.stderr


def test_an_error_on_a_full_disk_is_no_crash() -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        done = subprocess.run(
            [sys.executable, "-m", "curtilage.cli", "nope"], stderr=full, check=False
        )
    assert done.returncode == 3


def test_a_help_into_a_closed_pipe_is_quiet() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "curtilage.cli", "ask", "--help"],
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (3, "")


def test_closed_streams_are_no_traceback() -> None:
    for closed in ("<&-", ">&-"):
        line = f"{sys.executable} -m curtilage.cli policy check {closed}"
        done = subprocess.run(
            ["/bin/sh", "-c", line], capture_output=True, text=True, check=False
        )
        assert done.returncode == 2
        assert "Traceback" not in done.stderr


def test_an_invalid_port_is_a_usage_error() -> None:
    for port in ("99999", "-1", "http"):
        assert run("serve", "--port", port).returncode == 2


def test_a_model_file_without_its_digest_is_wrong_use() -> None:
    done = run("ask", "--model", "./some.gguf", "hello")
    assert done.returncode == 2
    assert "--model-sha256" in done.stderr


@pytest.mark.model
def test_models_lists_and_verifies_the_embedded_one() -> None:
    listed = run("models", "list", "--json")
    (embedded,) = json.loads(listed.stdout)
    assert embedded["name"] == "default"
    verified = run("models", "verify")
    assert verified.returncode == 0, verified.stderr
    assert embedded["sha256"] in verified.stdout


def test_models_verify_reports_missing_files() -> None:
    done = run("models", "verify", "nothing")
    assert done.returncode == 3
    assert "nothing" in done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="no walls there")
@pytest.mark.parametrize("command", sorted(WORDS))
def test_an_offline_command_has_no_network(command: str) -> None:
    # The unmodified program, except for one command, which tries the native call.
    code = (
        "import ctypes, sys\n"
        "from curtilage.cli import main as cli\n"
        "def attempt(arguments):\n"
        "    print(ctypes.CDLL(None).socket(2, 1, 0))\n"
        "    return 0\n"
        "cli._run = attempt\n"
        f"sys.argv[1:] = {[*command.split(), *WORDS[command]]!r}\n"
        "sys.exit(cli.main())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout == "-1\n"


def test_a_command_that_keeps_its_network_reports_it() -> None:
    layer = "seccomp: not on this system"
    code = (
        "import sys\n"
        "from curtilage.cli import main as cli\n"
        "from curtilage.sandbox import wall\n"
        f"lost = wall.Wall(missing=({layer!r},))\n"
        "wall.no_network = lambda: lost\n"
        "sys.argv[1:] = ['policy', 'list']\n"
        "sys.exit(cli.main())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stderr.endswith(f": {layer}\n")
