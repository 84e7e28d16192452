# pyright: reportPrivateUsage=false
# The clock of a process that is gone is asked for itself.
import dataclasses
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from curtilage.client.detection import worker as module
from curtilage.client.detection.worker import (
    DetectorProcess,
    Task,
    TimeLimit,
    WorkerError,
    require_presidio,
    warmed,
    worker_environment,
)
from curtilage.client.errors import ConfigError, DetectorsError
from curtilage.client.system.files import folder_digest
from curtilage.client.telemetry import UNREPORTED, RestartCause
from curtilage.policy.document.detection_plan import NerPlan
from curtilage.policy.document.load import load_profile
from curtilage.sandbox.parent import processor_s
from curtilage.sandbox.wall import Layer, Promise, Wall
from support.fakes import returns

CANARY = "zq7canary4711"
# A worker without Presidio, which starts at once; {} is what it may do instead.
LIGHT = """
import signal, sys, time, re
from curtilage.client.detection.detectors import __main__ as worker
from curtilage.client.detection.detectors.scanner import EVERY_FORM
from curtilage.client.detection.detectors.all import own_equipment
from curtilage.client.detection.detectors.scanner import Scanner
from curtilage.client.detection.detectors.__main__ import refuse_network_and_files
from curtilage.client.detection.detectors.loading import loading
from curtilage.sandbox.parent import processor_s
from curtilage.sandbox.wall import compute_only
def spin(seconds):
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass
def load(seconds):
    with loading():
        spin(seconds)
def hang():
    with loading():
        time.sleep(600)
def announce(begins):
    worker._announce(replies, begins)
class Faulty:
    id = "faulty"
    def find(self, reading):
        if "FAULT" in reading.text:
            {fault}
        return ()
requests, replies = worker.take_streams()
wall = compute_only()
refuse_network_and_files()
worker.serve(
    requests, replies, Scanner((*own_equipment(), (Faulty(), EVERY_FORM))), wall
)
"""
HANG = r're.match(r"(a+)+$", "a" * 64 + "b")'


def light(fault: str = "pass") -> tuple[str, ...]:
    return (sys.executable, "-c", LIGHT.format(fault=fault))


def within(processor_s: float, wall_s: float = 120.0) -> TimeLimit:
    return TimeLimit(processor_s=processor_s, wall_s=wall_s)


LONG = within(60.0)


def task(*texts: str) -> Task:
    return Task(conversations=(texts,), limit=LONG)


@pytest.fixture
def worker() -> Iterator[DetectorProcess]:
    process = warmed(DetectorProcess(light(HANG)), limit=LONG)
    yield process
    process.kill()


def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", returns(None))
    with pytest.raises(ConfigError, match=r"curtilage\[pii\]"):
        require_presidio()


# --- a worker of flesh and blood ----------------------------------------------


def test_worker_answers_in_order(worker: DetectorProcess) -> None:
    worker.send([task("a@b.example"), task("nothing here")])
    assert "identifier.direct.email" in json.dumps(worker.receive(LONG))
    assert worker.receive(LONG) == [[]]


def test_a_hang_that_holds_the_interpreter_is_late_and_can_be_killed(
    worker: DetectorProcess,
) -> None:
    worker.send([task("FAULT")])
    with pytest.raises(WorkerError) as caught:
        worker.receive(within(0.3))
    assert caught.value.cause is RestartCause.TIMEOUT
    worker.kill()
    assert not psutil.pid_exists(worker.pid)


def test_a_worker_that_does_nothing_waited_and_was_not_too_slow() -> None:
    idle = warmed(DetectorProcess(light("time.sleep(600)")), limit=LONG)
    try:
        idle.send([task("FAULT")])
        with pytest.raises(WorkerError) as caught:
            idle.receive(within(0.1, 0.5))
        assert caught.value.cause is RestartCause.WAITED
    finally:
        idle.kill()


