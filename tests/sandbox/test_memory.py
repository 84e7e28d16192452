# pyright: reportPrivateUsage=false
# The parts of a decision are tried one by one.
"""What is kept of a process's memory: in processes with real settings."""

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

from curtilage.sandbox import memory
from curtilage.sandbox.memory import Paging, keep_from_disk
from curtilage.sandbox.parent import FORGETTING, environment
from support.fakes import returns

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="of Linux")
TUNED = FORGETTING["GLIBC_TUNABLES"]
PERTURB, CACHE = TUNED.split(":")
SWAPS = "Filename\tType\tSize\tUsed\tPriority\n"


def run(code: str, **settings: str) -> str:
    clean = {
        name: value for name, value in os.environ.items() if name not in FORGETTING
    }
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=clean | settings,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout.strip()


@LINUX
@pytest.mark.parametrize(
    ("settings", "overwrites"),
    [
        (FORGETTING, True),
        ({}, False),
        ({"PYTHONMALLOC": "malloc"}, False),
        ({"GLIBC_TUNABLES": TUNED}, False),
        ({**FORGETTING, "GLIBC_TUNABLES": PERTURB}, False),
        ({**FORGETTING, "GLIBC_TUNABLES": CACHE}, False),
        ({**FORGETTING, "PYTHONMALLOC": "pymalloc"}, False),
    ],
    ids=str,
)
def test_the_allocator_is_looked_at(settings: dict[str, str], overwrites: bool) -> None:
    code = "from curtilage.sandbox import memory; print(memory.overwrites_freed())"
    assert run(code, **settings) == str(overwrites)


@LINUX
def test_ignored_settings_are_not_in_force() -> None:
    # Python ignores PYTHONMALLOC in this mode, whatever the environment says.
    paths = environment()["PYTHONPATH"].split(os.pathsep)
    code = (
        f"import sys; sys.path[:0] = {paths!r}\n"
        "from curtilage.sandbox import memory; print(memory.overwrites_freed())"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", code],
        env={**os.environ, **FORGETTING},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.strip() == "False"


LOCKED = """
import ctypes
from pathlib import Path
from curtilage.sandbox import memory

def locked():
    fields = Path("/proc/self/status").read_text().split()
    return int(fields[fields.index("VmLck:") + 1])

paging = memory.keep_from_disk()
before = locked()
later = ctypes.create_string_buffer(64 << 20)
print(paging, before > 0, locked() - before > 60 << 10)
"""


@LINUX
def test_memory_is_locked_where_no_limit_prevents_it() -> None:
    if not memory._is_unlimited():
        pytest.skip("SKIPPED LOUDLY: this process may not lock its memory")
    assert run(LOCKED) == "locked True True"


MERGED = """
import ctypes
from curtilage.sandbox import memory

libc = ctypes.CDLL(None)
on, asked = 67, 68  # PR_SET_MEMORY_MERGE, PR_GET_MEMORY_MERGE
before = libc.prctl(on, 1, 0, 0, 0) or libc.prctl(asked, 0, 0, 0, 0)
memory.keep_from_disk()
print(before, libc.prctl(asked, 0, 0, 0, 0))
"""


@LINUX
def test_memory_is_not_merged_with_that_of_others() -> None:
    said = run(MERGED)
    if said.startswith("-1"):
        pytest.skip("SKIPPED LOUDLY: this kernel merges nothing of a whole process")
    assert said == "1 0"


@pytest.mark.parametrize(
    ("swaps", "paging"),
    [
        (SWAPS, Paging.NO_SWAP),
        (f"{SWAPS}/dev/sda2 partition 1 0 -2\n", Paging.POSSIBLE),
        ("", Paging.POSSIBLE),
        (None, Paging.POSSIBLE),
    ],
    ids=["none", "one", "an empty list", "no list"],
)
def test_memory_that_is_not_locked_needs_a_machine_without_swap(
    swaps: str | None, paging: Paging, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "_is_unlimited", returns(False))
    if swaps is not None:
        (tmp_path / "swaps").write_text(swaps, "utf-8")
    assert keep_from_disk(tmp_path) is (
        paging if sys.platform == "linux" else Paging.POSSIBLE
    )


LIMITED = """
import os, resource
from curtilage.sandbox import memory
mebibyte = 1 << 20
resource.setrlimit(resource.RLIMIT_MEMLOCK, (mebibyte, 8 * mebibyte))
os.setuid(65534)
print(memory._is_unlimited(), memory.keep_from_disk() is memory.Paging.LOCKED)
"""


@LINUX
@pytest.mark.skipif(os.geteuid() != 0, reason="SKIPPED LOUDLY: only root lowers itself")
def test_a_limit_that_cannot_be_lifted_prevents_it() -> None:
    assert run(LIMITED) == "False False"


TARGET = """
import sys
from curtilage.sandbox import wall
if sys.argv[1:]:
    wall.compute_only()
print("ready", flush=True)
sys.stdin.readline()
"""
READER = """
import sys
try:
    open(f"/proc/{sys.argv[1]}/mem", "rb").close()
except PermissionError:
    print("refused")
else:
    print("opened")
"""
_PR_CAPBSET_DROP = 24
_CAP_SYS_PTRACE = 19


def drop_tracing() -> None:
    """Take from the programs that follow the privilege to trace any process."""
    # Without privileges there is nothing to be taken.
    ctypes.CDLL(None).prctl(_PR_CAPBSET_DROP, _CAP_SYS_PTRACE, 0, 0, 0)


@LINUX
def test_a_computing_process_is_closed_to_others_of_its_account() -> None:
    said = {}
    for walled in ([], ["walled"]):
        with subprocess.Popen(
            [sys.executable, "-c", TARGET, *walled],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # One with a privilege that the reader lacks is closed to it anyway.
            preexec_fn=drop_tracing,  # noqa: PLW1509 - no thread runs here
        ) as target:
            assert target.stdin
            assert target.stdout
            assert target.stdout.readline() == "ready\n"
            said[bool(walled)] = subprocess.run(
                [sys.executable, "-c", READER, str(target.pid)],
                capture_output=True,
                text=True,
                check=True,
                timeout=60,
                preexec_fn=drop_tracing,
            ).stdout.strip()
            target.stdin.write("\n")
            target.stdin.flush()
    if said[False] == "refused":
        pytest.skip("SKIPPED LOUDLY: this system lets no process look at another")
    assert said[True] == "refused"
