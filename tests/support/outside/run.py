"""Run every program of ours in a watched world; ``python -m support.outside.run``.

To be started by ``watched`` below, in namespaces of its own. Writes a report: who
tried what on the network, what was written outside the programs' own folder, and
what work they did, so that silence is not mistaken for innocence.
"""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Generator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from curtilage.attest.evidence import CpuEvidence, SnpEvidence
from curtilage.attest.evidence_json import parse_cpu_evidence
from curtilage.attest.sev_snp.report import SnpReport, parse_report
from curtilage.enclave_server.acquire.endorsements import CRL_FILE
from curtilage.enclave_server.evidence_protocol import (
    CPU_EVIDENCE,
    DATA_BYTES,
    IDENTITY,
    LENGTH_BYTES,
    encode_request,
)
from curtilage.policy.document.load import profile_text
from curtilage.wire.shaping import TransportParameters
from curtilage_dev.asking import open_answer
from curtilage_dev.processes import Process, Processes
from curtilage_dev.stack import Stack
from support.byte_model import make_byte_model, sha256_of
from support.enclave_vendors import amd_pages, serving_vendors, snp_evidence
from support.outside.network import Network
from support.outside.programs import QUESTIONS
from support.outside.world import ENVIRONMENT_HOME, World, WorldError

T = TypeVar("T")

ROOT: Final = Path(__file__).resolve().parents[3]
IMPOSSIBLE: Final = 77
SECONDS: Final = 90.0
"""What was found once waited for 14 s and then came back with growing pauses."""
START_AND_STOP_S: Final = 400.0
PAUSE_S: Final = 1.0
ANSWER_TOKENS: Final = 8
ROWS: Final = 20
BATCH: Final = 64
"""What ``decide`` reads before it decides."""
SIGN, IDENTIFY, STAPLED = "sign.sock", "identify.sock", "stapled"
QUICK: Final = TransportParameters(
    frame_bytes=512, period_ms=5, first_bucket=8, buckets=16
)
UNSHARE: Final = (
    *("--user", "--map-root-user", "--mount", "--net", "--ipc", "--uts"),
    *("--pid", "--fork", "--kill-child"),
)


class SceneError(Exception):
    """The world was set up, but something in it failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What was seen.

    Attributes:
        attempts: ``Attempt`` each; ``after`` the first start, not ``at``.
        written: ``Written`` each; likewise.
        ports: which of our programs listens where.
        lost: packets that were not seen.
        work: how often each program did what it is for.
    """

    attempts: list[dict[str, str]]
    written: list[dict[str, str]]
    ports: dict[str, str]
    lost: int
    work: dict[str, int]


def watched(own: Path, seconds: float) -> Report:
    """Run everything in namespaces of its own; return what was seen.

    Args:
        own: an empty folder for everything that the programs may write.
        seconds: how long everybody works; 0 runs the control alone.

    Raises:
        WorldError: here that is not possible; says what is missing.
        SceneError: a program could not be started, or did not do its work.
    """
    unshare = shutil.which("unshare")
    if unshare is None:
        raise WorldError("the command unshare: apt-get install util-linux")
    environment = {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "LANG": "C.UTF-8",
        "HOME": ENVIRONMENT_HOME,
        "XDG_DATA_HOME": str(own / "data"),
        "XDG_STATE_HOME": str(own / "state"),
        "PYTHONPATH": f"{ROOT / 'tests'}:{ROOT / 'dev'}",
    }
    inner = [sys.executable, "-B", "-m", "support.outside.run", str(own), str(seconds)]
    try:
        done = subprocess.run(
            [unshare, *UNSHARE, *inner],
            check=False,
            capture_output=True,
            cwd=ROOT,
            env=environment,
            text=True,
            timeout=seconds + START_AND_STOP_S,
        )
    except subprocess.TimeoutExpired as late:
        # Ending unshare ends everything in the namespaces.
        raise SceneError(f"the watched world took over {late.timeout:g} s") from None
    if done.returncode == IMPOSSIBLE or done.stderr.startswith("unshare: "):
        raise WorldError(done.stderr.strip())
    if done.returncode != 0:
        raise SceneError(f"the watched world ended: {done.stderr[-3000:]}")
    report = json.loads((own / "report.json").read_text("utf-8"))
    return Report(**report)


def main() -> int:
    own, seconds = Path(sys.argv[1]), float(sys.argv[2])
    scratch = own / "scratch"
    scratch.mkdir()
    world, network = World(scratch, own), Network()
    try:
        network.start()
        world.enter()
    except WorldError as error:
        sys.stderr.write(f"{error}\n")
        return IMPOSSIBLE
    started = time.time()
    network.roles[os.getpid()] = "application"
    scene = Scene(own, network)
    if seconds:
        scene.play(seconds)
    scene.run_control()
    network.stop()
    seen = {
        "attempts": [_after(asdict(each), started) for each in network.attempts],
        "written": [_after(asdict(each), started) for each in world.written()],
        "ports": scene.ports,
        "lost": network.lost,
        "work": scene.work,
    }
    (own / "report.json").write_text(json.dumps(seen, indent=1), "utf-8")
    return 0


