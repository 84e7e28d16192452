import asyncio
import hashlib
import importlib.util
import os
import random
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import cast

import psutil
import pytest
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from typing_extensions import override

from curtilage.client import telemetry
from curtilage.client.chat.query import Message, Query, Settings
from curtilage.client.detection import inspection as module
from curtilage.client.detection import limits
from curtilage.client.detection.inspection import Inspector, prepare
from curtilage.client.detection.limits import CHARS_PER_TOKEN, time_limit
from curtilage.client.detection.spans import failure
from curtilage.client.detection.worker import TimeLimit
from curtilage.client.errors import BusyError, ConfigError, DetectorsError
from curtilage.client.system.fair_queue import MAX_WAITING
from curtilage.policy.decision.decide import Inspection, decide
from curtilage.policy.decision.findings import Where
from curtilage.policy.decision.routes import Route
from curtilage.policy.document.load import (
    PROFILES,
    load_policy,
    load_profile,
    profile_text,
)
from curtilage.policy.document.model import Limits, Policy
from curtilage.policy.explain.decision import explain
from support.inspections import inspection_of

CANARY = "zq7canary4711"
GENEROUS = "deadline_ms: 20000"
LIGHT = """
import sys, time, re, os
from curtilage.client.detection.detectors import __main__ as worker
from curtilage.sandbox.wall import compute_only
from curtilage.client.detection.detectors.scanner import EVERY_FORM
from curtilage.client.detection.detectors.all import own_equipment
from curtilage.client.detection.detectors.scanner import Scanner
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
worker.serve(
    requests,
    replies,
    Scanner((*own_equipment(), (Faulty(), EVERY_FORM))),
    compute_only(),
)
"""


def patient_policy(deadline: str = GENEROUS, wall_ms: int = 60_000) -> Policy:
    """Return the shipped profile with time enough for a busy test machine."""
    text = profile_text("default").replace("deadline_ms: 250", deadline, 1)
    wall = f"deadline_wall_ms: {wall_ms}"
    return load_policy(text.replace("deadline_wall_ms: 30000", wall, 1))


def command(fault: str = "pass") -> tuple[str, ...]:
    return (sys.executable, "-c", LIGHT.format(fault=fault))


def ask(text: str) -> Query:
    return Query(messages=(Message(role="user", content=text),))


def classes(inspection: Inspection) -> set[str]:
    return {finding.data_class for finding in inspection.findings}


@pytest.fixture(scope="module")
def inspector() -> Iterator[Inspector]:
    if importlib.util.find_spec("presidio_analyzer") is None:
        pytest.skip("SKIPPED LOUDLY: needs the extra pii")
    started = Inspector.start(patient_policy())
    yield started
    started.close()


def started(fault: str, deadline: str = GENEROUS, wall_ms: int = 60_000) -> Inspector:
    policy = patient_policy(deadline, wall_ms)
    return Inspector.start(policy, command=command(fault))


@pytest.mark.parametrize(
    "text",
    [
        "What is HIV?",
        "Explain the difference between HTTP and HTTPS",
        "Draft a polite email asking a supplier for a quote in March",
        "How does compound interest work?",
    ],
)
def test_harmless_questions_may_leave(inspector: Inspector, text: str) -> None:
    query = ask(text)
    decision = decide(patient_policy().rulebook, inspector.inspect(query))
    assert decision.route is Route.ENCLAVE
    assert decision.allowed is not None
    assert decision.allowed.payload_digest == query.payload_digest()


@pytest.mark.parametrize(
    "text",
    [
        "my ssn is 536-22-1234",
        "patient John Smith has a cold",
        "my password is hunter2",
        "I was diagnosed with HIV last week",
        "write to bob@corp.internal",
        "4111 1111 1111 1111",
        "Hvordan har mine penge det i banken",
    ],
)
def test_regulated_texts_stay(inspector: Inspector, text: str) -> None:
    decision = decide(patient_policy().rulebook, inspector.inspect(ask(text)))
    assert decision.route is not Route.ENCLAVE
    assert decision.allowed is None


