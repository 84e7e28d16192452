"""The writer of the audit trail: crashes, full disks, several writers."""

import dataclasses
import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typing_extensions import override

from curtilage.client.audit.checkpoint import CHECKPOINT_LINES
from curtilage.client.audit.directory import (
    CHECKPOINTS,
    ORGANISATION_KEY,
    OTHER_KEY,
    SIGNING_KEY,
    AuditDirectory,
    Disk,
)
from curtilage.client.audit.reader import LogToRead
from curtilage.client.audit.record import AuditRecord, commit, parse_line
from curtilage.client.audit.trail import DiskAuditTrail
from curtilage.client.audit.verify import VerifiedLog
from curtilage.client.audit.writer import SEGMENT_BYTES, AuditLimits, AuditLog
from curtilage.client.errors import AuditError
from curtilage.policy.errors import AuditRefusedError, AuditStep
from support.audit_logs import ENTRY, NOW, entry


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "audit"


def log_at(
    folder: Path,
    disk: Disk | None = None,
    *,
    segment_bytes: int = SEGMENT_BYTES,
    lock_s: float = 20,
) -> AuditLog:
    limits = AuditLimits(checkpoint_lines=4, segment_bytes=segment_bytes, lock_s=lock_s)
    return AuditLog(folder, make=True, limits=limits, disk=disk)


def filled(
    folder: Path, count: int = 10, *, segment_bytes: int = SEGMENT_BYTES
) -> AuditLog:
    log = log_at(folder, segment_bytes=segment_bytes)
    for number in range(count):
        log.append(entry(number))
    return log


def verified(folder: Path) -> VerifiedLog:
    return LogToRead.open(folder).verify()


def records(folder: Path) -> list[AuditRecord]:
    found: list[AuditRecord] = []
    LogToRead.open(folder).verify(
        lambda line, _: found.append(line) if isinstance(line, AuditRecord) else None
    )
    return found


def test_appended_records_verify(folder: Path) -> None:
    filled(folder).close()
    log = verified(folder)
    assert (log.records, log.signed) == (10, log.size)
    key = bytes.fromhex((folder / ORGANISATION_KEY).read_text("ascii"))
    expected = [commit(key, entry(n).payload_digest) for n in range(10)]
    assert [each.commitment for each in records(folder)] == expected


def test_the_folders_above_the_log_are_private_too(tmp_path: Path) -> None:
    """``routing.jsonl`` lies next to the audit folder: its size says when one asks."""
    usual = os.umask(0o022)
    try:
        filled(tmp_path / "state" / "curtilage" / "audit", 1).close()
    finally:
        os.umask(usual)
    for made in (tmp_path / "state", tmp_path / "state" / "curtilage"):
        assert made.stat().st_mode & 0o777 == 0o700


def test_everything_is_private(folder: Path) -> None:
    filled(folder, segment_bytes=2000).close()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}


def test_a_closed_log_can_be_continued(folder: Path) -> None:
    for start in (0, 3, 6):
        log = log_at(folder)
        for number in range(start, start + 3):
            log.append(entry(number))
        log.close()
    assert verified(folder).records == 9


def test_an_open_log_can_be_used_after_close(folder: Path) -> None:
    log = filled(folder, 2)
    log.close()
    log.append(entry(2))
    log.close()
    assert verified(folder).records == 3


def test_files_are_bound_to_each_other(folder: Path) -> None:
    filled(folder, 60, segment_bytes=4000).close()
    log = verified(folder)
    assert log.segments > 3
    assert log.records == 60
    (folder / "000002.jsonl").unlink()
    with pytest.raises(AuditRefusedError) as refused:
        verified(folder)
    assert refused.value.step is AuditStep.SEGMENTS


def test_it_is_signed_often_and_at_the_end(folder: Path) -> None:
    log = filled(folder, 9)
    assert verified(folder).size - verified(folder).signed <= 4
    log.close()
    log.close()
    notes, _ = AuditDirectory(folder).notes()
    assert verified(folder).signed == verified(folder).size
    log.checkpoint()
    assert AuditDirectory(folder).notes()[0] == notes, "nothing new, nothing signed"


def test_an_old_signature_is_renewed_before_the_next_record(folder: Path) -> None:
    clock = Clock()
    log = AuditLog(folder, make=True, clock=clock)
    log.append(entry(0))
    log.append(entry(1))
    assert verified(folder).signed == 1
    clock.now += timedelta(seconds=61)
    log.append(entry(2))
    assert verified(folder).signed == 3
    clock.now -= timedelta(days=1)
    log.append(entry(3))
    assert verified(folder).signed == 4


