"""An enclave and its relay in memory: real keys, real evidence, no socket."""

import dataclasses
import json
from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta
from functools import cache

from curtilage.attest.evidence import encode_bundle
from curtilage.attest.verify import VerifiedKey, verify
from curtilage.client.enclaves import EnclaveBook
from curtilage.client.errors import EnclaveError, FailureReason
from curtilage.client.exchange import SealedExchange
from curtilage.wire import bhttp, chunked
from curtilage.wire.encapsulation import GatewayKey
from curtilage.wire.keyconfig import (
    KeyConfig,
    SymmetricAlgorithms,
    encode_key_configs,
)
from curtilage.wire.suite import generate_private_key
from curtilage_dev.deployment import Deployment, make_deployment
from curtilage_dev.pki import RootKeys, generate_root_keys, make_platform

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
X25519 = 0x0020


@cache
def root_keys() -> RootKeys:
    """Two RSA keys take seconds: one pair serves the whole run."""
    return generate_root_keys()


@cache
def deployment() -> Deployment:
    return make_deployment(make_platform(root_keys(), now=NOW), now=NOW)


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
    """What the enclave answers inside the seal."""

    content: bytes = sse(chunk("From "), chunk("afar."), chunk(finish="stop"))
    status: int = 200
    media_type: bytes = b"text/event-stream"


class MemoryEnclave:
    """Opens what is sealed to it and answers as told; also the way to it.

    ``cut``: end the body after so many bytes. ``flip``: change this byte of the
    answer. ``fails``: raised instead of an answer.
    """

    def __init__(self, reply: Reply | None = None, *, key_id: int = 41) -> None:
        self.reply = reply or Reply()
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
        """Make a new key and evidence for it."""
        private = generate_private_key(X25519)
        config = KeyConfig(
            key_id=key_id,
            kem_id=X25519,
            public_key=private.public_key,
            algorithms=(SymmetricAlgorithms(kdf_id=1, aead_id=1),),
        )
        self.keys = {key_id: GatewayKey(config=config, private_key=private)}
        bundle = deployment().bundle()
        ours = dataclasses.replace(bundle, key_configs=encode_key_configs([config]))
        self.bundle = encode_bundle(deployment().attest(ours))

    async def fetch_bundle(self) -> bytes:
        self.fetched += 1
        if self.fetch_fails is not None:
            raise self.fetch_fails
        return self.bundle

    async def send(self, exchange: SealedExchange) -> AsyncGenerator[bytes]:
        body = exchange.take_body()
        self.sealed.append(body)
        if body[0] not in self.keys:
            raise EnclaveError(FailureReason.KEY_UNKNOWN)
        if self.fails is not None:
            raise self.fails
        answer = self.answer(body)
        if self.flip is not None:
            answer[self.flip] ^= 1
        data = bytes(answer[: self.cut])
        for start in range(0, len(data), 50):
            yield data[start : start + 50]

    async def close(self) -> None:
        self.closed = True

    def answer(self, body: bytes) -> bytearray:
        request, sealer = chunked.open_chunked_request(self.keys, body)
        self.requests.append(bhttp.decode_request(request))
        fields = [(b"content-type", self.reply.media_type)]
        head = bhttp.encode_response_head(self.reply.status, fields)
        answer = bytearray(sealer.begin())
        answer += sealer.seal(head)
        for start in range(0, len(self.reply.content), 40):
            piece = self.reply.content[start : start + 40]
            answer += sealer.seal(bhttp.encode_content_chunk(piece))
        answer += sealer.finish(bhttp.encode_content_end())
        return answer


def book() -> EnclaveBook:
    return EnclaveBook(expectations=deployment().expectations())


def verified(enclave: MemoryEnclave) -> VerifiedKey:
    return _verified(enclave.bundle)


@cache
def _verified(bundle: bytes) -> VerifiedKey:
    return verify(bundle, deployment().expectations(), now=NOW)


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        return self.now

    def move(self, **kinds: float) -> None:
        self.now += timedelta(**kinds)
