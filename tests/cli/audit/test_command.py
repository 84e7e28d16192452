"""The auditor's commands, as a person types them."""

import csv
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from curtilage.cli.audit.command import (
    ABOUT_SOMEBODY,
    AHEAD,
    BY_POSITION,
    NOT_COMPARED,
    STEPS_BACK,
)
from curtilage.cli.main import main
from curtilage.client.audit.proof import IN_NO_RECORD, NONE_DECIDED, encode_proof
from curtilage.client.audit.reader import ANOTHER_COUNT
from curtilage.client.audit.record import AuditEntry, Outcome
from curtilage.client.audit.writer import AuditLimits, AuditLog
from curtilage.policy.decision.routes import Route
from curtilage.policy.errors import AuditStep
from support.audit_logs import entry


def left(number: int, *classes: str) -> AuditEntry:
    found = dict.fromkeys(classes, 1)
    return replace(
        entry(number),
        route=Route.ENCLAVE,
        outcome=Outcome.ENCLAVE,
        rule="default",
        verdict="v1",
        classes=found,
    )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A log: ten queries kept local, a harmless one and one on diabetes sent."""
    path = tmp_path / "audit"
    monkeypatch.setenv("CURTILAGE_AUDIT", str(path))
    log = AuditLog(path, make=True, limits=AuditLimits(checkpoint_lines=4))
    for number in range(10):
        log.append(entry(number))
    log.append(left(10))
    log.append(left(11, "health.condition"))
    log.close()
    return path


def out_of(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().out


def edit(folder: Path, old: bytes, new: bytes) -> None:
    path = folder / "000001.jsonl"
    path.write_bytes(path.read_bytes().replace(old, new, 1))


def test_init_makes_a_log_and_prints_its_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "new")
    assert main(["audit", "init", "--dir", path]) == 0
    key = out_of(capsys)
    assert main(["audit", "show-key", "--dir", path]) == 0
    assert out_of(capsys) == key
    assert main(["audit", "verify", "--dir", path, "--key", key.strip()]) == 0
    assert main(["audit", "init", "--dir", path]) == 2, "never a second time"


@pytest.mark.parametrize("option", [[], ["--dir"], ["--audit"]])
def test_every_command_takes_the_folder_as_others_do(
    option: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a name, like ``release log init``, or as ``--audit``, like ``serve``."""
    named = [*option, str(tmp_path / "new")]
    assert main(["audit", "init", *named]) == 0
    key = out_of(capsys)
    assert main(["audit", "show-key", *named]) == 0
    assert out_of(capsys) == key
    assert main(["audit", "verify", *named]) == 0
    assert main(["audit", "checkpoint", *named]) == 0
    assert main(["audit", "prove", *named, "--class", "health", "--route", "cut"]) == 2
    out = str(tmp_path / "records")
    assert main(["audit", "export", *named, "--out", out]) == 0
    assert main(["audit", "receipt", *named, "--query", "0" * 16]) == 2
    assert "no receipt" in capsys.readouterr().err


def test_two_names_of_a_folder_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = str(tmp_path / "one"), str(tmp_path / "other")
    assert main(["audit", "init", one, "--dir", other]) == 2
    assert "exclude each other" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_init_takes_the_key_of_an_organisation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = tmp_path / "org"
    key.write_text("ab" * 32 + "\n", "ascii")
    path = tmp_path / "new"
    arguments = ["audit", "init", "--dir", str(path), "--organisation-key", str(key)]
    assert main(arguments) == 0
    assert (path / "organisation.key").read_text("ascii") == key.read_text("ascii")
    key.write_text("secret words", "ascii")
    assert main([*arguments[:3], str(tmp_path / "x"), *arguments[4:]]) == 3
    assert "secret" not in capsys.readouterr().err


@pytest.mark.usefixtures("folder")
def test_verify_prints_every_step(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "verify"]) == 0
    lines = out_of(capsys).splitlines()
    assert [line[0] for line in lines[:8]] == list("12345678")
    assert lines[8].startswith("verified: 12 decisions")
    assert lines[9:] == NOT_COMPARED.splitlines()


