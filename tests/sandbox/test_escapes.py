"""The attempts of a self-test: let through without a wall, and refused behind one."""

import errno
import json
import os
import platform
import re
import subprocess
import sys

import pytest

from curtilage.sandbox.escapes import (
    ALL,
    NEW_THREAD,
    OLD_THREAD,
    PASSED,
    REFUSALS,
    UNFILTERED,
    EarlyThread,
    let_through,
    listed,
    tried,
)

LINUX = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64",
    reason="SKIPPED LOUDLY: attempts are made on Linux on x86-64 only",
)

# In a process of its own: a wall stays. Each kind builds some of the layers.
PROBE = """
import json, os, platform, resource, sys
from curtilage.sandbox import escapes, kernel, trial, wall
kind, user = sys.argv[1], int(sys.argv[2])
machine, version, found = platform.machine(), kernel.landlock_version(), {}
if user:
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    kernel.set_dumpable(dumpable=True)
def left_out(*_):
    raise OSError(1, "left out")
if kind == "Landlock":
    wall._filter = lambda _program, before: before()
if kind == "seccomp":
    wall._write_only = left_out
before = lambda: found.update(escapes.unfiltered(version))
descriptor = os.open(os.devnull, os.O_RDONLY)
early = None
if kind == "engine":
    walls = wall.compute_only(before_filter=before)
else:
    early = escapes.EarlyThread(machine)
    if kind == "limits":
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        kernel.set_dumpable(dumpable=False)
    if kind in {"none", "limits", "devices"}:
        before()
        walls = wall.Wall()
    else:
        walls = wall.serve_only(before_filter=before)
found |= escapes.self_test(machine, descriptor, early, devices=kind == "devices")
print(json.dumps([sorted(walls.standing), found]))
"""
UNPRIVILEGED = 65532
# This kernel loads no modules and starts no other kernel: nothing is let through.
NOT_BUILT_IN = {"modules", "another_kernel", "state_of_the_page_cache", "user_faults"}


def answers(kind: str, user: int = 0, *inside: str) -> dict[str, str]:
    done = subprocess.run(
        [*inside, sys.executable, "-c", PROBE, kind, str(user)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    layers, found = json.loads(done.stdout.splitlines()[-1])
    wanted = {
        "engine": {"Landlock", "seccomp"},
        "server": {"Landlock", "seccomp"},
        "seccomp": {"seccomp"},
    }.get(kind, set[str]())
    if missing := wanted - set(layers):
        if "sandbox" in os.environ.get("CURTILAGE_REQUIRE", ""):
            pytest.fail(f"this machine must have {missing}")
        pytest.skip(f"SKIPPED LOUDLY: this kernel has no {missing}")
    return dict(found)


def refused(found: dict[str, str]) -> set[str]:
    return {name for name, answer in found.items() if answer != PASSED}


def privileged() -> None:
    if os.geteuid() != 0:
        pytest.skip("SKIPPED LOUDLY: without privileges, refusals prove nothing")


@LINUX
@pytest.mark.parametrize("kind", ["none", "limits", "devices"])
def test_without_a_wall_each_attempt_is_let_through(kind: str) -> None:
    # Or its refusal would prove nothing.
    privileged()
    found = answers(kind)
    assert refused(found) <= NOT_BUILT_IN
    assert {found[name] for name in refused(found)} <= {"ENOSYS"}


@LINUX
def test_without_privileges_files_and_network_are_open_all_the_same() -> None:
    privileged()
    found = answers("none", UNPRIVILEGED)
    let = {"open_for_writing", "create", "execute", "new_process", "tcp", "unix"}
    assert let | set(UNFILTERED) | {"shared_memory", "key_ring"} <= set(
        let_through(found)
    )


@LINUX
@pytest.mark.parametrize("kind", ["server", "engine"])
def test_behind_a_whole_wall_none_is_let_through(kind: str) -> None:
    found = answers(kind)
    assert let_through(found) == ()
    threads = {NEW_THREAD} if kind == "engine" else {NEW_THREAD, OLD_THREAD}
    assert found.keys() == ALL.keys() | threads | set(UNFILTERED)


@LINUX
def test_behind_the_servers_wall_no_other_account_gets_out_either() -> None:
    privileged()
    assert let_through(answers("server", UNPRIVILEGED)) == ()


@LINUX
def test_the_first_process_of_a_container_gets_nowhere() -> None:
    # Its parent's id is 0 there, which means itself to many calls.
    privileged()
    inside = ("unshare", "--pid", "--fork", "--kill-child")
    assert let_through(answers("server", UNPRIVILEGED, *inside)) == ()


@LINUX
def test_the_filter_alone_refuses_all_but_what_comes_before_it() -> None:
    found = answers("seccomp")
    assert set(let_through(found)) == set(UNFILTERED)


@LINUX
def test_landlock_alone_refuses_files_and_tcp_and_little_else() -> None:
    privileged()
    found = answers("Landlock")
    assert set(UNFILTERED) <= refused(found)
    assert {"udp", "key_ring", "execute", OLD_THREAD} <= set(let_through(found))


def test_there_are_fifty_and_more() -> None:
    assert len(ALL) >= 50


def test_names_are_those_that_evidence_may_state() -> None:
    for name in (*ALL, *UNFILTERED, NEW_THREAD, OLD_THREAD):
        assert re.fullmatch("[a-z][a-z0-9_]{0,63}", name)


def test_a_refusal_is_one_of_four_errors() -> None:
    names = {errno.errorcode[each] for each in REFUSALS}
    assert names == {"EPERM", "EACCES", "EROFS", "ENOSYS"}
    assert let_through({"b": PASSED, "a": PASSED, "c": "EPERM"}) == ("a", "b")


def test_another_list_has_another_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    before = listed()
    assert listed(devices=True) != before
    monkeypatch.delitem(ALL, "execute")
    assert listed() != before


def test_a_call_that_a_machine_lacks_is_refused() -> None:
    lacks = next(each for each in ALL.values() if each.numbers[1] is None)
    assert tried(lacks, "aarch64") == "ENOSYS"


def test_an_unknown_machine_is_an_error() -> None:
    with pytest.raises(KeyError):
        tried(ALL["tcp"], "vax")


@LINUX
def test_a_thread_makes_its_attempt_when_it_is_let_go() -> None:
    assert EarlyThread(platform.machine()).result() == PASSED
