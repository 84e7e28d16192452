"""An enclave and its relay in memory: real keys, real evidence, no socket."""

import asyncio
import dataclasses
import json
import ssl
from base64 import b64encode
from collections.abc import AsyncGenerator, Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from hashlib import sha256
from http import HTTPStatus
from typing import Final

from curtilage.attest.binding import challenge_report_data
from curtilage.attest.evidence import SnpEvidence
from curtilage.attest.evidence_json import (
    encode_bundle,
    encode_cpu_evidence,
    parse_bundle,
)
from curtilage.attest.expectations import Expectations
from curtilage.attest.log.manifest import parse_manifest
from curtilage.attest.receipt import (
    KEY_FIELD,
    NO_MODEL,
    RECEIPT_FIELD,
    Receipt,
    ReceiptKey,
    answer_mac,
    decode_field,
    encode_field,
    request_mac,
    sign_receipt,
)
from curtilage.attest.verify import VerifiedKey, verify
from curtilage.client.errors import EnclaveError
from curtilage.client.remote.fetch_order import RELAY, FetchOrder
from curtilage.client.remote.key_store import KeyStore
from curtilage.client.remote.reasons import EnclaveFailure
from curtilage.client.remote.seal import CHAT_PATH
from curtilage.client.remote.sealed import SealedExchange
from curtilage.policy.document.load import load_profile, profile_text
from curtilage.policy.document.model import Policy
from curtilage.wire import bhttp, chunked, media
from curtilage.wire.dates import format_date, parse_date
from curtilage.wire.encapsulation import GatewayKey
from curtilage.wire.frames import AnswerFramer, Frame, fill_event_stream, fill_json
from curtilage.wire.hpke.suite import KEM_X25519, KEM_XWING, generate_private_key
from curtilage.wire.keyconfig import (
    KeyConfig,
    SymmetricAlgorithms,
    encode_key_configs,
)
from curtilage.wire.shaping import Shape, TransportParameters
from curtilage_dev.deployment import (
    MEASUREMENT,
    Deployment,
    make_deployment,
    make_manifest,
)
from curtilage_dev.emulated.snp_pki import (
    EmulatedPlatform,
    RootKeys,
    generate_root_keys,
    make_platform,
)
from support.evidence_policies import BASE, SNP, SNP_MINIMUM

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
WINDOW = timedelta(hours=12)
QUICK = TransportParameters(frame_bytes=128, period_ms=1, first_bucket=4, buckets=8)
ROOMY = TransportParameters(frame_bytes=512, period_ms=1, first_bucket=4, buckets=6)
"""Frames that have room for a receipt."""
MIN_RECEIPT_FRAME: Final = 384


@cache
def root_keys() -> RootKeys:
    """Two RSA keys take seconds: one pair serves the whole run."""
    return generate_root_keys()


def deployment(parameters: TransportParameters = QUICK) -> Deployment:
    return _deployment(parameters)


@cache
def machine() -> EmulatedPlatform:
    """The one machine that every ``MemoryEnclave`` runs on."""
    return make_platform(root_keys(), now=NOW)


@cache
def _deployment(parameters: TransportParameters) -> Deployment:
    manifest = make_manifest(NOW, transport=parameters)
    return make_deployment(machine(), now=NOW, manifest=manifest)


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


def report_over(report_data: bytes, *, measurement: bytes = MEASUREMENT) -> SnpEvidence:
    """Evidence of the machine that every enclave here runs on."""
    fields = machine().report_fields(report_data=report_data, measurement=measurement)
    return machine().evidence(fields, now=NOW)


def evidence_reply(evidence: bytes) -> Reply:
    """An answer to a challenge."""
    return Reply(content=b'{"evidence":%b}' % evidence, media_type=b"application/json")