@pytest.mark.parametrize(
    "query",
    [
        Query(messages=(Message(role="system", content="ssn 536-22-1234"),)),
        Query(messages=(Message(role="user", content="hi", name="bob@corp.com"),)),
        Query(
            messages=(Message(role="user", content="hi"),),
            settings=Settings(stop=("bob@corp.com",)),
        ),
        Query(
            messages=(
                Message(role="user", content="bob@corp.com"),
                Message(role="assistant", content="ok"),
                Message(role="user", content="hi"),
            )
        ),
    ],
    ids=["system", "name", "stop", "history"],
)
def test_every_leaf_is_inspected(inspector: Inspector, query: Query) -> None:
    found = classes(inspector.inspect(query))
    assert found & {"identifier.direct.email", "identifier.direct.gov_id.us_ssn"}


async def test_async_twin_agrees(inspector: Inspector) -> None:
    query = ask("ssn 536-22-1234")
    assert await inspector.ainspect(query) == inspector.inspect(query)


def test_many_agree_with_one(inspector: Inspector) -> None:
    queries = [ask("hello"), ask("ssn 536-22-1234"), ask("\ud800")]
    assert list(inspector.inspect_many(queries)) == [
        inspector.inspect(query) for query in queries
    ]


def test_threads_share_an_inspector(inspector: Inspector) -> None:
    texts = ["hello there", "ssn 536-22-1234"] * 4
    expected = [inspector.inspect(ask(text)) for text in texts]
    got: dict[int, Inspection] = {}

    def run(at: int) -> None:
        got[at] = inspector.inspect(ask(texts[at]))

    threads = [threading.Thread(target=run, args=(at,)) for at in range(len(texts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [got[at] for at in range(len(texts))] == expected


class Counting(Inspector):
    """Looks at nothing; each look lasts until the test lets it end."""

    def __init__(self) -> None:
        super().__init__(load_profile("default"), command=("false",))
        self.seen: list[str] = []
        self.go = threading.Semaphore(0)
        self.begun = threading.Semaphore(0)

    @override
    def inspect(self, query: Query) -> Inspection:
        self.seen.append(query.messages[0].content[:5])
        self.begun.release()
        self.go.acquire()
        return inspection_of(findings=(), payload_digest=bytes(32), messages=1)


async def test_long_texts_do_not_keep_a_short_one_waiting() -> None:
    inspector = Counting()
    looks = [
        asyncio.create_task(inspector.ainspect(ask(f"long{number} " * 1000)))
        for number in range(8)
    ]
    await asyncio.sleep(0)
    looks.append(asyncio.create_task(inspector.ainspect(ask("short"))))
    await asyncio.sleep(0)
    inspector.go.release(9)
    await asyncio.gather(*looks)
    assert inspector.seen[:2] == ["long0", "short"]
    assert len(inspector.seen) == 9


async def test_who_leaves_does_not_let_the_next_in_early() -> None:
    inspector = Counting()
    leaves = asyncio.create_task(inspector.ainspect(ask("first")))
    await asyncio.to_thread(inspector.begun.acquire)
    leaves.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaves
    stays = asyncio.create_task(inspector.ainspect(ask("later")))
    early = await asyncio.to_thread(inspector.begun.acquire, timeout=0.2)
    inspector.go.release(2)  # before anything is judged: a thread waits for it
    await stays
    assert not early
    assert inspector.seen == ["first", "later"]


async def test_beyond_all_bounds_some_may_ask_later() -> None:
    inspector = Counting()
    crowd = [
        asyncio.create_task(inspector.ainspect(ask("hello")))
        for _ in range(MAX_WAITING + 2)
    ]
    await asyncio.sleep(0)
    inspector.go.release(len(crowd))
    answers = await asyncio.gather(*crowd, return_exceptions=True)
    refused = [each for each in answers if isinstance(each, BaseException)]
    assert [type(each) for each in refused] == [BusyError]


async def test_many_small_requests_are_not_refused() -> None:
    inspector = Counting()
    crowd = [asyncio.create_task(inspector.ainspect(ask("hi"))) for _ in range(100)]
    longer = asyncio.create_task(inspector.ainspect(ask("a longer text " * 20)))
    await asyncio.sleep(0)
    again = [asyncio.create_task(inspector.ainspect(ask("hi"))) for _ in range(100)]
    inspector.go.release(1 + len(crowd) + len(again))
    await longer
    await asyncio.gather(*crowd, *again)


def test_worker_has_no_socket(inspector: Inspector) -> None:
    assert inspector.worker_pid is not None
    assert psutil.Process(inspector.worker_pid).net_connections() == []


SENTENCES = (
    "The river rises slowly in spring when the snow on the hills begins to melt.",
    "A good bridge carries its load without anyone noticing it.",
    "The engine compares two lists and keeps the shorter one.",
    "Bread needs time, warmth and patience more than any secret.",
    "Each chapter begins with a question and ends with another.",
    "Most of the software was written before the standard was published.",
    "Wind turbines turn slowly above the flat land near the coast.",
)


def prose(chars: int) -> list[str]:
    """Return sentences of harmless prose, in an order that does not repeat."""
    order = random.Random(11)  # noqa: S311 - not a secret
    sentences: list[str] = []
    while sum(map(len, sentences)) + len(sentences) < chars:
        sentences.append(order.choice(SENTENCES))
    return sentences


def test_a_long_harmless_text_may_leave(inspector: Inspector) -> None:
    query = ask(" ".join(prose(70_000)))
    assert len(query.messages[0].content) > 70_000 - 100
    inspection = inspector.inspect(query)
    assert inspection.findings == ()
    assert decide(patient_policy().rulebook, inspection).route is Route.ENCLAVE


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0], ids=["start", "middle", "end"])
def test_personal_data_anywhere_in_a_long_text_is_found(
    inspector: Inspector, share: float
) -> None:
    sentences = prose(25_000)
    planted = "Please call Mrs Margaret Holloway at margaret.holloway@example.org."
    sentences.insert(round(share * len(sentences)), planted)
    found = inspector.inspect(ask(" ".join(sentences))).findings
    place = " ".join(sentences).index(planted)
    at = {each.data_class for each in found if 0 <= each.start - place <= len(planted)}
    assert at >= {"identifier.direct.person", "identifier.direct.email"}


def test_every_shipped_profile_examines_texts_of_200_000_characters() -> None:
    for name in PROFILES:
        limits = load_profile(name).limits
        assert limits.max_chars >= 200_000
        assert time_limit(limits, 200_000).wall_s >= 100


# --- before any detector ------------------------------------------------------

LIMITS = Limits(max_chars=100, deadline_ms=50, deadline_ms_per_1000_chars=50)


def prepared_classes(query: Query) -> set[str]:
    return {finding.data_class for finding in prepare(query, LIMITS).findings}


def test_parts_that_are_no_text_are_attachments() -> None:
    place = Where(message=0, role="user", json_path="content[1]")
    query = replace(ask("hi"), opaque=(place,))
    (finding,) = prepare(query, LIMITS).findings
    assert finding.data_class == "uncertain.attachment"
    assert finding.where == place


def test_a_text_over_the_limit_is_oversize_and_not_scanned() -> None:
    prepared = prepare(ask("x" * 101), LIMITS)
    assert {each.data_class for each in prepared.findings} == {"uncertain.oversize"}
    assert prepared.leaves == ()
    assert prepare(ask("x" * 100), LIMITS).findings == ()


# As dense as texts are that people send: the densest of the shared sets, a file
# of patterns, has 2.1 characters to a word or sign.
REAL = {
    "prose": "It was, all in all, a quiet day; nobody called. ",
    "code": "for (int i = 0; i < n; i++) { a[i] = b[i + 1]; }\n",
    "table": "| 12.5 | 3,400 | -17.25 | n/a | 2019 |\n|------|-------|\n",
    "log": '127.0.0.1 - - [10/Oct/2020:13:55:36] "GET /a.gif" 200 2326\n',
    "json": '{"id": 17, "name": "left", "at": [1.5, 22.75]},\n',
    "pattern": r"(?i)\b(?:secret|token|password)[\w.-]{0,20}=([a-z0-9]{32})" + "\n",
    "base64": "TWFuIGlzIGRpc3Rpbmd1aXNoZWQsIG5vdCBvbmx5IGJ5IGhpcyByZWFzb24\n",
    "chinese": "\u4eca\u5929\u5929\u6c14\u5f88\u597d\uff0c",
}


@pytest.mark.parametrize("line", REAL.values(), ids=REAL.keys())
def test_a_real_text_of_the_longest_is_examined(line: str) -> None:
    limits = Limits()
    text = (line * limits.max_chars)[: limits.max_chars]
    prepared = prepare(ask(text), limits)
    assert prepared.findings == ()
    assert prepared.texts == (text,)
    assert prepared.limit == time_limit(limits, limits.max_chars)


@pytest.mark.parametrize("pair", ["1/", "a.", "//", "\u4e2d\uff0c"])
def test_a_text_of_single_signs_weighs_more(pair: str) -> None:
    limits = Limits()
    fits = int(limits.max_chars / CHARS_PER_TOKEN / len(pair))
    assert prepare(ask(pair * fits), limits).findings == ()
    prepared = prepare(ask(pair * (fits + 1)), limits)
    assert {each.data_class for each in prepared.findings} == {"uncertain.oversize"}
    assert prepared.leaves == ()


def test_the_weight_of_a_conversation_counts_all_its_texts() -> None:
    limits = Limits()
    half = "1/" * 5000
    assert prepare(ask(half), limits).findings == ()
    (finding,) = prepare(say(half, half[1:]), limits).findings
    assert finding.data_class == "uncertain.oversize"


def test_too_many_messages_are_oversize(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_LEAVES", 2)
    many = Query(messages=(Message(role="user", content="x"),) * 3)
    assert prepared_classes(many) == {"uncertain.oversize"}


def test_a_lone_surrogate_is_undecodable() -> None:
    assert prepared_classes(ask("\udc80")) == {"uncertain.undecodable"}


@pytest.mark.parametrize(
    ("weight", "seconds"), [(0, 0.05), (1, 0.1), (1000, 0.1), (2500, 0.2)]
)
def test_deadline_grows_with_weight(weight: int, seconds: float) -> None:
    assert time_limit(LIMITS, weight).processor_s == pytest.approx(seconds)


def test_the_clock_has_a_limit_of_its_own() -> None:
    assert time_limit(LIMITS, 2500).wall_s == 30
    assert time_limit(Limits(deadline_wall_ms=1500), 2500).wall_s == 1.5
    # A text that is three times as long as usual ones has three times as long.
    assert time_limit(Limits(), 60_000).wall_s == 30
    assert time_limit(Limits(), 180_000).wall_s == 90


def test_single_signs_have_the_time_that_they_take() -> None:
    longer = Limits(max_chars=4000, deadline_ms=50, deadline_ms_per_1000_chars=50)
    assert prepare(ask("x" * 2000), longer).limit.processor_s == pytest.approx(0.15)
    assert prepare(ask("1/" * 1000), longer).limit.processor_s == pytest.approx(0.2)


# --- a worker that fails ------------------------------------------------------

FAULTS = {
    "raises": ("raise ValueError(reading.text)", "uncertain.error"),
    "garbage": ("return [reading.text]", "uncertain.error"),
    "hangs": (r're.match(r"(a+)+$", "a" * 64 + "b")', "uncertain.timeout"),
    "sleeps": ("time.sleep(60)", "uncertain.waited"),
    "dies": ("os._exit(1)", "uncertain.error"),
    "writes garbage": ("replies.write(b'x' * 99); replies.flush()", "uncertain.error"),
    "answers nothing": (
        "send({'task': 0, 'found': []}); time.sleep(60)",
        "uncertain.error",
    ),
    "answers a text": (
        "send({'task': 0, 'found': [[reading.text]]}); time.sleep(60)",
        "uncertain.error",
    ),
    "exits": ("raise SystemExit", "uncertain.error"),
}


@pytest.mark.parametrize(("fault", "expected"), FAULTS.values(), ids=FAULTS)
def test_a_faulty_worker_keeps_the_query_home(fault: str, expected: str) -> None:
    inspector = started(fault, "deadline_ms: 1000", 10_000)
    try:
        inspection = inspector.inspect(ask(f"FAULT {CANARY}"))
        assert expected in classes(inspection)
        assert decide(patient_policy().rulebook, inspection).route is Route.LOCAL
        assert CANARY not in repr(inspection)
    finally:
        inspector.close()


@pytest.mark.parametrize(
    ("fault", "cause"), [(FAULTS["hangs"][0], "timeout"), ("time.sleep(600)", "waited")]
)
def test_a_query_that_waited_is_counted_apart_and_its_worker_ended(
    fault: str, cause: str
) -> None:
    reader = InMemoryMetricReader()
    telemetry.use(telemetry.Telemetry(readers=[reader]))
    inspector = started(fault, "deadline_ms: 1000", 10_000)
    try:
        first = inspector.worker_pid
        inspection = inspector.inspect(ask("FAULT"))
        assert classes(inspection) == {f"uncertain.{cause}"}
        policy = patient_policy()
        decision = decide(policy.rulebook, inspection)
        assert f"uncertain.{cause}" in explain(policy, decision, inspection)
        assert inspector.wait_ready(120)
        assert inspector.worker_pid != first
    finally:
        inspector.close()
        telemetry.use(None)
    data = reader.get_metrics_data()
    assert data is not None
    counted = {
        metric.name: [dict(point.attributes or {}) for point in metric.data.data_points]
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }
    for event in ("unfinished", "detector_restart"):
        assert counted[f"curtilage.client.{event}"] == [{"cause": cause}]


def test_a_hung_worker_is_replaced() -> None:
    inspector = started(FAULTS["hangs"][0], "deadline_ms: 1500")
    try:
        first = inspector.worker_pid
        inspector.inspect(ask("FAULT"))
        assert not inspector.condition.ready
        meanwhile = inspector.inspect(ask("hello"))
        assert classes(meanwhile) == {"uncertain.error"}
        assert inspector.wait_ready(60)
        assert inspector.worker_pid != first
        assert classes(inspector.inspect(ask("hello"))) == set()
    finally:
        inspector.close()
    assert first is not None
    assert not psutil.pid_exists(first)


def test_a_slow_worker_is_kept() -> None:
    works = (
        "began = time.process_time(); "
        "any(time.process_time() - began > 0.8 for _ in iter(int, 1))"
    )
    inspector = started(works, "deadline_ms: 300")
    try:
        first = inspector.worker_pid
        assert "uncertain.timeout" in classes(inspector.inspect(ask("FAULT")))
        assert inspector.wait_ready(60)
        assert inspector.worker_pid == first
        assert classes(inspector.inspect(ask("hello"))) <= {"uncertain.timeout"}
    finally:
        inspector.close()


def test_texts_of_single_signs_cost_no_worker() -> None:
    inspector = started("os._exit(1)")
    try:
        first = inspector.worker_pid
        for _ in range(2):
            found = classes(inspector.inspect(ask("FAULT" + "1/" * 124_997)))
            assert found == {"uncertain.oversize"}
            assert inspector.condition.ready
        assert inspector.worker_pid == first
        assert classes(inspector.inspect(ask("hello"))) == set()
    finally:
        inspector.close()


def test_a_killed_worker_is_replaced() -> None:
    inspector = started("pass")
    try:
        assert inspector.worker_pid is not None
        os.kill(inspector.worker_pid, signal.SIGKILL)
        assert classes(inspector.inspect(ask("hello"))) == {"uncertain.error"}
        assert inspector.wait_ready(60)
        assert classes(inspector.inspect(ask("hello"))) == set()
    finally:
        inspector.close()


def test_many_survive_a_hang_in_the_middle() -> None:
    inspector = started(FAULTS["hangs"][0], "deadline_ms: 1500")
    queries = [ask("hello"), ask("FAULT"), ask("a@b.example"), ask("hello")]
    try:
        found = [classes(each) for each in inspector.inspect_many(queries)]
    finally:
        inspector.close()
    assert found[0] == set()
    assert found[1] == {"uncertain.timeout"}
    assert "identifier.direct.email" in found[2]
    assert found[3] == set()


def test_of_those_looked_at_together_only_the_faulty_one_stays_for_it() -> None:
    inspector = started("os._exit(1)")
    queries = [ask(f"hello {number}") for number in range(70)]
    queries[40] = ask("FAULT")
    queries[41] = ask("a@b.example")
    try:
        found = [classes(each) for each in inspector.inspect_many(queries)]
    finally:
        inspector.close()
    assert found[40] == {"uncertain.error"}
    assert "identifier.direct.email" in found[41]
    assert [at for at, each in enumerate(found) if each] == [40, 41]


def test_together_is_as_alone(inspector: Inspector) -> None:
    queries = [
        ask("my ssn is 536-22-1234"),
        say("I was born in", "1950", "patient John Smith has a cold"),
        ask("What is HIV?"),
        ask("x" * 30_000),
        ask("I was diagnosed with HIV last week"),
    ]
    together = list(inspector.inspect_many(queries))
    assert together == [inspector.inspect(each) for each in queries]


def test_a_closed_inspector_keeps_everything_home() -> None:
    inspector = started("pass")
    inspector.close()
    inspector.close()
    assert classes(inspector.inspect(ask("hello"))) == {"uncertain.error"}
    assert not inspector.condition.ready


def test_start_fails_without_presidio(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise ConfigError("pip install 'curtilage[pii]'")

    monkeypatch.setattr(module, "require_presidio", refuse)
    with pytest.raises(ConfigError, match="pii"):
        Inspector.start(load_profile("default"))


def test_start_fails_when_the_worker_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "START", TimeLimit(processor_s=5.0, wall_s=60.0))
    with pytest.raises(DetectorsError, match="did not start"):
        Inspector.start(load_profile("default"), command=("false",))


def test_findings_name_places_never_texts(inspector: Inspector) -> None:
    inspection = inspector.inspect(ask(f"{CANARY}@corp.com my password is {CANARY}1"))
    assert len(inspection.findings) >= 2
    assert CANARY not in repr(inspection)
    assert CANARY not in repr(cast("object", inspector))


# --- what is split over the texts of one query --------------------------------


def say(*texts: str) -> Query:
    return Query(messages=tuple(Message(role="user", content=text) for text in texts))


def stop_at(*texts: str) -> Query:
    return replace(ask("hi"), settings=Settings(stop=texts))


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (say("41111", "11111", "111111"), "financial.pan"),
        (stop_at("4111", "1111", "1111", "1111"), "financial.pan"),
        (say("My password is", "hunter2"), "secret.password"),
        (say("My password is ", " hunter2"), "secret.password"),
        (say("my ssn:", "536", "22", "1234"), "identifier.direct.gov_id.us_ssn"),
        (say("536", "22", "1234"), "uncertain.number_run"),
    ],
    ids=["card", "stop", "password", "spaces", "labelled", "digits"],
)
def test_what_is_split_over_texts_stays(
    inspector: Inspector, query: Query, expected: str
) -> None:
    inspection = inspector.inspect(query)
    assert expected in classes(inspection)
    assert decide(patient_policy().rulebook, inspection).route is Route.LOCAL


