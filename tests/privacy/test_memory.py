"""After an answer no process has any of it in memory.

Real processes with the allocator's settings that the image has, looked at from
outside. That the scan would see something is tested too: while a question is being
answered, and after answers of processes that forget nothing.
"""

import json
import os
import re
import secrets
import signal
import socket
import struct
import sys
import urllib.error
import urllib.request
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from time import monotonic, sleep
from typing import Final
from urllib.parse import urlsplit

import pytest
from deploy.image.rootfs import ENVIRONMENT

from curtilage.inference.process.starter import STARTER
from curtilage.inference.process.starting import MODULE
from curtilage.policy.document.load import profile_text
from curtilage.wire.shaping import TransportParameters
from curtilage_dev.processes import Processes
from curtilage_dev.stack import Stack
from support.byte_model import FIRST_BYTE, make_byte_model, sha256_of
from support.memory_scan import WIPING_OFF, Forms, forms_of, hits, is_readable

pytest.importorskip("llama_cpp", reason="SKIPPED LOUDLY: the extra 'llm' is absent")
pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"),
    reason="SKIPPED LOUDLY: only Linux has /proc/PID/mem",
)

QUICK = TransportParameters(frame_bytes=512, period_ms=5, first_bucket=8, buckets=16)
ALLOCATOR: Final = {
    name: ENVIRONMENT[name] for name in ("PYTHONMALLOC", "GLIBC_TUNABLES")
}
SPACE: Final = FIRST_BYTE + 256
"""The byte model's token of a space; every other character's is its byte."""
PATIENCE_S: Final = 60.0
WORDS: Final = (
    *("violet", "lantern", "orchard", "pebble", "harbour", "thimble", "meadow"),
    *("saddle", "copper", "drizzle", "feather", "gravel", "hammock", "juniper"),
    *("kettle", "ladder", "marble", "nutmeg", "paddle", "quiver"),
)
ENCLAVES_ENGINE: Final = "engine of the enclave"
USUAL: Final = 24
"""Tokens of an answer."""
HOME: Final = " My card is 4111 1111 1111 1111."
"""With this a question is answered locally."""


@contextmanager
def running(
    folder: Path, *, environment: dict[str, str], enclave_extra: str = ""
) -> Generator[Stack]:
    model = make_byte_model(folder / "byte.gguf")
    usual, patient = "\n  deadline_ms: 250\n", "\n  deadline_ms: 30000\n"
    with Processes(folder) as processes:
        stack = Stack(
            folder=folder,
            processes=processes,
            model=str(model),
            model_sha256=sha256_of(model),
            relay_extra="[limits]\ncache_s = 1\n",
            transport=QUICK,
            profile=profile_text("default").replace(usual, patient),
            environment=environment,
            enclave_extra=enclave_extra,
        )
        stack.start_all()
        if not is_readable(stack.running["enclave"].pid):
            if "memory" in os.environ.get("CURTILAGE_REQUIRE", "").split(","):
                pytest.fail("this system hides /proc/PID/mem, which must be read")
            pytest.skip("SKIPPED LOUDLY: this system hides /proc/PID/mem")
        yield stack


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Generator[Stack]:
    with running(tmp_path_factory.mktemp("memory"), environment=ALLOCATOR) as stack:
        yield stack


@dataclass(frozen=True, kw_only=True)
class Question:
    """A question of unused words, and how it is sent."""

    name: str
    home: bool = False
    stream: bool = False
    max_tokens: int = USUAL
    leave: bool = False
    vanish: bool = False
    padding: int = 0
    echo: bool = False
    more: tuple[tuple[str, object], ...] = ()

    def body(self, words: str) -> bytes:
        text = f"Write one line with {words}, please.{HOME if self.home else ''}"
        turn = {"role": "user", "content": text + " Then one more line." * self.padding}
        settings = {"max_tokens": self.max_tokens, "stream": self.stream}
        asked = {"messages": [turn], "temperature": 0, **settings, **dict(self.more)}
        if self.echo:
            # Nothing else fulfils it, so the answer has the words, too.
            schema = {
                "type": "object",
                "properties": {"line": {"enum": [words]}},
                "required": ["line"],
                "additionalProperties": False,
            }
            named = {"name": "lines", "strict": True, "schema": schema}
            asked["response_format"] = {"type": "json_schema", "json_schema": named}
        return json.dumps(asked).encode()


QUESTIONS = [
    Question(name="whole"),
    Question(name="streamed", stream=True),
    Question(name="local", home=True),
    Question(name="local, streamed", home=True, stream=True),
    Question(name="one token", max_tokens=1),
    Question(name="left", stream=True, max_tokens=1500, leave=True),
    Question(name="left, local", home=True, stream=True, max_tokens=1500, leave=True),
    Question(name="too long", max_tokens=2040),
    Question(name="too long, local", home=True, max_tokens=2040),
]


