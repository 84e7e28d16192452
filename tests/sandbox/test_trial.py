"""A process locks itself, tries to get out, and reports what it found."""

import json
import os
import platform
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from curtilage.sandbox.escapes import ALL, NEW_THREAD, OLD_THREAD, PASSED, UNFILTERED
from curtilage.sandbox.parent import FORGETTING
from curtilage.sandbox.trial import (
    LOCKED,
    NO_SWAP,
    SWAPPED,
    Trial,
    engine_description,
    landlock_version,
    server_description,
)

LINUX = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64",
    reason="SKIPPED LOUDLY: processes are locked on Linux on x86-64 only",
)

LOCK = """
import json, os, sys
from pathlib import Path
from curtilage.sandbox import escapes, kernel, memory, seccomp, trial, wall
exec(sys.argv[2])
kind, devices = sys.argv[1], ()
if kind == "driver":
    kind, devices = "engine", (Path("/dev/full"),)
server = kind == "server"
walls, found = trial.lock_server() if server else trial.lock_engine((), devices)
print(json.dumps([sorted(walls.standing), found.to_fields()]), flush=True)
exec(sys.argv[3])
"""


def locked(
    kind: str, before: str = "", after: str = "", *flags: str, **environment: str
) -> Trial:
    done = started(kind, before, after, *flags, **environment)
    assert done.returncode == 0, done.stderr
    layers, found = json.loads(done.stdout.splitlines()[0])
    if missing := {"Landlock", "seccomp"} - set(layers):
        if "sandbox" in os.environ.get("CURTILAGE_REQUIRE", ""):
            pytest.fail(f"this machine must have {missing}")
        pytest.skip(f"SKIPPED LOUDLY: this kernel has no {missing}")
    return Trial.from_fields(found)


def started(
    kind: str, before: str, after: str, *flags: str, **environment: str
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, *flags, "-c", LOCK, kind, before, after],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, **(environment or FORGETTING)},
    )


@LINUX
def test_a_server_loads_what_is_described_and_gets_nowhere() -> None:
    found = locked("server")
    assert found.early == ()
    assert found.succeeded == ()
    assert found.answers.keys() == {*ALL, *UNFILTERED, NEW_THREAD, OLD_THREAD}
    assert found.landlock == landlock_version()
    assert found.loaded == server_description(platform.machine(), found.landlock)
    assert found.loaded["zero"] == ["core", "dumps", "fsize"]


@LINUX
@pytest.mark.parametrize(("kind", "devices"), [("engine", False), ("driver", True)])
def test_an_engine_loads_what_is_described_and_gets_nowhere(
    kind: str, *, devices: bool
) -> None:
    found = locked(kind)
    assert found.early == ()
    assert found.succeeded == ()
    assert found.answers.keys() == {*ALL, *UNFILTERED, NEW_THREAD}
    described = engine_description(platform.machine(), found.landlock, devices=devices)
    assert found.loaded == described


@LINUX
def test_an_engine_that_drives_devices_opens_no_other_file() -> None:
    # It may open /dev/full for writing, and the filter passes this for every file.
    after = (
        "os.close(os.open('/dev/full', os.O_WRONLY))\n"
        "for path in ('/dev/zero', os.__file__):\n"
        "    try:\n"
        "        os.open(path, os.O_WRONLY)\n"
        "    except OSError: continue\n"
        "    print('opened')"
    )
    done = started("driver", "", after)
    assert done.returncode == 0, done.stderr
    assert "opened" not in done.stdout


@LINUX
def test_what_landlock_does_not_refuse_an_engine_that_drives_devices_is_found() -> None:
    found = locked("driver", "kernel.landlock = lambda _handled, _allowed: None")
    written = {"open_for_writing", "open_the_older_call", NEW_THREAD}
    assert written < set(found.succeeded) <= written | set(UNFILTERED)


FORK = """
import json, os, sys
from curtilage.sandbox import trial, wall
exec(sys.argv[1])
_, kept = trial.lock_keeper(())
pid = os.fork()
if pid == 0:
    found = trial.try_forked(kept, wall.fork_no_more())
    print(json.dumps(found.to_fields()), flush=True)
    os._exit(0)
os.waitpid(pid, 0)
"""