def test_a_harmless_conversation_may_leave(inspector: Inspector) -> None:
    inspection = inspector.inspect(say("What is HIV?", "Thank you.", "And HTTP?"))
    assert decide(patient_policy().rulebook, inspection).route is Route.ENCLAVE


def test_a_finding_in_one_text_is_not_reported_again(inspector: Inspector) -> None:
    inspection = inspector.inspect(say("hello", "write to bob@corp.com"))
    places = [f.where.message for f in inspection.findings if "email" in f.data_class]
    assert places == [1]


def test_one_text_is_not_joined() -> None:
    assert len(prepare(ask("hi"), LIMITS).leaves) == 1
    assert len(prepare(say("hi", "ho"), LIMITS).places) == 3


def test_size_and_deadline_count_the_joined_text() -> None:
    assert prepared_classes(say("x" * 50, "x" * 50)) == {"uncertain.oversize"}
    assert prepared_classes(say("x" * 50, "x" * 49)) == set()
    longer = Limits(max_chars=4000, deadline_ms=50, deadline_ms_per_1000_chars=50)
    # 1,800 characters of their own, and 480 around the joint.
    assert prepare(
        say("x" * 900, "x" * 900), longer
    ).limit.processor_s == pytest.approx(0.2)


def test_a_missing_wall_is_reported_and_can_be_refused() -> None:
    bare = command("pass")[-1].replace(
        "compute_only(),", "__import__('curtilage.sandbox.wall').sandbox.wall.Wall(),"
    )
    inspector = Inspector.start(
        patient_policy(), command=(sys.executable, "-c", bare), spare=False
    )
    assert inspector.advice is not None
    assert "no wall " in inspector.advice
    inspector.close()
    text = profile_text("default").replace(
        "detectors: []", "detectors: {wall: required}", 1
    )
    with pytest.raises(DetectorsError, match=r"detectors: \{wall: required\}"):
        Inspector.start(load_policy(text), command=(sys.executable, "-c", bare))


