import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curtilage.inference.text import TextAssembler

ENCODABLE = st.text(st.characters(exclude_categories=["Cs"]))


def assemble(pieces: list[bytes], stop: tuple[str, ...] = ()) -> tuple[str, bool]:
    text = TextAssembler(stop)
    shown = "".join([text.push(piece) for piece in pieces]) + text.flush()
    return shown, text.stopped


def cut(data: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({place % (len(data) + 1) for place in places} | {len(data)})
    return [data[a:b] for a, b in zip([0, *ends], ends, strict=False)]


@settings(deadline=None)
@given(ENCODABLE, st.lists(st.integers(min_value=0)))
def test_text_is_the_same_however_the_bytes_are_cut(
    text: str, places: list[int]
) -> None:
    assert assemble(cut(text.encode(), places)) == (text, False)


@settings(deadline=None)
@given(
    st.text("ab", max_size=40),
    st.lists(st.text("ab", min_size=1, max_size=4), max_size=3),
    st.lists(st.integers(min_value=0)),
)
def test_text_ends_before_the_first_stop_string(
    text: str, stops: list[str], places: list[int]
) -> None:
    found = [at for stop in stops if (at := text.find(stop)) >= 0]
    # Pieces of one byte: each stop string is met as early as it can be, which
    # may be a later but sooner finished one.
    shown, stopped = assemble(cut(text.encode(), places), tuple(stops))
    assert stopped == bool(found)
    assert text.startswith(shown)
    assert not any(stop in shown for stop in stops)
    if not found:
        assert shown == text


def test_push_holds_back_half_a_character() -> None:
    text = TextAssembler()
    first, second = "é".encode()[:1], "é".encode()[1:]
    assert text.push(first) == ""
    assert text.push(second) == "é"


def test_push_holds_back_what_may_become_a_stop_string() -> None:
    text = TextAssembler(("STOP",))
    assert text.push(b"one ST") == "one "
    assert text.push(b"AR") == "STAR"


def test_push_releases_nothing_after_a_stop_string() -> None:
    text = TextAssembler(("STOP",))
    assert text.push(b"one STOP two") == "one "
    assert text.stopped
    assert text.push(b"three") == ""
    assert text.flush() == ""


def test_stop_string_spread_over_many_pieces_is_found() -> None:
    assert assemble([b"a", b"<", b"e", b"n", b"d", b">", b"b"], ("<end>",)) == (
        "a",
        True,
    )


def test_flush_releases_the_held_tail() -> None:
    text = TextAssembler(("STOP",))
    assert text.push(b"ST") == ""
    assert text.flush() == "ST"
    assert not text.stopped


@pytest.mark.parametrize("character", ["é", "€", "\U0001f600"])
def test_a_text_that_is_cut_inside_a_character_ends_before_it(character: str) -> None:
    data = character.encode()
    for size in range(1, len(data)):
        assert assemble([b"a", data[:size]]) == ("a", False)
        assert assemble([b"a", data[:size]], ("\ufffd",)) == ("a", False)
    assert assemble([b"a", data]) == ("a" + character, False)


def test_bytes_that_are_no_character_are_replaced() -> None:
    assert assemble([b"a\xff", b"b\xc3", b"c"]) == ("a\ufffdb\ufffdc", False)


@pytest.mark.parametrize(
    "stop", ["canaries", "a long stop string"], ids=["short", "long"]
)
def test_repr_shows_no_text(stop: str) -> None:
    text = TextAssembler((stop,))
    text.push(b"canary a long")
    assert "canary" not in repr(text)
    assert stop not in repr(text)
