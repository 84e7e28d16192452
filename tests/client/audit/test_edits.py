"""Edits without the keys, in a log by a real writer, are detected."""

import dataclasses
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path

import pytest

from curtilage.cli.audit.command import LEFT_UNSIGNED, NOT_SIGNED
from curtilage.cli.main import main
from curtilage.client.audit.checkpoint import CHECKPOINT_LINES, MAX_CHECKPOINT_BYTES
from curtilage.client.audit.directory import CHECKPOINTS, AuditDirectory
from curtilage.client.audit.reader import LogToRead
from curtilage.client.audit.record import (
    AuditRecord,
    Line,
    Outcome,
    ReceiptEntry,
    ReceiptLine,
    SegmentStart,
    encode_line,
    parse_line,
)
from curtilage.client.audit.tail import Tail
from curtilage.client.audit.verify import TAKEN_OUT, VerifiedLog
from curtilage.client.audit.writer import AuditLimits, AuditLog
from curtilage.client.errors import AuditError
from curtilage.client.system.files import NOT_ORDINARY
from curtilage.policy.decision.routes import Route
from curtilage.policy.errors import AuditRefusedError, AuditStep
from support.audit_logs import NOW, entry

RECEIPT = ReceiptEntry(
    query="00" * 8,
    attempt=1,
    receipt_id=bytes(16),
    public_key=bytes(32),
    receipt=bytes(235),
)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log in three files: every third question left and has a receipt."""
    path = tmp_path_factory.mktemp("written") / "audit"
    now = [NOW]
    log = AuditLog(
        path,
        make=True,
        clock=lambda: now[0],
        limits=AuditLimits(segment_bytes=60_000),
    )
    for number in range(240):
        now[0] += timedelta(seconds=1)
        each = entry(number)
        if number % 3:
            log.append(each)
            continue
        log.append(
            dataclasses.replace(
                each, route=Route.ENCLAVE, outcome=Outcome.ENCLAVE, verdict="v1"
            )
        )
        log.append_receipt(dataclasses.replace(RECEIPT, query=each.query))
    log.close()
    for name in ("signing.key", "organisation.key"):
        (path / name).unlink()
    return path


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written, tmp_path / "audit"))


def verified(folder: Path) -> VerifiedLog:
    return LogToRead.open(folder).verify()


def refusal_of(folder: Path) -> AuditRefusedError:
    with pytest.raises(AuditRefusedError) as refused:
        verified(folder)
    return refused.value


def lines_of(folder: Path) -> list[Line]:
    paths = sorted(folder.glob("*.jsonl"))
    return [parse_line(line) for path in paths for line in path.read_bytes().split()]


def notes_of(folder: Path) -> list[str]:
    return AuditDirectory(folder).notes()[0]


def size_of(note: str) -> int:
    return int(note.splitlines()[1])


def keep(folder: Path, notes: Iterable[str]) -> None:
    (folder / CHECKPOINTS).write_text("".join(notes), "utf-8")


def rewrite(folder: Path, lines: Iterable[Line]) -> None:
    """Number, chain and bind lines again, in as many files as they need."""
    tail = Tail(AuditDirectory(folder).public_key().name)
    for path in folder.glob("*.jsonl"):
        path.unlink()
    for line in lines:
        if isinstance(line, SegmentStart):
            made = tail.next_segment(line.time)
        else:
            placed = dataclasses.replace(line, seq=tail.size, prev=tail.last_hash)
            made = encode_line(placed) + b"\n"
        tail.take(made)
        with (folder / f"{tail.segment:06}.jsonl").open("ab") as file:
            file.write(made)


def is_left(line: Line) -> bool:
    """Return whether a line records a request that was sent."""
    left = isinstance(line, AuditRecord) and line.outcome is Outcome.ENCLAVE
    return left or isinstance(line, ReceiptLine)


def test_the_log_as_it_was_written(folder: Path) -> None:
    log = verified(folder)
    assert (log.records, log.signed_records, log.segments) == (240, 240, 3)


@pytest.mark.parametrize("kept", [1, 2, 4])
def test_removing_sent_records_after_a_checkpoint_is_detected(
    folder: Path, kept: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """All later checkpoints are removed, and all lines that show it."""
    notes = notes_of(folder)[:kept]
    signed = size_of(notes[-1])
    lines = lines_of(folder)
    behind = [line for line in lines[signed:] if not is_left(line)]
    rewrite(folder, [*lines[:signed], *behind])
    keep(folder, notes)
    assert refusal_of(folder).step in {AuditStep.CHECKPOINTS, AuditStep.END}
    assert main(["audit", "verify", "--dir", str(folder)]) == 1
    output = capsys.readouterr().err
    assert TAKEN_OUT in output


def test_removing_records_and_merging_files_is_detected(folder: Path) -> None:
    first, *others = lines_of(folder)
    left = [x for x in others if not (is_left(x) or isinstance(x, SegmentStart))]
    rewrite(folder, [first, *left[: CHECKPOINT_LINES + 1]])
    keep(folder, notes_of(folder)[:1])
    refusal = refusal_of(folder)
    assert (refusal.step, refusal.record) == (AuditStep.CHECKPOINTS, 41)


def test_removing_records_and_adjusting_times_is_detected(folder: Path) -> None:
    first, *others = lines_of(folder)
    left = [x for x in others if not (is_left(x) or isinstance(x, SegmentStart))]
    rewrite(folder, [first, *(dataclasses.replace(x, time=first.time) for x in left)])
    keep(folder, notes_of(folder)[:1])
    refusal = refusal_of(folder)
    assert (refusal.step, refusal.record) == (AuditStep.END, 1 + CHECKPOINT_LINES)


def test_lines_that_may_be_forged_are_not_called_verified(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As few and as early as a killed writer leaves them."""
    long_ago = NOW.replace(year=2001)
    first, *others = lines_of(folder)
    left = [x for x in others if not (is_left(x) or isinstance(x, SegmentStart))]
    made_up = [dataclasses.replace(line, time=long_ago) for line in left[:30]]
    rewrite(folder, [first, *made_up])
    keep(folder, notes_of(folder)[:1])
    verify = ["audit", "verify", "--dir", str(folder)]
    assert main(verify) == 0
    output = capsys.readouterr().out
    assert "\nverified: 0 decisions" in output
    assert "\nnot verified: 30 decisions" in output
    assert LEFT_UNSIGNED in output
    assert main([*verify, "--json"]) == 0
    fields = json.loads(capsys.readouterr().out)
    assert (fields["decisions"], fields["decisions_signed"]) == (30, 0)
    assert fields["left_unsigned"]


