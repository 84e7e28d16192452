import copy
import dataclasses
import json
import math
from collections.abc import Iterator
from datetime import timedelta

import pytest
from typing_extensions import override

from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.verify import VerifiedKey
from curtilage.client import exchange as exchange_module
from curtilage.client.answers import AnswerEvent, Delta, Finished
from curtilage.client.errors import EnclaveError, FailureReason
from curtilage.client.exchange import SealedExchange, seal
from curtilage.client.query import Message, Query
from curtilage.policy.decide import Allowed, Inspection, decide
from curtilage.policy.load import load_profile
from support.client_parts import finding
from support.memory_enclave import (
    NOW,
    MemoryEnclave,
    Reply,
    chunk,
    completion,
    sse,
    verified,
)

CANARY = "canary-77aa"
TURNS = iter(["first", "second", "third", "fourth"])
QUERY = Query(messages=(Message(role="user", content=f"What is {CANARY}?"),))


def allowed(query: Query = QUERY) -> Allowed:
    inspection = Inspection(
        findings=(), payload_digest=query.payload_digest(), messages=1
    )
    permission = decide(load_profile("default"), inspection).allowed
    assert permission is not None
    return permission


async def answer(enclave: MemoryEnclave, query: Query = QUERY) -> list[AnswerEvent]:
    sealed = seal(allowed(query), query, verified(enclave), now=NOW)
    events: list[AnswerEvent] = []
    async for data in enclave.send(sealed):
        events += sealed.reader.push(data)
    return events + sealed.reader.finish()


async def refusal(enclave: MemoryEnclave) -> EnclaveError:
    with pytest.raises(EnclaveError) as refused:
        await answer(enclave)
    assert CANARY not in repr(refused.value)
    return refused.value


def text(events: list[AnswerEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, Delta))


async def test_streamed_answer_opens() -> None:
    enclave = MemoryEnclave()
    events = await answer(enclave)
    assert text(events) == "From afar."
    assert events[-1] == Finished(
        finish_reason="stop", prompt_tokens=4, completion_tokens=2
    )
    request = enclave.requests[0]
    assert (request.method, request.authority) == (b"POST", b"curtilage.invalid")
    assert request.fields == ((b"content-type", b"application/json"),)
    assert json.loads(request.content)["messages"][0]["content"].endswith(f"{CANARY}?")


async def test_whole_answer_opens() -> None:
    reply = Reply(content=completion("All."), media_type=b"application/json")
    assert text(await answer(MemoryEnclave(reply))) == "All."


async def test_logprobs_come_through() -> None:
    pieces = chunk("a")
    choice = pieces["choices"]
    assert isinstance(choice, list)
    choice[0]["logprobs"] = {"content": [{"token": "a", "logprob": -1}, "nonsense"]}
    reply = Reply(content=sse(pieces, chunk(finish="length")))
    events = await answer(MemoryEnclave(reply))
    assert events[0] == Delta(text="a", logprobs=(("a", -1.0),))


def test_seal_holds_no_plaintext() -> None:
    sealed = seal(allowed(), QUERY, verified(MemoryEnclave()), now=NOW)
    assert CANARY.encode() not in sealed.take_body()
    assert CANARY not in repr(sealed)


def test_seal_refuses_what_decide_did_not_build() -> None:
    key = verified(MemoryEnclave())
    for forged in (None, True, "enclave", object.__new__(Allowed)):
        with pytest.raises(TypeError):
            seal(forged, QUERY, key, now=NOW)  # type: ignore[arg-type]


def test_seal_refuses_another_payload() -> None:
    other = dataclasses.replace(QUERY, stream=True)
    with pytest.raises(PermissionError):
        seal(allowed(), other, verified(MemoryEnclave()), now=NOW)


def test_a_query_that_stays_has_nothing_to_seal_with() -> None:
    inspection = Inspection(
        findings=(finding("financial.pan"),),
        payload_digest=QUERY.payload_digest(),
        messages=1,
    )
    assert decide(load_profile("default"), inspection).allowed is None


def test_seal_refuses_an_expired_key() -> None:
    key = verified(MemoryEnclave())
    late = key.expires_at + timedelta(seconds=1)
    with pytest.raises(RefusedError) as refused:
        seal(allowed(), QUERY, key, now=late)
    assert refused.value.code is RefusalCode.STALE


def test_only_seal_builds_a_sealed_exchange() -> None:
    sealed = seal(allowed(), QUERY, verified(MemoryEnclave()), now=NOW)
    with pytest.raises(TypeError):
        SealedExchange(object(), b"plain", sealed.reader)
    for copied in (copy.copy, copy.deepcopy):
        with pytest.raises(TypeError):
            copied(sealed)


def test_a_sealed_request_is_sent_once() -> None:
    sealed = seal(allowed(), QUERY, verified(MemoryEnclave()), now=NOW)
    sealed.take_body()
    with pytest.raises(RuntimeError):
        sealed.take_body()