@pytest.mark.skipif(sys.platform != "linux", reason="no such clock there")
def test_a_worker_that_is_kept_from_the_processor_is_not_late(
    worker: DetectorProcess,
) -> None:
    os.kill(worker.pid, signal.SIGSTOP)
    worker.send([task("a@b.example")])
    with pytest.raises(WorkerError) as caught:
        worker.receive(within(0.2, 0.6))
    assert caught.value.cause is RestartCause.WAITED
    os.kill(worker.pid, signal.SIGCONT)
    assert "identifier.direct.email" in json.dumps(worker.receive(LONG))


def test_a_dead_process_has_no_used_time(worker: DetectorProcess) -> None:
    worker.kill()
    assert processor_s(worker.pid) is None


def test_a_late_answer_never_meets_the_next_question(worker: DetectorProcess) -> None:
    worker.send([task("a@b.example")])
    worker.send([task("nothing here")])  # as after an interrupted call
    with pytest.raises(WorkerError) as caught:
        worker.receive(LONG)
    assert caught.value.cause is RestartCause.GARBAGE


def test_drain_takes_late_answers(worker: DetectorProcess) -> None:
    worker.send([task("x"), task("y")])
    assert worker.drain(LONG)
    worker.send([task("a@b.example")])
    assert worker.receive(LONG) != [[]]


def test_a_dead_worker_is_a_crash(worker: DetectorProcess) -> None:
    os.kill(worker.pid, signal.SIGKILL)
    worker.send([task("x")])
    for _ in range(2):
        with pytest.raises(WorkerError) as caught:
            worker.receive(LONG)
        assert caught.value.cause is RestartCause.CRASH


def test_a_stopped_worker_never_blocks_the_caller(worker: DetectorProcess) -> None:
    os.kill(worker.pid, signal.SIGSTOP)
    worker.send([task("x" * 5_000_000)])
    with pytest.raises(WorkerError):
        worker.receive(within(60.0, 0.2))
    worker.kill()


@pytest.mark.parametrize(
    "code",
    ["import sys; sys.exit(3)", "print('garbage ' * 99)", "import os; os._exit(0)"],
    ids=["dies", "prints garbage", "vanishes"],
)
def test_a_worker_that_does_not_start_is_refused(code: str) -> None:
    with pytest.raises(DetectorsError, match="did not start"):
        warmed(DetectorProcess((sys.executable, "-c", code)), limit=LONG)


def test_a_worker_that_is_never_ready_is_refused() -> None:
    command = (sys.executable, "-c", "import time; time.sleep(60)")
    with pytest.raises(DetectorsError, match="did not start"):
        warmed(DetectorProcess(command), limit=within(60.0, 0.2))


def test_a_worker_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    fault = f"print('{CANARY}', flush=True); raise OSError('{CANARY}')"
    process = warmed(DetectorProcess(light(fault)), limit=LONG)
    try:
        process.send([task("FAULT")])
        answer = process.receive(LONG)
    finally:
        process.kill()
    out, err = capfd.readouterr()
    assert "uncertain.error" in json.dumps(answer)
    assert CANARY not in out + err + json.dumps(answer)


def test_environment_holds_no_proxy_and_no_token(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("https_proxy", "HTTP_PROXY", "HF_TOKEN", "REGEX_TIMEOUT_SECONDS"):
        monkeypatch.setenv(name, CANARY)
    assert CANARY not in json.dumps(worker_environment())


def test_environment_makes_libraries_report_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in UNREPORTED:
        monkeypatch.setenv(name, "0")
    assert worker_environment().items() >= UNREPORTED.items()


def test_a_worker_dies_with_its_parent() -> None:
    code = f"""
import time
from curtilage.client.detection.worker import DetectorProcess, TimeLimit, warmed
limit = TimeLimit(processor_s=60, wall_s=60)
print(warmed(DetectorProcess({light()!r}), limit=limit).pid, flush=True)
time.sleep(60)
"""
    assert _orphan_ends(code, within_s=10)


@pytest.mark.skipif(sys.platform == "win32", reason="no alarms there")
@pytest.mark.parametrize(
    ("fault", "limits"),
    [
        (HANG, "processor_s=0.1, wall_s=600"),
        ("time.sleep(600)", "processor_s=600, wall_s=0.1"),
    ],
    ids=["works", "waits"],
)
def test_a_hung_worker_ends_itself_without_a_parent(fault: str, limits: str) -> None:
    code = f"""
import time
from curtilage.client.detection.worker import DetectorProcess, Task, TimeLimit, warmed
limit = TimeLimit(processor_s=60, wall_s=60)
worker = warmed(DetectorProcess({light(fault)!r}), limit=limit)
limit = TimeLimit({limits})
worker.send([Task(conversations=(("FAULT",),), limit=limit)])
time.sleep(0.5)
print(worker.pid, flush=True)
time.sleep(60)
"""
    assert _orphan_ends(code, within_s=120)


def _orphan_ends(code: str, *, within_s: float) -> bool:
    """Kill a parent once it gave its worker's id; return whether that ends too."""
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        env=worker_environment(),
    ) as parent:
        assert parent.stdout is not None
        orphan = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    _, alive = psutil.wait_procs([orphan], timeout=within_s)
    return not alive