def test_a_whole_wall_needs_no_words(inspector: Inspector) -> None:
    assert inspector.advice is None


# --- texts that a policy approves ------------------------------------------------


PROMPT = "You are a helpful assistant in our hospital. Current date: 2026-11-22."


def approving(*prompts: str, role: str = "system") -> frozenset[tuple[str, str]]:
    return frozenset(
        (role, hashlib.sha256(each.encode()).hexdigest()) for each in prompts
    )


def chat(*said: tuple[str, str]) -> Query:
    return Query(messages=tuple(Message(role=r, content=c) for r, c in said))


def approved_places(query: Query, approvals: frozenset[tuple[str, str]]) -> list[Where]:
    return [each.where for each in prepare(query, Limits(), approvals).approved]


@pytest.mark.parametrize("role", ["system", "developer"])
def test_an_approved_text_is_known_word_for_word(role: str) -> None:
    query = chat((role, PROMPT), ("user", "hello"), (role, PROMPT))
    places = approved_places(query, approving(PROMPT, role=role))
    assert [each.message for each in places] == [0, 2]


CHANGED = {
    "one letter": PROMPT.replace("our", "oUr"),
    "a space behind it": PROMPT + " ",
    "a line feed": PROMPT + "\n",
    "another day": PROMPT.replace("22", "23"),
    "a look-alike": PROMPT.replace("a", "\u0430", 1),
    "a half of a character": PROMPT + "\ud800",
}


