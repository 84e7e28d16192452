"""``make compose-test``: every compose file, brought up for real, questioned, broken.

Needs root and Debian; installs Debian's engine if it is missing. Exit 0: everything
holds; 1: something does not; 77: no engine can run here (a failure if CURTILAGE_REQUIRE
names ``compose``).
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from deploy.image.options import ROOT
from tools.compose_test.checks import problems
from tools.compose_test.engine import Engine, require_machine, running_engine
from tools.compose_test.errors import CannotRunError, FailedError
from tools.compose_test.layouts import (
    CLIENT_HOST,
    ENCLAVE,
    ENCLAVE_HOST,
    ENCLAVE_OPTIONS,
    LOCAL,
    RELAY_HOST,
    Answered,
    Endpoint,
    department,
    describe_sandbox,
    free_port,
    join_networks,
    one_operator,
    two_operators,
    write_policy,
)
from tools.compose_test.mutants import MUTANTS, try_mutant
from tools.compose_test.soak import soak
from tools.compose_test.stack import PYTHON, Stack

from curtilage.relay.config import Limits
from curtilage_dev.processes import Process

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_SKIPPED: Final = 77
MEGABYTE: Final = 1_000_000
MOST_BYTES: Final = 250 * MEGABYTE
PUBLIC: Final = "Which is longer, a mile or a kilometre? Answer in one sentence."
PRIVATE: Final = "My card 4111 1111 1111 1111 was refused, what now?"
LONG: Final = "Explain how bread is baked, step by step, with every detail."
LONG_TOKENS: Final = 240
IN_PROGRESS_S: Final = 1.5
ENDING_S: Final = 120.0
AGAIN_S: Final = 3.0
COPY_S: Final = Limits().cache_s + 5.0
"""How long a relay may serve the old keys, and some."""
UNAUTHORIZED: Final = 401
SHARED, PROCESS = "shared", "process"
"""What separates requests: with one operator, and in a department's enclave."""
SHOWN: Final[Mapping[str, frozenset[str]]] = {
    SHARED: frozenset({"no_write", "ephemerality"}),
    PROCESS: frozenset({"no_write", "ephemerality", "isolation"}),
}
OK: Final = 200
SERVICE: Final = "client"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of the test.

    Attributes:
        engine: see there.
        folder: for files of the layouts.
        started: by the monotonic clock, in seconds.
    """

    engine: Engine
    folder: Path
    started: float

    def sandbox(self, isolation: str) -> Path:
        """Return the description of the enclave's sandbox."""
        return self.folder / f"sandbox-{isolation}.json"

    def say(self, line: str) -> None:
        """Print a line with the time since the start."""
        say(f"[{time.monotonic() - self.started:5.0f} s] {line}")

    def hold(self, stack: Stack, services: Sequence[str]) -> None:
        """Run all checks on these services.

        Raises:
            FailedError: one went off.
        """
        found = problems(stack, services)
        if found:
            raise FailedError("\n".join(each.line() for each in found))
        self.say(f"in force, from outside and inside: {', '.join(services)}")

    def ask(
        self,
        endpoint: Endpoint,
        text: str,
        route: str,
        *,
        through: str,
        within_s: float = 0.0,
    ) -> None:
        """Ask a question that must be answered on this route.

        Args:
            endpoint: the client's.
            text: the question.
            route: where it must be answered.
            through: for display.
            within_s: until then it may also be answered locally, and is asked again.

        Raises:
            FailedError: it was not.
        """
        until = time.monotonic() + within_s
        while True:
            began = time.monotonic()
            answered = endpoint.ask(text)
            came = (answered.status, answered.route)
            if came == (OK, route):
                break
            if came != (OK, LOCAL) or began >= until:
                raise FailedError(f"{through}: a question came to {answered}")
            self.say(f"{through}: answered, route {LOCAL}, for now")
            time.sleep(AGAIN_S)
        took = time.monotonic() - began
        self.say(f"{through}: answered, route {route}, {took:.1f} s")

    def ask_after(self, endpoint: Endpoint, service: str) -> None:
        """Ask a question that the enclave must answer now that a part is back.

        Raises:
            FailedError: it does not.
        """
        within_s = COPY_S if service == ENCLAVE else 0.0
        through = f"after the {service} was killed"
        self.ask(endpoint, PUBLIC, ENCLAVE, through=through, within_s=within_s)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the test; return the exit code."""
    parser = argparse.ArgumentParser(prog="make compose-test", description=__doc__)
    parser.add_argument(
        "--images", type=Path, default=ROOT / "build" / "containers", metavar="DIR"
    )
    parser.add_argument(
        "--work", type=Path, default=ROOT / "build" / "compose-test", metavar="DIR"
    )
    parser.add_argument(
        "--soak", type=float, default=0, metavar="MINUTES", help="instead, for so long"
    )
    parser.add_argument(
        "--layout", action="append", choices=list(LAYOUTS), help="only this"
    )
    parser.add_argument("--built", action="store_true", help="the images are there")
    options = parser.parse_args(arguments)
    started = time.monotonic()
    try:
        require_machine()
        if not options.built:
            _build(options.images)
        with (
            running_engine(options.work, say) as engine,
            tempfile.TemporaryDirectory(prefix="curtilage-compose-") as name,
        ):
            folder = Path(name)
            folder.chmod(0o755)
            run = Run(engine=engine, folder=folder, started=started)
            tags = _load(run, options.images)
            for isolation in (SHARED, PROCESS):
                path = run.sandbox(isolation)
                describe_sandbox(engine, tags[ENCLAVE], path, isolation)
            if options.soak:
                with _department(run) as all_parts:
                    soak(
                        [all_parts.letters, all_parts.triage],
                        all_parts.parts,
                        client=SERVICE,
                        minutes=options.soak,
                        say=run.say,
                    )
            else:
                for layout in options.layout or LAYOUTS:
                    LAYOUTS[layout](run)
    except CannotRunError as reason:
        return _skip(str(reason))
    except (FailedError, OSError, subprocess.SubprocessError) as failure:
        say(f"FAILED: {failure}")
        return EXIT_FAILED
    took = time.monotonic() - started
    say(f"everything holds, in {took:.0f} s; the network's settings are as before")
    return EXIT_OK


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"compose-test: {line}\n")
    sys.stdout.flush()


def _skip(reason: str) -> int:
    if "compose" in os.environ.get("CURTILAGE_REQUIRE", "").split(","):
        say(f"FAILED: it must run, and cannot: {reason}")
        return EXIT_FAILED
    say(f"SKIPPED LOUDLY: {reason}")
    return EXIT_SKIPPED


def _build(images: Path) -> None:
    command = [sys.executable, "-m", "deploy.containers", "build", "--out", str(images)]
    subprocess.run(command, cwd=ROOT, check=True)


def _load(run: Run, images: Path) -> Mapping[str, str]:
    """Load the images, whose ids the engine must compute too; return their tags."""
    record = cast("dict[str, Any]", json.loads((images / "images.json").read_text()))
    for role, image in cast("dict[str, Any]", record["images"]).items():
        run.engine.get("load", "-q", "-i", str(images / f"{role}.tar"))
        found = run.engine.inspect(image["tag"])
        if found["Id"] != f"sha256:{image['id']}":
            raise FailedError(f"{role}: the engine loaded another image: {found['Id']}")
        size, whole = image["bytes_without_models"], image["bytes"]
        run.say(
            f"{image['tag']}: {size / MEGABYTE:.1f} MB, "
            f"{whole / MEGABYTE:.1f} MB with its models"
        )
        if size > MOST_BYTES:
            raise FailedError(f"{role}: more than {MOST_BYTES / MEGABYTE:.0f} MB")
    return {role: str(image["tag"]) for role, image in record["images"].items()}


def _try_one_operator(run: Run) -> None:
    folder = run.folder / "one"
    stack = one_operator(run.engine, folder, run.sandbox(SHARED))
    with _down_after(stack):
        _validate(run, stack)
        stack.up()
        run.say("one operator: all parts healthy")
        policy = write_policy(stack, folder, "one-operator")
        relay = f"http://127.0.0.1:{stack.variables['RELAY_PORT']}/demo"
        command = ["--policy", str(policy), "--relay", relay, "--json"]
        shown = subprocess.run(
            [sys.executable, "-m", "curtilage.cli", "attest", "show", *command],
            capture_output=True,
            text=True,
            check=False,
        )
        require_shown(run, SHARED, shown)
        with _client(run.folder, policy, relay) as endpoint:
            run.ask(endpoint, PUBLIC, ENCLAVE, through="one operator")
            run.ask(endpoint, PRIVATE, LOCAL, through="one operator")
            run.hold(stack, ["enclave", "relay", "emulator"])
            _cut_off(run, endpoint, stack, ENCLAVE)
            run.ask_after(endpoint, ENCLAVE)
            _cut_off(run, endpoint, stack, "relay")
            run.ask_after(endpoint, "relay")
            stack.get("restart", "--timeout", "10", "enclave", "relay")
            for service in ("enclave", "relay"):
                stack.wait_for(service, restarts=0)
            run.ask(
                endpoint,
                PUBLIC,
                ENCLAVE,
                through="after both were restarted",
                within_s=COPY_S,
            )
            _lose_evidence(run, endpoint, stack)
        for mutant in MUTANTS:
            red = try_mutant(stack, mutant, run.folder)
            run.say(f"mutant, {mutant.name}: red: {red}")
    run.say("one operator: taken down")


@dataclass(frozen=True, slots=True, kw_only=True)
class Department:
    """Two operators, and a department that asks through them.

    Attributes:
        enclave, relay, client: the three projects.
        letters, triage: the department's applications.
    """

    enclave: Stack
    relay: Stack
    client: Stack
    letters: Endpoint
    triage: Endpoint

    @property
    def parts(self) -> Sequence[tuple[Stack, str]]:
        """The parts that a question passes, with their projects."""
        return (
            (self.enclave, ENCLAVE),
            (self.enclave, "door"),
            (self.relay, "relay"),
            (self.client, SERVICE),
        )


@contextlib.contextmanager
def _department(run: Run) -> Generator[Department]:
    """Bring up two operators and a department; take them down at the end."""
    folder = run.folder / "two"
    sandbox = run.sandbox(PROCESS)
    enclave, relay, authority = two_operators(run.engine, folder, sandbox)
    with contextlib.ExitStack() as ends:
        for stack in (enclave, relay):
            ends.enter_context(_down_after(stack))
            _validate(run, stack)
            stack.up()
        join_networks(
            run.engine,
            {ENCLAVE_HOST: (enclave, "door"), RELAY_HOST: (relay, "relay")},
        )
        run.say("two operators: enclave with its door, and relay, with TLS: healthy")
        write_policy(enclave, folder, "enclave", *ENCLAVE_OPTIONS)
        client, endpoints = department(
            run.engine,
            run.folder / "department",
            folder / "attestation.yaml",
            authority,
        )
        ends.enter_context(_down_after(client))
        _validate(run, client)
        client.get("create")
        join_networks(run.engine, {CLIENT_HOST: (client, SERVICE)})
        client.up()
        run.say("department: the client's gateway is healthy")
        letters, triage = endpoints.values()
        yield Department(
            enclave=enclave, relay=relay, client=client, letters=letters, triage=triage
        )
    run.say("two operators and department: taken down")


def _try_department(run: Run) -> None:
    with _department(run) as all_parts:
        letters = all_parts.letters
        run.ask(letters, PUBLIC, ENCLAVE, through="department, two operators")
        run.ask(all_parts.triage, PRIVATE, LOCAL, through="another application")
        shown = _command(all_parts.client, "attest", "show", "--json")
        require_shown(run, PROCESS, shown)
        _refuse_strangers(run, letters)
        run.hold(all_parts.enclave, [ENCLAVE, "door", "emulator"])
        run.hold(all_parts.relay, ["relay"])
        run.hold(all_parts.client, [SERVICE])
        for stack, service in all_parts.parts:
            _cut_off(run, letters, stack, service)
            run.ask_after(letters, service)
        _verify_audit(run, all_parts.client)


LAYOUTS: Final[Mapping[str, Callable[[Run], None]]] = {
    "one-operator": _try_one_operator,
    "department": _try_department,
}


def require_shown(
    run: Run, isolation: str, shown: "subprocess.CompletedProcess[str]"
) -> None:
    """A client sees in the evidence what the sandbox is for.

    Raises:
        FailedError: it does not.
    """
    try:
        whole = cast("dict[str, Any]", json.loads(shown.stdout or "{}"))
    except ValueError:  # a message instead
        raise FailedError(f"attest show: {shown.stdout[-400:]}") from None
    found = cast("dict[str, Any]", whole.get("claims") or {})
    shows = cast("list[str]", found.get("shows", []))
    stated = found.get("isolation")
    if SHOWN[isolation] - set(shows) or stated != isolation:
        raise FailedError(f"attest show: {shows}, {stated}: {shown.stderr[-400:]}")
    run.say(f"attest show: {', '.join(shows)}; isolation {stated}")


def _validate(run: Run, stack: Stack) -> None:
    stack.get("config", "-q")
    run.say(f"{stack.file.name}: valid")


def _refuse_strangers(run: Run, endpoint: Endpoint) -> None:
    """The gateway answers nobody without a key."""
    for key in ("", "letters." + "A" * 43):
        stranger = Endpoint(
            port=endpoint.port,
            host=endpoint.host,
            key=key,
            authority=endpoint.authority,
        )
        answered = stranger.ask(PUBLIC)
        if answered.status != UNAUTHORIZED:
            raise FailedError(f"a stranger's question came to {answered}")
    run.say("department: without a key, or with another, refused")


def _cut_off(run: Run, endpoint: Endpoint, stack: Stack, service: str) -> None:
    """Kill a part while a question is answered: it ends with a clear error, or else.

    Raises:
        FailedError: the question got neither an answer nor an error, or the part does
            not come back by itself.
    """
    ended: list[Answered | str] = []

    def ask() -> None:
        try:
            ended.append(endpoint.ask(LONG, max_tokens=LONG_TOKENS))
        # Killed with the client: its connection ends, which the caller sees.
        except ConnectionError as error:
            ended.append(f"a connection error ({error})")

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    time.sleep(IN_PROGRESS_S)
    stack.crash(service)
    asking.join(ENDING_S)
    if not ended:
        raise FailedError(f"{service} killed: a question was never answered")
    result = ended[0]
    if isinstance(result, Answered):
        if result.status != OK and not result.code:
            raise FailedError(f"{service} killed: an error without a code: {result}")
        what = result.code or f"route {result.route}"
        result = f"status {result.status}, {what}"
    elif service != SERVICE:
        raise FailedError(f"{service} killed: the question came to {result}")
    run.say(f"{service} killed while it answered: {result}; healthy again by itself")


def _lose_evidence(run: Run, endpoint: Endpoint, stack: Stack) -> None:
    """Kill the evidence process: the enclave starts again, and must be verified anew.

    The emulator then signs with a key that the client's policy does not know.
    """
    restarts = int(stack.container(ENCLAVE)["RestartCount"])
    stack.crash("emulator")
    stack.wait_for(ENCLAVE, restarts=restarts + 1)
    run.say("evidence process killed: the enclave has started again by itself")
    run.ask(endpoint, PUBLIC, LOCAL, through="with evidence of another root")


def _command(client: Stack, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run a command of the client in its container."""
    return client.run(
        *("exec", "-T", SERVICE, PYTHON, "-s", "-B", "-P", "-m", "curtilage.cli"),
        *words,
    )


def _verify_audit(run: Run, client: Stack) -> None:
    """The audit trail survived, and verifies."""
    done = _command(client, "audit", "verify")
    if done.returncode != 0:
        raise FailedError(f"the audit trail: {done.stdout[-300:]}{done.stderr[-300:]}")
    run.say(f"the client's audit trail: {done.stdout.strip().splitlines()[-1]}")


@contextlib.contextmanager
def _down_after(stack: Stack) -> Generator[None]:
    try:
        yield
    finally:
        stack.down()


@contextlib.contextmanager
def _client(folder: Path, policy: Path, relay: str) -> Generator[Endpoint]:
    """Run a client on this machine, as a user would."""
    port = free_port()
    home = folder / "home"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir()
    environment: Mapping[str, str] = {"HOME": str(home), "XDG_STATE_HOME": str(home)}
    command = [sys.executable, "-m", "curtilage.cli", "serve"]
    command += ["--policy", str(policy), "--relay", relay, "--port", str(port)]
    process = Process("client", command, folder=folder, environment=environment)
    try:
        process.wait_ready()
        yield Endpoint(port=port)
    finally:
        process.stop()


if __name__ == "__main__":
    # As an interrupt: everything is taken down and put back first.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
