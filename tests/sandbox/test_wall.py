"""Sandboxes in real processes that try to escape, with native calls."""

import errno
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from curtilage.sandbox import kernel, wall
from curtilage.sandbox.wall import Layer, Promise, Wall
from support.fuse import file_server

# Every attempt bypasses Python: the calls are made as a native library makes them. The
# result is the error's name, or "done". No attempt can do damage.
PROBE = """
import ctypes, errno, json, os, pathlib, sys, threading
from curtilage.sandbox import wall
libc = ctypes.CDLL(None, use_errno=True)
shared = lambda: libc.open(own.encode(), 0)
own, home = sys.argv[2], os.path.expanduser("~").encode()
attempts = {
    "tcp": lambda: libc.socket(2, 1, 0),
    "udp": lambda: libc.socket(2, 2, 0),
    "tcp6": lambda: libc.socket(10, 1, 0),
    "netlink": lambda: libc.socket(16, 3, 0),
    "unix": lambda: libc.socket(1, 1, 0),
    "connect": lambda: libc.connect(0, b"\\2\\0" + bytes(14), 16),
    "exec": lambda: libc.execve(b"/nonexistent", None, None),
    "fork": lambda: libc.fork() or os._exit(0),
    "ptrace": lambda: libc.ptrace(1, 0, 0, 0),
    "signal": lambda: libc.kill(os.getppid(), 0),
    "limits": lambda: libc.syscall(302, os.getppid(), 7, None, None),
    "thread signal": lambda: libc.syscall(234, os.getppid(), os.getppid(), 0),
    "file signal": lambda: libc.fcntl(0, 8, os.getppid()),
    "flags": lambda: libc.ioctl(
        libc.open(own.encode(), 0), 0x40086602, ctypes.byref(ctypes.c_long(0x40))
    ),
    "write": lambda: libc.open(own.encode() + b"/made", 0o101, 0o600),
    "write home": lambda: libc.open(home + b"/made", 0o101, 0o600),
    "shared memory": lambda: libc.open(b"/dev/shm/curtilage-made", 0o101, 0o600),
    "folder": lambda: libc.mkdir(own.encode() + b"/folder", 0o700),
    "link": lambda: libc.symlink(b"secret", own.encode() + b"/link"),
    "write kept": lambda: libc.open(own.encode() + b"/kept", 2),
    "remove": lambda: libc.unlink(own.encode() + b"/kept"),
    "times": lambda: libc.utime(own.encode() + b"/kept", None),
    "io_uring": lambda: libc.syscall(425, 1, None),
    "thread's name": lambda: libc.prctl(15, b"a name", 0, 0, 0),
    "record lock": lambda: libc.fcntl(shared(), 6, bytes(32)),
    "open file lock": lambda: libc.fcntl(shared(), 37, bytes(32)),
    "file lock": lambda: libc.flock(shared(), 1),
    "lease": lambda: libc.fcntl(shared(), 1024, 0),
    "lookup": lambda: libc.access(own.encode() + b"/../other/seen", 0),
    "system file": lambda: libc.access(b"/etc/passwd", 0),
    "parent's root": lambda: libc.access(b"/proc/%d/root" % os.getppid(), 0),
    "namespace": lambda: libc.unshare(0x40000000),
    "read": lambda: libc.open(own.encode(), 0),
    "device": lambda: libc.open(b"/dev/full", 2),
    "control": lambda: libc.ioctl(libc.open(b"/dev/full", 2), 0xC030462B, None),
    "other device": lambda: libc.open(b"/dev/zero", 2),
}
started, opened = threading.Event(), []
def early():
    started.wait()
    opened.append(libc.socket(2, 1, 0))
threads = [threading.Thread(target=early)] if "threads" in sys.argv else []
for thread in threads:
    thread.start()
if sys.argv[1] == "none":
    walls = wall.Wall()
elif sys.argv[1] == "local_server":
    walls = wall.local_server([pathlib.Path(own)])
elif sys.argv[1] == "compute_only":
    walls = wall.compute_only([pathlib.Path(own)])
elif sys.argv[1] in ("with forks", "forked"):
    walls = wall.compute_only([pathlib.Path(own)], forks=True)
    if sys.argv[1] == "forked":
        assert wall.fork_no_more().standing
elif sys.argv[1] == "with a device":
    devices = [pathlib.Path("/dev/full")]
    walls = wall.compute_only([pathlib.Path(own)], devices=devices)
else:
    walls = getattr(wall, sys.argv[1])()
def tried(attempt):
    ctypes.set_errno(0)
    return "done" if attempt() >= 0 else errno.errorcode[ctypes.get_errno()]
said = {name: tried(attempt) for name, attempt in attempts.items()}
started.set()
for thread in threads:
    thread.join()
said["early thread"] = [number >= 0 for number in opened]
print(json.dumps([walls.to_fields(), said]))
"""
LINUX = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64",
    reason="SKIPPED LOUDLY: walls are tried on Linux on x86-64 only",
)


