"""No answer is finished without its receipt; a verified one is kept."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from curtilage.attest.receipt import (
    KEY_FIELD,
    NO_MODEL,
    Receipt,
    encode_field,
    open_receipt,
)
from curtilage.cli.ask import keeping
from curtilage.client.audit.record import receipt_secret
from curtilage.client.audit.recorder import SaveTranscript
from curtilage.client.chat.answer import Answerer, Delta
from curtilage.client.chat.query import Message, Query
from curtilage.client.chat.receipt import Transcript
from curtilage.client.errors import ConfigError, IncompleteAnswerError
from curtilage.client.parts import ClientParts
from curtilage.client.remote.reasons import EnclaveFailure
from curtilage.client.remote.receipts import proves_answer, proves_question
from curtilage.client.remote.requests import Attempt
from curtilage.client.session import Session
from curtilage.policy.document.load import load_profile
from curtilage.wire.shaping import UNPADDED, TransportParameters
from support.client_parts import (
    ORGANISATION,
    MemoryTrail,
    ScriptedInspector,
    ScriptedLocal,
)
from support.memory_enclave import (
    QUICK,
    ROOMY,
    Clock,
    MemoryEnclave,
    Reply,
    key_store,
    sse,
    verified,
)

QUERY = Query(messages=(Message(role="user", content="canary-7c1e"),), stream=True)
SHAPES = pytest.mark.parametrize("shape", [ROOMY, UNPADDED], ids=["padded", "unpadded"])


class Bench:
    """A session whose enclave gives receipts, with a trail."""

    def __init__(
        self,
        shape: TransportParameters = ROOMY,
        *,
        save_transcript: SaveTranscript | None = None,
    ) -> None:
        self.trail = MemoryTrail()
        self.clock = Clock()
        self.enclave = MemoryEnclave(parameters=shape)
        self.local = ScriptedLocal()
        self.session = Session(
            ClientParts(
                policy=load_profile("default"),
                inspector=ScriptedInspector(),
                local=self.local,
                transport=self.enclave,
                keys=key_store(shape),
                audit=self.trail,
                clock=self.clock,
                save_transcript=save_transcript,
            )
        )

    async def cut(self) -> str:
        """Ask, expect the answer to be cut, and return what was shown of it."""
        shown: list[str] = []

        async def read() -> None:
            async for event in self.session.stream(QUERY):
                assert isinstance(event, Delta)
                shown.append(event.text)

        with pytest.raises(IncompleteAnswerError) as caught:
            await read()
        assert caught.value.reason is EnclaveFailure.RECEIPT_INVALID
        await self.session.close()
        return "".join(shown)


@SHAPES
async def test_an_answer_with_a_receipt_is_finished_and_kept(
    shape: TransportParameters,
) -> None:
    bench = Bench(shape)
    answer = await bench.session.ask(QUERY)
    await bench.session.close()
    assert answer.route is Answerer.ENCLAVE
    assert answer.finished.receipted
    (entry,) = bench.trail.entries
    (kept,) = bench.trail.receipts
    assert (kept.query, kept.attempt) == (entry.query, entry.attempt)
    receipt = open_receipt(kept.receipt, public_key=kept.public_key)
    assert receipt.status == 200
    secret = receipt_secret(ORGANISATION, kept.receipt_id)
    assert len(secret) == 32


@SHAPES
async def test_the_secret_is_the_organisations_and_is_sent_inside(
    shape: TransportParameters,
) -> None:
    bench = Bench(shape)
    await bench.session.ask(QUERY)
    await bench.session.close()
    (request,) = bench.enclave.requests
    (kept,) = bench.trail.receipts

    secret = receipt_secret(ORGANISATION, kept.receipt_id)
    assert dict(request.fields)[KEY_FIELD] == encode_field(secret)


async def test_a_receipt_is_verified_while_the_rest_is_still_to_come() -> None:
    bench = Bench()
    hold_after_the_receipt(bench.enclave)
    answer = await bench.session.ask(QUERY)
    assert answer.finished.receipted
    assert len(bench.trail.receipts) == 1
    assert (bench.session.unsettled, bench.enclave.ended.is_set()) == (1, False)
    bench.enclave.go.set()
    await bench.session.close()
    assert (bench.session.unsettled, bench.enclave.ended.is_set()) == (0, True)
    assert len(bench.trail.receipts) == 1


async def test_the_receipt_of_an_answer_that_fills_its_bucket_is_kept() -> None:
    # Two frames, as sent: the content, and the end with the receipt.
    bench = Bench(replace(ROOMY, first_bucket=2))
    answer = await bench.session.ask(QUERY)
    assert answer.finished.receipted
    assert len(bench.trail.receipts) == 1
    await bench.session.close()
    assert bench.enclave.ended.is_set()


async def test_a_wrong_receipt_is_refused_at_once_and_the_rest_is_read() -> None:
    bench = Bench()
    hold_after_the_receipt(bench.enclave)
    bench.enclave.receipt = CHANGES["answer"]
    with pytest.raises(IncompleteAnswerError):
        await bench.session.ask(QUERY)
    assert not bench.enclave.left.is_set()
    bench.enclave.go.set()
    await bench.session.close()
    assert (bench.enclave.ended.is_set(), bench.enclave.left.is_set()) == (True, False)


async def test_a_fault_while_the_receipt_is_kept_does_not_show_on_the_wire(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(Attempt, "keep", fail)
    bench = Bench()
    hold_after_the_receipt(bench.enclave)
    with pytest.raises(MemoryError):
        await bench.session.ask(QUERY)
    assert not bench.enclave.left.is_set()
    bench.enclave.go.set()
    await bench.session.close()
    assert (bench.enclave.ended.is_set(), bench.enclave.left.is_set()) == (True, False)


def hold_after_the_receipt(enclave: MemoryEnclave) -> None:
    """Send the content's frame and the receipt's; the rest after ``go``."""
    enclave.reply = replace(enclave.reply, frames=ROOMY.frames_of(2))
    enclave.held = 16 + 2 * (2 + ROOMY.frame_bytes + 16)


CHANGES: dict[str, Callable[[Receipt], Receipt]] = {
    "status": lambda receipt: replace(receipt, status=503),
    "too early": lambda receipt: replace(receipt, served_at=receipt.served_at - 61),
    "too late": lambda receipt: replace(receipt, served_at=receipt.served_at + 61),
    "key list": lambda receipt: replace(receipt, key_configs_digest=bytes(32)),
    "release": lambda receipt: replace(receipt, release_digest=bytes(32)),
    "model": lambda receipt: replace(receipt, model_digest=b"\1" * 32),
    "no model": lambda receipt: replace(receipt, model_digest=NO_MODEL),
    "question": lambda receipt: replace(receipt, request_mac=bytes(32)),
    "answer": lambda receipt: replace(receipt, answer_mac=bytes(32)),
}


@pytest.mark.parametrize("off_s", [-60, 60])
async def test_an_enclaves_clock_may_be_off_by_the_window(off_s: int) -> None:
    bench = Bench()
    bench.enclave.receipt = lambda receipt: replace(
        receipt, served_at=receipt.served_at + off_s
    )
    assert (await bench.session.ask(QUERY)).finished.receipted
    await bench.session.close()


async def test_a_receipt_from_after_the_keys_window_is_cut() -> None:
    bench = Bench()
    key = verified(bench.enclave)
    bench.clock.now = key.not_after - timedelta(seconds=5)
    bench.enclave.receipt = lambda receipt: replace(
        receipt, served_at=int(key.not_after.timestamp())
    )
    assert await bench.cut() == "From afar."
    bench.enclave.receipt = lambda receipt: replace(
        receipt, served_at=int(key.not_after.timestamp()) - 1
    )
    assert (await bench.session.ask(QUERY)).finished.receipted


@pytest.mark.parametrize("change", CHANGES)
async def test_an_answer_with_another_receipt_is_cut(change: str) -> None:
    bench = Bench()
    bench.enclave.receipt = CHANGES[change]
    assert await bench.cut() == "From afar."
    assert bench.trail.receipts == []
    assert [each.fallback for each in bench.trail.entries] == ["", "receipt_invalid"]


@SHAPES
async def test_an_answer_without_a_receipt_is_cut(shape: TransportParameters) -> None:
    bench = Bench(shape)
    bench.enclave.receipt = None
    assert await bench.cut() == "From afar."
    assert bench.local.asked == [], "what was shown is not answered again elsewhere"


async def test_an_answer_with_two_receipts_is_cut() -> None:
    bench = Bench(UNPADDED)
    bench.enclave.copies = 2
    assert await bench.cut() == "From afar."
    assert bench.trail.receipts == []


async def test_a_receipt_by_another_key_is_refused() -> None:
    bench = Bench()
    await bench.session.verified_key()
    bench.enclave.receipt_key = type(bench.enclave.receipt_key).generate()
    await bench.cut()


async def test_an_empty_answer_without_a_receipt_is_answered_here() -> None:
    bench = Bench()
    bench.enclave.receipt = None
    bench.enclave.reply = Reply(content=sse(chunk_of_nothing()))
    answer = await bench.session.ask(QUERY)
    assert answer.route is Answerer.LOCAL
    assert answer.provenance.fallback is EnclaveFailure.RECEIPT_INVALID


def chunk_of_nothing() -> dict[str, object]:
    return {"choices": [{"delta": {}, "finish_reason": "stop"}]}


async def test_a_release_without_receipts_promises_none() -> None:
    bench = Bench(QUICK)
    answer = await bench.session.ask(QUERY)
    assert answer.route is Answerer.ENCLAVE
    assert not answer.finished.receipted
    assert bench.trail.receipts == []

    assert KEY_FIELD not in dict(bench.enclave.requests[0].fields)


async def test_a_caller_that_stops_early_still_gets_the_receipt() -> None:
    """The exchange runs to its end, so the receipt comes and is kept."""
    bench = Bench()
    stream = bench.session.stream(QUERY)
    await anext(aiter(stream))
    await stream.aclose()
    await bench.session.close()
    assert len(bench.trail.receipts) == 1


async def test_without_an_organisations_key_receipts_are_verified_not_kept() -> None:
    bench = Bench()

    async def none(receipt_id: bytes) -> None:
        del receipt_id

    bench.trail.receipt_secret = none  # type: ignore[method-assign]
    answer = await bench.session.ask(QUERY)
    assert answer.finished.receipted
    await bench.session.close()
    assert bench.trail.receipts == []


async def test_a_receipt_that_cannot_be_kept_takes_no_answer_away() -> None:
    bench = Bench()

    async def fail(entry: object) -> bool:
        del entry
        return False

    bench.trail.append_receipt = fail  # type: ignore[method-assign]
    assert (await bench.session.ask(QUERY)).finished.receipted


@SHAPES
async def test_the_transcript_is_what_the_receipt_covers(
    shape: TransportParameters,
) -> None:
    taken: dict[str, Transcript] = {}
    bench = Bench(shape, save_transcript=taken.__setitem__)
    await bench.session.ask(QUERY)
    await bench.session.close()
    (kept,) = bench.trail.receipts
    transcript = taken[kept.query]
    receipt = open_receipt(kept.receipt, public_key=kept.public_key)
    secret = receipt_secret(ORGANISATION, kept.receipt_id)
    assert transcript.question == QUERY.payload().content
    assert proves_question(receipt, secret, transcript.question)
    assert proves_answer(receipt, secret, bytes(transcript.answer))
    assert not proves_answer(receipt, secret, bytes(transcript.answer) + b" ")
    assert "canary" not in repr(transcript)


async def test_nothing_is_taken_down_unasked_or_without_a_receipt() -> None:
    taken: dict[str, Transcript] = {}
    bench = Bench(save_transcript=taken.__setitem__)
    bench.enclave.receipt = None
    await bench.cut()
    assert taken == {}


def test_kept_files_are_private_and_new(tmp_path: Path) -> None:
    keep = keeping(tmp_path)
    transcript = Transcript(question=b"asked", answer=bytearray(b"answered"))
    keep("ab" * 8, transcript)
    for name, content in (("question", b"asked"), ("answer", b"answered")):
        path = tmp_path / f"{'ab' * 8}.{name}"
        assert path.read_bytes() == content
        assert path.stat().st_mode & 0o077 == 0
    keep("ab" * 8, Transcript(question=b"other"))
    assert (tmp_path / f"{'ab' * 8}.question").read_bytes() == b"asked"
    with pytest.raises(ConfigError):
        keeping(tmp_path / "nowhere")
