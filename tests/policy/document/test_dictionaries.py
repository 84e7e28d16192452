import hashlib
import hmac
import re

import pytest

from curtilage.policy.document.dictionaries import (
    MAX_ENTRIES,
    MAX_ENTRY_CHARS,
    MAX_FILE_BYTES,
    compacted,
    digests_of,
    edm_entry,
    folded,
    words_of,
)

DIGEST = "ab" * 32


def test_words_are_the_lines_that_say_something() -> None:
    content = "\ufeff# names\n\nBlue Falcon\r\n  Grüne Eule \n#end\n".encode()
    assert words_of(content) == ("Blue Falcon", "Grüne Eule")


def test_digests_are_the_lines_that_say_something() -> None:
    assert digests_of(f"# who\n{DIGEST}\n".encode()) == (DIGEST,)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "no entry"),
        (b"# only\n\n", "no entry"),
        (b"caf\xe9\n", "not UTF-8"),
        (b"x" * (MAX_FILE_BYTES + 1), f"more than {MAX_FILE_BYTES} bytes"),
        (b"x\n" * (MAX_ENTRIES + 1), f"more than {MAX_ENTRIES} entries"),
        (b"ok\n" + b"x" * (MAX_ENTRY_CHARS + 1), "line 2 of the file"),
    ],
)
def test_words_of_refuses(content: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)) as caught:
        words_of(content)
    assert "xx" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("entry", ["hunter2", DIGEST[:-1], DIGEST + "a", "AB" * 32])
def test_digests_of_refuses_other_lines(entry: str) -> None:
    with pytest.raises(ValueError, match=r"\bline 3\b") as caught:
        digests_of(f"# who\n{DIGEST}\n{entry}\n".encode())
    assert entry not in str(caught.value)


def test_folded_leaves_case_and_spaces_aside() -> None:
    assert folded("  Blue\u00a0\n FALCON ") == folded("blue falcon")
    assert folded("Straße") == folded("STRASSE")
    assert folded("\uff21\uff22") == "ab"
    assert folded("blue-falcon") != folded("blue falcon")


def test_compacted_keeps_letters_and_digits() -> None:
    assert compacted("DE-89 (3704) 0044/0532") == "de89370400440532"


def test_edm_entry_is_an_hmac_of_the_compacted_value() -> None:
    salt = bytes(range(16))
    expected = hmac.new(salt, b"ab12", hashlib.sha256).hexdigest()
    assert edm_entry("AB-12", salt=salt) == expected
    assert edm_entry("ab 12", salt=salt) == expected
    assert edm_entry("ab13", salt=salt) != expected
    assert edm_entry("ab12", salt=salt[1:]) != expected


def test_edm_entry_refuses_what_has_nothing_to_compare() -> None:
    with pytest.raises(ValueError, match="a letter or a digit"):
        edm_entry(" -- ", salt=bytes(16))