def _after(seen: dict[str, object], started: float) -> dict[str, str]:
    after = cast("float", seen.pop("at")) - started
    texts = {name: str(value) for name, value in seen.items()}
    return {**texts, "after": f"{after:.1f} s"}


@dataclass(slots=True)
class Scene:
    """Every program, and the code that gives it work."""

    own: Path
    network: Network
    ports: dict[str, str] = field(default_factory=dict[str, str])
    work: Counter[str] = field(default_factory=Counter[str])
    _over: threading.Event = field(default_factory=threading.Event)

    def run_control(self) -> None:
        """Do what must be seen."""
        self._run("control", _program("control", str(Path(__file__).parent)))

    def play(self, seconds: float) -> None:
        """Start all programs, let them work for this time, stop them."""
        with ExitStack() as ends:
            processes = ends.enter_context(Processes(self.own))
            stack = self._start_stack(processes)
            machine = self._start_evidence(processes)
            vendors = ends.enter_context(_vendors(machine))
            self._start_stapler(processes, vendors)
            # One after the other: detectors that start late count as broken.
            self._start_library(processes, stack)
            self._measure(stack)
            self._start_long_measurement(processes, stack)
            works = (
                self._ask_endpoint,
                self._ask_by_command,
                self._ask_for_evidence,
                self._decide,
            )
            with ThreadPoolExecutor(len(works)) as threads:
                running = [threads.submit(work, stack) for work in works]
                # One that fails has not done its work, which the report would show.
                wait(running, timeout=seconds, return_when=FIRST_EXCEPTION)
                self._over.set()
            for each in running:
                each.result()
            answers = (self.own / "library.out").read_text("utf-8").splitlines()
            self._count("library", [json.loads(line)["route"] for line in answers])

    def _start_stack(self, processes: Processes) -> Stack:
        model = make_byte_model(self.own / "byte.gguf")
        profile = profile_text("default")
        patient = profile.replace("\n  deadline_ms: 250\n", "\n  deadline_ms: 30000\n")
        stack = Stack(
            folder=self.own,
            processes=processes,
            model=str(model),
            model_sha256=sha256_of(model),
            record=False,
            relay_extra="[limits]\ncache_s = 1\n",
            transport=QUICK,
            profile=patient,
            tls=True,
        )
        stack.start_all()
        names = {"client": "serve"}
        for name, process in stack.running.items():
            self.network.roles[process.pid] = names.get(name, name)
        listening = {
            "enclave": stack.enclave_address,
            "relay": stack.relay_address,
            "serve": stack.client_url.split("/")[2],
        }
        self.ports |= {address: name for name, address in listening.items()}
        return stack

    def _start_evidence(self, processes: Processes) -> SnpReport:
        arguments = [str(self.own / name) for name in (SIGN, IDENTIFY, STAPLED)]
        self._start("evidence", processes, _program("evidence", *arguments)[1:])
        _wait_for((self.own / IDENTIFY).exists)
        evidence = asyncio.run(_signed(self.own / IDENTIFY, IDENTITY))
        assert isinstance(evidence, SnpEvidence)
        return parse_report(evidence.report)

    def _start_stapler(self, processes: Processes, vendors: str) -> None:
        self.ports[vendors.removeprefix("http://")] = "vendors"
        arguments = ["-m", "curtilage.enclave_server.stapler", "run"]
        arguments += ["--identity", f"unix:{self.own / IDENTIFY}", "--interval", "60"]
        arguments += ["--endorsements", str(self.own / STAPLED), "--amd-kds", vendors]
        self._start("stapler", processes, arguments)
        _wait_for((self.own / STAPLED / CRL_FILE).exists)
        self.work["stapler"] += 1

    def _start_library(self, processes: Processes, stack: Stack) -> None:
        variables = {
            "POLICY": str(stack.policy),
            "RELAY": stack.relay_url,
            "RELAY_CA": str(stack.authority),
            "MODEL": stack.model,
            "MODEL_SHA256": stack.model_sha256,
        }
        environment = {f"WATCHED_{name}": value for name, value in variables.items()}
        process = processes.start(
            "library", _program("library")[1:], environment=environment
        )
        self.network.roles[process.pid] = "library"
        _wait_for(lambda: process.output.stat().st_size > 0)

    def _ask_endpoint(self, stack: Stack) -> None:
        for question in self._until_over(QUESTIONS):
            answer = open_answer(stack.client_url, question, max_tokens=ANSWER_TOKENS)
            with answer as response:
                response.read()
            self._count("serve", [response.headers["x-curtilage-route"]])

    def _ask_by_command(self, stack: Stack) -> None:
        command = _curtilage("ask", "--json", "--max-tokens", str(ANSWER_TOKENS))
        command += ["--policy", str(stack.policy), "--relay", stack.relay_url]
        command += ["--relay-ca", str(stack.authority), "--model", stack.model]
        command += ["--model-sha256", stack.model_sha256, "-"]
        routes = set[str]()
        for question in self._until_over(QUESTIONS, lambda: len(routes) > 1):
            answer = self._run("ask", command, question)
            # On a busy machine the detectors may not have started in time.
            if answer is not None:
                routes.add(json.loads(answer)["route"])
                self._count("ask", [json.loads(answer)["route"]])

    def _ask_for_evidence(self, stack: Stack) -> None:
        del stack
        for _ in self._until_over([None]):
            asyncio.run(_signed(self.own / SIGN, CPU_EVIDENCE))
            self.work["evidence"] += 1

    def _decide(self, stack: Stack) -> None:
        command = _curtilage("decide", "--jsonl", "--policy", str(stack.policy))
        with (self.own / "decided").open("wb") as out:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out)
        self.network.roles[process.pid] = "decide"
        assert process.stdin is not None
        for number in self._until_over(range(1 << 20)):
            for question in islice(cycle(QUESTIONS), BATCH // 4):
                line = json.dumps({"id": number, "text": question})
                process.stdin.write(line.encode() + b"\n")
            process.stdin.flush()
        process.stdin.close()
        assert process.wait() == 0
        decided = (self.own / "decided").read_text("utf-8").splitlines()
        self._count("decide", [json.loads(line)["route"] for line in decided])

    def _measure(self, stack: Stack) -> None:
        """Let a measurement come to its end; the long one does not."""
        command = [sys.executable, *self._evaluate(stack, "leave")]
        while self._run("evaluate", command) is None:
            pass
        figures = json.loads((self.own / "leave.json").read_text("utf-8"))["figures"]
        self.work["evaluate"] += len(figures)

    def _start_long_measurement(self, processes: Processes, stack: Stack) -> None:
        """Measure with detectors in that process, and with others at the same time."""
        command = self._evaluate(stack, "latency")
        process = self._start("evaluate", processes, command)
        # The others are to get on with their work.
        os.setpriority(os.PRIO_PROCESS, process.pid, 19)
        _wait_for(lambda: process.errors.stat().st_size > 0)

    def _evaluate(self, stack: Stack, group: str) -> list[str]:
        data = self.own / f"data-{group}"
        _write_sets(data)
        arguments = _curtilage("evaluate", "--data", str(data), "--only", group)[1:]
        arguments += ["--policy", str(stack.policy)]
        return [*arguments, "--json", str(self.own / f"{group}.json")]

    def _until_over(
        self, work: Sequence[T], enough: Callable[[], bool] = lambda: True
    ) -> Generator[T]:
        """Yield piece after piece, again from the first, until time is over."""
        for piece in cycle(work):
            yield piece
            if self._over.wait(PAUSE_S) and enough():
                return

    def _count(self, program: str, routes: Sequence[str]) -> None:
        for route in routes:
            self.work[f"{program}: {route}"] += 1

    def _start(
        self, role: str, processes: Processes, arguments: Sequence[str]
    ) -> Process:
        process = processes.start(role, arguments)
        self.network.roles[process.pid] = role
        return process

    def _run(self, role: str, command: Sequence[str], said: str = "") -> str | None:
        """Run a program to its end; return what it wrote, None where it failed."""
        with (self.own / f"{role}.log").open("ab") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self.network.roles[process.pid] = role
        out, _ = process.communicate(said)
        return out if process.returncode == 0 else None


def _program(name: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "support.outside.programs", name, *arguments]


def _curtilage(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "curtilage.cli", *arguments]


async def _signed(path: Path, asked: int) -> CpuEvidence:
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        writer.write(encode_request(asked, bytes(DATA_BYTES)))
        await writer.drain()
        length = int.from_bytes(await reader.readexactly(LENGTH_BYTES))
        return parse_cpu_evidence(await reader.readexactly(length))
    finally:
        writer.close()


def _wait_for(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.05)


@contextmanager
def _vendors(machine: SnpReport) -> Generator[str]:
    """Serve what AMD says of the emulated machine; yield the base address."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    serving = serving_vendors(
        amd_pages(snp_evidence(), hardware_id=machine.chip_id.hex())
    )

    def run(work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, loop).result()

    base, _ = run(serving.__aenter__())
    try:
        yield base
    finally:
        run(serving.__aexit__(None, None, None))
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def _write_sets(folder: Path) -> None:
    """Write small data sets of texts made up here, in their authors' formats."""
    texts = [f"How do I bake bread for {row} people?" for row in range(ROWS)]
    lines: dict[str, list[dict[str, object]]] = {
        "arena-hard/made.jsonl": [{"uid": text, "prompt": text} for text in texts],
        "gsm8k/made.jsonl": [{"question": text} for text in texts],
        "mt-bench/made.jsonl": [{"question_id": t, "turns": [t]} for t in texts],
    }
    files = {
        name: "\n".join(json.dumps(each) for each in objects)
        for name, objects in lines.items()
    }
    files["clinc150/data.json"] = json.dumps({"val": [[t, "made"] for t in texts]})
    files["banking77/made.csv"] = "\n".join(["text,category", *texts])
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")


if __name__ == "__main__":
    sys.exit(main())
