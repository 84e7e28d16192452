"""A log verifies, or is reported as torn, after its writer was killed at any point."""

import hashlib
import signal
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typing_extensions import override

from curtilage.client.audit.directory import CHECKPOINTS, AuditDirectory, Disk
from curtilage.client.audit.reader import LogToRead
from curtilage.client.audit.verify import VerifiedLog
from curtilage.client.audit.writer import AuditLimits, AuditLog
from curtilage.policy.errors import AuditRefusedError, AuditStep
from support.audit_logs import NOW, entry

GOLDEN = "1f9679ac87522291cb3fecae7497b61472983a409c0d9df90345c3db43390b30"
LIMITS = AuditLimits(checkpoint_lines=5, segment_bytes=5000, lock_s=60)


class KilledError(BaseException):
    """The process is gone: nothing may tidy up behind it."""


class Mortal(Disk):
    """Ends the process at one of its calls, which is done in part."""

    def __init__(self, *, calls: int, part: float) -> None:
        self.calls = calls
        self.part = part

    def dies(self) -> bool:
        self.calls -= 1
        return self.calls < 0

    @override
    def write(self, descriptor: int, data: bytes) -> int:
        if self.dies():
            super().write(descriptor, data[: int(self.part * len(data))])
            raise KilledError
        return super().write(descriptor, data)

    @override
    def sync(self, descriptor: int) -> None:
        if self.dies():
            raise KilledError
        super().sync(descriptor)

    @override
    def truncate(self, descriptor: int, size_bytes: int) -> None:
        if self.dies():
            raise KilledError
        super().truncate(descriptor, size_bytes)


class Clock:
    """One clock for all writers; it is set now and then."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        return self.now


def verified(folder: Path) -> VerifiedLog:
    return LogToRead.open(folder).verify()


def left_by_a_crash(folder: Path) -> VerifiedLog | None:
    """Verify; None where the log's last line was torn, or its last file empty."""
    try:
        return verified(folder)
    except AuditRefusedError as refused:
        refusal = refused
    assert refusal.step in {AuditStep.END, AuditStep.SEGMENTS}
    assert "left by a crash" in refusal.detail
    return None


steps = st.lists(
    st.tuples(
        st.integers(0, 2), st.sampled_from([0, 0, 1, 1, 59, 61, 4000, -1, -5000])
    ),
    min_size=1,
    max_size=30,
)


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    max_examples=40,
    deadline=None,
)
@given(
    written=steps,
    calls=st.integers(0, 60),
    part=st.sampled_from([0.0, 0.1, 0.5, 0.99, 1.0]),
)
def test_whatever_writers_leave_that_are_killed_verifies(
    tmp_path_factory: pytest.TempPathFactory,
    written: list[tuple[int, int]],
    calls: int,
    part: float,
) -> None:
    """Three writers in turns, the clock set to and fro; one of them is killed."""
    folder = tmp_path_factory.mktemp("killed") / "audit"
    clock = Clock()
    AuditDirectory(folder).make(random=bytes, now=NOW)
    mortal = Mortal(calls=calls, part=part)
    disks = (mortal, Disk(), Disk())
    logs = [AuditLog(folder, limits=LIMITS, disk=disk, clock=clock) for disk in disks]
    confirmed = 0
    for number, (who, seconds) in enumerate(written):
        clock.now += timedelta(seconds=seconds)
        try:
            logs[who].append(entry(number))
        except KilledError:
            left = left_by_a_crash(folder)
            assert left is None or left.records >= confirmed
            logs[who] = AuditLog(folder, limits=LIMITS, clock=clock)
        else:
            confirmed += 1
            assert verified(folder).records >= confirmed
    left_by_a_crash(folder)
    mortal.calls = 1_000_000
    for log in logs:
        log.append(entry(0))
    assert verified(folder).records >= confirmed + 3
    for log in logs:
        log.close()
    assert verified(folder).signed == verified(folder).size


WRITER = """
import sys
from pathlib import Path
from curtilage.client.audit.writer import AuditLimits, AuditLog
from support.audit_logs import entry
log = AuditLog(Path(sys.argv[1]), limits=AuditLimits(segment_bytes=20000, lock_s=60))
for number in range(100_000):
    log.append(entry(number))
    print(number, flush=True)
"""


@pytest.mark.parametrize("lines", [(1, 2, 3), (40, 9, 70), (90, 61, 33)])
def test_processes_that_are_killed_leave_a_log_that_verifies(
    tmp_path: Path, lines: tuple[int, ...]
) -> None:
    """Three at once, each killed in the middle of its work."""
    folder = tmp_path / "audit"
    AuditDirectory(folder).make(random=bytes, now=NOW)
    command = [sys.executable, "-c", WRITER, str(folder)]
    paths = [str(Path(__file__).parents[2]), str(Path(__file__).parents[3] / "dev")]
    processes = [
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            text=True,
            env={"PYTHONPATH": ":".join(paths)},
        )
        for _ in lines
    ]
    confirmed = 0
    for process, count in zip(processes, lines, strict=True):
        assert process.stdout is not None
        for _ in range(count):
            assert process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        rest, _ = process.communicate()
        confirmed += count + rest.count("\n")
    left = left_by_a_crash(folder)
    assert left is None or left.records >= confirmed
    AuditLog(folder).prepare()
    assert verified(folder).signed == verified(folder).size
    assert verified(folder).records >= confirmed


def test_a_log_is_written_as_it_always_was(tmp_path: Path) -> None:
    """Line by line and checkpoint by checkpoint, so that old logs and new agree."""
    now = [NOW]
    log = AuditLog(
        tmp_path / "audit",
        make=True,
        clock=lambda: now[-1],
        random=lambda size: bytes([7]) * size,
        limits=AuditLimits(segment_bytes=60_000),
    )
    for number in range(200):
        now.append(
            now[-1] + timedelta(seconds=-90 if number % 50 == 49 else number % 7)
        )
        log.append(entry(number))
    log.close()
    names = ["000001.jsonl", "000002.jsonl", CHECKPOINTS]
    written = b"".join((tmp_path / "audit" / name).read_bytes() for name in names)
    assert hashlib.sha256(written).hexdigest() == GOLDEN
    assert verified(tmp_path / "audit").records == 200