def test_a_writer_of_unverifiable_logs_is_not_made() -> None:
    with pytest.raises(ValueError, match="64 lines and 60 s"):
        AuditLimits(checkpoint_lines=CHECKPOINT_LINES + 1)
    with pytest.raises(ValueError, match="64 lines and 60 s"):
        AuditLimits(checkpoint_s=61)


def test_a_file_and_the_record_that_it_is_begun_for_have_one_time(
    folder: Path,
) -> None:
    """Read twice, a clock that always goes on would seem to have gone back."""
    clock = Clock()

    def ticking() -> datetime:
        clock.now += timedelta(microseconds=1)
        return clock.now

    limits = AuditLimits(segment_bytes=2000)
    log = AuditLog(folder, make=True, clock=ticking, limits=limits)
    for number in range(9):
        log.append(entry(number))
    log.close()
    times: list[datetime] = []
    LogToRead.open(folder).verify(lambda line, _: times.append(line.time))
    assert times == sorted(times)
    assert verified(folder).segments > 1


def test_two_writers_take_turns(folder: Path) -> None:
    one, other = log_at(folder, segment_bytes=4000), log_at(folder, segment_bytes=4000)
    for number in range(40):
        (one if number % 3 else other).append(entry(number))
    one.close()
    other.close()
    assert verified(folder).records == 40


WRITER = """
import sys
from pathlib import Path
from curtilage.client.audit.writer import SEGMENT_BYTES, AuditLimits, AuditLog
from support.audit_logs import entry
log = AuditLog(Path(sys.argv[1]), make=True,
               limits=AuditLimits(checkpoint_lines=7, segment_bytes=20000, lock_s=60))
for number in range(int(sys.argv[2])):
    log.append(entry(number))
    print(number, flush=True)
log.close()
"""


def writer(folder: Path, count: int) -> "subprocess.Popen[str]":
    tests = Path(__file__).parents[2]
    paths = [str(tests), str(tests.parent / "dev")]
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(folder), str(count)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )


def test_several_processes_corrupt_nothing(folder: Path) -> None:
    """They also make the log, all at once."""
    processes = [writer(folder, 40) for _ in range(3)]
    for process in processes:
        process.communicate()
    assert [process.returncode for process in processes] == [0] * 3
    log = verified(folder)
    assert (log.records, log.signed) == (120, log.size)
    assert log.segments > 1