class MemoryEnclave:
    """Opens sealed requests and answers as configured; also the transport to it.

    ``cut``: end the body after so many bytes. ``flip``: change this byte of the
    answer. ``fails``: raised instead of an answer. ``replies``: answers to give
    first, one each. ``held``: pause the body after so many bytes until ``go``.
    ``begun`` is set with the first request.
    ``receipt``: changes the receipt before it is sent; None: leaves it out.
    ``copies``: how often the receipt is sent.
    ``challenged``: what is answered to a challenge, given its nonce and B0.
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
        self.receipt: Callable[[Receipt], Receipt] | None = lambda receipt: receipt
        self.copies = 1
        self.receipt_key = ReceiptKey(bytes(range(32)))
        self.challenges: list[bytes] = []
        self.challenged: Callable[[bytes, bytes], Reply] = self.show_yourself
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
            receipt_public_key=self.receipt_key.public_key if self.receipts else b"",
        )
        self.bundle = encode_bundle(ours.attest(bundle))

    @property
    def receipts(self) -> bool:
        """Whether answers have room for a receipt."""
        shaped = self.parameters.shape is Shape.PADDED
        return not shaped or self.parameters.frame_bytes >= MIN_RECEIPT_FRAME

    def show_yourself(self, nonce: bytes, b0: bytes) -> Reply:
        """Answer a challenge as it should be."""
        data = challenge_report_data(b0, nonce, emulated=True)
        return evidence_reply(encode_cpu_evidence(report_over(data)))

    async def fetch_bundle(self, order: FetchOrder) -> bytes:
        order.take(RELAY)
        self.fetched += 1
        if self.fetch_fails is not None:
            raise self.fetch_fails
        return self.bundle

    async def send(self, exchange: SealedExchange) -> AsyncGenerator[bytes]:
        body = exchange.take_body()
        self.sealed.append(body)
        self.begun.set()
        if body[0] not in self.keys:
            raise EnclaveError(EnclaveFailure.KEY_UNKNOWN)
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
        if decoded.path == b"/v1/challenge":
            self.challenges.append(decoded.content)
            asked = json.loads(decoded.content)
            reply = self.challenged(
                bytes.fromhex(asked["nonce"]), bytes.fromhex(asked["b0"])
            )
        else:
            self.requests.append(decoded)
            reply = self.replies.pop(0) if self.replies else self.reply
        if decoded.path == b"/v1/cover":
            frames = self.parameters.frames_of(json.loads(decoded.content)["bucket"])
            reply = Reply(content=b"{}", media_type=b"application/json", frames=frames)
        fields = [(b"content-type", reply.media_type), *reply.fields]
        head = bhttp.encode_response_head(reply.status, fields)
        answer = bytearray(sealer.begin())
        trail = _Signs(self, decoded, reply)
        for plaintext, final in self.plaintexts(reply, head, trail):
            answer += (sealer.finish if final else sealer.seal)(plaintext)
        return answer

    def plaintexts(
        self, reply: Reply, head: bytes, signs: "_Signs"
    ) -> list[tuple[bytes, bool]]:
        """Cut an answer as the release says."""
        parameters = self.shape_of_answers  # what is promised, unless it lies
        if parameters.shape is not Shape.PADDED:
            starts = range(0, len(reply.content), 40)
            pieces = [reply.content[start : start + 40] for start in starts]
            chunks = [bhttp.encode_content_chunk(piece) for piece in pieces]
            signs.mac.update(reply.content)
            end = (bhttp.encode_content_end(signs.trailers()), True)
            return [(head, False), *((chunk, False) for chunk in chunks), end]
        events = reply.media_type == b"text/event-stream"
        framer = AnswerFramer(
            parameters,
            head,
            filler=fill_event_stream if events else fill_json,
            least_bucket=parameters.bucket_of(reply.frames),
        )
        framer.write(reply.content)
        framer.end(signs.trailers)
        found: list[tuple[bytes, bool]] = []
        for frame in every_frame(framer):
            signs.mac.update(frame.content)
            found.append((frame.plaintext, frame.final))
        return found


class _Signs:
    """Follows one answer and makes its receipt."""

    def __init__(
        self, enclave: MemoryEnclave, request: bhttp.Request, reply: Reply
    ) -> None:
        self._enclave, self._request, self._reply = enclave, request, reply
        given = dict(request.fields).get(KEY_FIELD)
        # As for the enclave: without the field there is nothing to sign for.
        self._secret = None if given is None else decode_field(given, length=32)
        self.mac = answer_mac(self._secret or bytes(32))

    def trailers(self) -> tuple[bhttp.Field, ...]:
        """Return the receipt, once all content is known."""
        enclave = self._enclave
        if self._secret is None or enclave.receipt is None:
            return ()
        bundle = parse_bundle(enclave.bundle)
        receipt = Receipt(
            status=self._reply.status,
            served_at=self._opened_at(),
            key_configs_digest=sha256(bundle.key_configs).digest(),
            release_digest=sha256(bundle.release.manifest).digest(),
            model_digest=self._model(bundle.release.manifest),
            request_mac=request_mac(self._secret, self._request.content),
            answer_mac=self.mac.digest(),
        )
        signed = sign_receipt(enclave.receipt(receipt), enclave.receipt_key)
        return ((RECEIPT_FIELD, encode_field(signed)),) * enclave.copies

    def _opened_at(self) -> int:
        """Take the date in the request for the enclave's clock."""
        date = parse_date(dict(self._request.fields)[b"date"])
        assert date is not None
        return int(date.timestamp())

    def _model(self, manifest: bytes) -> bytes:
        """Name the release's model where it is what answered."""
        asked = self._request.path == CHAT_PATH and self._reply.status == HTTPStatus.OK
        return _first_model(manifest) if asked else NO_MODEL


