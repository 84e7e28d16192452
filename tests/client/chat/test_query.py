import json
import subprocess
import sys
from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.client.chat.query import (
    MAX_TOKENS_SENT,
    ROLES,
    Message,
    Query,
    Settings,
    single_query,
)

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
        Settings,
        stop=st.lists(TEXT, max_size=3).map(tuple),
        seed=st.none() | st.integers(0, 2**32 - 1),
        temperature=st.floats(0, 2),
        top_p=st.floats(0.001, 1),
        max_tokens=st.integers(1, 32768),
        logprobs=st.booleans(),
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
        text
        for text in strings(json.loads(query.payload().content))
        if text not in ROLES
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


# A social security number, digits of a card, an age with its months.
TELLING = Settings(
    seed=412683397,
    temperature=0.412683397,
    top_p=0.5425233430109903,
    max_tokens=3397,
)


def sent(query: Query) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(query.payload().content)
    return body


def asked(text: str, **settings: Any) -> Query:  # noqa: ANN401 -- as Settings has them
    return replace(single_query(text), settings=Settings(**settings))


@given(QUERIES)
def test_of_numbers_only_coarse_ones_leave(query: Query) -> None:
    # Everything in the payload that is no text, so that a new one is noticed.
    body = sent(query)
    del body["messages"], body["stream"]
    for name in ("stop", "logprobs"):
        body.pop(name, None)
    assert body.pop("max_tokens") in MAX_TOKENS_SENT
    assert 100 * body.pop("temperature") == pytest.approx(
        100 * query.settings.temperature, abs=0.51
    )
    assert body.pop("top_p") in {number / 100 for number in range(1, 101)}
    assert ("seed" in body) == (query.settings.seed is not None)
    assert 0 <= body.pop("seed", 0) < 2**32
    assert body == {}


def test_no_digits_of_a_number_that_says_something_leave() -> None:
    payload = (
        replace(single_query("What is a prime?"), settings=TELLING).payload().content
    )
    for digits in (b"412683397", b"0.412", b"0.5425", b"3397"):
        assert digits not in payload


@pytest.mark.parametrize(
    "settings",
    [{}, {"temperature": 0}, {"temperature": 1.25, "top_p": 0.9, "max_tokens": 150}],
    ids=["default", "greedy", "usual"],
)
def test_usual_numbers_leave_as_they_are(settings: dict[str, float]) -> None:
    body, given_ = sent(asked("x", **settings)), Settings(**cast("Any", settings))
    assert body["temperature"] == given_.temperature
    assert body["top_p"] == given_.top_p
    assert body["max_tokens"] == given_.max_tokens


@pytest.mark.parametrize(
    ("limit", "leaving"),
    [(1, 1), (7, 7), (11, 10), (17, 16), (512, 512), (3397, 3072), (32768, 32768)],
)
def test_a_limit_that_leaves_is_never_above_the_callers(
    limit: int, leaving: int
) -> None:
    assert sent(asked("x", max_tokens=limit))["max_tokens"] == leaving


def test_a_tiny_share_is_not_rounded_to_none() -> None:
    assert sent(asked("x", top_p=0.001))["top_p"] == 0.01


def test_one_seed_and_one_question_leave_as_one_payload() -> None:
    assert asked("x", seed=7).payload().content == asked("x", seed=7).payload().content


@pytest.mark.parametrize(
    "other",
    [asked("x", seed=8), asked("y", seed=7), asked("x", seed=7, max_tokens=9)],
    ids=["seed", "question", "setting"],
)
def test_a_seed_joins_no_two_payloads(other: Query) -> None:
    assert sent(other)["seed"] != sent(asked("x", seed=7))["seed"]


def test_a_seed_joins_no_two_processes() -> None:
    # Two programs that ask the same with the same seed.
    program = (
        "from curtilage.client.chat.query import Message, Query, Settings; print(Query("
        "messages=(Message(role='user', content='x'),), settings=Settings(seed=7)"
        ").payload().content.decode())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, text=True
    )
    assert json.loads(done.stdout)["messages"] == sent(asked("x", seed=7))["messages"]
    assert json.loads(done.stdout)["seed"] != sent(asked("x", seed=7))["seed"]