def test_a_killed_writer_loses_nothing_that_it_confirmed(folder: Path) -> None:
    confirmed = 0
    for round_number in range(2):
        process = writer(folder, 100_000)
        assert process.stdout is not None
        for _ in range(5 + 7 * round_number):
            assert process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        rest, _ = process.communicate()
        confirmed += 5 + 7 * round_number + rest.count("\n")
        AuditLog(folder).prepare()
        assert verified(folder).records >= confirmed
    assert verified(folder).signed == verified(folder).size


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=15)
@given(st.data())
def test_a_line_that_a_crash_left_is_set_aside(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("torn") / "audit"
    filled(folder, 5).close()
    path = folder / "000001.jsonl"
    whole = path.read_bytes()
    line = whole.splitlines()[-1]
    torn = line[: data.draw(st.integers(1, len(line)))]
    path.write_bytes(whole + torn)
    with pytest.raises(AuditRefusedError) as refused:
        verified(folder)
    assert (refused.value.step, refused.value.record) == (AuditStep.END, 6)
    log = AuditLog(folder)
    log.append(entry(5))
    log.close()
    assert verified(folder).records == 6
    assert (folder / f"torn-000001-{len(whole)}").read_bytes() == torn


def test_a_torn_line_of_another_writer_is_set_aside_while_open(folder: Path) -> None:
    log = filled(folder, 3)
    with (folder / "000001.jsonl").open("ab") as file:
        file.write(b'{"attempt":')
    log.append(entry(3))
    log.close()
    assert verified(folder).records == 4


def test_a_record_that_was_signed_is_never_set_aside(folder: Path) -> None:
    filled(folder, 5).close()
    path = folder / "000001.jsonl"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(AuditError, match="last checkpoint"):
        AuditLog(folder).append(ENTRY)


def test_a_file_whose_first_line_was_torn_is_begun_again(folder: Path) -> None:
    filled(folder, 5).close()
    (folder / "000002.jsonl").write_bytes(b'{"kind":"segm')
    log = AuditLog(folder)
    log.append(entry(5))
    log.close()
    assert (verified(folder).records, verified(folder).segments) == (6, 2)
    assert (folder / "torn-000002-0").read_bytes() == b'{"kind":"segm'


def test_a_checkpoint_that_a_crash_cut_short_is_signed_again(folder: Path) -> None:
    log = filled(folder, 5)
    log.close()
    path = folder / CHECKPOINTS
    whole = path.read_bytes()
    for cut in (1, 20, whole.index(b"\n\n") + 1):
        path.write_bytes(whole + whole[:cut])
        log.append(entry(cut))
        log.close()
        assert verified(folder).signed == verified(folder).size
        whole = path.read_bytes()


def edit(folder: Path, change: Callable[[bytes], bytes]) -> None:
    path = folder / "000001.jsonl"
    path.write_bytes(change(path.read_bytes()))


CHANGES: Final[list[Callable[[bytes], bytes]]] = [
    lambda data: data.replace(b'"messages":1', b'"messages":2', 1),
    lambda data: b"".join(data.splitlines(keepends=True)[:-1]),
    lambda data: b"".join(data.splitlines(keepends=True)[1:]),
    lambda data: data + b"garbage\n",
    lambda data: data + data.splitlines(keepends=True)[-1],
    lambda data: data + data.splitlines(keepends=True)[0],
    lambda data: data.replace(b'"segment":1', b'"segment":3'),
    lambda data: data.replace(b'"log":"curtilage', b'"log":"another.'),
    lambda data: data.replace(b'"tree":[]', b'"tree":["' + b"00" * 32 + b'"]'),
]


@pytest.mark.parametrize(
    "change",
    CHANGES,
    ids=[
        *("edited", "cut", "beheaded", "garbage", "repeated", "restarted"),
        *("renumbered", "foreign", "history"),
    ],
)
def test_a_damaged_log_is_not_written_to(
    folder: Path, change: Callable[[bytes], bytes]
) -> None:
    filled(folder, 5).close()
    edit(folder, change)
    before = (folder / "000001.jsonl").read_bytes()
    with pytest.raises(AuditError):
        AuditLog(folder).append(ENTRY)
    assert (folder / "000001.jsonl").read_bytes() == before


def test_a_new_chain_is_not_what_was_signed(folder: Path) -> None:
    """The last line changed, its signature kept."""
    filled(folder, 3).close()
    lines = (folder / "000001.jsonl").read_bytes().splitlines(keepends=True)
    lines[-1] = lines[-1].replace(b'"messages":1', b'"messages":7')
    (folder / "000001.jsonl").write_bytes(b"".join(lines))
    with pytest.raises(AuditError, match="last checkpoint"):
        AuditLog(folder).append(ENTRY)


def test_a_log_that_became_shorter_while_open_is_not_written_to(folder: Path) -> None:
    log = filled(folder, 3)
    edit(folder, lambda data: data[:-10])
    with pytest.raises(AuditError, match="shorter"):
        log.append(ENTRY)


def test_a_log_with_missing_files_is_not_restarted(folder: Path) -> None:
    log = filled(folder, 3)
    (folder / "000001.jsonl").unlink()
    with pytest.raises(AuditError, match="gone"):
        log.append(ENTRY)


def test_a_log_with_a_file_missing_is_not_written_to(folder: Path) -> None:
    filled(folder, 40, segment_bytes=4000).close()
    (folder / "000002.jsonl").unlink()
    with pytest.raises(AuditError, match="missing"):
        AuditLog(folder).append(ENTRY)


def test_a_log_that_was_moved_away_while_open_is_noticed(folder: Path) -> None:
    log = filled(folder, 3)
    folder.rename(folder.with_name("elsewhere"))
    with pytest.raises(AuditError):
        log.append(ENTRY)


class Failing(Disk):
    """Fails at one call of one kind; writes a part of the line first."""

    def __init__(self, call: str, *, part: int = 0, after: int = 0) -> None:
        self.call = call
        self.part = part
        self.after = after
        self.broken = True

    def fails(self, call: str) -> bool:
        if not self.broken or call not in self.call.split():
            return False
        self.after -= 1
        return self.after < 0

    @override
    def write(self, descriptor: int, data: bytes) -> int:
        if self.fails("short"):
            return super().write(descriptor, data[: self.part])
        if self.fails("write"):
            if self.part:
                super().write(descriptor, data[: self.part])
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(descriptor, data)

    @override
    def sync(self, descriptor: int) -> None:
        if self.fails("sync"):
            raise OSError(errno.EIO, "Input/output error")
        super().sync(descriptor)

    @override
    def truncate(self, descriptor: int, size_bytes: int) -> None:
        if self.fails("truncate"):
            raise OSError(errno.EIO, "Input/output error")
        super().truncate(descriptor, size_bytes)


@pytest.mark.parametrize("after", [0, 1, 2, 5])
@pytest.mark.parametrize("part", [0, 100])
@pytest.mark.parametrize(
    "call",
    ["write", "short", "sync", "write truncate", "short truncate", "sync truncate"],
)
def test_a_disk_that_fails_corrupts_nothing(
    folder: Path, call: str, part: int, after: int
) -> None:
    """A failure at any call raises; confirmed records are kept; writing continues."""
    filled(folder, 3).close()
    disk = Failing(call, part=part, after=after)
    log = log_at(folder, disk, segment_bytes=3000)
    confirmed = 3
    for number in range(3, 8):
        try:
            log.append(entry(number))
        except AuditError:
            continue
        confirmed += 1
    disk.broken = False
    log.append(entry(8))
    log.close()
    assert verified(folder).records >= confirmed + 1
    assert verified(folder).signed == verified(folder).size


@pytest.mark.parametrize("call", ["write", "short", "sync"])
def test_a_record_that_is_not_synced_is_refused_and_removed(
    folder: Path, call: str
) -> None:
    filled(folder, 3).close()
    log = log_at(folder, Failing(call, part=100))
    before = (folder / "000001.jsonl").read_bytes()
    with pytest.raises(AuditError):
        log.append(ENTRY)
    assert (folder / "000001.jsonl").read_bytes() == before


LIMITED = """
import resource, sys
from pathlib import Path
from curtilage.client.audit.writer import AuditLog
from curtilage.client.errors import AuditError
from support.audit_logs import entry
import signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
log = AuditLog(Path(sys.argv[1]))
log.append(entry(1))
size = (Path(sys.argv[1]) / "000001.jsonl").stat().st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, size + 100))
try:
    log.append(entry(2))
except AuditError as error:
    print("refused", (Path(sys.argv[1]) / "000001.jsonl").stat().st_size - size)
"""


def test_a_file_that_may_not_grow_refuses_the_record(folder: Path) -> None:
    filled(folder, 1).close()
    tests = Path(__file__).parents[2]
    paths = [str(tests), str(tests.parent / "dev")]
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(folder)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )
    assert done.stdout == "refused 0\n"
    AuditLog(folder).prepare()
    assert verified(folder).records == 2


