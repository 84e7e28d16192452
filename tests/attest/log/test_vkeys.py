import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.log.note import COSIGNATURE_V1, ED25519, SUBTREE_V1, NoteKey
from curtilage.attest.log.vkeys import VerifierKey, is_key_name, parse_verifier_key

# Published by the Go project: the key of its checksum database.
SUM_DATABASE = "sum.golang.org+033de0ae+Ac4zctda0e5eza+HJyk9SxEdh+s3Ux18htTTAD8OuAn8"


def _code(text: str) -> RefusalCode:
    with pytest.raises(RefusedError) as caught:
        parse_verifier_key(text)
    return caught.value.code


def test_a_published_key_is_read() -> None:
    found = parse_verifier_key(SUM_DATABASE)
    assert (found.key.name, found.signature_type) == ("sum.golang.org", ED25519)
    assert len(found.key.public_key) == 32
    assert found.text == SUM_DATABASE


@pytest.mark.parametrize(
    ("kind", "length"), [(ED25519, 32), (COSIGNATURE_V1, 32), (SUBTREE_V1, 1312)]
)
def test_every_type_is_written_and_read(kind: int, length: int) -> None:
    key = NoteKey(name="example.com/w", public_key=bytes(range(32)) * (length // 32))
    written = VerifierKey(key=key, signature_type=kind)
    assert parse_verifier_key(written.text) == written


@pytest.mark.parametrize(
    "text",
    [
        "",
        "name",
        SUM_DATABASE + "\n",
        SUM_DATABASE.replace("033de0ae", "033de0af"),
        SUM_DATABASE.replace("033de0ae", "033DE0AE"),
        SUM_DATABASE.replace("sum.", "sun."),
        SUM_DATABASE.replace("sum.", "sum "),
        SUM_DATABASE[:-4],
        SUM_DATABASE + "AAAA",
        "\ud800" + SUM_DATABASE,
        "+033de0ae+Ac4zctda0e5eza+HJyk9SxEdh+s3Ux18htTTAD8OuAn8",
    ],
    ids=range(11),
)
def test_another_spelling_is_refused(text: str) -> None:
    assert _code(text) is RefusalCode.MALFORMED


@pytest.mark.parametrize("kind", [0x00, 0x02, 0x05, 0xFF])
def test_another_type_is_refused(kind: int) -> None:
    tagged = base64.b64encode(bytes([kind]) + bytes(32)).decode()
    assert _code(f"name+00000000+{tagged}") is RefusalCode.UNSUPPORTED_ALGORITHM


def test_a_key_is_as_long_as_its_type_says() -> None:
    for kind, length in ((ED25519, 1312), (SUBTREE_V1, 32), (COSIGNATURE_V1, 31)):
        key = NoteKey(name="name", public_key=bytes(length))
        text = VerifierKey(key=key, signature_type=kind).text
        assert _code(text) is RefusalCode.MALFORMED


@given(st.text(max_size=80))
def test_any_text_is_a_key_or_refused(text: str) -> None:
    try:
        found = parse_verifier_key(text)
    except RefusedError:
        return
    assert found.text == text


def test_names_hold_neither_spaces_nor_plus_signs() -> None:
    assert is_key_name("example.com/log")
    for name in ("", "a b", "a+b", "a\tb", "a\u2003b", "a\x00b"):
        assert not is_key_name(name)
