"""Receipts and challenges through the whole service, as a client checks them."""

import asyncio
import json
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from curtilage.attest.evidence import Tee
from curtilage.attest.receipt import (
    KEY_FIELD,
    NO_MODEL,
    RECEIPT_BYTES,
    Receipt,
    ReceiptExpectation,
    answer_mac,
    decode_field,
    encode_field,
    request_mac,
    verify_receipt,
)
from curtilage.attest.verify import VerifiedKey, verify, verify_challenge
from curtilage.enclave_server.config import ChallengeChoice, EnclaveConfig
from curtilage.enclave_server.model import Model
from curtilage.enclave_server.service import Surroundings, running
from curtilage.wire import bhttp
from curtilage.wire.keyconfig import parse_key_configs
from curtilage.wire.shaping import UNPADDED, TransportParameters
from curtilage_dev.scripted_engine import SCRIPTED_INFO, ScriptedEngine
from support.enclave_deployment import AnyWorld, make_any_world
from support.enclave_parts import (
    CHUNKED,
    PLAIN,
    QUICK,
    ask,
    chat_body,
    dated,
    error_code,
    exchange,
    get,
    inner_request,
    seal,
)

SECRET, NONCE = bytes(range(32)), b"n" * 32
CANARY = "canary-d4c3"


def surroundings(world: AnyWorld, notices: list[str]) -> Surroundings:
    async def open_model(_config: EnclaveConfig) -> Model:
        engine = ScriptedEngine()
        await engine.start()
        return Model(engine)

    return Surroundings(
        out=notices.append,
        notice=notices.append,
        open_model=open_model,
        open_evidence=lambda _config: world.evidence,
        clock=world.clock,
    )


class Client:
    """Fetches the bundle, verifies it, and sends a request with a receipt key."""

    def __init__(self, world: AnyWorld, address: str) -> None:
        self._world = world
        self._address = address
        self.outer_bytes: list[int] = []

    async def verified(self) -> VerifiedKey:
        bundle = await exchange(self._address, get("/attestation-bundle"))
        expectations = self._world.deployment.expectations()
        return verify(bundle.body, expectations, now=self._world.clock.now)

    async def ask(
        self, key: VerifiedKey, content: bytes, *, path: bytes, form: str
    ) -> bhttp.Response:
        fields = (*dated(), (KEY_FIELD, encode_field(SECRET)))
        inner = inner_request(content, fields=fields, path=path)
        config = parse_key_configs(key.key_configs)[0]
        sealed = seal(config, inner, form=form)
        answer = await ask(self._address, sealed)
        assert answer.status == 200
        self.outer_bytes.append(len(answer.body))
        return sealed.open(answer.body)

    def receipt(
        self, key: VerifiedKey, content: bytes, response: bhttp.Response
    ) -> Receipt:
        mac = answer_mac(SECRET)
        mac.update(response.content)
        ((_, value),) = response.trailers
        now = int(self._world.clock.now.timestamp())
        return verify_receipt(
            decode_field(value, length=RECEIPT_BYTES),
            public_key=key.receipt_public_key,
            expected=ReceiptExpectation(
                status=response.status,
                earliest=now,
                latest=now,
                key_configs_digest=sha256(key.key_configs).digest(),
                release_digest=key.release_digest,
                model_digests=key.model_digests,
                request_mac=request_mac(SECRET, content),
                answer_mac=mac.digest(),
            ),
        )


@pytest.mark.parametrize("form", [CHUNKED, PLAIN])
@pytest.mark.parametrize("transport", [QUICK, UNPADDED])
async def test_answer_is_receipted_under_the_bundle_s_key(
    tmp_path: Path, transport: TransportParameters, form: str
) -> None:
    world = make_any_world(tmp_path, Tee.EMULATED_NITRO, transport=transport)
    async with running(world.config, surroundings(world, [])) as address:
        client = Client(world, address)
        key = await client.verified()
        content = chat_body()
        response = await client.ask(
            key, content, path=b"/v1/chat/completions", form=form
        )
        receipt = client.receipt(key, content, response)
    assert receipt.model_digest.hex() == SCRIPTED_INFO.model_sha256


@pytest.mark.parametrize("transport", [QUICK, UNPADDED])
async def test_challenge_is_answered_once_for_the_interval(
    tmp_path: Path, transport: TransportParameters
) -> None:
    world = make_any_world(tmp_path, Tee.EMULATED_TDX, transport=transport)
    world.config = with_challenges(world)
    async with running(world.config, surroundings(world, [])) as address:
        client = Client(world, address)
        key = await client.verified()
        body = {"nonce": NONCE.hex(), "b0": key.b0.hex()}
        content = json.dumps(body).encode()
        response = await client.ask(key, content, path=b"/v1/challenge", form=CHUNKED)
        assert client.receipt(key, content, response).model_digest == NO_MODEL
        evidence = json.dumps(json.loads(response.content)["evidence"]).encode()
        expectations = world.deployment.expectations()
        verify_challenge(evidence, key, NONCE, expectations, now=world.clock.now)
        again = await client.ask(key, content, path=b"/v1/challenge", form=CHUNKED)
        assert error_code(again) == "busy"
        client.receipt(key, content, again)
        if transport is QUICK:
            assert len(set(client.outer_bytes)) == 1


def with_challenges(world: AnyWorld) -> EnclaveConfig:
    challenge = ChallengeChoice(enabled=True, least_interval_s=3600)
    return replace(world.config, challenge=challenge)


async def test_challenges_are_off_by_default(tmp_path: Path) -> None:
    world = make_any_world(tmp_path, Tee.EMULATED_NITRO)
    async with running(world.config, surroundings(world, [])) as address:
        client = Client(world, address)
        key = await client.verified()
        content = json.dumps({"nonce": NONCE.hex()}).encode()
        response = await client.ask(key, content, path=b"/v1/challenge", form=CHUNKED)
        assert error_code(response) == "not_found"


async def test_secrets_and_nonces_reach_no_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    world = make_any_world(tmp_path, Tee.EMULATED_NITRO)
    world.config = with_challenges(world)
    notices: list[str] = []
    async with running(world.config, surroundings(world, notices)) as address:
        client = Client(world, address)
        key = await client.verified()
        content = json.dumps({"nonce": NONCE.hex(), "more": CANARY}).encode()
        refused = await client.ask(key, content, path=b"/v1/challenge", form=CHUNKED)
        assert error_code(refused) == "unsupported_parameter"
        world.evidence.fail = True
        content = json.dumps({"nonce": NONCE.hex()}).encode()
        failed = await client.ask(key, content, path=b"/v1/challenge", form=CHUNKED)
        assert error_code(failed) == "no_evidence"
        await asyncio.sleep(0)
    said = "\n".join((*notices, *capfd.readouterr()))
    for secret in (CANARY, NONCE.hex(), SECRET.hex(), encode_field(SECRET).decode()):
        assert secret not in said
