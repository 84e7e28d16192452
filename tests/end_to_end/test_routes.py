"""The client as a process: the answers that an OpenAI client gets on each route."""

import json
import os
import stat
import subprocess
import sys
from base64 import b64decode
from collections.abc import Generator
from pathlib import Path

import openai
import pytest
from end_to_end.conftest import make_stack
from openai.types.chat import ChatCompletionUserMessageParam

from curtilage_dev.processes import Processes
from curtilage_dev.stack import Stack

HARMLESS = "What is the difference between a virus and a bacterium?"
REGULATED = "My card is 4111 1111 1111 1111, is that a valid number?"
ROUTES = [(HARMLESS, "enclave", ""), (REGULATED, "local", "financial.pan")]


@pytest.fixture(scope="module")
def whole(
    tmp_path_factory: pytest.TempPathFactory, model: tuple[str, str]
) -> Generator[Stack]:
    folder = tmp_path_factory.mktemp("whole")
    with Processes(folder) as processes:
        running = make_stack(folder, processes, model)
        running.record = True
        running.start_all()
        yield running


@pytest.fixture(scope="module")
def client(whole: Stack) -> Generator[openai.OpenAI]:
    with openai.OpenAI(base_url=whole.client_url, api_key="unused") as made:
        yield made


def user(text: str) -> list[ChatCompletionUserMessageParam]:
    return [{"role": "user", "content": text}]


@pytest.mark.parametrize(("text", "route", "found"), ROUTES)
def test_whole(client: openai.OpenAI, text: str, route: str, found: str) -> None:
    raw = client.chat.completions.with_raw_response.create(
        model="curtilage", messages=user(text), max_tokens=16, temperature=0
    )
    assert raw.headers["x-curtilage-route"] == route
    assert found in raw.headers["x-curtilage-class"]
    assert raw.headers["x-curtilage-policy"].startswith("sha256:")
    answer = raw.parse()
    assert answer.choices[0].finish_reason in {"stop", "length"}
    assert answer.usage is not None
    assert answer.usage.prompt_tokens > 0


@pytest.mark.parametrize(("text", "route", "found"), ROUTES)
def test_streamed(client: openai.OpenAI, text: str, route: str, found: str) -> None:
    # With a log-probability each token is an event of its own. Without one, the tokens
    # that wait for the same frame share one: on a busy machine that may be all sixteen.
    stream = client.chat.completions.create(
        model="curtilage",
        messages=user(text),
        max_tokens=16,
        temperature=0,
        logprobs=True,
        stream=True,
    )
    assert stream.response.headers["x-curtilage-route"] == route
    assert found in stream.response.headers["x-curtilage-class"]
    events = list(stream)
    assert events[-1].choices[0].finish_reason in {"stop", "length"}
    pieces = [event.choices[0].delta.content for event in events]
    assert len([piece for piece in pieces if piece]) > 1, "token by token"


def test_the_same_seed_gives_the_same_answer_on_both_sides(
    client: openai.OpenAI,
) -> None:
    def ask() -> str | None:
        answer = client.chat.completions.create(
            model="curtilage",
            messages=user(HARMLESS),
            max_tokens=16,
            temperature=0.9,
            seed=7,
        )
        return answer.choices[0].message.content

    assert ask() == ask()


def test_logprobs_come_from_the_enclave_too(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model="curtilage", messages=user(HARMLESS), max_tokens=8, logprobs=True
    )
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content
    assert all(entry.logprob <= 0 for entry in logprobs.content)


@pytest.mark.skipif(not Path("/proc/self/limits").exists(), reason="needs /proc")
def test_no_party_leaves_a_core_file(whole: Stack) -> None:
    for name in ("client", "relay", "enclave"):
        limits = Path(f"/proc/{whole.running[name].pid}/limits").read_text("utf-8")
        (line,) = [row for row in limits.splitlines() if row.startswith("Max core")]
        assert line.split()[4:6] == ["0", "0"], name


def test_the_relay_saw_no_more_than_the_questions_that_left(whole: Stack) -> None:
    lines = map(json.loads, whole.relay_view.read_text("utf-8").splitlines())
    posts = [seen for seen in lines if seen["method"] == "POST"]
    assert posts
    for seen in posts:
        passed = b64decode(seen["request_body"]) + b64decode(seen["response_body"])
        assert passed
        # So long that none occurs in a time or in a seal by chance.
        for word in ("4111 1111", "bacterium"):
            assert word not in json.dumps(seen)
            assert word.encode() not in passed


def test_the_token_of_the_endpoint_is_kept_for_its_owner(whole: Stack) -> None:
    (ready,) = map(json.loads, (whole.folder / "client.out").read_text().splitlines())
    kept = Path(ready["token_file"])
    assert kept.is_relative_to(whole.state)
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    token = kept.read_text().strip()
    said = (whole.folder / "client.err").read_text()
    assert str(kept) in said
    assert token not in said
    assert token not in json.dumps(ready)


@pytest.mark.skipif(
    os.geteuid() != 0, reason="SKIPPED LOUDLY: only root can try another account"
)
def test_the_endpoint_answers_its_own_account_alone(whole: Stack) -> None:
    port = whole.client_url.rpartition(":")[2].partition("/")[0]
    line = (
        "import encodings.idna, http.client, os;"
        "os.setgroups([]); os.setgid(4321); os.setuid(4321);"
        f"c = http.client.HTTPConnection('127.0.0.1', {port});"
        "c.request('GET', '/v1/models'); print(c.getresponse().status)"
    )
    asked = [sys.executable, "-c", line]
    assert subprocess.check_output(asked, text=True).strip() == "401"
