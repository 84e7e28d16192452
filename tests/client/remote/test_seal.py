import copy
import dataclasses
import hashlib
import inspect
import json
import math
import secrets
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import cast

import pytest
from typing_extensions import override

from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.evidence import MAX_CPU_EVIDENCE_BYTES
from curtilage.attest.verify import VerifiedKey
from curtilage.client.chat.answer import AnswerEvent, Delta, Finished
from curtilage.client.chat.query import Message, Query
from curtilage.client.errors import AttemptFailure, EnclaveError, FailureReason
from curtilage.client.remote import answer_opener
from curtilage.client.remote import seal as exchange_module
from curtilage.client.remote.answer_opener import AnswerReader
from curtilage.client.remote.answer_reader import FreshEvidence
from curtilage.client.remote.fetch_order import MIRROR, RELAY, FetchOrder
from curtilage.client.remote.keys import fetch_order
from curtilage.client.remote.reasons import DateRefusedError, EnclaveFailure
from curtilage.client.remote.seal import (
    cover_content,
    seal,
    seal_challenge,
    seal_cover,
    size_class_of,
)
from curtilage.client.remote.sealed import SealedExchange
from curtilage.policy.decision.decide import Allowed, decide
from curtilage.policy.decision.permit import (
    KEY_BYTES,
    ChallengeBinding,
    CoverBinding,
    EgressPermit,
    Party,
    Permit,
    PermitDesk,
    PermitRefusal,
    PermitRefusedError,
    time_ms,
)
from curtilage.policy.decision.tiers import RoutingClass
from curtilage.policy.document.load import load_profile
from curtilage.wire import bhttp, media
from curtilage.wire.padding import SIZE_CLASSES
from curtilage.wire.shaping import UNPADDED, TransportParameters
from support.client_parts import finding
from support.inspections import inspection_of
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
from support.permits import (
    new_desk,
    order,
    permit_for,
    seal_permitted,
    unfinished_permit,
)
from support.samples import Sample

CANARY = "canary-77aa"
TURNS = iter(["first", "second", "third", "fourth"])
QUERY = Query(messages=(Message(role="user", content=f"What is {CANARY}?"),))


KEY = verified(MemoryEnclave())


def allowed(query: Query = QUERY, *, profile: str = "default") -> Allowed:
    inspection = inspection_of(
        findings=(), payload_digest=query.payload_digest(), messages=1
    )
    permission = decide(load_profile(profile).rulebook, inspection).allowed
    assert permission is not None
    return permission


async def answer(enclave: MemoryEnclave, query: Query = QUERY) -> list[AnswerEvent]:
    sealed, reader = seal_permitted(allowed(query), query, verified(enclave), now=NOW)
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
    sealed, _ = seal_permitted(allowed(), QUERY, verified(MemoryEnclave()), now=NOW)
    assert CANARY.encode() not in sealed.take_body()
    assert CANARY not in repr(sealed)


def door(
    permit: object,
    *,
    query: Query = QUERY,
    key: VerifiedKey | None = None,
    desk: PermitDesk,
    now: datetime = NOW,
) -> SealedExchange:
    """Call ``seal`` with an object that may not be a permit."""
    shown = cast("EgressPermit", permit)
    return seal(shown, query.payload(), key or KEY, desk=desk, now=now)[0]


def refused_permit(refusal: PermitRefusal, call: Callable[[], object]) -> None:
    with pytest.raises(PermitRefusedError) as refused:
        call()
    assert refused.value.refusal is refusal
    assert CANARY not in repr(refused.value)


def test_the_door_opens_for_a_permit_once() -> None:
    desk = new_desk()
    permit = permit_for(desk, allowed(), KEY, now=NOW)
    door(permit, desk=desk)
    refused_permit(PermitRefusal.USED, lambda: door(permit, desk=desk))


def test_the_door_takes_a_permit_and_nothing_else() -> None:
    desk = new_desk()
    for forged in (
        None,
        True,
        "enclave",
        allowed(),
        unfinished_permit(),
        cover_permit(desk, KEY),
        challenge_permit(desk, KEY),
    ):
        with pytest.raises(TypeError):
            door(forged, desk=desk)