def test_lines_that_a_client_has_yet_to_sign_are_reported_without_suspicion(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = ["--dir", str(tmp_path / "audit")]
    log = AuditLog(tmp_path / "audit", make=True)
    log.append(entry(1))
    assert main(["audit", "verify", *place]) == 0
    output = capsys.readouterr().out
    assert "\nnot verified: 1 decisions" in output
    assert LEFT_UNSIGNED not in output
    out = str(tmp_path / "x.jsonl")
    assert main(["audit", "export", *place, "--out", out]) == 0
    output = capsys.readouterr().err
    assert " 1 to 1 " in output
    assert NOT_SIGNED in output
    log.close()
    assert main(["audit", "verify", *place]) == 0
    assert "not verified" not in capsys.readouterr().out


def drop(number: int) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        lines = lines_of(folder)
        del lines[number]
        rewrite(folder, lines)

    return edit


def begin_otherwise(folder: Path) -> None:
    first, *others = lines_of(folder)
    rewrite(folder, [dataclasses.replace(first, time=NOW - timedelta(1)), *others])


def swap_files(folder: Path) -> None:
    (folder / "000002.jsonl").rename(folder / "x")
    (folder / "000003.jsonl").rename(folder / "000002.jsonl")
    (folder / "x").rename(folder / "000003.jsonl")


def move_files_up(folder: Path) -> None:
    (folder / "000003.jsonl").rename(folder / "000002.jsonl")


def join_files(folder: Path) -> None:
    second = (folder / "000002.jsonl").read_bytes()
    with (folder / "000001.jsonl").open("ab") as file:
        file.write(second)
    move_files_up(folder)


def drop_a_file(folder: Path) -> None:
    lines = lines_of(folder)
    starts = [line.seq for line in lines if isinstance(line, SegmentStart)]
    rewrite(folder, [*lines[: starts[1]], *lines[starts[2] :]])


def take_out_every_second_checkpoint(folder: Path) -> None:
    keep(folder, notes_of(folder)[::2])


def take_out_the_checkpoint_of_a_file(folder: Path) -> None:
    starts = [line.seq for line in lines_of(folder) if isinstance(line, SegmentStart)]
    keep(folder, [note for note in notes_of(folder) if size_of(note) != starts[1]])


def turn_checkpoints_round(folder: Path) -> None:
    keep(folder, notes_of(folder)[::-1])


def edit_a_checkpoint(folder: Path) -> None:
    first, *others = notes_of(folder)
    keep(folder, [first.replace("\n1\n", "\n2\n"), *others])


def shift_the_checkpoints(folder: Path) -> None:
    keep(folder, ["\n", *notes_of(folder)])


def lengthen_the_checkpoints(folder: Path) -> None:
    """More than a crash leaves of one, so that nothing hides behind it."""
    with (folder / CHECKPOINTS).open("ab") as file:
        file.write(b"x" * MAX_CHECKPOINT_BYTES)


def lengthen_the_lines(folder: Path) -> None:
    with (folder / "000003.jsonl").open("ab") as file:
        file.write(b"x" * 1_000_000 + b"\n")


@pytest.mark.parametrize(
    ("edit", "step"),
    [
        (drop(5), AuditStep.CHECKPOINTS),
        (drop(-1), AuditStep.END),
        (begin_otherwise, AuditStep.CHECKPOINTS),
        (swap_files, AuditStep.NUMBERS),
        (move_files_up, AuditStep.NUMBERS),
        (join_files, AuditStep.BINDING),
        (drop_a_file, AuditStep.CHECKPOINTS),
        (take_out_every_second_checkpoint, AuditStep.CHECKPOINTS),
        (take_out_the_checkpoint_of_a_file, AuditStep.CHECKPOINTS),
        (turn_checkpoints_round, AuditStep.CHECKPOINTS),
        (edit_a_checkpoint, AuditStep.CHECKPOINTS),
        (shift_the_checkpoints, AuditStep.CHECKPOINTS),
        (lengthen_the_checkpoints, AuditStep.CHECKPOINTS),
        (lengthen_the_lines, AuditStep.FORM),
    ],
)
def test_other_edits_are_found(
    folder: Path, edit: Callable[[Path], None], step: AuditStep
) -> None:
    edit(folder)
    assert refusal_of(folder).step is step


def test_a_repeated_checkpoint_changes_nothing(folder: Path) -> None:
    """Two writers may leave it so."""
    before = verified(folder)
    keep(folder, [note for note in notes_of(folder) for _ in range(2)])
    after = verified(folder)
    assert dataclasses.replace(after, checkpoints=before.checkpoints) == before


def test_a_cut_to_a_checkpoint_is_what_no_log_can_show(folder: Path) -> None:
    kept = notes_of(folder)[-1]
    notes = notes_of(folder)[:3]
    rewrite(folder, lines_of(folder)[: size_of(notes[-1])])
    keep(folder, notes)
    assert verified(folder).signed == verified(folder).size == size_of(notes[-1])
    with pytest.raises(AuditRefusedError) as refused:
        LogToRead.open(folder, kept=[kept]).verify()
    assert refused.value.step is AuditStep.END


@pytest.mark.parametrize("name", ["000001.jsonl", CHECKPOINTS, "log.vkey"])
def test_a_pipe_is_refused_and_not_waited_for(folder: Path, name: str) -> None:
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises(AuditError, match=re.escape(NOT_ORDINARY)):
        verified(folder)


def test_lines_written_during_a_read_are_read_next_time(
    tmp_path: Path,
) -> None:
    """However much: the checkpoints were read before."""
    log = AuditLog(tmp_path / "audit", make=True)
    for number in range(3):
        log.append(entry(number))

    def write(lines: int) -> None:
        for number in range(3 * CHECKPOINT_LINES):
            log.append(entry(lines + number))

    found = LogToRead.open(tmp_path / "audit", progress=write).verify()
    assert (found.size, found.signed) == (4, 1)
    log.close()
    assert verified(tmp_path / "audit").records == 3 + 3 * CHECKPOINT_LINES
