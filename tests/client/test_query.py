import json
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.client.query import ROLES, Message, Query, Settings

CANARY = "canary-e21b"
TEXT = st.text(max_size=30)
QUERIES = st.builds(
    Query,
    messages=st.lists(
        st.builds(
            Message,
            role=st.sampled_from(sorted(ROLES)),
            content=TEXT,
            name=st.none() | TEXT,
        ),
        max_size=4,
    ).map(tuple),
    settings=st.builds(
        Settings, stop=st.lists(TEXT, max_size=3).map(tuple), seed=st.none()
    ),
    stream=st.booleans(),
)


def strings(value: object) -> list[str]:
    """Every string of a JSON value that is not a key."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        members = cast("dict[str, object]", value)
        return [text for each in members.values() for text in strings(each)]
    if isinstance(value, list):
        items = cast("list[object]", value)
        return [text for each in items for text in strings(each)]
    return []


@given(QUERIES)
def test_every_string_that_would_leave_is_inspected(query: Query) -> None:
    inspected = [leaf.text for leaf in query.leaves()]
    leaving = [
        text for text in strings(json.loads(query.payload())) if text not in ROLES
    ]
    for text in leaving:
        assert text in inspected


@given(QUERIES)
def test_a_change_of_anything_changes_the_digest(query: Query) -> None:
    more = Query(
        messages=(*query.messages, Message(role="user", content="x")),
        settings=query.settings,
        stream=query.stream,
    )
    assert more.payload_digest() != query.payload_digest()


def test_no_repr_holds_a_text() -> None:
    query = Query(
        messages=(Message(role="user", content=CANARY, name=CANARY),),
        settings=Settings(stop=(CANARY,)),
    )
    assert CANARY not in repr(query) + repr(list(query.leaves()))


def test_a_lone_surrogate_has_no_payload() -> None:
    query = Query(messages=(Message(role="user", content="\ud800"),))
    with pytest.raises(UnicodeEncodeError):
        query.payload()
