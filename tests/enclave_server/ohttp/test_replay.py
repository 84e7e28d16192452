"""Dates and replays, at the gateway and over HTTP (RFC 9458, section 6.5)."""

import asyncio
import json
from datetime import timedelta

import pytest

from curtilage.enclave_server.config import Limits
from curtilage.enclave_server.errors import ChatError
from curtilage.enclave_server.ohttp.chat import ChatCompletionRequest, ChatLimits
from curtilage.enclave_server.ohttp.gateway import (
    UNDECAPSULATED,
    Exchange,
    Form,
    OuterError,
    Terms,
    open_exchange,
)
from curtilage.enclave_server.ohttp.keys import ServerKey, make_key
from curtilage.wire.dates import format_date
from curtilage.wire.media import PROBLEM_DATE
from curtilage.wire.shaping import UNPADDED
from curtilage_dev.scripted_engine import Script
from support.enclave_parts import (
    CHUNKED,
    JSON,
    NOW,
    PLAIN,
    QUICK,
    Fields,
    ask,
    dated,
    error_code,
    exchange,
    inner_request,
    make_parts,
    post,
    seal,
    serving,
)
from support.virtual_time import VirtualTime

FORMS = [PLAIN, CHUNKED]
MINUTE = timedelta(seconds=60)


def fresh_key(capacity: int = 100) -> ServerKey:
    return make_key(now=NOW, lifetime_s=3600, replay_capacity=capacity)


def open_at(
    key: ServerKey, message: bytes, form: str = CHUNKED, *, late_s: int = 0
) -> Exchange:
    now = NOW + timedelta(seconds=late_s)
    terms = Terms(chat=ChatLimits(), transport=UNPADDED, now=now)
    keys = dict.fromkeys(key.key_ids, key)
    return open_exchange(keys, Form(form), message, terms)


def code_of(exchanged: Exchange) -> str:
    return exchanged.asked.code if isinstance(exchanged.asked, ChatError) else ""


IN_TIME = format_date(NOW)
WRONG_DATES: dict[str, Fields] = {
    "missing": JSON,
    "empty": (*JSON, (b"date", b"")),
    "garbage": (*JSON, (b"date", b"yesterday")),
    "twice": (*dated(), (b"date", IN_TIME)),
    "twice-one-wrong": (*dated(), (b"date", b"x")),
    "61-s-early": dated(now=NOW - timedelta(seconds=61)),
    "61-s-late": dated(now=NOW + timedelta(seconds=61)),
    "year-9999": dated(now=NOW.replace(year=9999)),
    "year-1": dated(now=NOW.replace(year=1)),
    "of-another-form": (*JSON, (b"date", b"Sat Nov 21 12:00:00 2026")),
}


@pytest.mark.parametrize("wrong", WRONG_DATES)
@pytest.mark.parametrize("form", FORMS)
async def test_wrong_date_is_reported_with_ours(form: str, wrong: str) -> None:
    parts = await make_parts(transport=QUICK, timer=VirtualTime().timer)
    sealed = seal(parts.key, inner_request(fields=WRONG_DATES[wrong]), form=form)
    async with serving(parts) as address:
        response = sealed.open((await ask(address, sealed)).body)
    assert response.status == 400
    assert response.fields == (
        (b"content-type", b"application/problem+json"),
        (b"date", IN_TIME),
        (b"cache-control", b"no-store"),
    )
    problem = json.loads(response.content)
    assert (problem["type"], problem["status"]) == (PROBLEM_DATE, 400)
    assert parts.engine.requests == []
    assert parts.counted() == {"opened": 1, "date_refused": 1, "frames_sent": 1}


@pytest.mark.parametrize("offset_s", [-60, -59, 59, 60])
def test_date_within_a_minute_is_taken(offset_s: int) -> None:
    fields = dated(now=NOW + timedelta(seconds=offset_s))
    opened = open_at(
        key := fresh_key(), seal(key, inner_request(fields=fields)).message
    )
    assert isinstance(opened.asked, ChatCompletionRequest)


@pytest.mark.parametrize("path", [b"/v1/models", b"/v1/cover", b"/"])
def test_date_is_looked_at_before_the_path(path: bytes) -> None:
    key = fresh_key()
    inner = inner_request(path=path, fields=JSON)
    assert code_of(open_at(key, seal(key, inner).message)) == "date"


@pytest.mark.parametrize("form", FORMS)
def test_message_refused_for_its_date_cannot_come_again(form: str) -> None:
    # Sealed by a clock that is two minutes ahead: refused now. An attacker who kept it
    # must not get an answer in two minutes, when its date is valid and its client has
    # sent another.
    key = fresh_key()
    ahead = dated(now=NOW + 2 * MINUTE)
    message = seal(key, inner_request(fields=ahead), form=form).message
    assert code_of(open_at(key, message, form)) == "date"
    for late_s in (0, 60, 120, 180):
        assert code_of(open_at(key, message, form, late_s=late_s)) == "replayed"