def test_an_error_of_the_worker_names_a_cause_only() -> None:
    assert str(WorkerError(RestartCause.CRASH)).endswith(
        f": {RestartCause.CRASH.value}"
    )
    assert CANARY not in repr(task(CANARY))


# --- the wall -------------------------------------------------------------------


def behind(expression: str) -> tuple[str, ...]:
    """Return a worker that reports this wall."""
    code = LIGHT.format(fault="pass").replace(
        "wall = compute_only()",
        f"from curtilage.sandbox.wall import *; wall = {expression}",
    )
    return (sys.executable, "-c", code)


@pytest.mark.skipif(sys.platform != "linux", reason="no walls there")
def test_the_real_worker_says_behind_which_wall_it_is_ready() -> None:
    process = warmed(DetectorProcess(plan=load_profile("default").plan), limit=LONG)
    process.kill()
    assert process.wall is not None
    assert process.wall.gaps == ()


@pytest.mark.skipif(sys.platform != "linux", reason="no /proc there")
def test_the_kernel_says_the_same() -> None:
    process = warmed(DetectorProcess(plan=load_profile("default").plan), limit=LONG)
    try:
        folder = Path("/proc") / str(process.pid)
        status = (folder / "status").read_text("utf-8")
        own = Path("/proc/self/ns/net").readlink()
        others = (folder / "ns" / "net").readlink()
        mounts = (folder / "mountinfo").read_text("ascii").splitlines()
    finally:
        process.kill()
    assert "Seccomp:\t2\n" in status
    assert "NoNewPrivs:\t1\n" in status
    assert process.wall is not None
    assert (own != others) == (Layer.NAMESPACE in process.wall.standing)
    if Layer.FOLDERS in process.wall.standing:
        root, *bound = [each.split(" - ") for each in mounts]
        assert root[1].startswith("tmpfs ")
        places = [each[0].split()[4] for each in bound]
        assert not {"/", "/proc", "/sys", "/home", "/etc"} & set(places)
        assert all("ro" in each[0].split()[5].split(",") for each in (root, *bound))


@pytest.mark.skipif(sys.platform != "linux", reason="no walls there")
def test_the_folder_of_the_operators_model_is_behind_the_wall_too(
    tmp_path: Path,
) -> None:
    spacy = pytest.importorskip("spacy")
    pipeline = spacy.blank("en")
    ruler = pipeline.add_pipe("entity_ruler")
    ruler.add_patterns([{"label": "PERSON", "pattern": "Bogdana Ilieva"}])
    model = tmp_path / "pipeline"
    pipeline.to_disk(model)
    person = "identifier.direct.person"
    ner = NerPlan(
        engine="spacy",
        path=str(model),
        sha256=folder_digest(model),
        labels=(("PERSON", person),),
    )
    plan = dataclasses.replace(load_profile("default").plan, ner=ner)
    process = warmed(DetectorProcess(plan=plan, wall_required=False), limit=LONG)
    try:
        process.send([task("Bogdana Ilieva")])
        found = process.receive(LONG)
    finally:
        process.kill()
    assert person in repr(found)