def forked(before: str = "") -> Trial:
    if not landlock_version():
        pytest.skip("SKIPPED LOUDLY: this kernel has no Landlock")
    done = subprocess.run(
        [sys.executable, "-c", FORK, before],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env={**os.environ, **FORGETTING},
    )
    return Trial.from_fields(json.loads(done.stdout))


@LINUX
def test_a_forked_process_loads_what_is_described_and_gets_nowhere() -> None:
    found = forked()
    assert found.early == ()
    assert found.succeeded == ()
    assert found.answers.keys() == {*ALL, *UNFILTERED, NEW_THREAD}
    machine = platform.machine()
    described = {
        forks: engine_description(machine, found.landlock, devices=False, forks=forks)
        for forks in (False, True)
    }
    assert found.loaded == described[True]
    # Its own filter is that of an engine that forks nothing.
    assert found.loaded["forked_seccomp"] == described[False]["seccomp"]
    assert found.loaded["seccomp"] != described[False]["seccomp"]


@LINUX
def test_a_forked_process_without_a_filter_of_its_own_tries_nothing() -> None:
    found = forked("wall.fork_no_more = wall.Wall")
    assert found.answers == {}
    assert "forked_seccomp" not in found.loaded


@LINUX
def test_a_filter_that_a_forked_process_lacks_is_found_by_the_attempts() -> None:
    claimed = "wall.Wall(standing=frozenset({wall.Layer.SECCOMP}))"
    found = forked(f"wall.fork_no_more = lambda: {claimed}")
    assert "new_process" in found.succeeded


@LINUX
def test_what_landlock_does_not_refuse_a_keeper_is_found() -> None:
    found = forked("trial.kernel.landlock = lambda _handled, _allowed: None")
    # In a root folder of its own, the file is not there.
    assert found.succeeded
    assert set(found.succeeded) <= set(UNFILTERED)


@LINUX
@pytest.mark.parametrize(
    ("kind", "before", "key"),
    [
        ("server", "wall._READS |= {'refer'}", "landlock"),
        ("engine", "wall._SCOPES_FROM = 99", "landlock"),
        ("server", "wall._NETWORK_FROM = 99", "landlock"),
        ("server", "seccomp.NO_NAMES.clear()", "seccomp"),
        ("engine", "seccomp.THREADS.clear()", "seccomp"),
        ("server", "trial._lower = lambda *, files: None", "zero"),
        ("engine", "trial.resource.setrlimit = lambda *_: None", "zero"),
        ("engine", "kernel.set_dumpable = lambda *, dumpable: None", "zero"),
        ("server", "del escapes.ALL['udp']", "escapes"),
    ],
    ids=str,
)
def test_whatever_is_left_out_changes_the_description(
    kind: str, before: str, key: str
) -> None:
    found = locked(kind, before)
    described = {
        "server": server_description(platform.machine(), found.landlock),
        "engine": engine_description(platform.machine(), found.landlock, devices=False),
    }[kind]
    changed = {each for each in described if found.loaded[each] != described[each]}
    assert changed == {key}


@LINUX
def test_a_rule_that_is_left_out_is_found_by_the_attempts() -> None:
    found = locked(
        "server", "from curtilage.sandbox import seccomp; seccomp.OPENS.clear()"
    )
    # ``open`` itself is harmless; only its condition refuses to write.
    assert {"open_for_writing", "create", NEW_THREAD} <= set(found.succeeded)


@LINUX
def test_a_thread_that_the_filter_does_not_hold_is_found() -> None:
    found = locked("server", "kernel._SECCOMP_FILTER_FLAG_TSYNC = 0")
    assert found.succeeded == (OLD_THREAD,)


@LINUX
def test_what_landlock_alone_refuses_is_found() -> None:
    before = "kernel.landlock = lambda _handled, _allowed: None"
    assert set(locked("server", before).succeeded) == set(UNFILTERED)