def test_waiting_for_another_writer_has_a_limit(folder: Path) -> None:
    filled(folder, 1).close()
    log = log_at(folder, lock_s=0.05)
    with (
        AuditDirectory(folder).locked(1),
        pytest.raises(AuditError, match="for too long"),
    ):
        log.append(ENTRY)
    log.append(ENTRY)


def test_a_directory_that_was_not_made_is_refused(folder: Path) -> None:
    with pytest.raises(AuditError, match="curtilage audit init"):
        AuditLog(folder).append(ENTRY)
    assert not folder.exists()


@pytest.mark.parametrize("name", [ORGANISATION_KEY, SIGNING_KEY])
def test_a_key_that_others_can_read_is_refused(folder: Path, name: str) -> None:
    filled(folder, 1).close()
    (folder / name).chmod(0o640)
    with pytest.raises(AuditError, match="chmod 600"):
        AuditLog(folder).append(ENTRY)


def test_a_directory_that_others_may_enter_is_refused(folder: Path) -> None:
    filled(folder, 1).close()
    folder.chmod(0o750)
    with pytest.raises(AuditError, match="chmod 700"):
        AuditLog(folder).append(ENTRY)


@pytest.mark.parametrize("name", [ORGANISATION_KEY, SIGNING_KEY, "log.vkey"])
@pytest.mark.parametrize("content", [None, b"", b"nonsense\n"])
def test_a_log_whose_keys_are_wrong_is_not_written_to(
    folder: Path, name: str, content: bytes | None
) -> None:
    filled(folder, 1).close()
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(content)
    with pytest.raises(AuditError):
        AuditLog(folder, make=True).append(ENTRY)


