"""The accepted encodings of a file, and the refusal of all others."""

import base64
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.evidence import Tee
from curtilage.cli.attest.encodings import (
    MAX_FILE_BYTES,
    decode_blob,
    decode_certificates,
    decode_der,
    decode_json,
    json_bytes,
)
from curtilage.cli.attest.evidence_files import EvidenceFiles, cpu_evidence
from support.evidence_texts import pem, refused, refused_form

WAYS: Mapping[str, Callable[[bytes], bytes]] = {
    "raw": bytes,
    "hex": lambda data: data.hex().encode(),
    "HEX": lambda data: data.hex().upper().encode() + b"\r\n",
    "0x": lambda data: b"0x" + data.hex().encode(),
    "spaces": lambda data: data.hex(" ").encode(),
    "lines": lambda data: data.hex("\n", -4).encode() + b"\n",
    "base64": base64.b64encode,
    "base64 lines": base64.encodebytes,
    "base64url": lambda data: base64.urlsafe_b64encode(data).rstrip(b"="),
    "PEM": lambda data: pem(data, label="REPORT"),
    "bom": lambda data: b"\xef\xbb\xbf" + data.hex().encode(),
}
BINARY = st.binary(min_size=64, max_size=200).filter(lambda data: max(data) > 0x7F)


@given(BINARY, st.sampled_from(sorted(WAYS)))
def test_every_way_of_writing_means_the_same(data: bytes, way: str) -> None:
    assert decode_blob(WAYS[way](data), "file") == data


@given(st.binary(max_size=300))
def test_any_bytes_are_decoded_or_refused(data: bytes) -> None:
    for decode in (decode_blob, decode_certificates, decode_der, decode_json):
        with suppress(RefusedError):
            decode(data, "file")


@given(st.text(alphabet="0123456789abcdef \n:*|.=[]{},-xX", max_size=200))
def test_any_text_is_decoded_or_refused(text: str) -> None:
    with suppress(RefusedError):
        decode_blob(text.encode(), "file")
    with suppress(RefusedError):
        decode_certificates(text.encode(), "file")


# Forms that were accepted once. One command converts each to an accepted form.
LISTED = bytes(range(0x70, 0x90)) + b"\x01"
REMOVED = {
    "xxd": b'00000000: 0011 2233 4455 6677 8899 aabb ccdd eeff  .."3DUfw........\n'
    b"00000010: 0102                                     ..\n",
    "hexdump -C": (
        b'00000000  00 11 22 33 44 55 66 77  88 99 aa bb cc dd ee ff  |.."3DUfw|\n'
        b"00000010  01 02                                             |..|\n"
        b"00000012\n"
    ),
    "hexdump": b"0000000 1100 3322 5544 7766 9988 bbaa ddcc ffee\n0000010 0201\n"
    b"0000012\n",
    "od -A x -t x1": b"000000 00 11 22 33 44 55 66 77 88 99 aa bb cc dd ee ff\n"
    b"000010 01 02\n000012\n",
    "od -A x -t x4": b"000000 33221100 77665544 bbaa9988 ffeeddcc\n000010\n",
    "od -t o2": b"0000000 010421 031463\n0000004\n",
    "folded": b"000000 00 00 00 00\n*\n000040 01\n000041\n",
    "a C array": b"{" + b", ".join(b"0x%02x" % each for each in LISTED) + b"}",
    "commas": b", ".join(b"0x%02x" % each for each in LISTED),
    "numbers with 0x": b" ".join(b"0x%02x" % each for each in LISTED),
    "numbers with 0X": b"\n".join(b"0X%02X" % each for each in LISTED),
    "colons": LISTED.hex(":").encode(),
    "a text in quotes": json.dumps(LISTED.hex()).encode(),
    "a text in quotes twice": json.dumps(json.dumps(LISTED.hex())).encode(),
    "an array of numbers": json.dumps(list(LISTED)).encode(),
    "an array of texts": json.dumps([base64.b64encode(LISTED).decode()]).encode(),
    "base64 of hexadecimal": base64.b64encode(LISTED.hex().encode()),
    "base64 of base64": base64.b64encode(base64.b64encode(LISTED)),
    "hexadecimal of base64": base64.b64encode(LISTED).hex().encode(),
    "hexadecimal twice": LISTED.hex().encode().hex().encode(),
    "percent-encoded": b"-----BEGIN%20CERTIFICATE-----%0AMAA%3D",
    "a remark": b"report: " + LISTED.hex().encode(),
}


@pytest.mark.parametrize("form", REMOVED)
@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"], ids=["LF", "CRLF"])
def test_a_form_that_is_not_accepted_is_refused_with_those_that_are(
    form: str, line_end: bytes
) -> None:
    file = REMOVED[form].replace(b"\n", line_end)
    refused_form(lambda: decode_blob(file, "file"))
    refused_form(lambda: decode_certificates(file, "file"))
    for tee in Tee:
        refused_form(partial(cpu_evidence, tee, EvidenceFiles(evidence=file)))