def ask(url: str, question: Question, words: str) -> str:
    """Send a question, and read the answer to its end, or only its beginning.

    Return who answered; empty: no one did.
    """
    if question.vanish:
        send_and_vanish(url, question.body(words))
        return ""
    request = urllib.request.Request(  # noqa: S310 - our own loopback address
        f"{url}/chat/completions",
        data=question.body(words),
        headers={"Content-Type": "application/json"},
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=PATIENCE_S) as answer:
            said = answer.read(1 if question.leave else None)
            if question.echo:
                content = json.loads(said)["choices"][0]["message"]["content"]
                assert json.loads(content) == {"line": words}, "it says something else"
            return str(answer.headers["x-curtilage-route"])
    except urllib.error.HTTPError as refusal:
        refusal.close()
        return ""


def send_and_vanish(url: str, body: bytes) -> None:
    """Send a question, and break the connection off before its answer begins."""
    address = urlsplit(url)
    head = (
        f"POST {address.path}/chat/completions HTTP/1.1\r\nHost: {address.netloc}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection((address.hostname, address.port)) as connection:
        connection.sendall(head.encode() + body)
        sleep(0.2)
        # Without a goodbye: the other side learns of it by a reset (SO_LINGER).
        now = struct.pack("ii", 1, 0)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, now)


def new_words() -> str:
    return " ".join(secrets.SystemRandom().sample(WORDS, 6))


def forms(words: str) -> Forms:
    """Return their forms, with the byte model's tokens."""
    return forms_of(
        words, lambda code: SPACE if code == ord(" ") else code + FIRST_BYTE
    )


def parties(stack: Stack) -> dict[str, int]:
    """Return every process that may see a question, the relay, and what signs evidence.

    The emulator stands where the evidence process would.
    """
    names = ("enclave", "relay", "client", "emulator")
    named = {name: stack.running[name].pid for name in names}
    return named | {
        f"{kind} of the {name}, {pid}": pid
        for name in ("enclave", "client")
        for pid, kind in children(named[name])
    }


def children(above: int) -> Iterator[tuple[int, str]]:
    """Yield each process below one, and what it is."""
    # One that is there for a single request may end meanwhile.
    with suppress(FileNotFoundError, ProcessLookupError):
        for task in Path(f"/proc/{above}/task").iterdir():
            for child in (task / "children").read_text("utf-8").split():
                command = Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
                kinds = {MODULE.encode(): "engine", STARTER.encode(): "starter"}
                found = [kinds[each] for each in command if each in kinds]
                yield int(child), found[0] if found else "detectors"
                yield from children(int(child))


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda each: each.name)
def test_nothing_is_left_of_a_question(stack: Stack, question: Question) -> None:
    words = new_words()
    ask(stack.client_url, question, words)
    assert left_of(stack, words, PATIENCE_S) == {}


def left_of(
    stack: Stack, words: str, patience_s: float, *, everything: bool = False
) -> dict[str, dict[str, int]]:
    """Look until nothing is left, or for so long; return what is, by party and form.

    How long that took is printed (``pytest -rP``).
    """
    began = monotonic()
    looked_for = forms(words)
    # The answer's frames continue after its end, and so does its exchange.
    while True:
        left: dict[str, dict[str, int]] = {}
        for name, pid in parties(stack).items():
            # A process for one request may have ended since.
            with suppress(FileNotFoundError, ProcessLookupError):
                found = hits(pid, looked_for, everything=everything)
                left |= {name: found} if found else {}
        took = monotonic() - began
        if not left or took >= patience_s:
            sys.stdout.write(f"{took:.1f} s after the answer: left in {len(left)}\n")
            return left
        sleep(0.1)


MARK: Final = 'the old "lantern" by the wooden fence'
"""Every question of one run has it, so one scan looks for all of them; in JSON it is
escaped. No detector finds anything in it, so the enclave gets it unchanged."""
MANY: Final = 60
"""Questions: ten ways, three sizes, two places where they are answered."""
TOOL: Final = {
    "type": "function",
    "function": {
        "name": "look_up",
        "parameters": {"type": "object", "properties": {"day": {"type": "integer"}}},
    },
}
WAYS: Final = {
    "whole": Question(name=""),
    "streamed": Question(name="", stream=True),
    "one token": Question(name="", max_tokens=1),
    "cancelled": Question(name="", stream=True, max_tokens=1500, leave=True),
    "vanished": Question(name="", max_tokens=1500, vanish=True),
    "an error": Question(name="", max_tokens=2040),
    "a tool's call": Question(
        name="", max_tokens=48, more=(("tools", [TOOL]), ("tool_choice", "required"))
    ),
    "two answers": Question(name="", more=(("n", 2),)),
    "two answers, streamed": Question(name="", stream=True, more=(("n", 2),)),
    "the words again": Question(name="", max_tokens=128, echo=True),
}
ANSWERED: Final = set(WAYS) - {"vanished", "an error"}
SIZES: Final = {"short": (0, 24), "middle": (6, 48), "long": (20, 96)}
"""Sentences behind a question; tokens of an answer, where its way sets no number."""
AT_ONCE: Final = 8
"""More than the enclave's engine answers at a time."""