@LINUX
@pytest.mark.parametrize("layer", ["_write_only", "_filter"])
def test_without_a_layer_nothing_is_tried(layer: str) -> None:
    before = f"def left_out(*_): raise OSError(1, 'left out')\nwall.{layer} = left_out"
    done = started("server", before, "")
    assert done.returncode == 0, done.stderr
    layers, found = json.loads(done.stdout)
    assert len(layers) == 1
    assert found["answers"] == {}
    assert found["landlock"] == (0 if layer == "_write_only" else landlock_version())


CONNECTED = """
import socket
door = socket.create_server(("127.0.0.1", 0))
kept = socket.create_connection(door.getsockname())
"""


@LINUX
@pytest.mark.parametrize(
    ("before", "why"),
    [
        ("kept = open({file!r}, 'wb')", "writes to a file"),
        ("import socket; kept = socket.socket(2, 2)", "is not a stream"),
        (CONNECTED, "is connected over a network"),
        # Stand-ins: there need be no such sockets here.
        (f"{CONNECTED}kernel.socket_family = lambda _: socket.AF_INET6", "a network"),
        (f"{CONNECTED}kernel.socket_family = lambda _: socket.AF_VSOCK", "a network"),
        ("kept = open('/dev/full', 'wb')", "writes to a device"),
        (
            "import mmap, os; kept = mmap.mmap(os.open({file!r}, 2), 1)",
            "a file is mapped, shared and writable",
        ),
        (
            "import _thread as t; t.start_new_thread(__import__('time').sleep, (60,))",
            "threads exist already",
        ),
    ],
    ids=["file", "datagrams", "TCP", "IPv6", "vsock", "device", "mapping", "thread"],
)
def test_what_no_layer_stops_is_named(before: str, why: str, tmp_path: Path) -> None:
    file = tmp_path / "early"
    file.write_bytes(b"x")
    found = locked("server", before.format(file=str(file)))
    assert any(each.endswith(why) for each in found.early)
    assert str(tmp_path) not in str(found.early)
    # What was open can still be written, so that no log is lost in silence.
    assert found.loaded["zero"] == ["core", "dumps"]


@LINUX
def test_harmless_descriptors_are_not_named(tmp_path: Path) -> None:
    (tmp_path / "read").write_bytes(b"x")
    before = (
        "import socket, os, select\n"
        f"kept = [open({str(tmp_path / 'read')!r}, 'rb'), open(os.devnull, 'wb'),\n"
        "        *socket.socketpair(), select.epoll(), *os.pipe(),\n"
        "        socket.create_server(('127.0.0.1', 0)), socket.socket(),\n"
        f"        os.open({str(tmp_path)!r}, os.O_RDONLY)]"
    )
    assert locked("server", before).early == ()


@LINUX
def test_a_locked_process_writes_nothing_and_cannot_change_that() -> None:
    after = (
        "import resource\n"
        "for change in (lambda: open('/tmp/curtilage-made', 'w'),\n"
        "               lambda: os.mkdir('/dev/shm/curtilage-made'),\n"
        "               lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0)),\n"
        "               lambda: kernel.set_dumpable(dumpable=True)):\n"
        "    try:\n"
        "        change()\n"
        "    except (OSError, ValueError): pass\n"
        "    else: print('changed')"
    )
    done = started("server", "", after)
    assert done.returncode == 0, done.stderr
    assert "changed" not in done.stdout


@LINUX
def test_a_locked_process_still_computes_reads_and_starts_threads() -> None:
    after = (
        "import threading, sqlite3, zoneinfo, hashlib, mmap\n"
        "box = []\n"
        "read = lambda: box.append(open(os.__file__).read(9))\n"
        "thread = threading.Thread(target=read)\n"
        "thread.start(); thread.join()\n"
        "mmap.mmap(-1, 8 << 20)[0:4] = b'text'\n"
        "print(len(box[0]))"
    )
    done = started("server", "", after)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1] == "9"


@LINUX
def test_a_crash_leaves_no_core(tmp_path: Path) -> None:
    done = started(
        "server", f"os.chdir({str(tmp_path)!r})", "import ctypes; ctypes.string_at(0)"
    )
    assert done.returncode == -signal.SIGSEGV
    assert list(tmp_path.iterdir()) == []