def test_a_permit_is_for_its_own_bytes() -> None:
    desk = new_desk()
    permit = permit_for(desk, allowed(), KEY, now=NOW)
    other = dataclasses.replace(QUERY, stream=True)
    refused_permit(PermitRefusal.PAYLOAD, lambda: door(permit, query=other, desk=desk))


def test_a_permit_is_for_its_own_key() -> None:
    desk = new_desk()
    permit = permit_for(desk, allowed(), KEY, now=NOW)
    other = verified(MemoryEnclave(key_id=7))
    refused_permit(PermitRefusal.KEY, lambda: door(permit, key=other, desk=desk))


def test_a_permit_is_for_its_own_release() -> None:
    desk = new_desk()
    permit = desk.mint(
        allowed(),
        tier="enclave",
        enclave_key_digest=hashlib.sha256(KEY.key_configs).digest(),
        release_digest=bytes(32),
        attempt=0,
        now_ms=time_ms(NOW),
    )
    refused_permit(PermitRefusal.RELEASE, lambda: door(permit, desk=desk))


def test_a_permit_is_for_a_key_verified_under_its_own_policy() -> None:
    """The policy changed between the verification and the decision."""
    desk = new_desk()
    permission = allowed(profile="bank")
    permit = permit_for(desk, permission, KEY, now=NOW)
    refused_permit(PermitRefusal.POLICY, lambda: door(permit, desk=desk))


@pytest.mark.parametrize(
    ("name", "value"),
    [("routing_class", RoutingClass.INTERNAL), ("tier", "other"), ("number", 1)],
)
def test_an_edited_permit_opens_nothing(name: str, value: object) -> None:
    desk = new_desk()
    permit = permit_for(desk, allowed(), KEY, now=NOW)
    object.__setattr__(permit.attempt, name, value)
    refused_permit(PermitRefusal.FORGED, lambda: door(permit, desk=desk))


def test_a_permit_opens_nothing_after_thirty_seconds() -> None:
    desk = new_desk()
    permit = permit_for(desk, allowed(), KEY, now=NOW)
    late = NOW + timedelta(seconds=30)
    refused_permit(PermitRefusal.EXPIRED, lambda: door(permit, desk=desk, now=late))


def test_another_process_s_permit_opens_nothing() -> None:
    other = PermitDesk(bytes([7]) * KEY_BYTES, bytes)
    permit = permit_for(other, allowed(), KEY, now=NOW)
    refused_permit(PermitRefusal.FORGED, lambda: door(permit, desk=new_desk()))


def test_a_full_desk_opens_nothing() -> None:
    desk = PermitDesk(bytes(KEY_BYTES), secrets.token_bytes, most=1)
    door(permit_for(desk, allowed(), KEY, now=NOW), desk=desk)
    permit = permit_for(desk, allowed(), KEY, now=NOW)
    refused_permit(PermitRefusal.FULL, lambda: door(permit, desk=desk))


def test_a_local_query_has_no_permit_to_seal() -> None:
    inspection = inspection_of(
        findings=(finding("financial.pan"),),
        payload_digest=QUERY.payload_digest(),
        messages=1,
    )
    assert decide(load_profile("default").rulebook, inspection).allowed is None


def test_seal_refuses_an_expired_key() -> None:
    late = KEY.expires_at + timedelta(seconds=1)
    with pytest.raises(RefusedError) as refused:
        seal_permitted(allowed(), QUERY, KEY, now=late)
    assert refused.value.code is RefusalCode.STALE


def test_only_seal_builds_a_sealed_exchange() -> None:
    sealed, _ = seal_permitted(allowed(), QUERY, verified(MemoryEnclave()), now=NOW)
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
    sealed, _ = seal_permitted(allowed(), QUERY, verified(MemoryEnclave()), now=NOW)
    sealed.take_body()
    with pytest.raises(RuntimeError):
        sealed.take_body()


def test_seal_refuses_a_key_that_verify_did_not_build() -> None:
    class Forged:
        key_configs = verified(MemoryEnclave()).key_configs

        def usable_at(self, now: object) -> None:
            """Always."""

    desk = new_desk()
    for forged in (Forged(), object.__new__(VerifiedKey), "key"):
        permit = permit_for(desk, allowed(), KEY, now=NOW)
        with pytest.raises(TypeError, match="VerifiedKey"):
            door(permit, key=cast("VerifiedKey", forged), desk=desk)


