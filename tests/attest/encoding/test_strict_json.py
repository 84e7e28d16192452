import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.attest.encoding.strict_json import (
    MAX_OPENED,
    Fields,
    canonical_json,
    decode_base64,
    encode_base64,
    parse_object,
)
from curtilage.attest.errors import RefusalCode, RefusedError


def _parse(text: str | bytes) -> Fields:
    data = text if isinstance(text, bytes) else text.encode()
    return parse_object(data, where="top", limit_bytes=4096)


CASES: dict[str, str | bytes] = {
    "empty": "",
    "array": "[]",
    "string": '"x"',
    "trailing": "{}x",
    "two": "{}{}",
    "not UTF-8": b'{"a":"\xff"}',
    "byte order mark": b"\xef\xbb\xbf{}",
    "duplicate": '{"a":1,"a":1}',
    "duplicate below": '{"a":{"b":1,"b":2}}',
    "float": '{"a":1.0}',
    "exponent": '{"a":1e2}',
    "NaN": '{"a":NaN}',
    "Infinity": '{"a":Infinity}',
    "negative": '{"a":-1}',
    "minus zero": '{"a":-0}',
    "long number": '{"a":' + "1" * 20 + "}",
    "huge number": '{"a":' + "1" * 4000 + "}",
    "leading zero": '{"a":01}',
    "comment": '{"a":1/**/}',
    "deep arrays": '{"a":' + "[" * 2000,
    "deep objects": '{"a":' * 800,
    "wide": '{"a":[' + "[]," * MAX_OPENED + "[]]}",
}


@pytest.mark.parametrize("name", CASES)
def test_text_is_refused(name: str) -> None:
    with pytest.raises(RefusedError) as caught:
        _parse(CASES[name])
    assert caught.value.code is RefusalCode.MALFORMED


def test_oversize_is_refused() -> None:
    with pytest.raises(RefusedError) as caught:
        _parse('{"a":"' + "x" * 4096 + '"}')
    assert caught.value.code is RefusalCode.TOO_LARGE


def test_fields_are_read() -> None:
    fields = _parse('{"t":"x","n":7,"o":"AAE=","c":{"d":0},"l":[{}],"s":["a","b"]}')
    fields.require(["t", "n", "o", "c", "l", "s"])
    assert fields.names == ("t", "n", "o", "c", "l", "s")
    assert fields.text("t", limit=1) == "x"
    assert fields.integer("n") == 7
    assert fields.octets("o", limit=2) == b"\0\1"
    assert fields.child("c").integer("d") == 0
    assert len(fields.children("l", limit=1)) == 1
    assert fields.texts("s", limit=2, item_limit=1) == ("a", "b")


def test_require_names_what_is_missing_but_not_what_is_unknown() -> None:
    with pytest.raises(RefusedError, match=r"top: missing a, b$"):
        _parse('{"c":1}').require(["a", "b", "c"])
    with pytest.raises(RefusedError, match=r"top: 1 unknown key\(s\)$"):
        _parse('{"a":1,"canary":1}').require(["a"])


@pytest.mark.parametrize("value", ['"1"', "null", "true", "[]", "{}"])
def test_integer_is_an_integer(value: str) -> None:
    with pytest.raises(RefusedError, match="not an integer"):
        _parse(f'{{"a":{value}}}').integer("a")


def test_integer_is_bounded() -> None:
    assert _parse('{"a":255}').integer("a", maximum=255) == 255
    with pytest.raises(RefusedError, match="larger than 255"):
        _parse('{"a":256}').integer("a", maximum=255)
    with pytest.raises(RefusedError, match="larger"):
        _parse('{"a":9223372036854775808}').integer("a")


@pytest.mark.parametrize("value", ["1", "null", "false", "[]", "{}"])
def test_text_is_a_string(value: str) -> None:
    with pytest.raises(RefusedError, match="not a string"):
        _parse(f'{{"a":{value}}}').text("a", limit=9)


def test_text_is_bounded_in_bytes() -> None:
    assert _parse('{"a":"é"}').text("a", limit=2) == "é"
    with pytest.raises(RefusedError) as caught:
        _parse('{"a":"é"}').text("a", limit=1)
    assert caught.value.code is RefusalCode.TOO_LARGE


def test_lone_surrogate_is_refused() -> None:
    with pytest.raises(RefusedError, match="surrogate"):
        _parse('{"a":"\\ud800"}').text("a", limit=9)


def test_octets_are_bounded() -> None:
    with pytest.raises(RefusedError) as caught:
        _parse('{"a":"AAAA"}').octets("a", limit=2)
    assert caught.value.code is RefusalCode.TOO_LARGE
    with pytest.raises(RefusedError) as caught:
        _parse('{"a":"AAAAAAAA"}').octets("a", limit=3)
    assert caught.value.code is RefusalCode.TOO_LARGE


@pytest.mark.parametrize("value", ["1", '"x"', "null"])
def test_child_is_an_object(value: str) -> None:
    with pytest.raises(RefusedError, match=r"\btop\.a: .*object"):
        _parse(f'{{"a":{value}}}').child("a")


def test_children_are_an_array_of_objects() -> None:
    with pytest.raises(RefusedError, match="not an array"):
        _parse('{"a":{}}').children("a", limit=1)
    with pytest.raises(RefusedError, match="not an object"):
        _parse('{"a":[1]}').children("a", limit=1)
    with pytest.raises(RefusedError) as caught:
        _parse('{"a":[{},{}]}').children("a", limit=1)
    assert caught.value.code is RefusalCode.TOO_LARGE


def test_texts_are_an_array_of_strings() -> None:
    with pytest.raises(RefusedError, match=r"\barray\b.*\bstrings\b"):
        _parse('{"a":["x",1]}').texts("a", limit=2, item_limit=1)


@pytest.mark.parametrize(
    "text",
    ["A", "AA", "AA=", "AB==", "AAB=", "AA==\n", " AA==", "AA-_", "A===", "é==="],
    ids=ascii,
)
def test_loose_base64_is_refused(text: str) -> None:
    with pytest.raises(RefusedError) as caught:
        decode_base64(text, "x")
    assert caught.value.code is RefusalCode.MALFORMED


@given(data=st.binary(max_size=100))
def test_base64_round_trip(data: bytes) -> None:
    assert decode_base64(encode_base64(data), "x") == data


def test_canonical_json_sorts_and_escapes() -> None:
    assert canonical_json({"b": 1, "a": "é"}) == b'{"a":"\\u00e9","b":1}'


@given(data=st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        fields = _parse(data)
    except RefusedError:
        return
    assert isinstance(fields, Fields)
