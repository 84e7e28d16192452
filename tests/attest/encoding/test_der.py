"""DER elements: one spelling each, and nothing over."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.attest.encoding.der import SEQUENCE, content_of, elements, only_element
from curtilage_dev.emulated.der import element


@given(st.integers(0, 0x1E), st.integers(0, 300))
def test_an_element_is_read_as_it_was_written(tag: int, size: int) -> None:
    encoded = element(tag, bytes(size))
    found = only_element(encoded)
    assert (found.tag, found.content, found.encoded) == (tag, bytes(size), encoded)


@given(st.lists(st.binary(max_size=200), max_size=4))
def test_several_elements_are_separated(contents: list[bytes]) -> None:
    data = b"".join(element(SEQUENCE, content) for content in contents)
    assert [each.content for each in elements(data)] == contents


@given(st.binary(min_size=128, max_size=140), st.data())
def test_every_prefix_is_refused(content: bytes, data: st.DataObject) -> None:
    encoded = element(SEQUENCE, content)
    size = data.draw(st.integers(0, len(encoded) - 1))
    with pytest.raises(ValueError, match=r"element|length"):
        only_element(encoded[:size])


@pytest.mark.parametrize(
    "text",
    [
        "30",
        "3001",
        "308100",
        "30817f" + "00" * 127,
        "3082000130",
        "30820080" + "00" * 128,
        "3080",
        "3f0100",
        "1f0100",
    ],
    ids=[
        "no length",
        "cut",
        "zero in long form",
        "short in long form",
        "one in two bytes",
        "zero in front",
        "open",
        "constructed long tag",
        "long tag",
    ],
)
def test_another_spelling_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"element|length"):
        tuple(elements(bytes.fromhex(text)))


def test_two_elements_are_not_one() -> None:
    with pytest.raises(ValueError, match="not one element"):
        only_element(element(SEQUENCE, b"") * 2)


def test_an_element_of_another_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="another kind"):
        content_of(only_element(element(0x02, b"\1")), SEQUENCE)
