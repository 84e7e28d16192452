import copy
import hashlib
import json
import runpy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.receipt import (
    NO_MODEL,
    RECEIPT_BYTES,
    SIGNED_BYTES,
    ContentMac,
    Receipt,
    ReceiptExpectation,
    ReceiptKey,
    answer_mac,
    decode_field,
    encode_field,
    open_receipt,
    request_mac,
    sign_receipt,
    verify_receipt,
)

VECTORS = Path(__file__).resolve().parents[1] / "vectors" / "receipt_v1"
SECRET = bytes(range(32))
KEY = ReceiptKey(bytes(32))
MODEL = hashlib.sha256(b"model").digest()
QUESTION, ANSWER = b"question", b"the whole answer   "


def mac_of(content: bytes, secret: bytes = SECRET) -> bytes:
    mac = answer_mac(secret)
    mac.update(content)
    return mac.digest()


RECEIPT = Receipt(
    status=200,
    served_at=1790000000,
    key_configs_digest=hashlib.sha256(b"keys").digest(),
    release_digest=hashlib.sha256(b"manifest").digest(),
    model_digest=MODEL,
    request_mac=request_mac(SECRET, QUESTION),
    answer_mac=mac_of(ANSWER),
)
EXPECTED = ReceiptExpectation(
    status=200,
    earliest=1790000000,
    latest=1790000000,
    key_configs_digest=RECEIPT.key_configs_digest,
    release_digest=RECEIPT.release_digest,
    model_digests=frozenset({MODEL}),
    request_mac=RECEIPT.request_mac,
    answer_mac=RECEIPT.answer_mac,
)


def refused(data: bytes, expected: ReceiptExpectation = EXPECTED) -> str:
    with pytest.raises(RefusedError) as caught:
        verify_receipt(data, public_key=KEY.public_key, expected=expected)
    assert caught.value.code is RefusalCode.RECEIPT_INVALID
    return caught.value.detail.removeprefix("receipt: ")


def test_vectors_are_what_the_script_makes() -> None:
    made = runpy.run_path(str(VECTORS / "make.py"))["make"]()
    assert json.loads((VECTORS / "vectors.json").read_text()) == made


@pytest.mark.parametrize(
    "vector",
    json.loads((VECTORS / "vectors.json").read_text()),
    ids=lambda vector: vector["name"],
)
def test_receipt_matches_the_vectors(vector: dict[str, Any]) -> None:
    texts = {
        name: bytes.fromhex(value)
        for name, value in vector.items()
        if isinstance(value, str) and name != "name"
    }
    key = ReceiptKey(texts["seed"])
    receipt = Receipt(
        status=vector["status"],
        served_at=vector["served_at"],
        key_configs_digest=hashlib.sha256(texts["key_configs"]).digest(),
        release_digest=hashlib.sha256(texts["manifest"]).digest(),
        model_digest=texts["model"],
        request_mac=request_mac(texts["secret"], texts["request"]),
        answer_mac=mac_of(texts["answer"], texts["secret"]),
    )
    assert key.public_key == texts["public_key"]
    assert sign_receipt(receipt, key) == texts["receipt"]
    assert open_receipt(texts["receipt"], public_key=key.public_key) == receipt


@pytest.mark.parametrize("model", [MODEL, NO_MODEL], ids=["model", "no model"])
def test_receipt_of_an_exchange_is_accepted(model: bytes) -> None:
    receipt = replace(RECEIPT, model_digest=model)
    data = sign_receipt(receipt, KEY)
    assert len(data) == RECEIPT_BYTES == 235
    verified = verify_receipt(data, public_key=KEY.public_key, expected=EXPECTED)
    assert verified == receipt


@pytest.mark.parametrize(
    ("change", "detail"),
    [
        ({"status": 400}, "another status"),
        ({"served_at": 1789999999}, "served at another time"),
        ({"served_at": 1790000001}, "served at another time"),
        ({"key_configs_digest": bytes(32)}, "another key list"),
        ({"release_digest": bytes(32)}, "another release"),
        ({"model_digest": b"\1" * 32}, "a model that is not in the release"),
        ({"request_mac": bytes(32)}, "another question"),
        ({"answer_mac": bytes(32)}, "another answer"),
    ],
    ids=[
        "status",
        "too early",
        "too late",
        "key list",
        "release",
        "model",
        "question",
        "answer",
    ],
)
def test_receipt_of_another_exchange_is_refused(
    change: dict[str, Any], detail: str
) -> None:
    assert refused(sign_receipt(replace(RECEIPT, **change), KEY)) == detail


def test_receipt_by_another_key_is_refused() -> None:
    assert " signature " in refused(sign_receipt(RECEIPT, ReceiptKey.generate()))