@pytest.mark.usefixtures("folder")
def test_verify_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "verify", "--json"]) == 0
    result = json.loads(out_of(capsys))
    assert (result["ok"], result["decisions"], result["signed"]) == (True, 12, 13)


def test_verify_names_the_first_record_that_is_wrong(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edit(folder, b'"seq":5', b'"seq":6')
    assert main(["audit", "verify"]) == 1
    assert "step 4, numbers: record 5" in capsys.readouterr().err
    assert main(["audit", "verify", "--json"]) == 1
    result = json.loads(out_of(capsys))
    assert (result["ok"], result["step"], result["record"]) == (False, 4, 5)


def test_verify_without_a_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", "verify", "--dir", str(tmp_path / "none")]) == 3
    assert "no audit log" in capsys.readouterr().err


def test_verify_with_another_key_is_the_first_step(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", "init", "--dir", str(tmp_path / "other")]) == 0
    key = tmp_path / "other" / "log.vkey"
    assert main(["audit", "verify", "--key", str(key)]) == 1
    assert "step 1, key" in capsys.readouterr().err
    (folder / "log.vkey").unlink()
    assert main(["audit", "verify", "--key", str(key)]) == 1, "an auditor's copy"


def test_verify_agrees_with_a_checkpoint_that_was_kept(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "kept.note"
    assert main(["audit", "checkpoint"]) == 0
    kept.write_text(out_of(capsys), "utf-8")
    log = AuditLog(folder)
    log.append(entry(12))
    log.close()
    assert main(["audit", "verify", "--checkpoint", str(kept)]) == 0
    assert NOT_COMPARED not in out_of(capsys)
    # Cut the log and its checkpoints to before that: they are consistent.
    lines = (folder / "000001.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "000001.jsonl").write_bytes(b"".join(lines[:5]))
    notes = (folder / "checkpoints").read_text("utf-8").splitlines(keepends=True)
    (folder / "checkpoints").write_text("".join(notes[:14]), "utf-8")
    assert main(["audit", "verify"]) == 0
    assert main(["audit", "verify", "--checkpoint", str(kept)]) == 1
    step = AuditStep.END
    said = capsys.readouterr().err
    assert f"step {step.number}, {step.title}: record 5" in said


@pytest.mark.usefixtures("folder")
def test_prove_without_matching_records(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["audit", "prove", "--class", "special", "--route", "enclave"]) == 0
    text = out_of(capsys)
    assert text.startswith("0 records")
    assert "special.* | topic.special" in text.splitlines()[0]
    assert text.splitlines()[0].endswith(": enclave")
    assert "with such a class: 0" in text
    assert "that went enclave: 2" in text


@pytest.mark.usefixtures("folder")
def test_prove_lists_and_classifies_what_it_finds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    proof = tmp_path / "proof.json"
    prove = ["audit", "prove", "--class", "health", "--route", "enclave"]
    assert main([*prove, "--out", str(proof)]) == 1
    text = out_of(capsys)
    assert text.startswith("1 records")
    assert "health.* | topic.health" in text.splitlines()[0]
    assert "records: 12\n" in text
    counted = json.loads(proof.read_text("ascii"))["counted"]
    assert counted["matching_about_somebody"] == 0
    assert ABOUT_SOMEBODY.format(0) in text
    phi = "(health.* | topic.health) & identifier.*"
    assert main(["audit", "prove", "--when", phi, "--route", "enclave"]) == 0


@pytest.mark.parametrize("outcome", ["queued", "escalated", "replaced", "degraded"])
def test_further_outcomes_are_verified_counted_and_exported(
    outcome: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = AuditLog(folder)
    log.append(replace(entry(20), outcome=Outcome(outcome), fallback="busy"))
    log.close()
    assert main(["audit", "verify"]) == 0
    proof = tmp_path / "proof.json"
    claim = ["--class", "health", "--route", outcome]
    assert main(["audit", "prove", *claim, "--out", str(proof)]) == 1
    assert main(["audit", "verify", "--proof", str(proof)]) == 0
    table = tmp_path / "table.csv"
    assert main(["audit", "export", "--format", "csv", "--out", str(table)]) == 0
    rows = list(csv.DictReader(table.read_text("utf-8").splitlines()))
    assert (rows[-1]["outcome"], rows[-1]["fallback"]) == (outcome, "busy")
    assert main(["audit", "prove", "--class", "health", "--route", "enclave"]) == 1
    assert "records: 12\n" in out_of(capsys), "it hides nothing that left"


@pytest.mark.parametrize(
    ("span", "count"),
    [
        (["--from", "2001-01-01"], 1),
        (["--from", "2999-01-01"], 0),
        (["--to", "2001-01-01T00:00:00Z"], 0),
        (["--to", "2999-01-01T00:00:00+05:00"], 1),
    ],
)
@pytest.mark.usefixtures("folder")
def test_prove_keeps_to_the_span(
    span: list[str], count: int, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["audit", "prove", "--class", "health", "--route", "enclave", *span]
    if not count:
        assert main(arguments) == 2, "there was nothing to count"
        assert NONE_DECIDED in capsys.readouterr().err
        arguments += ["--allow-unseen"]
    assert main(arguments) == (1 if count else 0)
    text = out_of(capsys)
    assert text.startswith(f"{count} records")
    assert (f"note: {NONE_DECIDED}" in text) == (not count)


@pytest.mark.parametrize(
    "named",
    [
        ["--class", "org.dictionary.codenames"],
        ["--class", "org.edm.codename"],
        ["--when", "health.* | org.dictionary.codenames"],
    ],
)
def test_prove_knows_an_own_class_only_from_the_records(
    named: list[str], folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = AuditLog(folder)
    log.append(left(20, "org.dictionary.codename"))
    log.close()
    out = tmp_path / "proof.json"
    prove = ["audit", "prove", "--route", "local", *named]
    assert main([*prove, "--out", str(out)]) == 2
    assert IN_NO_RECORD in capsys.readouterr().err
    assert not out.exists()
    count = 10 if "--when" in named else 0
    shown = [*prove, "--out", str(out), "--allow-unseen"]
    assert main(shown) == (1 if count else 0)
    assert "note: org." in out_of(capsys)
    assert IN_NO_RECORD in json.loads(out.read_text())["unseen"][0]
    assert main(["audit", "verify", "--proof", str(out)]) == 0


def test_prove_takes_an_own_class_that_is_elsewhere_in_the_log(folder: Path) -> None:
    log = AuditLog(folder)
    log.append(left(20, "org.dictionary.codename"))
    log.close()
    prove = ["audit", "prove", "--class", "org.dictionary.codename"]
    assert main([*prove, "--route", "local"]) == 0


@pytest.mark.usefixtures("folder")
def test_prove_takes_a_class_or_a_condition(
    capsys: pytest.CaptureFixture[str],
) -> None:
    both = ["--class", "health.condition", "--when", "health.*"]
    assert main(["audit", "prove", "--route", "enclave", *both]) == 2
    assert "--class and --when" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["--class", "helth"],
        ["--class", "health.condtion"],
        ["--class", "health.condition", "--when", "health.*"],
        ["--when", "not health.*"],
        ["--when", "helth.*"],
        [],
    ],
)
@pytest.mark.usefixtures("folder")
def test_prove_never_counts_a_mistyped_name_as_zero(arguments: list[str]) -> None:
    assert main(["audit", "prove", "--route", "enclave", *arguments]) == 2


@pytest.mark.parametrize("time", ["yesterday", "2026-07-01T00:00:00"])
def test_prove_refuses_a_time_without_a_zone(time: str) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(
            ["audit", "prove", "--class", "health", "--route", "local", "--from", time]
        )


def test_prove_counts_the_classes_of_a_policys_own_detectors(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = AuditLog(folder)
    log.append(left(20, "org.dictionary.codename"))
    log.append(left(21, "future.class"))
    log.close()
    for name in ("org.*", "org.dictionary.codename"):
        assert main(["audit", "prove", "--class", name, "--route", "enclave"]) == 1
        assert out_of(capsys).startswith("1 records")


def test_a_proof_is_checked_against_the_log_again(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "proof.json"
    prove = ["audit", "prove", "--class", "health", "--route", "enclave"]
    assert main([*prove, "--out", str(out)]) == 1
    assert main([*prove, "--out", str(out)]) == 2, "a file is never written over"
    assert main(["audit", "verify", "--proof", str(out)]) == 0
    log = AuditLog(folder)
    log.append(left(12, "health.condition"))
    log.close()
    assert main(["audit", "verify", "--proof", str(out)]) == 0, "of that time"
    capsys.readouterr()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("counted", "matching"), 0),
        (("counted", "records"), 13),
        (("counted", "with_class"), 0),
        (("claim", "when"), "special.*"),
        (("claim", "outcome"), "local"),
        (("range", "last"), 11),
        (("range", "head"), "00" * 32),
        (("matching",), []),
        (("matching", 0, "seq"), 3),
        (("matching", 0, "record"), "{}"),
        (("matching", 0, "path"), []),
        (("matching", 0, "path", 0), "AAAA"),
        (("checkpoint",), "none"),
        (("format",), "other"),
        (("key",), "other"),
        (("more",), 1),
    ],
)
@pytest.mark.usefixtures("folder")
def test_a_proof_that_was_changed_is_refused(
    path: tuple[str | int, ...],
    value: object,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "proof.json"
    prove = ["audit", "prove", "--class", "health", "--route", "enclave"]
    main([*prove, "--out", str(out)])
    proof = json.loads(out.read_text("ascii"))
    at = proof
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    out.write_bytes(encode_proof(proof))
    assert main(["audit", "verify", "--proof", str(out)]) == 1
    assert "canonical" not in capsys.readouterr().err


FORGED = '{\n  "counted": {"matching": 0},\n  "matching": [],'


def said_first(text: str) -> str:
    """A reader that takes the first of two equal keys finds a zero."""
    return FORGED + text.removeprefix("{")


def said_first_inside(text: str) -> str:
    return text.replace('"counted": {', '"counted": {\n    "matching": 0,', 1)


def on_one_line(text: str) -> str:
    return json.dumps(json.loads(text))


def escaped(text: str) -> str:
    return text.replace('"matching"', '"m\\u0061tching"', 1)


def longer(text: str) -> str:
    return text + "\n"


@pytest.mark.parametrize(
    ("spelled", "detail"),
    [
        (said_first, "a key is repeated"),
        (said_first_inside, "a key is repeated"),
        (on_one_line, "canonical form"),
        (escaped, "canonical form"),
        (longer, "canonical form"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_a_proof_has_one_spelling(
    spelled: Callable[[str], str],
    detail: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "proof.json"
    prove = ["audit", "prove", "--class", "health", "--route", "enclave"]
    assert main([*prove, "--out", str(out)]) == 1
    out.write_text(spelled(out.read_text("ascii")), "ascii")
    assert main(["audit", "verify", "--proof", str(out)]) == 1
    assert detail in capsys.readouterr().err


@pytest.mark.usefixtures("folder")
def test_a_proof_has_its_keys_in_one_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "proof.json"
    prove = ["audit", "prove", "--class", "health", "--route", "enclave"]
    assert main([*prove, "--out", str(out)]) == 1
    fields = json.loads(out.read_text("ascii"))
    out.write_bytes(encode_proof(dict(reversed(fields.items()))))
    assert main(["audit", "verify", "--proof", str(out)]) == 1
    assert ANOTHER_COUNT in capsys.readouterr().err


def at(path: Path, *times: str) -> None:
    """Make a log of questions about diabetes, sent at these times."""
    moments = [datetime.fromisoformat(each).replace(tzinfo=UTC) for each in times]
    now = moments[:1]
    log = AuditLog(path, make=True, clock=lambda: now[-1])
    for number, moment in enumerate(moments):
        now.append(moment)
        log.append(left(number, "health.condition"))
    log.close()


HEALTH = ["audit", "prove", "--class", "health", "--route", "enclave"]


@pytest.mark.parametrize(
    ("times", "span", "counts"),
    [
        (("2026-11-22T12", "2020-01-01", "2026-11-22T13"), "--from 2026-01-01", (3, 1)),
        (("2026-11-22T12", "2099-01-01", "2026-11-22T13"), "--to 2027-01-01", (3, 1)),
        (("2026-11-22T12", "2020-01-01"), "--from 2026-01-01", (2, 1)),
        (("2026-01-01", "2026-06-01", "2026-05-01"), "--to 2026-05-15", (3, 1)),
        (("2026-01-01", "2026-03-01", "2026-02-01"), "--from 2026-04-01", (1, 1)),
        (("2026-01-01", "2020-01-01", "2026-02-01"), "--from 2026-04-01", (0, 0)),
        (("2026-01-01", "2020-01-01", "2026-11-22"), "--from 2026-04-01", (2, 1)),
        (("2026-01-01", "2099-01-01", "2026-11-22"), "--to 2026-04-01", (2, 1)),
    ],
    ids=[
        *("back and on", "ahead and back", "back at the end", "a month"),
        *("back, not on", "before", "across the beginning", "across the end"),
    ],
)
def test_after_a_clock_step_back_a_span_counts_by_position(
    times: tuple[str, ...],
    span: str,
    counts: tuple[int, int],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    at(tmp_path / "log", *times)
    found, by_position = counts
    place, proof = ["--dir", str(tmp_path / "log")], tmp_path / "proof.json"
    prove = [*HEALTH, *place, *span.split(), "--allow-unseen", "--out", str(proof)]
    assert main(prove) == bool(found)
    text = out_of(capsys)
    assert text.startswith(f"{found} records")
    assert f"of these, {by_position} {BY_POSITION}" in text
    fields = json.loads(proof.read_text("ascii"))
    assert fields["clock"] == {"steps_back": 1, "records_by_position": by_position}
    assert main(["audit", "verify", *place, "--proof", str(proof)]) == 0
    assert STEPS_BACK.format(1) in out_of(capsys)
    fields["clock"]["records_by_position"] += 1
    proof.write_bytes(encode_proof(fields))
    assert main(["audit", "verify", *place, "--proof", str(proof)]) == 1
    del fields["clock"]
    proof.write_bytes(encode_proof(fields))
    assert main(["audit", "verify", *place, "--proof", str(proof)]) == 1
    assert ANOTHER_COUNT in capsys.readouterr().err


def test_a_log_that_ends_in_the_future_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No later record shows yet that the clock was ahead."""
    at(tmp_path / "log", "2026-01-01", "2999-01-01")
    place = ["--dir", str(tmp_path / "log")]
    for command in (["audit", "verify"], HEALTH, [*HEALTH, "--to", "2998-01-01"]):
        main([*command, *place])
        assert AHEAD in out_of(capsys)
    at(tmp_path / "log", "2001-01-02")
    main(["audit", "verify", *place])
    assert AHEAD not in out_of(capsys)


@pytest.mark.usefixtures("folder")
def test_a_proof_has_no_clock_steps_without_one(tmp_path: Path) -> None:
    """Correct proofs of earlier versions still verify."""
    out = tmp_path / "proof.json"
    assert main([*HEALTH, "--from", "2001-01-01", "--out", str(out)]) == 1
    assert "clock" not in json.loads(out.read_text("ascii"))
    at(tmp_path / "log", "2026-01-02", "2026-01-01")
    out = tmp_path / "whole.json"
    assert main([*HEALTH, "--dir", str(tmp_path / "log"), "--out", str(out)]) == 1
    assert "clock" not in json.loads(out.read_text("ascii")), "there is no span"


def test_export_of_a_span_has_all_possible_records(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    at(tmp_path / "log", "2026-01-01", "2026-06-01", "2026-03-01", "2026-07-01")
    out = tmp_path / "x.jsonl"
    export = ["audit", "export", "--dir", str(tmp_path / "log"), "--out", str(out)]
    assert main([*export, "--from", "2026-02-01", "--to", "2026-04-01"]) == 0
    result = capsys.readouterr().err
    assert result.startswith(f"2 records\n  1 of them {BY_POSITION}")
    times = [json.loads(line)["time"][:7] for line in out.read_text().splitlines()]
    assert times == ["2026-06", "2026-03"]


@pytest.mark.parametrize("text", ["", "null", "[]", "{}", "\x00"])
@pytest.mark.usefixtures("folder")
def test_a_file_that_is_no_proof_is_refused(text: str, tmp_path: Path) -> None:
    out = tmp_path / "proof.json"
    out.write_text(text, "ascii")
    assert main(["audit", "verify", "--proof", str(out)]) == 1


def test_a_proof_is_not_made_of_a_log_that_is_wrong(folder: Path) -> None:
    edit(folder, b'"outcome":"enclave"', b'"outcome":"local"')
    assert main(["audit", "prove", "--class", "health", "--route", "enclave"]) == 1
    assert main(["audit", "checkpoint"]) == 1


def test_export_as_it_is_and_as_a_table(folder: Path, tmp_path: Path) -> None:
    lines, table = tmp_path / "x.jsonl", tmp_path / "x.csv"
    assert main(["audit", "export", "--out", str(lines)]) == 0
    whole = (folder / "000001.jsonl").read_bytes().splitlines()
    assert lines.read_bytes().splitlines() == whole[1:]
    assert main(["audit", "export", "--format", "csv", "--out", str(table)]) == 0
    with table.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 12
    assert rows[-1]["classes"] == "health.condition=1"
    assert rows[-1]["outcome"] == "enclave"
    assert lines.stat().st_mode & 0o777 == 0o600


def test_export_of_a_span(tmp_path: Path, folder: Path) -> None:
    del folder
    out = tmp_path / "x.jsonl"
    assert main(["audit", "export", "--out", str(out), "--from", "2999-01-01"]) == 0
    assert out.read_bytes() == b""
    out.unlink()
    assert main(["audit", "export", "--out", str(out), "--to", "2001-01-01"]) == 0
    assert out.read_bytes() == b""


def test_export_of_an_invalid_log_leaves_no_file(folder: Path, tmp_path: Path) -> None:
    edit(folder, b'"messages":1', b'"messages":2')
    out = tmp_path / "exports" / "x.jsonl"
    out.parent.mkdir()
    assert main(["audit", "export", "--out", str(out)]) == 1
    assert list(out.parent.iterdir()) == []
    assert main(["audit", "export", "--out", str(tmp_path / "no" / "x")]) == 3


@pytest.mark.parametrize(
    "action", ["init", "verify", "prove", "export", "show-key", "checkpoint"]
)
def test_help_teaches(action: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["audit", action, "--help"])
    assert "example:" in out_of(capsys)


def test_usage_is_counted_by_application(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = AuditLog(tmp_path / "log", make=True)
    for name in ("letters", "letters", "triage", ""):
        log.append(replace(entry(0), application=name))
    log.close()
    usage = ["audit", "usage", "--dir", str(tmp_path / "log")]
    assert main([*usage, "--json"]) == 0
    assert json.loads(out_of(capsys)) == {
        "": {"questions": 1, "local": 1},
        "letters": {"questions": 2, "local": 2},
        "triage": {"questions": 1, "local": 1},
    }
    assert main(usage) == 0
    shown = out_of(capsys).splitlines()
    assert [line.split()[:3] for line in shown] == [
        ["-", "1", "questions:"],
        ["letters", "2", "questions:"],
        ["triage", "1", "questions:"],
    ]
    table = tmp_path / "x.csv"
    export = ["audit", "export", "--dir", str(tmp_path / "log"), "--format", "csv"]
    assert main([*export, "--out", str(table)]) == 0
    with table.open(encoding="utf-8", newline="") as file:
        names = [row["application"] for row in csv.DictReader(file)]
    assert names == ["letters", "letters", "triage", ""]
    capsys.readouterr()
    assert main([*usage, "--from", "2999-01-01"]) == 0
    assert "no question" in capsys.readouterr().err
    edit(tmp_path / "log", b'"application":"letters"', b'"application":"lettres"')
    assert main(usage) == 1