@pytest.mark.parametrize("late_s", [0, 59, 61, 3000])
def test_answered_message_is_a_replay_for_as_long_as_its_key_lives(late_s: int) -> None:
    key = fresh_key()
    message = seal(key).message
    assert code_of(open_at(key, message)) == ""
    assert code_of(open_at(key, message, late_s=late_s)) == "replayed"


@pytest.mark.parametrize("form", FORMS)
async def test_replay_is_refused_inside_and_the_model_never_runs_twice(
    form: str,
) -> None:
    parts = await make_parts(transport=QUICK, timer=VirtualTime().timer)
    sealed = seal(parts.key, form=form)
    async with serving(parts) as address:
        first = await ask(address, sealed)
        second = await ask(address, sealed)
    assert (first.status, first.head) == (second.status, second.head)
    assert len(first.body) == len(second.body)
    assert first.body != second.body
    assert len(parts.engine.requests) == 1
    assert parts.counted()["replayed"] == 1


async def test_replay_is_reported_as_a_problem_of_our_own() -> None:
    parts = await make_parts()
    sealed = seal(parts.key)
    keys = dict.fromkeys(parts.key.key_ids, parts.key)
    terms = Terms(chat=ChatLimits(), transport=UNPADDED, now=NOW)
    open_exchange(keys, Form.CHUNKED, sealed.message, terms)
    async with serving(parts) as address:
        response = sealed.open((await ask(address, sealed)).body)
    assert (response.status, error_code(response)) == (400, "replayed")
    assert response.fields == ((b"content-type", b"application/problem+json"),)
    assert json.loads(response.content)["type"] == "about:blank"
    assert parts.engine.requests == []


async def test_of_concurrent_duplicates_one_is_answered() -> None:
    parts = await make_parts(
        Script(pieces=["a"]),
        transport=QUICK,
        max_queued=32,
        timer=VirtualTime().timer,
    )
    sealed = seal(parts.key)
    async with serving(parts) as address:
        raw = post(sealed.message)
        answers = await asyncio.gather(*(exchange(address, raw) for _ in range(12)))
    assert len({answer.head for answer in answers}) == 1
    assert len({len(answer.body) for answer in answers}) == 1
    assert len(parts.engine.requests) == 1
    counted = parts.counted()
    assert (counted["answered"], counted["replayed"]) == (1, 11)


async def test_after_a_restart_the_same_bytes_do_not_open() -> None:
    before, after = await make_parts(), await make_parts()
    assert before.key.key_configs != after.key.key_configs
    sealed = seal(before.key)
    async with serving(after) as address:
        answer = await ask(address, sealed)
    assert answer.status == 422
    assert after.engine.requests == []


@pytest.mark.parametrize("aead_id", [1, 3])
def test_same_enc_under_another_header_does_not_open(aead_id: int) -> None:
    key = fresh_key()
    message = seal(key).message
    other = message[:5] + (4 - aead_id).to_bytes(2) + message[7:]
    same = message[:5] + aead_id.to_bytes(2) + message[7:]
    refused = [changed for changed in (other, same) if changed != message]
    for changed in refused:
        with pytest.raises(OuterError) as caught:
            open_at(key, changed)
        assert caught.value.answer is UNDECAPSULATED
    assert code_of(open_at(key, message)) == ""


def test_pair_has_one_set_and_it_refuses_rather_than_evicts() -> None:
    key = fresh_key(capacity=2)
    suites = [each.config.suites()[0] for each in key.gateway_keys]
    first, second, third = (
        seal(key, suite=suite).message for suite in (*suites, suites[0])
    )
    assert code_of(open_at(key, first)) == ""
    assert code_of(open_at(key, second)) == ""
    for message in (third, first, second):
        assert code_of(open_at(key, message)) == "busy"


def test_set_goes_with_its_keys_only() -> None:
    first = fresh_key()
    second = make_key(
        now=NOW,
        lifetime_s=60,
        replay_capacity=10,
        avoid=frozenset(first.key_ids),
    )
    message = seal(first).message
    assert code_of(open_at(first, message)) == ""
    second.overwrite()
    assert code_of(open_at(first, message)) == "replayed"
    first.overwrite()
    with pytest.raises(OuterError) as caught:
        open_at(first, message)
    assert caught.value.answer is UNDECAPSULATED


async def test_full_set_sends_its_clients_to_the_keys_that_came_after_it() -> None:
    parts = await make_parts(limits=Limits(max_requests_per_key=1))
    first, second = seal(parts.key), seal(parts.key)
    async with serving(parts) as address:
        assert (await ask(address, first)).status == 200
        # There are no others yet: the client must retry later.
        inside = second.open((await ask(address, second)).body)
        assert error_code(inside) == "busy"
        successor = make_key(
            now=NOW,
            lifetime_s=3600,
            replay_capacity=1,
            avoid=parts.context.keys.key_ids,
        )
        parts.context.keys.install(successor)
        answer = await ask(address, seal(parts.key))
        assert (answer.status, b"#ohttp-key" in answer.body) == (422, True)
        assert (await ask(address, seal(successor))).status == 200
