"""Records that are cut off, checkpoints with them, without any key."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from curtilage.client.audit.checkpoint import CHECKPOINT_LINES
from curtilage.client.audit.directory import CHECKPOINTS, NOTE_LINES, AuditDirectory
from curtilage.client.audit.reader import LogToRead
from curtilage.client.audit.writer import (
    NEVER_SIGNED,
    NO_CHECKPOINT,
    NOT_AS_WRITTEN,
    SEGMENT_BYTES,
    AuditLimits,
    AuditLog,
)
from curtilage.client.errors import AuditError
from curtilage.policy.errors import AuditRefusedError, AuditStep
from support.audit_logs import ENTRY, NOW, entry

SEGMENT = "000001.jsonl"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "audit"


def log_at(folder: Path, *, segment_bytes: int = SEGMENT_BYTES) -> AuditLog:
    limits = AuditLimits(checkpoint_lines=4, segment_bytes=segment_bytes)
    return AuditLog(folder, make=True, limits=limits)


def filled(folder: Path, count: int, *, segment_bytes: int = SEGMENT_BYTES) -> AuditLog:
    log = log_at(folder, segment_bytes=segment_bytes)
    for number in range(count):
        log.append(entry(number))
    log.checkpoint()
    return log


def keep_lines(path: Path, count: int) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    # Another file under the same name, so that a writer must read it again.
    new = path.with_name("new")
    new.write_bytes(b"".join(lines[:count]))
    new.chmod(0o600)
    new.rename(path)


def cut_to_checkpoint(folder: Path, count: int) -> None:
    """Cut the log and its checkpoints back to its checkpoint of this number."""
    notes = AuditDirectory(folder).notes()[0]
    keep_lines(folder / SEGMENT, int(notes[count - 1].splitlines()[1]))
    keep_lines(folder / CHECKPOINTS, count * NOTE_LINES)


def cut_in_place(folder: Path) -> None:
    (folder / SEGMENT).write_bytes(
        b"".join((folder / SEGMENT).read_bytes().splitlines(keepends=True)[:1])
    )
    keep_lines(folder / CHECKPOINTS, NOTE_LINES)


def closed_first(log: AuditLog) -> None:
    log.close()


def left_open(log: AuditLog) -> None:
    del log


@pytest.mark.parametrize("before", [left_open, closed_first])
@pytest.mark.parametrize("kept", [1, 2, 40])
def test_a_running_writer_notices_a_cut_to_an_earlier_checkpoint(
    folder: Path, kept: int, before: Callable[[AuditLog], None]
) -> None:
    log = filled(folder, 300)
    before(log)
    cut_to_checkpoint(folder, kept)
    LogToRead.open(folder).verify()  # the log alone does not show it
    cut = (folder / SEGMENT).read_bytes()
    for _ in range(2):  # and it does not forget
        with pytest.raises(AuditError, match=NOT_AS_WRITTEN):
            log.append(ENTRY)
    assert (folder / SEGMENT).read_bytes() == cut
    assert len(AuditDirectory(folder).notes()[0]) == kept


def test_a_running_writer_notices_a_cut_in_place(folder: Path) -> None:
    log = filled(folder, 30)
    cut_in_place(folder)
    with pytest.raises(AuditError, match="shorter"):
        log.append(ENTRY)
    with pytest.raises(AuditError, match=NOT_AS_WRITTEN):
        log.append(ENTRY)


def test_a_running_writer_notices_other_records_of_the_same_number(
    folder: Path,
) -> None:
    """Cut while it runs, then filled up by a client that was started later."""
    log = filled(folder, 12)
    cut_to_checkpoint(folder, 1)
    other = AuditLog(folder)
    for number in range(20, 60):
        other.append(entry(number))
    other.close()
    with pytest.raises(AuditError, match=NOT_AS_WRITTEN):
        log.append(ENTRY)


def test_a_running_writer_notices_that_files_are_gone(folder: Path) -> None:
    log = filled(folder, 40, segment_bytes=4000)
    numbers = AuditDirectory(folder).segments()
    assert len(numbers) > 2
    for number in numbers[1:]:
        (folder / f"{number:06}.jsonl").unlink()
    size = len((folder / SEGMENT).read_bytes().splitlines())
    notes = AuditDirectory(folder).notes()[0]
    fits = [note for note in notes if int(note.splitlines()[1]) <= size]
    keep_lines(folder / CHECKPOINTS, len(fits) * NOTE_LINES)
    LogToRead.open(folder).verify()
    with pytest.raises(AuditError, match=NOT_AS_WRITTEN):
        log.append(ENTRY)


def test_a_writer_continues_after_another_started_new_files(folder: Path) -> None:
    one = filled(folder, 3, segment_bytes=4000)
    two = filled(folder, 60, segment_bytes=4000)
    one.append(entry(3))
    two.append(entry(4))
    one.close()
    two.close()
    assert LogToRead.open(folder).verify().records == 65


@pytest.mark.parametrize("kept", [0, 1, 2, 101])
def test_a_log_without_a_checkpoint_is_not_signed_again(
    folder: Path, kept: int
) -> None:
    filled(folder, 100).close()
    keep_lines(folder / SEGMENT, kept)
    (folder / CHECKPOINTS).unlink()
    for make in (False, True):
        with pytest.raises(AuditError, match=NO_CHECKPOINT) as refused:
            AuditLog(folder, make=make).append(ENTRY)
    assert "audit init --dir" in str(refused.value)
    assert not (folder / CHECKPOINTS).exists()
    with pytest.raises(AuditRefusedError) as unsigned:
        LogToRead.open(folder).verify()
    assert unsigned.value.step is AuditStep.CHECKPOINTS


def test_a_log_without_files_and_checkpoints_is_not_restarted(folder: Path) -> None:
    filled(folder, 5).close()
    (folder / SEGMENT).unlink()
    (folder / CHECKPOINTS).unlink()
    with pytest.raises(AuditError, match=NO_CHECKPOINT):
        AuditLog(folder, make=True).append(ENTRY)


def test_an_empty_first_file_is_not_restarted(folder: Path) -> None:
    filled(folder, 5).close()
    (folder / SEGMENT).write_bytes(b"")
    with pytest.raises(AuditError, match="empty or gone"):
        AuditLog(folder).append(ENTRY)


def test_lines_that_no_writer_leaves_unsigned_are_not_signed(folder: Path) -> None:
    filled(folder, 200).close()
    notes = AuditDirectory(folder).notes()[0]
    sizes = [int(note.splitlines()[1]) for note in notes]
    fits = sum(size < 201 - CHECKPOINT_LINES for size in sizes)
    whole = (folder / CHECKPOINTS).read_bytes()
    keep_lines(folder / CHECKPOINTS, fits * NOTE_LINES)
    with pytest.raises(AuditError, match=NEVER_SIGNED):
        AuditLog(folder).append(ENTRY)
    (folder / CHECKPOINTS).write_bytes(whole)
    keep_lines(folder / CHECKPOINTS, (fits + 1) * NOTE_LINES)
    AuditLog(folder).append(ENTRY)


@pytest.mark.parametrize(("kept", "refused"), [(1, True), (4, True), (None, False)])
def test_lines_that_should_have_waited_for_a_signature_are_not_signed(
    folder: Path, kept: int | None, refused: bool
) -> None:
    """Few enough of them, but a writer signs before the next one after a minute."""
    now = [NOW]
    log = AuditLog(folder, make=True, clock=lambda: now[0])
    for number in range(20):
        now[0] += timedelta(seconds=20)
        log.append(entry(number))
    notes = AuditDirectory(folder).notes()[0]
    (folder / CHECKPOINTS).write_text("".join(notes[:kept]), "utf-8")
    before = (folder / CHECKPOINTS).read_bytes()
    if refused:
        with pytest.raises(AuditError, match="should have waited"):
            AuditLog(folder).append(ENTRY)
        with pytest.raises(AuditRefusedError, match="a writer signs first"):
            LogToRead.open(folder).verify()
        assert (folder / CHECKPOINTS).read_bytes() == before
    else:
        AuditLog(folder).append(ENTRY)
        assert LogToRead.open(folder).verify().records == 21


def test_a_writer_goes_by_its_own_checkpoint_and_not_by_the_last(folder: Path) -> None:
    """The clock goes back, another signs, it goes on again, and all are killed."""
    AuditDirectory(folder).make(random=bytes, now=NOW)
    now = [NOW]
    one = AuditLog(folder, clock=lambda: now[0])
    other = AuditLog(folder, clock=lambda: now[0])
    other.append(entry(0))
    now[0] += timedelta(hours=1)
    for number in (1, 2):
        one.append(entry(number))
    one.checkpoint()
    now[0] -= timedelta(hours=1)
    other.append(entry(3))
    other.checkpoint()
    now[0] += timedelta(hours=1)
    for number in (4, 5):
        one.append(entry(number))
    assert LogToRead.open(folder).verify().signed == 5
    AuditLog(folder, clock=lambda: now[0]).append(entry(6))
    assert LogToRead.open(folder).verify().records == 7


def test_a_file_that_begins_with_what_was_never_signed_is_refused(
    folder: Path,
) -> None:
    filled(folder, 30, segment_bytes=4000).close()
    last = AuditDirectory(folder).segments()[-1]
    (folder / f"{last:06}.jsonl").unlink()
    start = (folder / f"{last - 1:06}.jsonl").read_bytes().splitlines(keepends=True)[0]
    (folder / f"{last - 1:06}.jsonl").write_bytes(start)
    keep_lines(folder / CHECKPOINTS, NOTE_LINES)
    with pytest.raises(AuditError, match="never signed"):
        AuditLog(folder).append(ENTRY)


def test_a_log_is_never_made_without_a_checkpoint(folder: Path) -> None:
    AuditDirectory(folder).make(random=bytes, now=NOW)
    log = LogToRead.open(folder).verify()
    assert (log.size, log.signed, log.records) == (1, 1, 0)


@pytest.mark.parametrize("left", ["keys", "first line", "checkpoint"])
def test_a_log_whose_making_was_cut_short_is_made_again(
    folder: Path, left: str
) -> None:
    AuditDirectory(folder).make(random=bytes, now=NOW)
    (folder / "log.vkey").unlink()
    if left != "checkpoint":
        (folder / CHECKPOINTS).unlink()
    if left == "keys":
        (folder / SEGMENT).unlink()
    log = log_at(folder)
    log.append(ENTRY)
    log.close()
    assert LogToRead.open(folder).verify().records == 1


def test_a_log_with_a_record_is_never_made_again(folder: Path) -> None:
    filled(folder, 1).close()
    (folder / "log.vkey").unlink()
    with pytest.raises(AuditError, match="keys are gone"):
        AuditDirectory(folder).make(random=bytes, now=NOW)


def test_a_cut_without_a_writer_shows_by_a_kept_checkpoint(folder: Path) -> None:
    filled(folder, 30).close()
    kept = AuditDirectory(folder).notes()[0][-1]
    cut_to_checkpoint(folder, 2)
    AuditLog(folder).append(ENTRY)  # what no log can see by itself
    with pytest.raises(AuditRefusedError) as refused:
        LogToRead.open(folder, kept=[kept]).verify()
    assert refused.value.step is AuditStep.END
