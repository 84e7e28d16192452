"""An enclave and its relay in memory: real keys, real evidence, no socket."""

import asyncio
import dataclasses
import json
from collections.abc import AsyncGenerator, Iterator
from datetime import UTC, datetime, timedelta
from functools import cache

from curtilage.attest.evidence import encode_bundle
from curtilage.attest.verify import VerifiedKey, verify
from curtilage.client.enclaves import EnclaveBook
from curtilage.client.errors import EnclaveError, FailureReason
from curtilage.client.exchange import SealedExchange
from curtilage.wire import bhttp, chunked, media
from curtilage.wire.dates import format_date
from curtilage.wire.encapsulation import GatewayKey
from curtilage.wire.frames import AnswerFramer, Frame, fill_event_stream, fill_json
from curtilage.wire.keyconfig import (
    KeyConfig,
    SymmetricAlgorithms,
    encode_key_configs,
)
from curtilage.wire.shaping import Shape, TransportParameters
from curtilage.wire.suite import KEM_X25519, KEM_XWING, generate_private_key
from curtilage_dev.deployment import Deployment, make_deployment, make_manifest
from curtilage_dev.pki import RootKeys, generate_root_keys, make_platform

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
WINDOW = timedelta(hours=12)
QUICK = TransportParameters(frame_bytes=128, period_ms=1, first_bucket=4, buckets=8)


@cache
def root_keys() -> RootKeys:
    """Two RSA keys take seconds: one pair serves the whole run."""
    return generate_root_keys()


def deployment(parameters: TransportParameters = QUICK) -> Deployment:
    return _deployment(parameters)


@cache
def _deployment(parameters: TransportParameters) -> Deployment:
    manifest = make_manifest(NOW, transport=parameters)
    platform = make_platform(root_keys(), now=NOW)
    return make_deployment(platform, now=NOW, manifest=manifest)


def sse(*objects: object, done: bool = True) -> bytes:
    events = b"".join(
        b"data: " + json.dumps(value).encode() + b"\n\n" for value in objects
    )
    return events + (b"data: [DONE]\n\n" if done else b"")


def chunk(text: str | None = None, finish: str | None = None) -> dict[str, object]:
    delta = {} if text is None else {"content": text}
    value: dict[str, object] = {"choices": [{"delta": delta, "finish_reason": finish}]}
    if finish is not None:
        value["usage"] = {"prompt_tokens": 4, "completion_tokens": 2}
    return value


