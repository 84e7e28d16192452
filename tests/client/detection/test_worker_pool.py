import os
import signal
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

import psutil
import pytest

from curtilage.client.chat.query import Message, Query
from curtilage.client.detection.inspection import Inspector
from curtilage.policy.decision.decide import Inspection
from curtilage.policy.document.load import load_policy, profile_text

# A worker that starts at once and finds nothing, unless the text says FAULT.
LIGHT = """
import os, re, sys, time
from curtilage.client.detection.detectors import __main__ as worker
from curtilage.sandbox.wall import compute_only
from curtilage.client.detection.detectors.scanner import EVERY_FORM, Scanner
class Faulty:
    id = "faulty"
    def find(self, reading):
        if "FAULT" in reading.text:
            {fault}
        return ()
requests, replies = worker.take_streams()
def send(value):
    worker.write_frame(replies, worker.encode_frame(value))
worker.read_plan(requests)
time.sleep({start_s})
worker.serve(requests, replies, Scanner([(Faulty(), EVERY_FORM)]), compute_only())
"""
HANG = r're.match(r"(a+)+$", "a" * 64 + "b")'


def command(fault: str = "pass", start_s: float = 0.0) -> tuple[str, ...]:
    return (sys.executable, "-c", LIGHT.format(fault=fault, start_s=start_s))


@contextmanager
def running(
    fault: str = "pass", *, start_s: float = 0.0, spare: bool = True
) -> Generator[Inspector]:
    text = profile_text("default").replace("deadline_ms: 250", "deadline_ms: 3000", 1)
    inspector = Inspector.start(
        load_policy(text), command=command(fault, start_s), spare=spare
    )
    try:
        yield inspector
    finally:
        inspector.close()


def ask(text: str = "hello") -> Query:
    return Query(messages=(Message(role="user", content=text),))


def classes(inspection: Inspection) -> set[str]:
    return {finding.data_class for finding in inspection.findings}


def until(condition: Callable[[], object], within_s: float = 60) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def with_spare(inspector: Inspector) -> int:
    """Ask once, wait for the spare, and return its process id."""
    inspector.inspect(ask())
    until(lambda: inspector.spare_pid is not None)
    assert inspector.spare_pid is not None
    return inspector.spare_pid


def test_a_spare_is_started_after_the_first_query_only() -> None:
    with running() as inspector:
        assert list(inspector.inspect_many([ask(), ask()]))
        time.sleep(0.3)
        assert inspector.spare_pid is None
        spare = with_spare(inspector)
        assert spare != inspector.worker_pid
        assert psutil.pid_exists(spare)


def test_no_spare_is_kept_where_none_is_wanted() -> None:
    with running(spare=False) as inspector:
        inspector.inspect(ask())
        time.sleep(0.5)
        assert inspector.spare_pid is None


FAULTS = {
    "hangs": (HANG, "uncertain.timeout"),
    "dies": ("os._exit(1)", "uncertain.error"),
    "writes garbage": ("replies.write(b'x' * 99); replies.flush()", "uncertain.error"),
    "answers a text": (
        "send({'task': 1, 'found': [[reading.text]]}); time.sleep(60)",
        "uncertain.error",
    ),
}


@pytest.mark.parametrize(("fault", "expected"), FAULTS.values(), ids=FAULTS.keys())
def test_the_spare_takes_over_at_once(fault: str, expected: str) -> None:
    with running(fault) as inspector:
        spare = with_spare(inspector)
        first = inspector.worker_pid
        assert classes(inspector.inspect(ask("FAULT"))) == {expected}
        assert inspector.worker_pid == spare
        assert classes(inspector.inspect(ask())) == set()
        until(lambda: inspector.spare_pid is not None)  # and another is ready
        assert inspector.spare_pid not in {spare, None}
        assert first is not None
        until(lambda: not psutil.pid_exists(first))


def test_a_worker_killed_in_the_middle_costs_one_query_at_most() -> None:
    with running() as inspector:
        with_spare(inspector)
        uncertain = 0
        for number in range(20):
            if number == 7 and inspector.worker_pid is not None:
                os.kill(inspector.worker_pid, signal.SIGKILL)
            uncertain += bool(classes(inspector.inspect(ask(f"query {number}"))))
        assert uncertain <= 1


def test_without_a_spare_everything_stays_home_until_another_is_warm() -> None:
    with running("os._exit(1)", start_s=0.5, spare=False) as inspector:
        assert classes(inspector.inspect(ask("FAULT"))) == {"uncertain.error"}
        assert classes(inspector.inspect(ask())) == {"uncertain.error"}
        assert inspector.wait_ready(60)
        assert classes(inspector.inspect(ask())) == set()


def test_a_spare_that_died_is_no_gap() -> None:
    with running() as inspector:
        spare = with_spare(inspector)
        os.kill(spare, signal.SIGKILL)
        until(lambda: psutil.Process(spare).status() == psutil.STATUS_ZOMBIE)
        assert inspector.worker_pid is not None
        os.kill(inspector.worker_pid, signal.SIGKILL)
        inspector.inspect(ask())
        assert inspector.wait_ready(60)
        assert classes(inspector.inspect(ask())) == set()


def test_closing_ends_both_and_one_that_is_starting() -> None:
    with running() as inspector:
        spare, worker = with_spare(inspector), inspector.worker_pid
    assert worker is not None
    assert not psutil.pid_exists(spare)
    assert not psutil.pid_exists(worker)


def test_closing_does_not_wait_for_a_spare_to_start() -> None:
    with running(start_s=5.0) as inspector:
        inspector.inspect(ask())
        children = psutil.Process().children()
        began = time.monotonic()
        inspector.close()
        assert time.monotonic() - began < 4.9
    _, alive = psutil.wait_procs(children, timeout=10)
    assert not alive


def test_a_closed_inspector_starts_nothing() -> None:
    with running() as inspector:
        inspector.close()
        assert classes(inspector.inspect(ask())) == {"uncertain.error"}
        assert not inspector.wait_ready(0.2)
        assert inspector.spare_pid is None