def _first_model(manifest: bytes) -> bytes:
    models = sorted(parse_manifest(manifest).models)
    return bytes.fromhex(models[0]) if models else NO_MODEL


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


def deployment_policy() -> str:
    """Return the text of a policy that accepts every quick enclave here."""
    expected = deployment().expectations()
    log, shape = expected.log, QUICK
    pem = ssl.DER_cert_to_PEM_cert(expected.roots[0].certificate_der)
    section = {
        **BASE,
        "environment": "development",
        "trust_anchors": [{"kind": "emulated", "product": "Genoa", "certificate": pem}],
        "required_cpu_tees": sorted(expected.required_cpu_tees),
        "releases": {
            "names": sorted(expected.release_names),
            "log": {
                "origin": log.origin,
                "key": b64encode(log.public_key).decode(),
                "witnesses": [
                    {"name": name, "key": b64encode(key).decode()}
                    for name, key in log.witnesses.items()
                ],
                "quorum": log.quorum,
            },
            "max_checkpoint_age_s": log.max_checkpoint_age_s,
        },
        "snp": {**SNP, "min_tcb": [{**SNP_MINIMUM, "product": "Genoa"}]},
    }
    frames = {
        name: getattr(shape, name)
        for name in ("frame_bytes", "period_ms", "first_bucket", "buckets")
    }
    return "\n".join(
        [
            profile_text("default"),
            f"attestation: {json.dumps(section)}",
            f"transport: {json.dumps({'accept': [frames]})}",
        ]
    )


def key_store(
    parameters: TransportParameters = QUICK, *, policy: Policy | None = None
) -> KeyStore:
    """Return one that verifies under a policy; None: the default profile."""
    return KeyStore(expectations=expectations(parameters, policy))


def expectations(
    parameters: TransportParameters = QUICK, policy: Policy | None = None
) -> Expectations:
    """Return those of the deployment, as if they were a policy's own."""
    digest = (policy or load_profile("default")).digest
    return dataclasses.replace(deployment(parameters).expectations(), digest=digest)


def verified(enclave: MemoryEnclave) -> VerifiedKey:
    return _verified(enclave.bundle, enclave.parameters)


@cache
def _verified(bundle: bytes, parameters: TransportParameters) -> VerifiedKey:
    return verify(bundle, expectations(parameters), now=NOW)


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        return self.now

    def move(self, **kinds: float) -> None:
        self.now += timedelta(**kinds)