@pytest.mark.parametrize("length", [0, 31, 33], ids=str)
def test_receipt_under_no_key_at_all_is_refused(length: int) -> None:
    data = sign_receipt(RECEIPT, KEY)
    with pytest.raises(RefusedError) as caught:
        open_receipt(data, public_key=bytes(length))
    assert caught.value.code is RefusalCode.RECEIPT_INVALID


@given(st.integers(0, RECEIPT_BYTES * 8 - 1))
def test_receipt_with_one_bit_flipped_is_refused(bit: int) -> None:
    data = bytearray(sign_receipt(RECEIPT, KEY))
    data[bit // 8] ^= 1 << bit % 8
    detail = refused(bytes(data))
    assert " signature " in detail or detail.startswith("version ")


@pytest.mark.parametrize("cut", [0, 1, SIGNED_BYTES, RECEIPT_BYTES - 1], ids=str)
def test_receipt_of_another_length_is_refused(cut: int) -> None:
    data = sign_receipt(RECEIPT, KEY)
    assert refused(data[:cut]) == refused(data + b"\0") == "not 235 bytes"


@pytest.mark.parametrize(
    ("part", "detail"),
    [
        (b"\x02\x00\xc8" + bytes(8), "version is not 1"),
        (b"\x01\x00\x63" + bytes(8), "a number is out of its range"),
        (b"\x01\x02\x58" + bytes(8), "a number is out of its range"),
        (b"\x01\x00\xc8\x80" + bytes(7), "a number is out of its range"),
    ],
    ids=["version 2", "status 99", "status 600", "time of 64 bits"],
)
def test_receipt_signed_over_nonsense_is_refused(part: bytes, detail: str) -> None:
    signed = part.ljust(SIGNED_BYTES, b"\0")
    assert refused(signed + KEY.sign(signed)) == detail


@given(st.binary(max_size=300))
def test_open_receipt_of_any_bytes_is_a_refusal(data: bytes) -> None:
    with pytest.raises(RefusedError) as caught:
        open_receipt(data, public_key=KEY.public_key)
    assert caught.value.code is RefusalCode.RECEIPT_INVALID


@pytest.mark.parametrize(
    "change",
    [
        {"status": 99},
        {"status": 600},
        {"served_at": -1},
        {"served_at": 2**63},
        {"key_configs_digest": bytes(31)},
        {"model_digest": b""},
        {"answer_mac": bytes(33)},
    ],
    ids=str,
)
def test_receipt_without_an_encoding_does_not_exist(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="receipt: "):
        replace(RECEIPT, **change)


def test_an_overwritten_key_signs_nothing() -> None:
    key = ReceiptKey.generate()
    key.overwrite()
    with pytest.raises(ValueError, match="overwritten"):
        sign_receipt(RECEIPT, key)


def test_a_key_is_neither_shown_nor_copied() -> None:
    assert repr(KEY) == str(KEY) == "ReceiptKey(redacted)"
    for copied in (copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="not copied"):
            copied(KEY)


def test_a_receipt_does_not_show_its_macs() -> None:
    for value in (RECEIPT, EXPECTED):
        assert RECEIPT.request_mac.hex() not in repr(value)
        assert repr(RECEIPT.answer_mac) not in repr(value)


@given(st.binary(max_size=100), st.integers(0, 100))
def test_content_mac_does_not_depend_on_the_cuts(content: bytes, cut: int) -> None:
    mac = answer_mac(SECRET)
    mac.update(content[:cut])
    mac.update(content[cut:])
    assert mac.digest() == mac_of(content)


def test_a_question_is_no_answer() -> None:
    assert request_mac(SECRET, b"same") != mac_of(b"same")


@pytest.mark.parametrize("length", [0, 31, 33], ids=str)
def test_a_secret_has_32_bytes(length: int) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        ContentMac(bytes(length), b"")


@given(st.binary(max_size=300))
def test_field_round_trip(data: bytes) -> None:
    assert decode_field(encode_field(data), length=len(data)) == data


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"AA",
        b"A" * 43 + b"=",
        b"+" + b"A" * 42,
        b" " + b"A" * 42,
        b"A" * 42,
        b"A" * 44,
        b"A" * 42 + b"B",
        "\N{LATIN SMALL LETTER E WITH ACUTE}".encode() * 21,
    ],
    ids=str,
)
def test_field_of_another_spelling_is_refused(value: bytes) -> None:
    assert len(decode_field(b"A" * 43, length=32)) == 32
    with pytest.raises(RefusedError) as caught:
        decode_field(value, length=32)
    assert caught.value.code is RefusalCode.RECEIPT_INVALID