def test_without_a_wall_a_worker_starts_unless_one_is_demanded() -> None:
    command = behind("Wall(missing=('seccomp: none',))")
    process = DetectorProcess(command)
    assert process.wait_ready(LONG)
    assert process.wall == Wall(missing=("seccomp: none",))
    process.kill()
    demanding = DetectorProcess(command, wall_required=True)
    with pytest.raises(DetectorsError, match=", nor to ".join(Wall().gaps)) as refused:
        warmed(demanding, limit=LONG)
    assert "seccomp: none" in str(refused.value)
    assert demanding.ended


@pytest.mark.parametrize("missing", [Layer.SECCOMP, Layer.FOLDERS])
def test_half_a_wall_is_none(missing: Layer) -> None:
    others = [f"Layer.{each.name}" for each in Layer if each is not missing]
    command = behind(f"Wall(standing=frozenset([{', '.join(others)}]))")
    process = DetectorProcess(command, wall_required=True)
    with pytest.raises(DetectorsError, match=f"{Promise.PROGRAMS}|{Promise.LOOKUPS}"):
        warmed(process, limit=LONG)


def test_a_whole_wall_is_one() -> None:
    command = behind("Wall(standing=frozenset([Layer.SECCOMP, Layer.FOLDERS]))")
    process = DetectorProcess(command, wall_required=True)
    assert process.wait_ready(LONG)
    process.kill()


@pytest.mark.parametrize("said", ["{}", "{READY: True}", "{READY: {}}", "[READY]"])
def test_a_worker_that_says_nothing_of_its_wall_is_not_ready(said: str) -> None:
    code = (
        "import sys, time\n"
        "from curtilage.client.detection.pipe import READY\n"
        "from curtilage.sandbox.pipe import encode_frame\n"
        f"sys.stdout.buffer.write(encode_frame({said})); sys.stdout.flush()\n"
        "time.sleep(60)\n"
    )
    with pytest.raises(DetectorsError, match="did not start"):
        warmed(DetectorProcess((sys.executable, "-c", code)), limit=LONG)


# --- what is loaded at first use ----------------------------------------------------


def loads(code: str, *, most: TimeLimit | None = None) -> tuple[object, float]:
    """Return what became of a query that may compute for 0.3 s, and what loads took."""
    process = warmed(DetectorProcess(light(code)), limit=LONG)
    try:
        process.send([task("warm FAUL"), task("FAULT")])
        process.receive(LONG)
        whole = process._loads = most or process._loads
        try:
            answer = process.receive(within(0.3))
        except WorkerError as error:
            answer = error.cause
    finally:
        process.kill()
    return answer, whole.processor_s - process._loads.processor_s


def test_loading_is_not_counted_as_a_query_s_time() -> None:
    answer, took_s = loads("load(0.8)")
    assert answer == [[]]
    assert took_s > 0.7


def test_what_follows_loading_is_counted() -> None:
    answer, _ = loads("load(0.4); spin(60)")
    assert answer is RestartCause.TIMEOUT


def test_what_is_computed_between_two_loadings_is_counted() -> None:
    answer, _ = loads("[(load(0.1), spin(0.1)) for _ in range(60)]")
    assert answer is RestartCause.TIMEOUT


def test_loading_has_an_end_of_its_own() -> None:
    answer, _ = loads("load(60)", most=within(0.3))
    assert answer is RestartCause.TIMEOUT


def test_loading_that_hangs_ends_by_the_clock() -> None:
    answer, _ = loads("hang()", most=within(60.0, 0.4))
    assert answer is RestartCause.WAITED


def test_a_worker_gains_no_time_by_loading_again_and_again() -> None:
    answer, _ = loads("[load(0.2) for _ in range(99)]", most=within(0.7))
    assert answer is RestartCause.TIMEOUT


def test_a_loading_without_an_end_is_garbage() -> None:
    answer, _ = loads("[announce(True) for _ in 'ab']")
    assert answer is RestartCause.GARBAGE


def test_an_orphan_that_loads_for_ever_ends_itself() -> None:
    """Its own alarm holds while it loads, and what was left of it afterwards."""
    left = "signal.getitimer(signal.ITIMER_PROF)[0]"
    answer, _ = loads(
        f"announce(True); assert 30 < {left} < 35; "
        f"announce(False); assert 60 < {left} < 65"
    )
    assert answer == [[]]
