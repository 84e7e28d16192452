import cbor2
import pytest
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from curtilage.attest.encoding.cose import (
    CoseSign1,
    der_signature,
    parse_cose_sign1,
)
from curtilage.attest.errors import RefusalCode, RefusedError

PROTECTED = cbor2.dumps({1: -35})
SIGNATURE = bytes(range(96))
EMPTY: dict[int, object] = {}


def _message(
    protected: object = PROTECTED,
    unprotected: object = None,
    payload: object = b"payload",
    signature: object = SIGNATURE,
) -> bytes:
    header = EMPTY if unprotected is None else unprotected
    return cbor2.dumps([protected, header, payload, signature])


def _refused(data: bytes) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        parse_cose_sign1(data, where="message", limit_bytes=1024)
    return caught.value


def test_parse_takes_a_message_apart() -> None:
    message = parse_cose_sign1(_message(), where="message", limit_bytes=1024)
    assert message == CoseSign1(
        protected=PROTECTED, payload=b"payload", signature=SIGNATURE
    )
    assert b"payload" not in repr(message).encode()


@pytest.mark.parametrize("size", [0, 23, 24, 255, 256, 70000])
def test_signed_part_is_the_sig_structure(size: int) -> None:
    payload = bytes(size)
    message = CoseSign1(protected=PROTECTED, payload=payload, signature=SIGNATURE)
    assert message.signed_part == cbor2.dumps(["Signature1", PROTECTED, b"", payload])


def test_signature_halves_are_r_and_s() -> None:
    r, s = decode_dss_signature(der_signature(SIGNATURE))
    assert r == int.from_bytes(SIGNATURE[:48], "big")
    assert s == int.from_bytes(SIGNATURE[48:], "big")


@pytest.mark.parametrize(
    "data",
    [
        cbor2.dumps([PROTECTED, EMPTY, b""]),
        cbor2.dumps([PROTECTED, EMPTY, b"", SIGNATURE, b""]),
        cbor2.dumps({0: PROTECTED, 1: EMPTY, 2: b"", 3: SIGNATURE}),
        cbor2.dumps(4),
        _message(protected={1: -35}),
        _message(payload="text"),
        _message(payload=None),
        _message(signature=None),
        _message(signature=SIGNATURE[:-1]),
        _message(signature=SIGNATURE + b"\0"),
        _message() + b"\0",
    ],
    ids=[
        "three",
        "five",
        "map",
        "number",
        "header not bytes",
        "text payload",
        "detached payload",
        "no signature",
        "short signature",
        "long signature",
        "trailing byte",
    ],
)
def test_other_shapes_are_refused(data: bytes) -> None:
    assert _refused(data).code is RefusalCode.MALFORMED


@pytest.mark.parametrize(
    "header", [{1: -35}, {4: b"key"}, {"x": 0}, [], None, b""], ids=str
)
def test_unprotected_header_must_be_empty(header: object) -> None:
    data = cbor2.dumps([PROTECTED, header, b"payload", SIGNATURE])
    error = _refused(data)
    assert error.code is RefusalCode.MALFORMED
    assert "unprotected" in error.detail


def test_tag_18_is_refused() -> None:
    tagged = b"\xd2" + _message()
    assert isinstance(cbor2.loads(tagged), cbor2.CBORTag)
    assert _refused(tagged).code is RefusalCode.MALFORMED


@pytest.mark.parametrize(
    ("header", "code"),
    [
        (cbor2.dumps({1: -7}), RefusalCode.UNSUPPORTED_ALGORITHM),
        (cbor2.dumps({1: -36}), RefusalCode.UNSUPPORTED_ALGORITHM),
        (cbor2.dumps({1: 5}), RefusalCode.UNSUPPORTED_ALGORITHM),
        (cbor2.dumps({1: "ES384"}), RefusalCode.UNSUPPORTED_ALGORITHM),
        (cbor2.dumps({}), RefusalCode.UNSUPPORTED_ALGORITHM),
        (cbor2.dumps({1: -35, 4: b"key"}), RefusalCode.MALFORMED),
        (cbor2.dumps({1: -35, 2: [1]}), RefusalCode.MALFORMED),
        (cbor2.dumps([1, -35]), RefusalCode.MALFORMED),
        (cbor2.dumps([1]), RefusalCode.MALFORMED),
        (cbor2.dumps(None), RefusalCode.MALFORMED),
        (bytes.fromhex("bf013822ff"), RefusalCode.MALFORMED),
        (bytes.fromhex("a101390022"), RefusalCode.MALFORMED),
        (bytes.fromhex("a2013822013822"), RefusalCode.MALFORMED),
        (b"", RefusalCode.MALFORMED),
    ],
    ids=[
        "ES256",
        "ES512",
        "HS256",
        "text",
        "none",
        "key id",
        "critical",
        "array",
        "array of one",
        "null",
        "indefinite",
        "long form",
        "twice",
        "empty",
    ],
)
def test_protected_header_is_es384_alone(header: bytes, code: RefusalCode) -> None:
    assert _refused(_message(protected=header)).code is code


def test_size_is_bounded() -> None:
    assert _refused(_message(payload=bytes(1025))).code is RefusalCode.TOO_LARGE