LOOKUPS = ("lookup", "system file", "parent's root")


def probe(
    kind: str, parent: Path, *more: str, code: str = PROBE
) -> tuple[Wall, dict[str, object]]:
    folder = parent / "own"
    for each, name in ((folder, "kept"), (parent / "other", "seen")):
        each.mkdir()
        (each / name).write_text("kept", "utf-8")
    done = subprocess.run(
        [sys.executable, "-c", code, kind, str(folder), *more],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    walls, said = json.loads(done.stdout.splitlines()[-1])
    Path("/dev/shm/curtilage-made").unlink(missing_ok=True)  # noqa: S108 - the probe's
    Path("~/made").expanduser().unlink(missing_ok=True)
    return Wall.from_fields(walls), said


def require(walls: Wall, *layers: Layer) -> None:
    if missing := set(layers) - walls.standing:
        if "sandbox" in os.environ.get("CURTILAGE_REQUIRE", ""):
            pytest.fail(f"this machine must have {missing}: {walls.missing}")
        pytest.skip(f"SKIPPED LOUDLY: this kernel has no {missing}: {walls.missing}")


@LINUX
def test_without_a_wall_the_attempts_succeed(tmp_path: Path) -> None:
    # Or a refusal below would prove nothing.
    _, said = probe("none", tmp_path)
    can = {name for name, answer in said.items() if answer == "done"}
    assert can >= {"tcp", "udp", "unix", "fork", "write", "folder", "link", "remove"}
    assert can >= {*LOOKUPS, "thread's name", "record lock", "file lock"}
    assert can >= {"device", "other device", "write kept"}
    assert said["control"] == "ENOTTY"
    assert said["exec"] == "ENOENT"
    assert said["connect"] == "ENOTSOCK"


@LINUX
def test_a_computing_process_gets_nowhere(tmp_path: Path) -> None:
    walls, said = probe("compute_only", tmp_path)
    require(walls, Layer.SECCOMP)
    assert said.pop("read") == "done"
    assert said.pop("early thread") == []
    require(walls, Layer.FOLDERS)
    for name in LOOKUPS:
        assert said.pop(name) == "ENOENT", name
    assert set(said.values()) <= {"EPERM", "EACCES", "ENOSYS"}, said
    assert not (tmp_path / "own/made").exists()
    assert (tmp_path / "own/kept").exists()
    assert walls.gaps == ()


@LINUX
@pytest.mark.parametrize(
    ("kind", "fork"), [("with forks", "done"), ("forked", "EPERM")]
)
def test_one_that_forks_gets_nowhere_else(kind: str, fork: str, tmp_path: Path) -> None:
    walls, said = probe(kind, tmp_path)
    require(walls, Layer.SECCOMP, Layer.FOLDERS)
    assert said.pop("fork") == fork
    assert said.pop("read") == "done"
    assert said.pop("early thread") == []
    for name in LOOKUPS:
        assert said.pop(name) == "ENOENT", name
    assert set(said.values()) <= {"EPERM", "EACCES", "ENOSYS"}, said
    assert walls.gaps == ()


@LINUX
def test_a_thread_from_before_is_behind_the_filter_too(tmp_path: Path) -> None:
    walls, said = probe("compute_only", tmp_path, "threads")
    require(walls, Layer.SECCOMP)
    assert said["early thread"] == [False]


REACH = (
    "def reach():\n"
    "    made = libc.socket(2, 2, 0)\n"
    # 192.0.2.1, port 9: nothing is sent, only a route is looked up.
    '    there = b"\\2\\0\\0\\x09\\xc0\\0\\2\\1" + bytes(8)\n'
    "    return libc.connect(made, there, 16)\n"
)


def without(*functions: str) -> str:
    """Return the probe with some layers left out, and a way to look for a route."""
    left_out = "".join(
        f"wall.{each} = lambda *_: (_ for _ in ()).throw(OSError(1, 'left out'))\n"
        for each in functions
    )
    code = PROBE.replace('"tcp": lambda: libc.socket(2, 1, 0)', '"tcp": reach')
    return REACH + code.replace("if sys.argv[1]", left_out + "if sys.argv[1]", 1)


@LINUX
def test_one_with_a_device_gets_nowhere_else(tmp_path: Path) -> None:
    walls, said = probe("with a device", tmp_path)
    require(walls, Layer.SECCOMP, Layer.LANDLOCK, Layer.FOLDERS)
    assert said.pop("read") == said.pop("device") == "done"
    assert said.pop("control") == "ENOTTY"  # said by the device itself
    assert said.pop("early thread") == []
    assert said.pop("write kept") in {"EACCES", "EROFS"}
    for name in LOOKUPS:
        assert said.pop(name) == "ENOENT", name
    assert set(said.values()) <= {"EPERM", "EACCES", "ENOSYS"}, said
    assert (tmp_path / "own/kept").read_text("utf-8") == "kept"
    assert walls.gaps == ()


@LINUX
def test_landlock_refuses_what_the_filter_of_a_device_lets_pass(
    tmp_path: Path,
) -> None:
    code = without("_leave_other_folders")
    walls, said = probe("with a device", tmp_path, code=code)
    require(walls, Layer.SECCOMP, Layer.LANDLOCK)
    assert said["device"] == "done"
    assert said["other device"] == said["write kept"] == "EACCES"
    assert (tmp_path / "own/kept").read_text("utf-8") == "kept"


@LINUX
def test_without_landlock_no_device_can_be_had(tmp_path: Path) -> None:
    walls, said = probe("with a device", tmp_path, code=without("_write_only"))
    require(walls, Layer.SECCOMP)
    assert said["device"] == said["other device"] == said["write kept"] == "EACCES"
    assert Promise.FILES not in walls.gaps


@LINUX
def test_each_layer_holds_what_is_said_of_it(tmp_path: Path) -> None:
    """Landlock and the namespace are tested without the layers above them."""
    code = without("_filter", "_leave_other_folders")
    walls, said = probe("compute_only", tmp_path, code=code)
    require(walls, Layer.LANDLOCK, Layer.NAMESPACE)
    assert said["tcp"] == "ENETUNREACH"
    for name in ("write", "write home", "shared memory", "folder", "link", "remove"):
        assert said[name] == "EACCES", name
    assert walls.gaps == (Promise.LOOKUPS, Promise.PROGRAMS)
    left_out = tuple(f"{each}: left out" for each in (Layer.FOLDERS, Layer.SECCOMP))
    assert walls.missing == left_out


@LINUX
def test_the_root_folder_holds_by_itself(tmp_path: Path) -> None:
    code = without("_filter", "_write_only")
    walls, said = probe("compute_only", tmp_path, code=code)
    require(walls, Layer.FOLDERS)
    assert said["read"] == "done"
    for name in (*LOOKUPS, "shared memory"):
        assert said[name] == "ENOENT", name
    for name in ("write", "folder", "link", "remove", "times"):
        assert said[name] == "EROFS", name
    assert (tmp_path / "own/kept").exists()


@LINUX
@pytest.mark.parametrize(
    ("call", "failure", "why"),
    [
        ("pivot_root", "OSError(1, 'refused')", "refused"),
        ("umount", "OSError(1, 'refused')", "refused"),
        ("mount", "OSError(1, 'refused')", "refused"),
        # A processor whose call numbers are unknown.
        ("pivot_root", "KeyError('m68k')", ""),
    ],
)
def test_a_root_folder_that_cannot_be_had_changes_nothing(
    call: str, failure: str, why: str, tmp_path: Path
) -> None:
    # As in a container, or under a security module, that forbids one of the calls.
    refused = (
        "from curtilage.sandbox import kernel\n"
        "def refuse(*given):\n"
        f"    if given[0] != 'none' or {call != 'mount'}:\n"
        f"        raise {failure}\n"
        f"    return done(*given)\n"
        f"done, kernel.{call} = kernel.{call}, refuse\n"
    )
    code = PROBE.replace("if sys.argv[1]", refused + "if sys.argv[1]", 1)
    walls, said = probe("compute_only", tmp_path, code=code)
    require(walls, Layer.SECCOMP)
    assert Promise.LOOKUPS in walls.gaps
    assert any(each.startswith(f"{Layer.FOLDERS}: {why}") for each in walls.missing)
    if call != "umount":
        assert said["read"] == said["system file"] == said["lookup"] == "done"


LOOK_UP = """
import os, sys
from curtilage.sandbox import wall
if sys.argv[2] == "without":
    wall._leave_other_folders = lambda *_: (_ for _ in ()).throw(OSError(1, "left out"))
walls = wall.compute_only()
try:
    os.stat(f"{sys.argv[1]}/said-{sys.argv[2]}")
except FileNotFoundError:
    print(wall.Layer.FOLDERS in walls.standing)
"""


@LINUX
def test_what_is_looked_up_reaches_no_file_server(tmp_path: Path) -> None:
    with file_server(tmp_path) as seen:
        stood: list[str] = []
        for kind in ("without", "with"):
            done = subprocess.run(
                [sys.executable, "-c", LOOK_UP, str(tmp_path), kind],
                capture_output=True,
                text=True,
                check=True,
                timeout=60,
            )
            stood.append(done.stdout.strip())
    if stood[-1] != "True":
        require(Wall(), Layer.FOLDERS)
    assert stood == ["False", "True"]
    assert seen == ["said-without"]


@LINUX
def test_a_folder_is_seen_by_the_name_of_a_link_too(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir()
    (real / "model").write_bytes(b"weights")
    link = tmp_path / "link"
    link.symlink_to(real)
    code = (
        "import sys; from pathlib import Path; from curtilage.sandbox import wall\n"
        "walls = wall.compute_only([Path(sys.argv[1])])\n"
        "said = [Path(each, 'model').read_text() for each in sys.argv[1:]]\n"
        "import json, numpy, hashlib\n"
        "print(json.dumps([walls.to_fields(), said]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(link), str(real)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    fields, said = json.loads(done.stdout)
    require(Wall.from_fields(fields), Layer.FOLDERS)
    assert said == ["weights", "weights"]


@LINUX
def test_a_local_server_writes_in_its_folder_alone(tmp_path: Path) -> None:
    walls, said = probe("local_server", tmp_path)
    require(walls, Layer.SECCOMP, Layer.LANDLOCK)
    for name in ("unix", "write", "folder", "link", "remove", "read"):
        assert said[name] == "done", name
    for name in ("tcp", "udp", "tcp6", "netlink", "connect", "exec", "fork", "signal"):
        assert said[name] == "EPERM", name
    for name in ("write home", "shared memory"):
        assert said[name] == "EACCES", name


@LINUX
def test_without_a_network_the_rest_goes_on(tmp_path: Path) -> None:
    walls, said = probe("no_network", tmp_path)
    require(walls, Layer.SECCOMP)
    for name in ("tcp", "udp", "tcp6", "netlink", "unix", "connect", "ptrace"):
        assert said[name] == "EPERM", name
    for name in ("fork", "write", "folder", "read"):
        assert said[name] == "done", name


def refuse(*_arguments: object, **_named: object) -> int:
    raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))


def test_what_cannot_be_had_is_said_with_its_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("unshare", "landlock_version", "no_new_privileges"):
        monkeypatch.setattr(kernel, name, refuse)
    walls = wall.compute_only()
    assert walls.standing == frozenset()
    assert walls.gaps == tuple(Promise)
    assert walls.missing == tuple(
        f"{layer}: {os.strerror(errno.ENOSYS)}" for layer in Layer
    )


def test_another_system_has_no_wall(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    monkeypatch.setattr(kernel, "landlock_version", refuse)

    def absent(_flags: int) -> None:
        raise AttributeError("unshare")

    monkeypatch.setattr(kernel, "unshare", absent)
    walls = wall.compute_only()
    assert walls.gaps == tuple(Promise)
    assert "riscv64" in walls.missing[0]
    assert "riscv64" in walls.missing[-1]


@pytest.mark.parametrize("layer", Layer)
def test_a_wall_survives_its_way_through_a_pipe(layer: Layer) -> None:
    walls = Wall(standing=frozenset({layer}), missing=("a: b",))
    assert Wall.from_fields(json.loads(json.dumps(walls.to_fields()))) == walls


@pytest.mark.parametrize(
    "fields",
    [
        None,
        7,
        {},
        {"standing": []},
        {"standing": 7, "missing": []},
        {"standing": ["a moat"], "missing": []},
        {"standing": [], "missing": [], "more": []},
    ],
)
def test_what_is_no_wall_is_refused(fields: object) -> None:
    with pytest.raises(ValueError, match=r"wall|layers|moat"):
        Wall.from_fields(fields)
