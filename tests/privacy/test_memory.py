"""After an answer no process has any of it in memory.

Real processes with the allocator's settings that the image has, looked at from
outside. Each of these tests first sees its text there, while it is being answered.
"""

import json
import os
import secrets
import signal
import sys
import urllib.error
import urllib.request
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import Final

import pytest
from deploy.image.rootfs import ENVIRONMENT

from curtilage.inference.process.starter import STARTER
from curtilage.inference.process.starting import MODULE
from curtilage.policy.document.load import profile_text
from curtilage.wire.shaping import TransportParameters
from curtilage_dev.processes import Processes
from curtilage_dev.stack import Stack
from support.byte_model import FIRST_BYTE, make_byte_model, sha256_of
from support.memory_scan import Forms, forms_of, hits, is_readable

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
HOME: Final = " My card is 4111 1111 1111 1111."
"""With this a question is answered locally."""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Generator[Stack]:
    folder = tmp_path_factory.mktemp("memory")
    model = make_byte_model(folder / "byte.gguf")
    usual, patient = "\n  deadline_ms: 250\n", "\n  deadline_ms: 30000\n"
    with Processes(folder) as processes:
        running = Stack(
            folder=folder,
            processes=processes,
            model=str(model),
            model_sha256=sha256_of(model),
            relay_extra="[limits]\ncache_s = 1\n",
            transport=QUICK,
            profile=profile_text("default").replace(usual, patient),
            environment=ALLOCATOR,
        )
        running.start_all()
        if not is_readable(running.running["enclave"].pid):
            pytest.skip("SKIPPED LOUDLY: this system hides /proc/PID/mem")
        yield running


@dataclass(frozen=True, kw_only=True)
class Question:
    """A question of unused words, and how it is sent."""

    name: str
    home: bool = False
    stream: bool = False
    max_tokens: int = 24
    leave: bool = False
    padding: int = 0

    def body(self, words: str) -> bytes:
        text = f"Write one line with {words}, please.{HOME if self.home else ''}"
        turn = {"role": "user", "content": text + " And so on." * self.padding}
        settings = {"max_tokens": self.max_tokens, "stream": self.stream}
        return json.dumps({"messages": [turn], "temperature": 0, **settings}).encode()


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


def ask(url: str, question: Question, words: str) -> None:
    """Send a question, and read the answer to its end, or only its beginning."""
    request = urllib.request.Request(  # noqa: S310 - our own loopback address
        f"{url}/chat/completions",
        data=question.body(words),
        headers={"Content-Type": "application/json"},
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=PATIENCE_S) as answer:
            answer.read(1 if question.leave else None)
    except urllib.error.HTTPError as refusal:
        refusal.close()


def new_words() -> tuple[str, Forms]:
    words = " ".join(secrets.SystemRandom().sample(WORDS, 6))
    return words, forms_of(
        words, lambda code: SPACE if code == ord(" ") else code + FIRST_BYTE
    )


def parties(stack: Stack) -> dict[str, int]:
    """Return every process that may see a question, and the relay."""
    named = {name: stack.running[name].pid for name in ("enclave", "relay", "client")}
    return named | {
        f"{kind} of the {name}, {pid}": pid
        for name in ("enclave", "client")
        for pid, kind in children(named[name])
    }


def children(above: int) -> Iterator[tuple[int, str]]:
    """Yield each process below one, and what it is."""
    for task in Path(f"/proc/{above}/task").iterdir():
        for child in (task / "children").read_text("utf-8").split():
            command = Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
            kinds = {MODULE.encode(): "engine", STARTER.encode(): "starter"}
            kind = next((kinds[each] for each in command if each in kinds), "detectors")
            yield int(child), kind
            yield from children(int(child))


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda each: each.name)
def test_nothing_is_left_of_a_question(stack: Stack, question: Question) -> None:
    words, forms = new_words()
    ask(stack.client_url, question, words)
    left = {"": {"": 1}}
    ends = monotonic() + PATIENCE_S
    # The answer's frames continue after its end, and so does its exchange.
    while left and monotonic() < ends:
        found = {name: hits(pid, forms) for name, pid in parties(stack).items()}
        left = {name: each for name, each in found.items() if each}
        sleep(0.1)
    assert left == {}


SEEN = [
    ("engine of the enclave", Question(name="", max_tokens=1500), "tokens of 32 bits"),
    (
        "engine of the client",
        Question(name="", max_tokens=1500, home=True),
        "tokens of 32 bits",
    ),
    ("detectors", Question(name="", home=True, padding=1200), "UTF-8"),
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
            words, forms = new_words()
            answer = asking.submit(ask, stack.client_url, question, words)
            while not answer.done() and form not in seen:
                named = parties(stack).items()
                asked = [pid for name, pid in named if name.startswith(party)]
                with stopped(asked):
                    for pid in asked:
                        seen |= hits(pid, forms).keys()
                sleep(0.01)
            if form in seen:
                return
    assert form in seen


@contextmanager
def stopped(processes: list[int]) -> Generator[None]:
    for pid in processes:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in processes:
            os.kill(pid, signal.SIGCONT)
