import copy
import dataclasses
import inspect
import json
import math
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from typing_extensions import override

from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.verify import VerifiedKey
from curtilage.client.answer import AnswerEvent, Delta, Finished
from curtilage.client.errors import DateRefusedError, EnclaveError, FailureReason
from curtilage.client.query import Message, Query
from curtilage.client.remote import seal as exchange_module
from curtilage.client.remote.answer_reader import FreshEvidence
from curtilage.client.remote.seal import (
    cover_content,
    seal,
    seal_challenge,
    seal_cover,
    size_class_of,
)
from curtilage.client.remote.sealed import SealedExchange
from curtilage.policy.decision.decide import Allowed, Inspection, decide
from curtilage.policy.document.load import load_profile
from curtilage.wire import bhttp, media
from curtilage.wire.padding import SIZE_CLASSES
from curtilage.wire.shaping import UNPADDED, TransportParameters
from support.client_parts import finding
from support.memory_enclave import (
    NOW,
    QUICK,
    MemoryEnclave,
    Reply,
    chunk,
    completion,
    problem,
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
    permission = decide(load_profile("default").rulebook, inspection).allowed
    assert permission is not None
    return permission


async def answer(enclave: MemoryEnclave, query: Query = QUERY) -> list[AnswerEvent]:
    sealed, reader = seal(allowed(query), query, verified(enclave), now=NOW)
    events: list[AnswerEvent] = []
    async for data in enclave.send(sealed):
        events += reader.push(data)
    return events + reader.finish()


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
    assert request.fields == (
        (b"content-type", b"application/json"),
        (b"date", b"Sat, 21 Nov 2026 12:00:00 GMT"),
    )
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
    sealed, _ = seal(allowed(), QUERY, verified(MemoryEnclave()), now=NOW)
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
    assert decide(load_profile("default").rulebook, inspection).allowed is None


def test_seal_refuses_an_expired_key() -> None:
    key = verified(MemoryEnclave())
    late = key.expires_at + timedelta(seconds=1)
    with pytest.raises(RefusedError) as refused:
        seal(allowed(), QUERY, key, now=late)
    assert refused.value.code is RefusalCode.STALE


def test_only_seal_builds_a_sealed_exchange() -> None:
    sealed, _ = seal(allowed(), QUERY, verified(MemoryEnclave()), now=NOW)
    with pytest.raises(TypeError):
        SealedExchange(object(), b"plain", QUICK)
    for copied in (copy.copy, copy.deepcopy):
        with pytest.raises(TypeError):
            copied(sealed)


def test_only_the_seal_door_names_what_builds_a_sealed_exchange() -> None:
    client = Path(exchange_module.__file__).parents[1]
    naming = [path for path in client.rglob("*.py") if "SEAL_DOOR" in path.read_text()]
    assert sorted(path.name for path in naming) == ["seal.py", "sealed.py"]


def test_a_sealed_request_is_sent_once() -> None:
    sealed, _ = seal(allowed(), QUERY, verified(MemoryEnclave()), now=NOW)
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


EVENTS = Reply(content=sse(chunk("All."), chunk(finish="stop")))
OBJECT = Reply(content=completion("All."), media_type=b"application/json")
TINY = TransportParameters(frame_bytes=64, period_ms=1, first_bucket=2, buckets=4)
CUT_SHORT = {FailureReason.ANSWER_INCOMPLETE, FailureReason.ANSWER_BROKEN}


@pytest.mark.parametrize("reply", [EVENTS, OBJECT], ids=["events", "object"])
async def test_an_unpadded_answer_is_finished_at_its_last_byte_only(
    reply: Reply,
) -> None:
    enclave = MemoryEnclave(reply, parameters=UNPADDED)
    whole = len(enclave.answer(seal_body(enclave)))
    for cut in range(whole):
        enclave.cut = cut
        failure = await refusal(enclave)
        assert failure.reason in CUT_SHORT


@pytest.mark.parametrize("reply", [EVENTS, OBJECT], ids=["events", "object"])
def test_the_end_of_an_unpadded_answer_is_told_by_its_final_chunk(reply: Reply) -> None:
    enclave = MemoryEnclave(reply, parameters=UNPADDED)
    exchange, reader = seal(allowed(), QUERY, verified(enclave), now=NOW)
    data = bytes(enclave.answer(exchange.take_body()))
    events = reader.push(data)
    assert not any(isinstance(each, Finished) for each in events)
    assert isinstance(reader.finish()[-1], Finished)


@pytest.mark.parametrize("reply", [EVENTS, OBJECT], ids=["events", "object"])
def test_a_padded_answer_is_finished_at_its_end_mark_and_never_before(
    reply: Reply,
) -> None:
    """At every position: incomplete, or every word of it is there."""
    enclave = MemoryEnclave(reply)
    exchange, reader = seal(allowed(), QUERY, verified(enclave), now=NOW)
    data = bytes(enclave.answer(exchange.take_body()))
    mark = finished_after(enclave, reply)
    assert mark < len(data) - 2 * enclave.parameters.frame_bytes, "filler follows"
    events: list[AnswerEvent] = []
    for position, byte in enumerate(data, start=1):
        events += reader.push(bytes([byte]))
        assert any(isinstance(each, Finished) for each in events) == (position >= mark)
    events += reader.finish()
    assert text(events) == "All."
    assert sum(isinstance(each, Finished) for each in events) == 1


def finished_after(enclave: MemoryEnclave, reply: Reply) -> int:
    """Octets on the wire up to the frame that holds the content's last one."""
    frame_bytes = enclave.parameters.frame_bytes
    head = len(bhttp.encode_response_head(200, [(b"content-type", reply.media_type)]))
    first = frame_bytes - head - 2
    more = max(len(reply.content) - first, 0)
    frames = 1 + math.ceil(more / (frame_bytes - 2))
    return 16 + frames * (2 + frame_bytes + 16)


@pytest.mark.parametrize("reply", [EVENTS, OBJECT], ids=["events", "object"])
def test_a_padded_answer_cut_before_its_end_mark_is_incomplete(reply: Reply) -> None:
    enclave = MemoryEnclave(reply)
    for cut in range(finished_after(enclave, reply)):
        exchange, reader = seal(allowed(), QUERY, verified(enclave), now=NOW)
        data = bytes(enclave.answer(exchange.take_body()))
        events = reader.push(data[:cut])
        assert not any(isinstance(each, Finished) for each in events)
        with pytest.raises(EnclaveError) as refused:
            reader.finish()
        assert refused.value.reason in CUT_SHORT


async def test_an_answer_of_another_shape_is_broken() -> None:
    """Its evidence promises frames of 128 octets, and a bucket of them."""
    promised = MemoryEnclave()
    for frame_bytes, first in ((64, 4), (128, 3)):
        enclave = MemoryEnclave()
        enclave.keys, enclave.bundle = promised.keys, promised.bundle
        enclave.shape_of_answers = TransportParameters(
            frame_bytes=frame_bytes, period_ms=1, first_bucket=first, buckets=8
        )
        assert (await refusal(enclave)).reason is FailureReason.ANSWER_BROKEN


async def test_an_answer_without_padding_is_broken_where_padding_is_promised() -> None:
    enclave = MemoryEnclave()
    enclave.shape_of_answers = UNPADDED
    assert (await refusal(enclave)).reason is FailureReason.ANSWER_BROKEN


def test_the_answer_to_another_request_is_refused() -> None:
    """Also to the same question, asked before: nothing of it opens."""
    enclave = MemoryEnclave()
    earlier = bytes(enclave.answer(seal_body(enclave)))
    _, reader = seal(allowed(), QUERY, verified(enclave), now=NOW)
    with pytest.raises(EnclaveError) as refused:
        reader.push(earlier)
    assert refused.value.reason is FailureReason.ANSWER_BROKEN


async def test_every_changed_byte_is_refused() -> None:
    reply = Reply(content=sse(chunk(finish="stop")))
    enclave = MemoryEnclave(reply, parameters=TINY)
    whole = len(enclave.answer(seal_body(enclave)))
    for index in range(whole):
        enclave.flip = index
        await refusal(enclave)


def seal_body(enclave: MemoryEnclave) -> bytes:
    return seal(allowed(), QUERY, verified(enclave), now=NOW)[0].take_body()


def failing(status: int) -> bytes:
    """An error told in the content, once the head has left with 200."""
    return sse({"error": {"code": "busy", "status": status}}, done=False)


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
        (Reply(content=b"event: x\n\n"), FailureReason.ANSWER_INCOMPLETE),
        (Reply(content=failing(503)), FailureReason.BUSY),
        (Reply(content=failing(504)), FailureReason.TIMEOUT),
        (Reply(content=failing(500)), FailureReason.REFUSED),
        (Reply(content=failing(200)), FailureReason.ANSWER_INCOMPLETE),
        (
            Reply(
                content=sse(chunk("a"), done=False) + failing(503),
            ),
            FailureReason.ANSWER_INCOMPLETE,
        ),
        (
            Reply(
                content=failing(429).removeprefix(b"data: "),
                media_type=b"application/json",
            ),
            FailureReason.BUSY,
        ),
        (problem("about:blank", code="replayed"), FailureReason.REFUSED),
        (problem(media.PROBLEM_DATE), FailureReason.DATE_REFUSED),
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
    failure = await refusal(MemoryEnclave(parameters=UNPADDED))
    assert failure.reason is FailureReason.ANSWER_BROKEN


@pytest.mark.parametrize("parameters", [QUICK, UNPADDED], ids=["padded", "not"])
async def test_a_refused_date_tells_the_enclaves(
    parameters: TransportParameters,
) -> None:
    theirs = NOW + timedelta(hours=3)
    reply = problem(media.PROBLEM_DATE, date=theirs)
    failure = await refusal(MemoryEnclave(reply, parameters=parameters))
    assert isinstance(failure, DateRefusedError)
    assert failure.date == theirs


async def test_the_date_can_be_corrected() -> None:
    enclave = MemoryEnclave()
    skew = timedelta(hours=-3)
    exchange, _ = seal(allowed(), QUERY, verified(enclave), now=NOW, skew=skew)
    enclave.answer(exchange.take_body())
    assert dict(enclave.requests[0].fields)[b"date"] == b"Sat, 21 Nov 2026 09:00:00 GMT"
    with pytest.raises(DateRefusedError):
        seal(allowed(), QUERY, verified(enclave), now=NOW, skew=timedelta.max)


@pytest.mark.parametrize("octets", [0, 1, 3000, 3500, 5000, 20_000, 200_000])
def test_a_request_has_exactly_the_length_of_its_class(octets: int) -> None:
    query = Query(messages=(Message(role="user", content="x" * octets),))
    key = verified(MemoryEnclave())
    body = seal(allowed(query), query, key, now=NOW)[0].take_body()
    assert len(body) in SIZE_CLASSES
    assert len(body) == size_class_of(query, key, now=NOW)


def test_the_first_suite_of_the_list_is_used() -> None:
    enclave = MemoryEnclave()
    body = seal_body(enclave)
    assert body[:7] == bytes([41, 0x64, 0x7A, 0, 1, 0, 1])


def test_what_no_class_holds_is_not_sealed() -> None:
    query = Query(messages=(Message(role="user", content="x" * SIZE_CLASSES[-1]),))
    key = verified(MemoryEnclave())
    for refused in (
        lambda: seal(allowed(query), query, key, now=NOW),
        lambda: size_class_of(query, key, now=NOW),
        lambda: size_class_of(query, None, now=NOW),
    ):
        with pytest.raises(EnclaveError) as error:
            refused()
        assert error.value.reason is FailureReason.TOO_LARGE


@pytest.mark.parametrize("size", SIZE_CLASSES)
def test_a_dummy_has_the_length_of_a_query(size: int) -> None:
    enclave = MemoryEnclave()
    exchange, reader = seal_cover(verified(enclave), size_class=size, bucket=3, now=NOW)
    body = exchange.take_body()
    assert len(body) == size
    answer = bytes(enclave.answer(body))
    (request,) = enclave.requests
    assert (request.method, request.path) == (b"POST", b"/v1/cover")
    assert request.content == cover_content(3) == b'{"bucket":3}'
    assert [name for name, _ in request.fields] == [b"content-type", b"date"]
    events = reader.push(answer) + reader.finish()
    assert [type(each) for each in events] == [Finished]
    assert reader.frames == QUICK.frames_of(3)


def test_a_dummy_takes_nothing_that_could_carry_a_word() -> None:
    parameters = inspect.signature(seal_cover).parameters
    assert set(parameters) == {"key", "size_class", "bucket", "now", "skew"}


def test_a_dummy_needs_a_verified_key_in_force_and_a_bucket() -> None:
    key = verified(MemoryEnclave())
    with pytest.raises(TypeError):
        seal_cover(object(), size_class=4096, bucket=0, now=NOW)  # type: ignore[arg-type]
    with pytest.raises(RefusedError):
        seal_cover(key, size_class=4096, bucket=0, now=NOW + timedelta(days=2))
    unpadded = verified(MemoryEnclave(parameters=UNPADDED))
    for other, bucket in ((key, 8), (key, -1), (unpadded, 0)):
        with pytest.raises(EnclaveError):
            seal_cover(other, size_class=4096, bucket=bucket, now=NOW)


def test_a_challenge_needs_a_verified_key_in_force_and_a_nonce() -> None:
    key = verified(MemoryEnclave())
    read, nonce = FreshEvidence().read, bytes(32)
    with pytest.raises(TypeError):
        seal_challenge(object(), nonce=nonce, now=NOW, reader_of=read)  # type: ignore[arg-type]
    with pytest.raises(RefusedError) as refused:
        seal_challenge(key, nonce=nonce, now=key.expires_at, reader_of=read)
    assert refused.value.code is RefusalCode.STALE
    with pytest.raises(ValueError, match="32 bytes"):
        seal_challenge(key, nonce=bytes(31), now=NOW, reader_of=read)