@LINUX
def test_the_allocators_settings_are_described_as_far_as_they_are_in_force() -> None:
    assert locked("server", OTHER="1", **FORGETTING).loaded["allocator"] == sorted(
        f"{name}={value}" for name, value in FORGETTING.items()
    )
    assert locked("server", PYTHONMALLOC="").loaded["allocator"] == ["PYTHONMALLOC="]
    path = os.pathsep.join(sys.path)
    before = f"sys.path[:0] = {path.split(os.pathsep)!r}"
    code = LOCK.replace("from curtilage", before + "\nfrom curtilage", 1)
    done = subprocess.run(
        [sys.executable, "-I", "-c", code, "server", "", ""],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env={**os.environ, **FORGETTING},
    )
    _, found = json.loads(done.stdout)
    # With -I, Python has ignored its own.
    assert found["loaded"]["allocator"] == [
        f"GLIBC_TUNABLES={FORGETTING['GLIBC_TUNABLES']}"
    ]


SWAPS = """
import pathlib
read, files = pathlib.Path.read_text, {files!r}
pathlib.Path.read_text = lambda self, *given, **named: (
    files[str(self)] if str(self) in files else read(self, *given, **named))
def locks(): {locks}
kernel.lock_memory = locks
memory._is_unlimited = lambda: True
"""
NONE, ONE = "Filename\n", "Filename\n/dev/sda2\n"
LOCKS, REFUSES = "return None", "raise OSError(12, 'too much')"


@LINUX
@pytest.mark.parametrize(
    ("swaps", "limit", "locks", "memory"),
    [
        (NONE, "max", REFUSES, NO_SWAP),
        (ONE, "0\n", REFUSES, NO_SWAP),
        (ONE, "max", LOCKS, LOCKED),
        (ONE, "4096", REFUSES, SWAPPED),
    ],
)
def test_what_keeps_memory_off_a_disk_is_reported(
    swaps: str, limit: str, locks: str, memory: str
) -> None:
    files = {
        "/proc/swaps": swaps,
        "/proc/self/cgroup": "4:memory:/other\n0::/system.slice/a.service\n",
        "/sys/fs/cgroup/system.slice/a.service/memory.swap.max": limit,
    }
    assert locked("server", SWAPS.format(files=files, locks=locks)).memory == memory


TRIAL = Trial(
    loaded={"landlock": "00", "writable": ["/dev/null"]},
    answers={"tcp": "EPERM", "udp": PASSED},
    landlock=6,
    memory=NO_SWAP,
    early=("descriptor 3 writes to a file",),
)


def test_a_trial_is_read_as_it_was_written() -> None:
    assert Trial.from_fields(json.loads(json.dumps(TRIAL.to_fields()))) == TRIAL
    assert TRIAL.succeeded == ("udp",)


@pytest.mark.parametrize(
    "change",
    [
        {"more": 1},
        {"loaded": []},
        {"answers": []},
        {"answers": {"tcp": 1}},
        {"landlock": True},
        {"memory": "kept"},
        {"early": "none"},
        {"early": [1]},
    ],
    ids=str,
)
def test_what_is_no_trial_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"a trial has|texts|a table"):
        Trial.from_fields(TRIAL.to_fields() | change)
    with pytest.raises(ValueError, match="a trial has"):
        Trial.from_fields(None)


def test_a_gpus_engine_may_write_to_devices_and_its_drivers_to_memory() -> None:
    plain, driving = (
        engine_description("x86_64", 6, devices=devices) for devices in (False, True)
    )
    assert plain["writable"] == [os.devnull]
    assert driving["writable"] == [os.devnull, "a device"]
    assert plain["seccomp"] != driving["seccomp"]
    assert driving["zero"] == ["core", "dumps"]
    assert plain["escapes"] != driving["escapes"]


def test_an_older_landlock_is_another_sandbox_and_a_newer_is_not() -> None:
    described = {
        v: str(server_description("x86_64", v)["landlock"]) for v in range(1, 9)
    }
    assert len({described[v] for v in (1, 2, 3, 4, 5, 6)}) == 6
    assert described[6] == described[7] == described[8]
    with pytest.raises(KeyError):
        server_description("vax", 6)
