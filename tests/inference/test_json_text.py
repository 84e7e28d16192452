import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.inference.errors import RequestError
from curtilage.inference.json_text import MAX_DEPTH, read_json, write_json
from support.chains import chain

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner) | st.dictionaries(st.text('ab[{"\\\\'), inner),
    max_leaves=10,
)


@given(VALUES)
def test_what_is_written_is_read(value: object) -> None:
    assert read_json(write_json(value), "it") == value
    assert read_json(json.dumps(value), "it") == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "canary",
        "1 2",
        "{1: 2}",
        "NaN",
        "-Infinity",
        '"canary \\ud800"',
        '{"canary": 1, "canary": 1}',
    ],
)
def test_what_is_not_strictly_json_is_refused_without_its_text(text: str) -> None:
    with pytest.raises(RequestError) as refusal:
        read_json(text, "it")
    assert "canary" not in chain(refusal.value)


def test_depth_is_bounded_and_brackets_in_strings_do_not_count() -> None:
    assert read_json("[" * MAX_DEPTH + "]" * MAX_DEPTH, "it") is not None
    with pytest.raises(RequestError):
        read_json("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), "it")
    with pytest.raises(RequestError):
        read_json("[" * 100_000, "it")
    brackets = "[{" * MAX_DEPTH + '"' + "\\" + "[" * MAX_DEPTH
    assert read_json(json.dumps(brackets), "it") == brackets
