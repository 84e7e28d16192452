"""Our padded requests and framed answers are those of a second implementation."""

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

from curtilage.wire.bhttp import decode_response, encode_response_head
from curtilage.wire.chunked import GatewayKey, open_chunked_request
from curtilage.wire.frames import AnswerFramer, FrameCheck, fill_event_stream
from curtilage.wire.hpke.suite import KEM_X25519, private_key_from_bytes
from curtilage.wire.keyconfig import parse_key_config
from curtilage.wire.padding import seal_padded_request
from curtilage.wire.shaping import TransportParameters

VECTORS = Path(__file__).resolve().parents[1] / "vectors" / "shaped"


@pytest.fixture(scope="module")
def vectors() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((VECTORS / "vectors.json").read_text("utf-8"))
    return found


@pytest.fixture(scope="module")
def key(vectors: dict[str, Any]) -> GatewayKey:
    private_key = private_key_from_bytes(
        KEM_X25519, bytes.fromhex(vectors["private_key"])
    )
    config = parse_key_config(bytes.fromhex(vectors["key_config"]))
    return GatewayKey(config=config, private_key=private_key)


def test_vectors_are_what_the_script_makes(vectors: dict[str, Any]) -> None:
    assert runpy.run_path(str(VECTORS / "make.py"))["made"]() == vectors


def test_padded_request_is_the_vector(vectors: dict[str, Any], key: GatewayKey) -> None:
    ephemeral = private_key_from_bytes(
        KEM_X25519, bytes.fromhex(vectors["ephemeral_private_key"])
    )
    request = vectors["request"]
    bhttp = bytes.fromhex(request["bhttp"])
    sealed = seal_padded_request(key.config, bhttp, ephemeral=ephemeral)
    assert sealed.message.hex() == request["message"]
    assert len(sealed.message) == request["class"]
    opened, _ = open_chunked_request({1: key}, sealed.message)
    assert opened == bhttp + bytes(request["padding"])


def test_framed_answer_is_the_vector(vectors: dict[str, Any], key: GatewayKey) -> None:
    answer = vectors["answer"]
    parameters = TransportParameters(
        frame_bytes=answer["frame_bytes"],
        first_bucket=answer["first_bucket"],
        buckets=answer["buckets"],
    )
    fields = ((b"content-type", b"text/event-stream"),)
    framer = AnswerFramer(
        parameters, encode_response_head(200, fields), filler=fill_event_stream
    )
    first, *rest = (content.encode() for content in answer["content"])
    framer.write(first)
    frames = [framer.next()]
    for content in rest:
        framer.write(content)
    name, value = answer["trailer"]
    framer.end(lambda: ((name.encode(), value.encode()),))
    while not framer.over:
        frames.append(framer.next())
    assert [frame.plaintext.hex() for frame in frames] == answer["frames"]
    _, sealer = open_chunked_request({1: key}, message(vectors))
    nonce = bytes.fromhex(answer["nonce"])
    sealed = sealer.begin(random=lambda count: nonce[:count])
    for frame in frames:
        seal = sealer.finish if frame.final else sealer.seal
        sealed += seal(frame.plaintext)
    assert sealed.hex() == answer["message"]


def message(vectors: dict[str, Any]) -> bytes:
    return bytes.fromhex(vectors["request"]["message"])


def test_client_reads_the_answer_of_the_vector(
    vectors: dict[str, Any], key: GatewayKey
) -> None:
    answer = vectors["answer"]
    ephemeral = private_key_from_bytes(
        KEM_X25519, bytes.fromhex(vectors["ephemeral_private_key"])
    )
    bhttp = bytes.fromhex(vectors["request"]["bhttp"])
    opener = seal_padded_request(key.config, bhttp, ephemeral=ephemeral).opener
    parts = [*opener.push(bytes.fromhex(answer["message"])), opener.finish()]
    parameters = TransportParameters(
        frame_bytes=answer["frame_bytes"],
        first_bucket=answer["first_bucket"],
        buckets=answer["buckets"],
    )
    check = FrameCheck(parameters)
    for part in parts[:-1]:
        check.chunk(len(part))
    check.finish(len(parts[-1]))
    response = decode_response(b"".join(parts))
    assert [part.decode() for part in response.trailers[0]] == answer["trailer"]
    content = response.content.decode()
    for event in "".join(answer["content"]).split("\n\n"):
        assert event in content