def test_seal_refuses_a_key_that_verify_did_not_build() -> None:
    class Forged:
        key_configs = verified(MemoryEnclave()).key_configs

        def usable_at(self, now: object) -> None:
            """Always."""

    for forged in (Forged(), object.__new__(VerifiedKey), None):
        with pytest.raises(TypeError):
            seal(allowed(), QUERY, forged, now=NOW)  # type: ignore[arg-type]


def test_what_is_compared_is_what_is_sealed() -> None:
    """A list that changes between two readings cannot smuggle a turn in."""

    class Changing(list[Message]):
        @override
        def __iter__(self) -> Iterator[Message]:
            yield Message(role="user", content=next(TURNS))

    query = Query(messages=Changing())  # type: ignore[arg-type]
    assert [leaf.text for leaf in query.leaves()] == ["first"]
    assert b"first" in query.payload()
    assert b"second" not in query.payload()


async def test_every_cut_is_incomplete_or_broken() -> None:
    enclave = MemoryEnclave(Reply(content=sse(chunk(finish="stop"))))
    whole = len(enclave.answer(seal_body(enclave)))
    for cut in range(whole):
        enclave.cut = cut
        failure = await refusal(enclave)
        assert failure.reason in {
            FailureReason.ANSWER_INCOMPLETE,
            FailureReason.ANSWER_BROKEN,
        }


async def test_every_changed_byte_is_refused() -> None:
    enclave = MemoryEnclave(Reply(content=sse(chunk(finish="stop"))))
    whole = len(enclave.answer(seal_body(enclave)))
    for index in range(whole):
        enclave.flip = index
        await refusal(enclave)


def seal_body(enclave: MemoryEnclave) -> bytes:
    return seal(allowed(), QUERY, verified(enclave), now=NOW).take_body()


def odd_end(reason: object) -> object:
    nothing: dict[str, object] = {}
    return {"choices": [{"delta": nothing, "finish_reason": reason}]}


def with_logprob(value: float) -> object:
    content = [{"token": "a", "logprob": value}]
    return {"choices": [{"delta": {"content": "a"}, "logprobs": {"content": content}}]}


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Reply(status=503), FailureReason.BUSY),
        (Reply(status=429), FailureReason.BUSY),
        (Reply(status=413), FailureReason.TOO_LARGE),
        (Reply(status=400), FailureReason.REFUSED),
        (Reply(status=302), FailureReason.REFUSED),
        (Reply(media_type=b"text/html"), FailureReason.ANSWER_BROKEN),
        (Reply(content=b""), FailureReason.ANSWER_INCOMPLETE),
        (Reply(content=sse(chunk("a"))), FailureReason.ANSWER_INCOMPLETE),
        (
            Reply(content=sse(chunk("a"), chunk(finish="stop"), done=False)),
            FailureReason.ANSWER_INCOMPLETE,
        ),
        (
            Reply(content=sse(chunk(finish="stop")) + sse(chunk("more"))),
            FailureReason.ANSWER_BROKEN,
        ),
        (Reply(content=sse({"error": {}})), FailureReason.ANSWER_INCOMPLETE),
        (Reply(content=sse([])), FailureReason.ANSWER_BROKEN),
        (Reply(content=sse(odd_end([]))), FailureReason.ANSWER_BROKEN),
        (Reply(content=sse(odd_end({}))), FailureReason.ANSWER_BROKEN),
        (Reply(content=sse(with_logprob(10**400))), FailureReason.ANSWER_BROKEN),
        (Reply(content=sse(with_logprob(math.nan))), FailureReason.ANSWER_BROKEN),
        (Reply(content=sse(chunk("\ud800"))), FailureReason.ANSWER_BROKEN),
        (Reply(content=sse({"choices": []})), FailureReason.ANSWER_BROKEN),
        (Reply(content=sse(chunk(finish="odd"))), FailureReason.ANSWER_BROKEN),
        (Reply(content=b"data: {\n\n"), FailureReason.ANSWER_BROKEN),
        (Reply(content=b"event: x\n\n"), FailureReason.ANSWER_BROKEN),
        (
            Reply(content=b"{}", media_type=b"application/json"),
            FailureReason.ANSWER_BROKEN,
        ),
        (
            Reply(
                content=b'{"choices": [{"message": {"content": 1}}]}',
                media_type=b"application/json",
            ),
            FailureReason.ANSWER_BROKEN,
        ),
    ],
)
async def test_an_answer_that_is_no_answer_is_refused(
    reply: Reply, reason: FailureReason
) -> None:
    failure = await refusal(MemoryEnclave(reply))
    assert failure.reason is reason


async def test_an_endless_answer_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange_module, "MAX_ANSWER_BYTES", 100)
    failure = await refusal(MemoryEnclave())
    assert failure.reason is FailureReason.ANSWER_BROKEN
