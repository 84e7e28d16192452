import json
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.client.chat.document import GRAMMAR, Document

CANARY = "canary-8f20"
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner)
    ),
    max_leaves=8,
)
SCHEMA = {
    "name": "book",
    "description": "Books a room",
    "parameters": {
        "type": "object",
        "properties": {
            "ward": {"type": "string", "enum": ["A1", "B2"], "description": "Which"},
            "title": {"type": "integer", "minimum": 7, "default": 81},
        },
        "required": ["ward"],
    },
}


def texts_of(value: object) -> list[str]:
    """Every name, string and number of a JSON value."""
    if isinstance(value, dict):
        members = cast("dict[str, object]", value).items()
        return [text for pair in members for each in pair for text in texts_of(each)]
    if isinstance(value, list):
        items = cast("list[object]", value)
        return [text for each in items for text in texts_of(each)]
    return [value if isinstance(value, str) else json.dumps(value)]


@given(JSON, st.booleans())
def test_every_name_string_and_number_is_read(value: object, schema: bool) -> None:
    read = Document.of(value, schema=schema).text()
    for text in texts_of(value):
        assert text in read or (schema and text in GRAMMAR)


@given(JSON, st.booleans())
def test_a_document_is_its_value(value: object, schema: bool) -> None:
    document = Document.of(value, schema=schema)
    assert document.value() == value
    assert document.plain() == (value if schema else document.encoded)


def test_of_a_schema_the_words_of_the_language_are_left_out() -> None:
    read = Document.of(SCHEMA, schema=True).text()
    assert read == "book\nBooks a room\nward: A1\nB2\nWhich\nminimum: 7\n81\nward\n"


def test_what_is_hidden_by_its_spelling_is_read_decoded() -> None:
    document = Document('{"a" : "\\u0041nn", "a\\u006e": 1}')
    assert document.text() == "a: Ann\nan: 1\n"
    assert document.plain() == '{"a":"Ann","an":1}'


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_what_is_no_json_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="JSON"):
        Document.of([value])


def test_no_repr_holds_a_text() -> None:
    assert CANARY not in repr(Document.of({CANARY: CANARY}))