def test_nothing_is_left_of_many_questions_at_once(stack: Stack) -> None:
    ask_many(stack)
    assert left_of(stack, MARK, 3 * PATIENCE_S, everything=True) == {}


def test_nothing_is_left_by_processes_for_one_request_each(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with running(
        tmp_path_factory.mktemp("apart"),
        environment=ALLOCATOR,
        enclave_extra='isolation = "process"\n',
    ) as stack:
        ask_many(stack)
        assert left_of(stack, MARK, 3 * PATIENCE_S, everything=True) == {}
        engines = [name for name in parties(stack) if name.startswith(ENCLAVES_ENGINE)]
        assert len(engines) == 1, "a process outlived its request"


def ask_many(stack: Stack) -> None:
    """Ask ``MANY`` questions in every way, and see that they were answered."""
    asked = {
        (way, size, home): replace(
            question,
            padding=padding,
            home=home,
            max_tokens=tokens if question.max_tokens == USUAL else question.max_tokens,
        )
        for (way, question), (size, (padding, tokens)), home in product(
            WAYS.items(), SIZES.items(), (False, True)
        )
    }
    assert len(asked) == MANY
    words = [f"{MARK} and {number} stones" for number in range(MANY)]
    with ThreadPoolExecutor(AT_ONCE) as asking:
        routes = list(
            asking.map(ask, [stack.client_url] * len(asked), asked.values(), words)
        )
    by_kind = dict(zip(asked, routes, strict=True))
    answered = [(at, route) for at, route in by_kind.items() if at[0] in ANSWERED]
    assert all(route for _, route in answered)
    assert all(route == "local" for (_, _, home), route in answered if home)
    # A busy enclave may have refused some, which were answered locally then.
    away = [route for (_, _, home), route in answered if not home]
    assert away.count("enclave") > len(away) // 2


def test_processes_that_forget_nothing_are_seen(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    # Or the scans would prove nothing.
    switch = {"PYTHONPATH": str(WIPING_OFF)}
    with running(tmp_path_factory.mktemp("kept"), environment=switch) as stack:
        for home in (False, True):
            ask(stack.client_url, Question(name="", home=home), MARK)
        left = left_of(stack, MARK, 5.0, everything=True)
    seen = {name.partition(",")[0]: set(found) for name, found in left.items()}
    assert seen["enclave"]
    for engine in (ENCLAVES_ENGINE, "engine of the client"):
        assert "tokens of 32 bits" in seen[engine]


def test_memory_of_engines_and_detectors_reaches_no_disk(stack: Stack) -> None:
    swaps = Path("/proc/swaps").read_text("utf-8").splitlines()[1:]
    # The starter of engines holds no text.
    confined = {
        name: pid
        for name, pid in parties(stack).items()
        if " of the " in name and not name.startswith("starter")
    }
    assert {name.partition(" of")[0] for name in confined} == {"engine", "detectors"}
    for name, pid in confined.items():
        status = Path(f"/proc/{pid}/status").read_text("utf-8")
        fields = dict(line.split(":", 1) for line in status.splitlines())
        assert fields["VmLck"].split() != ["0", "kB"] or not swaps, name
        limits = Path(f"/proc/{pid}/limits").read_text("utf-8")
        assert re.search(r"^Max core file size +0 +0 ", limits, re.MULTILINE), name


SEEN = [
    ("engine of the enclave", Question(name="", max_tokens=1500), "tokens of 32 bits"),
    (
        "engine of the client",
        Question(name="", max_tokens=1500, home=True),
        "tokens of 32 bits",
    ),
    ("detectors", Question(name="", home=True, padding=600), "UTF-8"),
]


@pytest.mark.parametrize(("party", "question", "form"), SEEN, ids=str)
def test_a_question_is_seen_while_it_is_answered(
    stack: Stack, party: str, question: Question, form: str
) -> None:
    seen = set[str]()
    with ThreadPoolExecutor(1) as asking:
        # It is there only for a moment, so all processes are paused during the scan; if
        # the scan came too late, the question is sent again.
        for _ in range(20):
            words = new_words()
            looked_for = forms(words)
            answer = asking.submit(ask, stack.client_url, question, words)
            while not answer.done() and form not in seen:
                named = parties(stack).items()
                asked = [pid for name, pid in named if name.startswith(party)]
                with stopped(asked):
                    for pid in asked:
                        with suppress(FileNotFoundError, ProcessLookupError):
                            seen |= hits(pid, looked_for).keys()
                sleep(0.01)
            if form in seen:
                return
    assert form in seen


@contextmanager
def stopped(processes: list[int]) -> Generator[None]:
    send(signal.SIGSTOP, processes)
    try:
        yield
    finally:
        send(signal.SIGCONT, processes)


def send(number: signal.Signals, processes: list[int]) -> None:
    for pid in processes:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