def test_the_compared_payload_is_the_sealed_one() -> None:
    """A list that changes between two readings cannot smuggle a turn in."""

    class Changing(list[Message]):
        @override
        def __iter__(self) -> Iterator[Message]:
            yield Message(role="user", content=next(TURNS))

    query = Query(messages=Changing())  # type: ignore[arg-type]
    assert [leaf.text for leaf in query.leaves()] == ["first"]
    assert b"first" in query.payload().content
    assert b"second" not in query.payload().content


EVENTS = Reply(content=sse(chunk("All."), chunk(finish="stop")))
OBJECT = Reply(content=completion("All."), media_type=b"application/json")
TINY = TransportParameters(frame_bytes=64, period_ms=1, first_bucket=2, buckets=4)
CUT_SHORT = {EnclaveFailure.ANSWER_INCOMPLETE, EnclaveFailure.ANSWER_BROKEN}


@pytest.mark.parametrize("reply", [EVENTS, OBJECT], ids=["events", "object"])
async def test_an_unpadded_answer_is_finished_at_its_last_byte_only(
    reply: Reply, sample: Sample
) -> None:
    enclave = MemoryEnclave(reply, parameters=UNPADDED)
    whole = len(enclave.answer(seal_body(enclave)))
    # The response's nonce, the first chunk's tag, and the last one's.
    for cut in sample(range(whole), edges=(16, 17, 33, whole - 16)):
        enclave.cut = cut
        failure = await refusal(enclave)
        assert failure.reason in CUT_SHORT


@pytest.mark.parametrize("reply", [EVENTS, OBJECT], ids=["events", "object"])
def test_the_final_chunk_marks_the_end_of_an_unpadded_answer(reply: Reply) -> None:
    enclave = MemoryEnclave(reply, parameters=UNPADDED)
    exchange, reader = seal_permitted(allowed(), QUERY, verified(enclave), now=NOW)
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
    exchange, reader = seal_permitted(allowed(), QUERY, verified(enclave), now=NOW)
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
    """Bytes on the wire up to the frame with the content's last one."""
    frame_bytes = enclave.parameters.frame_bytes
    head = len(bhttp.encode_response_head(200, [(b"content-type", reply.media_type)]))
    first = frame_bytes - head - 2
    more = max(len(reply.content) - first, 0)
    frames = 1 + math.ceil(more / (frame_bytes - 2))
    return 16 + frames * (2 + frame_bytes + 16)


@pytest.mark.parametrize("reply", [EVENTS, OBJECT], ids=["events", "object"])
def test_a_padded_answer_cut_before_its_end_mark_is_incomplete(
    reply: Reply, sample: Sample
) -> None:
    enclave = MemoryEnclave(reply)
    mark, frame = (
        finished_after(enclave, reply),
        2 + enclave.parameters.frame_bytes + 16,
    )
    for cut in sample(range(mark), edges=range(16, mark, frame)):
        exchange, reader = seal_permitted(allowed(), QUERY, verified(enclave), now=NOW)
        data = bytes(enclave.answer(exchange.take_body()))
        events = reader.push(data[:cut])
        assert not any(isinstance(each, Finished) for each in events)
        with pytest.raises(EnclaveError) as refused:
            reader.finish()
        assert refused.value.reason in CUT_SHORT


async def test_an_answer_of_another_shape_is_broken() -> None:
    """Its evidence promises frames of 128 bytes, and a bucket of them."""
    promised = MemoryEnclave()
    for frame_bytes, first in ((64, 4), (128, 3)):
        enclave = MemoryEnclave()
        enclave.keys, enclave.bundle = promised.keys, promised.bundle
        enclave.shape_of_answers = TransportParameters(
            frame_bytes=frame_bytes, period_ms=1, first_bucket=first, buckets=8
        )
        assert (await refusal(enclave)).reason is EnclaveFailure.ANSWER_BROKEN


async def test_an_answer_without_padding_is_broken_where_padding_is_promised() -> None:
    enclave = MemoryEnclave()
    enclave.shape_of_answers = UNPADDED
    assert (await refusal(enclave)).reason is EnclaveFailure.ANSWER_BROKEN