def test_a_file_too_large_is_refused_unread() -> None:
    large = bytes(MAX_FILE_BYTES + 1)
    assert refused(lambda: decode_blob(large, "file")) is RefusalCode.TOO_LARGE
    text = b"{" + b" " * MAX_FILE_BYTES
    assert refused(lambda: decode_json(text, "file")) is RefusalCode.TOO_LARGE


@pytest.mark.parametrize(
    "text",
    [
        *(b'{"a":1,"a":2}', b"{", b"[{},{}]", b"[{]", b'{"a":' + b"[" * 5000),
        *(b"[\n{},\n{}\n]", b"[\n{\n]", b'[\n{"a":1,"a":2}]'),
    ],
    ids=["twice", "cut", "two", "broken", "deep", "two lines", "lines", "twice, lines"],
)
def test_json_that_is_not_one_object_is_refused(text: bytes) -> None:
    code = refused(lambda: decode_json(text, "file", listed=True))
    assert code is RefusalCode.MALFORMED
    if text.startswith(b"["):
        assert decode_json(text, "file") is None
        refused_form(lambda: decode_blob(text, "file"))


@pytest.mark.parametrize(
    "value",
    [None, 1, {}, [256], [-1], ["a"], [True], "é", list(b"3031"), "\x01\x02"],
    ids=repr,
)
def test_a_json_member_that_is_no_bytes_is_refused(value: object) -> None:
    assert refused(lambda: json_bytes(value, "member")) is RefusalCode.MALFORMED


ONE, TWO = b"\x30\x82\x01\x00" + bytes(256), b"\x30\x03abc"


@pytest.mark.parametrize(
    "data",
    [
        pem(ONE, TWO),
        b"subject=/CN=one\n" + pem(ONE) + b"\nand then\n" + pem(TWO),
        pem(ONE, TWO).replace(b"\n", b"\r\n"),
        ONE + TWO,
        base64.b64encode(ONE + TWO),
        (ONE + TWO).hex().encode(),
    ],
    ids=["PEM", "remarks", "CRLF", "DER", "b64", "hex"],
)
def test_certificates_are_found_in_every_form(data: bytes) -> None:
    assert decode_certificates(data, "chain") == (ONE, TWO)


@pytest.mark.parametrize(
    "data",
    [
        base64.b64encode(pem(ONE, TWO)),
        pem(ONE, TWO).hex().encode(),
        json.dumps([base64.b64encode(each).decode() for each in (ONE, TWO)]).encode(),
        json.dumps([pem(ONE).decode(), pem(TWO).decode()]).encode(),
        json.dumps(list(ONE + TWO)).encode(),
        json.dumps(pem(ONE, TWO).decode()).encode(),
        b'["%b"]' % pem(TWO).replace(b"\n", b""),
        base64.b64encode(base64.b64encode(ONE)),
    ],
    ids=[
        "b64 PEM",
        "hex PEM",
        "list",
        "PEMs",
        "numbers",
        "quotes",
        "one line",
        "b64 twice",
    ],
)
def test_certificates_in_other_forms_are_refused(data: bytes) -> None:
    refused_form(lambda: decode_certificates(data, "chain"))


def test_only_nvidias_base64_of_pem_is_decoded_twice() -> None:
    inner = pem(ONE, TWO)
    encoded = base64.b64encode(inner)
    assert decode_certificates(encoded, "chain", wrapped=True) == (ONE, TWO)
    for wrong in (
        base64.b64encode(encoded),
        base64.b64encode(ONE.hex().encode()),
        base64.b64encode(base64.b64encode(ONE)),
        base64.b64encode(json.dumps([inner.decode()]).encode()),
    ):
        refused_form(partial(decode_certificates, wrong, "chain", wrapped=True))


@pytest.mark.parametrize(
    "data",
    [
        pem(ONE)[:-20],
        pem(ONE) + b"-----BEGIN CERTIFICATE-----\n",
        ONE[:-1],
        ONE + b"\0",
        b"\x30\x80" + bytes(9),
        b"\x30\x85" + bytes(9),
        b'[1, "x"]',
    ],
    ids=["half", "open", "cut", "tail", "indefinite", "length", "mixed"],
)
def test_half_a_certificate_is_refused(data: bytes) -> None:
    assert refused(lambda: decode_certificates(data, "chain")) is RefusalCode.MALFORMED


def test_too_many_certificates_are_refused() -> None:
    many = TWO * 17
    assert refused(lambda: decode_certificates(many, "x")) is RefusalCode.TOO_LARGE


def test_two_objects_instead_of_one_are_refused() -> None:
    assert decode_der(b"", "VEK") == b""
    assert decode_der(pem(ONE), "VEK") == ONE
    assert refused(lambda: decode_der(ONE + TWO, "VEK")) is RefusalCode.MALFORMED