def completion(text: str) -> bytes:
    value = {
        "choices": [{"message": {"content": text}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 4, "completion_tokens": 2},
    }
    return json.dumps(value).encode()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What the enclave answers inside the seal.

    ``frames`` is the least number of them, where the answer is padded.
    """

    content: bytes = sse(chunk("From "), chunk("afar."), chunk(finish="stop"))
    status: int = 200
    media_type: bytes = b"text/event-stream"
    fields: tuple[bhttp.Field, ...] = ()
    frames: int = 0


def problem(
    kind: str, *, date: datetime | None = None, code: str = "invalid_date"
) -> Reply:
    """An inner refusal with words (RFC 9457)."""
    fields = () if date is None else ((b"date", format_date(date)),)
    return Reply(
        content=json.dumps({"type": kind, "code": code}).encode(),
        status=400,
        media_type=media.PROBLEM_JSON.encode(),
        fields=fields,
    )


class MemoryEnclave:
    """Opens what is sealed to it and answers as told; also the way to it.

    ``cut``: end the body after so many bytes. ``flip``: change this byte of the
    answer. ``fails``: raised instead of an answer. ``replies``: answers to give
    first, one each. ``held``: pause the body after so many bytes until ``go``.
    ``begun`` is set with the first request.
    ``ended`` is set when a body was read to its end, ``left`` when it was not.
    """

    def __init__(
        self,
        reply: Reply | None = None,
        *,
        key_id: int = 41,
        parameters: TransportParameters = QUICK,
    ) -> None:
        self.reply = reply or Reply()
        self.replies: list[Reply] = []
        self.parameters = self.shape_of_answers = parameters
        self.rotations = 0
        self.held: int | None = None
        self.go = asyncio.Event()
        self.begun = asyncio.Event()
        self.ended = asyncio.Event()
        self.left = asyncio.Event()
        self.cut: int | None = None
        self.flip: int | None = None
        self.fails: EnclaveError | None = None
        self.fetch_fails: EnclaveError | None = None
        self.requests: list[bhttp.Request] = []
        self.sealed: list[bytes] = []
        self.fetched = 0
        self.closed = False
        self.rotate(key_id)

    def rotate(self, key_id: int) -> None:
        """Make new keys, whose window begins a minute later, and evidence."""
        xwing = make_key(key_id, KEM_XWING)
        x25519 = make_key((key_id + 100) % 256, KEM_X25519)
        self.keys = {key.config.key_id: key for key in (xwing, x25519)}
        self.key_configs = encode_key_configs([xwing.config, x25519.config])
        self.attest(NOW - timedelta(hours=1) + timedelta(minutes=self.rotations))
        self.rotations += 1

    def attest(self, begins: datetime) -> None:
        """Make evidence for the keys and a window."""
        ours = deployment(self.parameters)
        bundle = dataclasses.replace(
            ours.bundle(),
            key_configs=self.key_configs,
            not_before=int(begins.timestamp()),
            not_after=int((begins + WINDOW).timestamp()),
        )
        self.bundle = encode_bundle(ours.attest(bundle))

    async def fetch_bundle(self) -> bytes:
        self.fetched += 1
        if self.fetch_fails is not None:
            raise self.fetch_fails
        return self.bundle

    async def send(self, exchange: SealedExchange) -> AsyncGenerator[bytes]:
        body = exchange.take_body()
        self.sealed.append(body)
        self.begun.set()
        if body[0] not in self.keys:
            raise EnclaveError(FailureReason.KEY_UNKNOWN)
        if self.fails is not None:
            raise self.fails
        answer = self.answer(body)
        if self.flip is not None:
            answer[self.flip] ^= 1
        self.ended.clear()
        self.left.clear()
        try:
            async for data in self.body(bytes(answer[: self.cut])):
                yield data
        except BaseException:
            self.left.set()
            raise
        self.ended.set()

    async def body(self, data: bytes) -> AsyncGenerator[bytes]:
        held = len(data) if self.held is None else self.held
        for start in range(0, held, 50):
            yield data[start : min(start + 50, held)]
        if self.held is not None:
            await self.go.wait()
        for start in range(held, len(data), 50):
            yield data[start : start + 50]

    async def close(self) -> None:
        self.closed = True

    def answer(self, body: bytes) -> bytearray:
        request, sealer = chunked.open_chunked_request(self.keys, body)
        decoded = bhttp.decode_request(request)
        self.requests.append(decoded)
        reply = self.replies.pop(0) if self.replies else self.reply
        if decoded.path == b"/v1/cover":
            frames = self.parameters.frames_of(json.loads(decoded.content)["bucket"])
            reply = Reply(content=b"{}", media_type=b"application/json", frames=frames)
        fields = [(b"content-type", reply.media_type), *reply.fields]
        head = bhttp.encode_response_head(reply.status, fields)
        answer = bytearray(sealer.begin())
        for plaintext, final in self.plaintexts(reply, head):
            answer += (sealer.finish if final else sealer.seal)(plaintext)
        return answer

    def plaintexts(self, reply: Reply, head: bytes) -> list[tuple[bytes, bool]]:
        """Cut an answer as the release says."""
        parameters = self.shape_of_answers  # what is promised, unless it lies
        if parameters.shape is not Shape.PADDED:
            starts = range(0, len(reply.content), 40)
            pieces = [reply.content[start : start + 40] for start in starts]
            chunks = [bhttp.encode_content_chunk(piece) for piece in pieces]
            end = (bhttp.encode_content_end(), True)
            return [(head, False), *((chunk, False) for chunk in chunks), end]
        events = reply.media_type == b"text/event-stream"
        framer = AnswerFramer(
            parameters,
            head,
            filler=fill_event_stream if events else fill_json,
            least_bucket=parameters.bucket_of(reply.frames),
        )
        framer.write(reply.content)
        framer.end()
        return [(frame.plaintext, frame.final) for frame in every_frame(framer)]


def every_frame(framer: AnswerFramer) -> Iterator[Frame]:
    while not framer.over:
        yield framer.next()


def make_key(key_id: int, kem_id: int) -> GatewayKey:
    private = generate_private_key(kem_id)
    config = KeyConfig(
        key_id=key_id,
        kem_id=kem_id,
        public_key=private.public_key,
        algorithms=(SymmetricAlgorithms(kdf_id=1, aead_id=1),),
    )
    return GatewayKey(config=config, private_key=private)


def book(parameters: TransportParameters = QUICK) -> EnclaveBook:
    return EnclaveBook(expectations=deployment(parameters).expectations())


def verified(enclave: MemoryEnclave) -> VerifiedKey:
    return _verified(enclave.bundle, enclave.parameters)


@cache
def _verified(bundle: bytes, parameters: TransportParameters) -> VerifiedKey:
    return verify(bundle, deployment(parameters).expectations(), now=NOW)


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        return self.now

    def move(self, **kinds: float) -> None:
        self.now += timedelta(**kinds)