def test_the_answer_to_another_request_is_refused() -> None:
    """Also to the same question, asked before: nothing of it opens."""
    enclave = MemoryEnclave()
    earlier = bytes(enclave.answer(seal_body(enclave)))
    _, reader = seal_permitted(allowed(), QUERY, verified(enclave), now=NOW)
    with pytest.raises(EnclaveError) as refused:
        reader.push(earlier)
    assert refused.value.reason is EnclaveFailure.ANSWER_BROKEN


async def test_every_changed_byte_is_refused(sample: Sample) -> None:
    reply = Reply(content=sse(chunk(finish="stop")))
    enclave = MemoryEnclave(reply, parameters=TINY)
    whole = len(enclave.answer(seal_body(enclave)))
    for index in sample(range(whole), edges=range(16, whole, 2 + 64 + 16)):
        enclave.flip = index
        await refusal(enclave)


def seal_body(enclave: MemoryEnclave) -> bytes:
    return seal_permitted(allowed(), QUERY, verified(enclave), now=NOW)[0].take_body()


def failing(status: int) -> bytes:
    """An error reported in the content, after a head with 200."""
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
        (Reply(status=503), EnclaveFailure.BUSY),
        (Reply(status=429), EnclaveFailure.BUSY),
        (Reply(status=413), EnclaveFailure.TOO_LARGE),
        (Reply(status=400), EnclaveFailure.REFUSED_QUERY),
        (Reply(status=302), EnclaveFailure.REFUSED),
        (Reply(media_type=b"text/html"), EnclaveFailure.ANSWER_BROKEN),
        (Reply(content=b""), EnclaveFailure.ANSWER_INCOMPLETE),
        (Reply(content=sse(chunk("a"))), EnclaveFailure.ANSWER_INCOMPLETE),
        (
            Reply(content=sse(chunk("a"), chunk(finish="stop"), done=False)),
            EnclaveFailure.ANSWER_INCOMPLETE,
        ),
        (
            Reply(content=sse(chunk(finish="stop")) + sse(chunk("more"))),
            EnclaveFailure.ANSWER_BROKEN,
        ),
        (Reply(content=sse({"error": {}})), EnclaveFailure.ANSWER_INCOMPLETE),
        (Reply(content=sse([])), EnclaveFailure.ANSWER_BROKEN),
        (Reply(content=sse(odd_end([]))), EnclaveFailure.ANSWER_BROKEN),
        (Reply(content=sse(odd_end({}))), EnclaveFailure.ANSWER_BROKEN),
        (Reply(content=sse(with_logprob(10**400))), EnclaveFailure.ANSWER_BROKEN),
        (Reply(content=sse(with_logprob(math.nan))), EnclaveFailure.ANSWER_BROKEN),
        (Reply(content=sse(chunk("\ud800"))), EnclaveFailure.ANSWER_BROKEN),
        (Reply(content=sse({"choices": []})), EnclaveFailure.ANSWER_BROKEN),
        (Reply(content=sse(chunk(finish="odd"))), EnclaveFailure.ANSWER_BROKEN),
        (Reply(content=b"data: {\n\n"), EnclaveFailure.ANSWER_BROKEN),
        (Reply(content=b"event: x\n\n"), EnclaveFailure.ANSWER_INCOMPLETE),
        (Reply(content=failing(503)), EnclaveFailure.BUSY),
        (Reply(content=failing(504)), EnclaveFailure.TIMEOUT),
        (Reply(content=failing(500)), EnclaveFailure.MODEL_FAILED),
        (Reply(content=failing(200)), EnclaveFailure.ANSWER_INCOMPLETE),
        (
            Reply(
                content=sse(chunk("a"), done=False) + failing(503),
            ),
            EnclaveFailure.ANSWER_INCOMPLETE,
        ),
        (
            Reply(
                content=failing(429).removeprefix(b"data: "),
                media_type=b"application/json",
            ),
            EnclaveFailure.BUSY,
        ),
        (problem("about:blank", code="replayed"), EnclaveFailure.REFUSED),
        (problem(media.PROBLEM_DATE), EnclaveFailure.DATE_REFUSED),
        (
            Reply(content=b"{}", media_type=b"application/json"),
            EnclaveFailure.ANSWER_BROKEN,
        ),
        (
            Reply(
                content=b'{"choices": [{"message": {"content": 1}}]}',
                media_type=b"application/json",
            ),
            EnclaveFailure.ANSWER_BROKEN,
        ),
    ],
)
async def test_a_response_without_an_answer_is_refused(
    reply: Reply, reason: FailureReason
) -> None:
    failure = await refusal(MemoryEnclave(reply))
    assert failure.reason is reason