@pytest.mark.parametrize("text", CHANGED.values(), ids=CHANGED.keys())
def test_one_character_more_or_less_is_not_approved(text: str) -> None:
    query = chat(("system", text), ("user", "hello"))
    assert approved_places(query, approving(PROMPT)) == []


@pytest.mark.parametrize("role", ["user", "assistant", "tool", "developer"])
def test_an_approval_is_of_one_role(role: str) -> None:
    query = chat((role, PROMPT), ("user", "hello"))
    assert approved_places(query, approving(PROMPT)) == []


@pytest.mark.parametrize("role", ["user", "assistant", "tool"])
def test_only_the_users_words_can_be_approved(role: str) -> None:
    query = chat((role, PROMPT), ("user", "hello"))
    assert approved_places(query, approving(PROMPT, role=role)) == []


def test_a_name_and_a_stop_string_are_not_what_was_approved() -> None:
    query = Query(
        messages=(Message(role="system", content="hello", name=PROMPT),),
        settings=Settings(stop=(PROMPT,)),
    )
    assert approved_places(query, approving(PROMPT)) == []


def test_an_approved_text_is_looked_at_apart_and_joins_with_nothing() -> None:
    query = chat(("user", "one"), ("system", PROMPT), ("user", "two"))
    prepared = prepare(query, Limits(), approving(PROMPT))
    alone = prepare(chat(("user", "one"), ("user", "two")), Limits())
    assert prepared.apart is not None
    assert prepared.apart.texts == (PROMPT,)
    assert prepared.texts == alone.texts
    assert [each.message for each in prepared.places] == [0, 2, 0]


