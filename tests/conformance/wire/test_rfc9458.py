"""RFC 9458, appendix A, byte for byte, in both directions."""

from collections.abc import Callable
from typing import Any

import pytest

from curtilage.wire.bhttp import decode_request, decode_response
from curtilage.wire.encapsulation import PLAIN_LABELS, accept_request
from curtilage.wire.errors import TruncatedError
from curtilage.wire.hpke.hkdf import expand, extract
from curtilage.wire.hpke.suite import (
    KEM_X25519,
    PrivateKey,
    Suite,
    private_key_from_bytes,
    setup_sender,
)
from curtilage.wire.keyconfig import KeyConfig, choose_suite, parse_key_config
from curtilage.wire.ohttp import GatewayKey, open_request, seal_request

Load = Callable[[str], Any]
SUITE = Suite(kem_id=KEM_X25519, kdf_id=1, aead_id=1)


class Example:
    def __init__(self, vector: dict[str, str]) -> None:
        self.vector = vector
        self.config: KeyConfig = parse_key_config(self.bytes("key_config"))
        self.private_key = self.key("skR")
        self.gateway_key = GatewayKey(config=self.config, private_key=self.private_key)

    def bytes(self, name: str) -> bytes:
        return bytes.fromhex(self.vector[name])

    def key(self, name: str) -> PrivateKey:
        return private_key_from_bytes(KEM_X25519, self.bytes(name))


@pytest.fixture(scope="module")
def example(load_vectors: Load) -> Example:
    return Example(load_vectors("rfc9458/appendix-a.json"))


def test_key_config(example: Example) -> None:
    assert example.config.encode() == example.bytes("key_config")
    assert example.config.public_key == example.private_key.public_key
    assert choose_suite(example.config) == SUITE


def test_request_is_reproduced(example: Example) -> None:
    ephemeral = example.key("skE")
    assert ephemeral.public_key == example.bytes("pkE")
    sealed = seal_request(example.config, example.bytes("request"), ephemeral=ephemeral)
    assert sealed.message == example.bytes("enc_request")


def test_response_is_reproduced_and_opened(example: Example) -> None:
    sealed = seal_request(
        example.config, example.bytes("request"), ephemeral=example.key("skE")
    )
    opened = open_request({1: example.gateway_key}, example.bytes("enc_request"))
    assert opened.bhttp == example.bytes("request")
    nonce = example.bytes("enc_response")[:16]
    response = opened.sealer.seal(example.bytes("response"), random=lambda _: nonce)
    assert response == example.bytes("enc_response")
    assert sealed.opener.open(response) == example.bytes("response")


def test_intermediate_values(example: Example) -> None:
    enc = example.bytes("pkE")
    header = example.bytes("enc_request")[:7]
    context, _ = accept_request(example.gateway_key, header, enc, PLAIN_LABELS)
    secret = context.export(PLAIN_LABELS.response, 16)
    prk = extract(example.bytes("salt"), secret)
    assert secret == example.bytes("secret")
    assert prk == example.bytes("prk")
    assert expand(prk, b"key", 16) == example.bytes("aead_key")
    assert expand(prk, b"nonce", 12) == example.bytes("aead_nonce")


def test_binary_http_of_the_example_is_truncated_too_far(example: Example) -> None:
    # RFC 9292, section 3.8, lets content and trailers go, the header section
    # not. The example leaves it out as well; our strict decoder refuses that.
    with pytest.raises(TruncatedError):
        decode_request(example.bytes("request"))
    with pytest.raises(TruncatedError):
        decode_response(example.bytes("response"))


def test_request_of_another_implementation_opens(load_vectors: Load) -> None:
    (vector,) = load_vectors("rfc9458/ohttp-js.json")["vectors"]
    message = bytes.fromhex(vector["encapsulatedRequest"])
    private_key = derive_key(bytes.fromhex(vector["seed"]))
    config = KeyConfig(
        key_id=vector["keyId"],
        kem_id=KEM_X25519,
        public_key=private_key.public_key,
        algorithms=parse_key_config(
            b"\x01\x00\x20" + bytes(32) + b"\x00\x04\x00\x01\x00\x01"
        ).algorithms,
    )
    key = GatewayKey(config=config, private_key=private_key)
    assert decode_request(open_request({config.key_id: key}, message).bhttp).method


def derive_key(ikm: bytes) -> PrivateKey:
    """DeriveKeyPair of RFC 9180, section 7.1.3, which only tests need."""
    suite_id = b"HPKE-v1" + b"KEM\x00\x20"
    prk = extract(b"", suite_id + b"dkp_prk" + ikm)
    return private_key_from_bytes(
        KEM_X25519, expand(prk, b"\x00\x20" + suite_id + b"sk", 32)
    )


def test_a_second_use_of_an_ephemeral_key_gives_the_same_enc(example: Example) -> None:
    ephemeral = example.key("skE")
    enc, _ = setup_sender(SUITE, example.config.public_key, b"", ephemeral=ephemeral)
    assert enc == ephemeral.public_key