async def test_an_endless_answer_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_opener, "MAX_ANSWER_BYTES", 100)
    failure = await refusal(MemoryEnclave(parameters=UNPADDED))
    assert failure.reason is EnclaveFailure.ANSWER_BROKEN


@pytest.mark.parametrize("parameters", [QUICK, UNPADDED], ids=["padded", "not"])
async def test_a_refused_date_carries_the_enclaves(
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
    exchange, _ = seal_permitted(
        allowed(), QUERY, verified(enclave), now=NOW, skew=skew
    )
    enclave.answer(exchange.take_body())
    assert dict(enclave.requests[0].fields)[b"date"] == b"Sat, 21 Nov 2026 09:00:00 GMT"
    with pytest.raises(DateRefusedError):
        seal_permitted(allowed(), QUERY, verified(enclave), now=NOW, skew=timedelta.max)


@pytest.mark.parametrize("octets", [0, 1, 3000, 3500, 5000, 20_000, 200_000])
def test_a_request_has_exactly_the_length_of_its_class(octets: int) -> None:
    query = Query(messages=(Message(role="user", content="x" * octets),))
    key = verified(MemoryEnclave())
    body = seal_permitted(allowed(query), query, key, now=NOW)[0].take_body()
    assert len(body) in SIZE_CLASSES
    assert len(body) == size_class_of(len(query.payload().content), key, now=NOW)


def test_the_first_suite_of_the_list_is_used() -> None:
    enclave = MemoryEnclave()
    body = seal_body(enclave)
    assert body[:7] == bytes([41, 0x64, 0x7A, 0, 1, 0, 1])


def test_a_payload_beyond_all_classes_is_not_sealed() -> None:
    query = Query(messages=(Message(role="user", content="x" * SIZE_CLASSES[-1]),))
    key = verified(MemoryEnclave())
    for refused in (
        lambda: seal_permitted(allowed(query), query, key, now=NOW),
        lambda: size_class_of(len(query.payload().content), key, now=NOW),
        lambda: size_class_of(len(query.payload().content), None, now=NOW),
    ):
        with pytest.raises(EnclaveError) as error:
            refused()
        assert error.value.reason is EnclaveFailure.TOO_LARGE


def cover_permit(desk: PermitDesk, key: VerifiedKey) -> Permit[CoverBinding]:
    listed = hashlib.sha256(key.key_configs).digest()
    binding = CoverBinding(key=listed, release=key.release_digest)
    return desk.mint_without_query(binding, now_ms=time_ms(NOW))


def challenge_permit(desk: PermitDesk, key: VerifiedKey) -> Permit[ChallengeBinding]:
    listed = hashlib.sha256(key.key_configs).digest()
    binding = ChallengeBinding(key=listed, release=key.release_digest)
    return desk.mint_without_query(binding, now_ms=time_ms(NOW))


def cover(
    key: VerifiedKey, *, size_class: int = 4096, bucket: int = 0, now: datetime = NOW
) -> tuple[SealedExchange, AnswerReader]:
    desk = new_desk()
    permit = cover_permit(desk, KEY if key is UNVERIFIED else key)
    return seal_cover(
        permit, key, desk=desk, size_class=size_class, bucket=bucket, now=now
    )


UNVERIFIED = object.__new__(VerifiedKey)


@pytest.mark.parametrize("size", SIZE_CLASSES)
def test_a_dummy_has_the_length_of_a_query(size: int) -> None:
    enclave = MemoryEnclave()
    exchange, reader = cover(verified(enclave), size_class=size, bucket=3)
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
    named = {"permit", "key", "desk", "size_class", "bucket", "now", "skew"}
    assert set(parameters) == named
    assert CoverBinding.__slots__ == ("key", "release")


def test_a_dummy_needs_a_verified_key_in_force_and_a_bucket() -> None:
    with pytest.raises(TypeError, match="VerifiedKey"):
        cover(UNVERIFIED)
    with pytest.raises(RefusedError):
        cover(KEY, now=NOW + timedelta(days=2))
    unpadded = verified(MemoryEnclave(parameters=UNPADDED))
    for other, bucket in ((KEY, 8), (KEY, -1), (unpadded, 0)):
        with pytest.raises(EnclaveError):
            cover(other, bucket=bucket)


def test_a_dummy_needs_a_permit_of_its_own() -> None:
    desk, other = new_desk(), verified(MemoryEnclave(key_id=7))

    def sealed_with(permit: object, key: VerifiedKey = KEY) -> None:
        shown = cast("Permit[CoverBinding]", permit)
        seal_cover(shown, key, desk=desk, size_class=4096, bucket=0, now=NOW)

    query = permit_for(desk, allowed(), KEY, now=NOW)
    for forged in (None, query, challenge_permit(desk, KEY)):
        with pytest.raises(TypeError, match="CoverBinding"):
            sealed_with(forged)
    permit = cover_permit(desk, KEY)
    sealed_with(permit)
    refused_permit(PermitRefusal.USED, lambda: sealed_with(permit))
    foreign = cover_permit(desk, KEY)
    refused_permit(PermitRefusal.KEY, lambda: sealed_with(foreign, other))


def challenge(
    key: VerifiedKey, *, nonce: bytes = bytes(32), now: datetime = NOW
) -> None:
    desk = new_desk()
    permit = challenge_permit(desk, KEY)
    read = FreshEvidence(most_bytes=MAX_CPU_EVIDENCE_BYTES).read
    seal_challenge(permit, key, desk=desk, nonce=nonce, now=now, reader_of=read)


def test_a_challenge_needs_a_verified_key_in_force_and_a_nonce() -> None:
    challenge(KEY)
    with pytest.raises(TypeError, match="VerifiedKey"):
        challenge(UNVERIFIED)
    with pytest.raises(RefusedError) as refused:
        challenge(KEY, now=KEY.expires_at)
    assert refused.value.code is RefusalCode.STALE
    with pytest.raises(ValueError, match="32 bytes"):
        challenge(KEY, nonce=bytes(31))


def test_a_challenge_needs_a_permit_of_its_own() -> None:
    desk, other = new_desk(), verified(MemoryEnclave(key_id=7))

    def sealed_with(permit: object, key: VerifiedKey = KEY) -> None:
        shown, read = (
            cast("Permit[ChallengeBinding]", permit),
            FreshEvidence(most_bytes=MAX_CPU_EVIDENCE_BYTES).read,
        )
        seal_challenge(shown, key, desk=desk, nonce=bytes(32), now=NOW, reader_of=read)

    query = permit_for(desk, allowed(), KEY, now=NOW)
    for forged in (None, query, cover_permit(desk, KEY)):
        with pytest.raises(TypeError, match="ChallengeBinding"):
            sealed_with(forged)
    permit = challenge_permit(desk, KEY)
    sealed_with(permit)
    refused_permit(PermitRefusal.USED, lambda: sealed_with(permit))
    foreign = challenge_permit(desk, KEY)
    refused_permit(PermitRefusal.KEY, lambda: sealed_with(foreign, other))


def test_an_order_to_fetch_is_for_one_party_once_and_made_by_a_permit() -> None:
    with pytest.raises(TypeError):
        FetchOrder(object(), RELAY)
    given = order(Party.RELAY)
    given.take(RELAY)
    with pytest.raises(RuntimeError):
        given.take(RELAY)
    with pytest.raises(RuntimeError):
        order(Party.RELAY).take(MIRROR)
    for copied in (copy.copy, copy.deepcopy):
        with pytest.raises(TypeError):
            copied(order())
    full = PermitDesk(bytes(KEY_BYTES), bytes, most=0)
    with pytest.raises(EnclaveError) as refused:
        fetch_order(full, Party.RELAY, NOW)
    assert refused.value.reason is AttemptFailure.NOT_PERMITTED


def test_only_the_module_of_the_keys_makes_orders_to_fetch() -> None:
    client = Path(exchange_module.__file__).parents[1]
    naming = [path for path in client.rglob("*.py") if "FETCH_DOOR" in path.read_text()]
    assert sorted(path.name for path in naming) == ["fetch_order.py", "keys.py"]