def test_an_approved_text_counts_towards_the_size() -> None:
    prepared = prepare(chat(("system", "x" * 101)), LIMITS, approving("x" * 101))
    assert {each.data_class for each in prepared.findings} == {"uncertain.oversize"}
    assert prepared.approved == ()


@pytest.fixture(scope="module")
def approver() -> Iterator[Inspector]:
    digest = hashlib.sha256(PROMPT.encode()).hexdigest()
    approval = f"approved: [{{sha256: '{digest}', by: me, date: 2026-11-22}}]\n"
    text = profile_text("default").replace("deadline_ms: 250", GENEROUS, 1)
    started = Inspector.start(load_policy(text + approval), command=command())
    yield started
    started.close()


def test_an_approved_text_is_still_looked_at(approver: Inspector) -> None:
    query = chat(("system", PROMPT), ("user", "How do I reset a printer?"))
    inspection = approver.inspect(query)
    assert "health.procedure" in {
        each.data_class for each in inspection.findings if each.where.message == 0
    }
    assert [each.where.message for each in inspection.approved] == [0]
    assert inspection.payload_digest == query.payload_digest()


def test_a_batch_keeps_what_is_approved_with_its_query(approver: Inspector) -> None:
    queries = [
        chat(("system", PROMPT), ("user", "hello")),
        ask("ssn 536-22-1234"),
        chat(("system", PROMPT), ("user", "ssn 536-22-1234")),
        chat(("system", PROMPT)),
    ]
    looks = list(approver.inspect_many(queries))
    assert looks == [approver.inspect(query) for query in queries]
    assert [len(each.approved) for each in looks] == [1, 0, 1, 1]
    ssn = "identifier.direct.gov_id.us_ssn"
    assert [
        {each.where.message for each in look.findings if each.data_class == ssn}
        for look in looks
    ] == [set(), {0}, {1}, set()]


def test_what_the_prompt_says_hides_nothing_across_turns() -> None:
    where = Where(message=0, role="system", json_path="content")
    prepared = prepare(
        chat(("system", PROMPT), ("user", "John"), ("user", "Smith")),
        Limits(),
        approving(PROMPT),
    )
    found = failure("uncertain.name", "test", where)
    across = replace(found, where=Where(message=0, role="user", json_path=""))
    # The same class, as sure: a repeat if the prompt counted, and not if it does not.
    assert across in prepared.with_findings([found, across]).findings


def test_a_failure_over_an_approved_text_keeps_the_query_home() -> None:
    text = f"FAULT {CANARY}"
    digest = hashlib.sha256(text.encode()).hexdigest()
    approval = f"approved: [{{sha256: '{digest}', by: me, date: 2026-11-22}}]\n"
    profile = profile_text("default").replace("deadline_ms: 250", GENEROUS, 1)
    policy = load_policy(profile + approval)
    dies = command("os._exit(1)")
    failing = Inspector.start(policy, command=dies, spare=False)
    try:
        inspection = failing.inspect(chat(("system", text), ("user", "hello")))
        assert decide(policy.rulebook, inspection).route is Route.LOCAL
    finally:
        failing.close()
