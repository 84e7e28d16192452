from hypothesis import given
from hypothesis import strategies as st

from curtilage.client.chat.document import GRAMMAR, Document
from curtilage.client.chat.query import Message, Query, ToolCall
from curtilage.client.pseudonyms.with_texts import Stretch, strings_of, with_texts

TEXT = st.text(max_size=6) | st.sampled_from(sorted(GRAMMAR))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner),
    max_leaves=8,
)


def rewritten(query: Query, old: str, new: str) -> Query:
    def stretch_of(text: str) -> Stretch:
        return lambda start, end: text[start:end].replace(old, new)

    texts = {leaf.where: stretch_of(leaf.text) for leaf in query.leaves()}
    return with_texts(query, texts)


def in_arguments(value: object, old: str, new: str) -> object:
    call = ToolCall(number=1, name="x", arguments=Document.of(value))
    query = Query(messages=(Message(role="assistant", content="x", calls=(call,)),))
    return rewritten(query, old, new).messages[0].calls[0].arguments.value()


def in_schema(value: object, old: str, new: str) -> object:
    query = Query(messages=(), tools=(Document.of(value, schema=True),))
    return rewritten(query, old, new).tools[0].value()


@given(st.lists(JSON, max_size=2), JSON, st.none() | JSON)
def test_unchanged_texts_make_the_same_query(
    tools: list[object], arguments: object, wanted: object
) -> None:
    call = ToolCall(number=1, name="x", arguments=Document.of(arguments))
    query = Query(
        messages=(
            Message(role="user", content="a", name="b"),
            Message(role="assistant", content="c", calls=(call, call)),
        ),
        tools=tuple(Document.of(each, schema=True) for each in tools),
        response_format=Document.of(wanted, schema=True),
    )
    assert rewritten(query, "", "") == query


@given(JSON, st.booleans())
def test_the_places_are_those_of_strings(value: object, schema: bool) -> None:
    document = Document.of(value, schema=schema)
    text = document.text()
    for start, end in strings_of(document):
        assert text[end] == "\n"
        assert start == 0 or text[start - 1] in " \n"


def test_strings_are_rewritten_and_stay_json() -> None:
    value = {"x": ['x"\n', {"b": "xx"}], "c": 5}
    assert in_arguments(value, "x", "yy") == {"x": ['yy"\n', {"b": "yyyy"}], "c": 5}


def test_what_a_tool_knows_is_not_rewritten() -> None:
    value = {
        "name": "x",
        "description": "x",
        "parameters": {
            "properties": {"x": {"type": "x", "enum": ["x"], "pattern": "x"}},
            "required": ["x"],
        },
    }
    assert in_schema(value, "x", "yy") == {
        "name": "x",
        "description": "yy",
        "parameters": {
            "properties": {"x": {"type": "x", "enum": ["yy"], "pattern": "x"}},
            "required": ["x"],
        },
    }
    assert [*strings_of(Document.of(value, schema=True))] == [(2, 3), (9, 10)]


def test_each_text_goes_to_its_own_place() -> None:
    call = ToolCall(number=1, name="f", arguments=Document.of({"a": "q"}))
    query = Query(
        messages=(
            Message(role="user", content="q", name="q"),
            Message(role="assistant", content="q", calls=(call, call)),
        ),
        tools=(Document.of({"description": "q"}, schema=True),) * 2,
        response_format=Document.of({"title": "q"}, schema=True),
    )

    def numbered(number: int, leaf_text: str) -> Stretch:
        return lambda start, end: leaf_text[start:end].replace("q", f"{number}")

    texts = {
        leaf.where: numbered(number, leaf.text)
        for number, leaf in enumerate(query.leaves())
    }
    made = with_texts(query, texts)
    assert [leaf.text.rpartition(" ")[2].strip() for leaf in made.leaves()] == [
        *("0", "1", "2", "q", "4", "f", "6", "f", "8", "9")
    ]