def test_another_logs_signing_key_is_refused(folder: Path, tmp_path: Path) -> None:
    filled(folder, 1).close()
    filled(tmp_path / "other", 1).close()
    (folder / SIGNING_KEY).write_bytes((tmp_path / "other" / SIGNING_KEY).read_bytes())
    with pytest.raises(AuditError, match=OTHER_KEY):
        AuditLog(folder).append(ENTRY)


def test_a_link_is_not_followed(folder: Path, tmp_path: Path) -> None:
    filled(folder, 1).close()
    target = tmp_path / "elsewhere"
    (folder / "000001.jsonl").rename(target)
    (folder / "000001.jsonl").symlink_to(target)
    with pytest.raises(AuditError):
        AuditLog(folder).append(ENTRY)


def test_no_key_is_in_a_repr_or_an_error(folder: Path) -> None:
    filled(folder, 1).close()
    keys = AuditDirectory(folder).keys()
    shown = repr(keys) + repr(AuditLog(folder).__dict__)
    assert keys.organisation.hex() not in shown
    assert repr(keys.organisation) not in shown


async def test_a_trail_reports_its_problem_and_continues_when_it_is_repaired(
    folder: Path,
) -> None:
    disk = Failing("write")
    trail = DiskAuditTrail(log_at(folder, disk))
    await trail.prepare()
    assert "No space left" in str(trail.problem)
    with pytest.raises(AuditError):
        await trail.append(ENTRY)
    disk.broken = False
    await mended(trail)
    assert verified(folder).records == 1


async def unsigned(folder: Path) -> tuple[Failing, DiskAuditTrail]:
    """Return a broken disk, and a trail with a record that could not be signed."""
    disk = Failing("write")
    disk.broken = False
    trail = DiskAuditTrail(log_at(folder, disk))
    await trail.append(ENTRY)
    disk.broken = True
    await trail.checkpoint()
    return disk, trail


async def test_a_failed_checkpoint_is_made_up_for_by_the_next(folder: Path) -> None:
    disk, trail = await unsigned(folder)
    await trail.checkpoint()  # which must not pass for one: nothing is signed yet
    assert "No space left" in str(trail.problem)
    disk.broken = False
    await trail.checkpoint()
    assert trail.problem is None
    log = verified(folder)
    assert log.signed == log.size
    await trail.append(ENTRY)
    await trail.close()


async def test_a_record_that_is_written_makes_up_for_a_checkpoint(folder: Path) -> None:
    disk, trail = await unsigned(folder)
    with pytest.raises(AuditError):  # fails closed as long as nothing can be signed
        await trail.append(ENTRY)
    disk.broken = False
    await mended(trail)


async def test_a_failed_start_of_the_trail_is_repeated(folder: Path) -> None:
    disk = Failing("write")
    trail = DiskAuditTrail(log_at(folder, disk))
    await trail.prepare()
    await trail.checkpoint()
    assert "No space left" in str(trail.problem)
    disk.broken = False
    await trail.checkpoint()
    assert trail.problem is None
    await trail.close()


async def test_a_checkpoint_makes_up_for_no_record(folder: Path) -> None:
    trail = DiskAuditTrail(log_at(folder))
    with pytest.raises(AuditError):
        await trail.append(dataclasses.replace(ENTRY, rule="out of bounds"))
    problem = trail.problem
    assert "out of bounds" in str(problem)
    await trail.checkpoint()
    assert trail.problem == problem
    await mended(trail)


async def mended(trail: DiskAuditTrail) -> None:
    await trail.append(ENTRY)
    assert trail.problem is None
    await trail.checkpoint()
    await trail.close()


def content_of(folder: Path) -> str:
    return "".join(path.read_text("latin-1") for path in folder.iterdir())


async def test_a_trail_refuses_what_no_record_may_hold(folder: Path) -> None:
    trail = DiskAuditTrail(log_at(folder))
    canary = "canary 51b7"
    with pytest.raises(AuditError) as refused:
        await trail.append(dataclasses.replace(ENTRY, rule=canary))
    assert canary not in str(refused.value)
    assert canary not in str(trail.problem)
    await trail.close()
    assert canary not in content_of(folder)


def test_a_line_is_one_that_parses(folder: Path) -> None:
    filled(folder, 2).close()
    for line in (folder / "000001.jsonl").read_bytes().splitlines():
        parse_line(line)
