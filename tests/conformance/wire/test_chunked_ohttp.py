"""The example of the chunked draft's appendix, byte for byte, both directions."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from curtilage.wire.chunked import (
    ChunkedRequestOpener,
    SealedChunkedRequest,
    open_chunked_request,
    seal_request_chunks,
)
from curtilage.wire.encapsulation import GatewayKey
from curtilage.wire.errors import TruncatedError
from curtilage.wire.hpke.suite import KEM_X25519, private_key_from_bytes
from curtilage.wire.keyconfig import parse_key_config

Load = Callable[[str], Any]
Vector = dict[str, Any]


@pytest.fixture(scope="module")
def vector(load_vectors: Load) -> Vector:
    loaded: Vector = load_vectors("chunked-ohttp/appendix.json")
    return loaded


@pytest.fixture(scope="module")
def keys(vector: Vector) -> dict[int, GatewayKey]:
    config = parse_key_config(bytes.fromhex(vector["key_config"]))
    private_key = private_key_from_bytes(KEM_X25519, bytes.fromhex(vector["skR"]))
    return {1: GatewayKey(config=config, private_key=private_key)}


def split(data: bytes, lengths: list[int]) -> list[bytes]:
    edges = [sum(lengths[:count]) for count in range(len(lengths) + 1)]
    return [data[a:b] for a, b in pairwise(edges)]


def seal(vector: Vector, keys: dict[int, GatewayKey]) -> SealedChunkedRequest:
    chunks = split(
        bytes.fromhex(vector["request"]), vector["request_chunk_plaintext_lengths"]
    )
    ephemeral = private_key_from_bytes(KEM_X25519, bytes.fromhex(vector["skE"]))
    return seal_request_chunks(keys[1].config, chunks, ephemeral=ephemeral)


def test_request_is_reproduced(vector: Vector, keys: dict[int, GatewayKey]) -> None:
    assert seal(vector, keys).message.hex() == vector["enc_request"]


def test_request_opens_chunk_by_chunk(
    vector: Vector, keys: dict[int, GatewayKey]
) -> None:
    opener = ChunkedRequestOpener(keys, limit_bytes=1000)
    sizes: list[int] = []
    text = b""
    for line in vector["enc_request_lines"]:
        for plaintext in opener.push(bytes.fromhex(line)):
            sizes.append(len(plaintext))
            text += plaintext
    last = opener.finish()
    assert [*sizes, len(last)] == vector["request_chunk_plaintext_lengths"]
    assert (text + last).hex() == vector["request"]


def test_response_is_reproduced(vector: Vector, keys: dict[int, GatewayKey]) -> None:
    _, sealer = open_chunked_request(keys, bytes.fromhex(vector["enc_request"]))
    nonce, *_ = (bytes.fromhex(line) for line in vector["enc_response_lines"])
    first, second, last = split(
        bytes.fromhex(vector["response"]), vector["response_chunk_plaintext_lengths"]
    )
    sealed = [
        sealer.begin(random=lambda _: nonce),
        sealer.seal(first),
        sealer.seal(second),
        sealer.finish(last),
    ]
    assert [part.hex() for part in sealed] == vector["enc_response_lines"]
    assert b"".join(sealed).hex() == vector["enc_response"]


def test_response_opens_and_its_cut_is_seen(
    vector: Vector, keys: dict[int, GatewayKey]
) -> None:
    response = bytes.fromhex(vector["enc_response"])
    opener = seal(vector, keys).opener
    assert b"".join([*opener.push(response), opener.finish()]).hex() == "0140c8"
    cut = seal(vector, keys).opener
    cut.push(response[:-17])
    with pytest.raises(TruncatedError):
        cut.finish()
