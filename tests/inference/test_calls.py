import functools
import json
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curtilage.inference import calls as calls_module
from curtilage.inference.calls import (
    CLOSE,
    OPEN,
    CallParser,
    bare_heads_of,
    calls_rule,
    free_rule,
    head_of,
    written_call,
)
from curtilage.inference.errors import RequestError
from curtilage.inference.grammar import Grammar, Rule
from curtilage.inference.schema import add_object_schema
from support.grammar_walk import Walk

NAMES = ("find", "find_all", "auto")
SCHEMA: dict[str, object] = {
    "properties": {"what": {"type": "string", "maxLength": 4}},
    "required": ["what"],
}
ENCODABLE = st.text(st.characters(exclude_categories=["Cs"]))
# What may be taken for marks, and parts of them.
PIECES = st.lists(
    st.sampled_from(
        [
            "a", " ", "\n", "<", "{", '"', OPEN, CLOSE, OPEN[:4], CLOSE[:5], "<<",
            head_of("find"), head_of("none"), '{"name": "', "}", "{}",
            "```json", *bare_heads_of("find"),
            written_call("find", "{}"), written_call("find_all", '{"a": [1, "\\"}"]}'),
            written_call("none", "{}"),
        ]
    )
    | ENCODABLE
).map("".join)  # fmt: skip


def parsed(
    text: str, *, bare: bool = True, cuts: tuple[int, ...] = ()
) -> tuple[str, list[tuple[str, str]]]:
    parser = CallParser(NAMES, bare=bare)
    ends = sorted({cut % (len(text) + 1) for cut in cuts} | {len(text)})
    pieces = [text[a:b] for a, b in zip([0, *ends], ends, strict=False)]
    shown = "".join([parser.push(piece) for piece in pieces]) + parser.flush()
    return shown, [(call.name, call.arguments) for call in parser.calls]


@functools.cache
def walk_of(
    rule: Callable[..., Rule], *, several: bool, names: tuple[str, ...] = NAMES
) -> Callable[[int], str]:
    """Return what makes a random answer of a rule from a seed."""
    grammar = Grammar()
    arguments = {
        name: add_object_schema(grammar, SCHEMA, strict=True) for name in names
    }
    root = rule(grammar, arguments, several=several)
    walk = Walk(grammar)
    return lambda seed: walk.text(root, seed)


@pytest.mark.parametrize(
    ("text", "shown", "calls"),
    [
        ("", "", []),
        ("Hello.", "Hello.", []),
        (written_call("find", "{}"), "", [("find", "{}")]),
        ("Yes.\n" + written_call("find", "{}"), "Yes.\n", [("find", "{}")]),
        (f"{OPEN}{head_of('find')}{{}}}}{CLOSE}", "", [("find", "{}")]),
        (
            written_call("find", '{"a": "}"}') + "\n" + written_call("auto", "{}"),
            "",
            [("find", '{"a": "}"}'), ("auto", "{}")],
        ),
        (written_call("find", "{}") + "more", "", [("find", "{}")]),
        (head_of("find") + '{"a": [{}]}}', "", [("find", '{"a": [{}]}')]),
        (bare_heads_of("find")[1] + "{}\n}", "", [("find", "{}")]),
        (bare_heads_of("find")[2] + "{}}\n```", "", [("find", "{}")]),
        (bare_heads_of("find_all")[3] + "{}\n}\n```", "", [("find_all", "{}")]),
        ("```json\n{}\n```", "```json\n{}\n```", []),
        (bare_heads_of("none")[3] + "{}}", bare_heads_of("none")[3] + "{}}", []),
        ('{"name": "find"}', '{"name": "find"}', []),
        ('{"name": "fin', '{"name": "fin', []),
        (" " + head_of("find") + "{}}", " " + head_of("find") + "{}}", []),
        ("a <tool_cal", "a <tool_cal", []),
        ("a < b <<tool", "a < b <<tool", []),
        # Cut inside a call: it is not complete, so it is none.
        (OPEN, "", []),
        ("a" + written_call("find", "{}")[:-15], "a", []),
        (head_of("find") + '{"a": ', "", []),
        # Without a grammar: what is not of the form is text.
        (written_call("none", "{}"), written_call("none", "{}"), []),
        (head_of("none") + "{}}", head_of("none") + "{}}", []),
        (OPEN + "a", OPEN + "a", []),
        (OPEN + OPEN + "\n" + head_of("find") + "{}}", OPEN, [("find", "{}")]),
    ],
)
def test_calls_are_separated_from_text(
    text: str, shown: str, calls: list[tuple[str, str]]
) -> None:
    assert parsed(text) == (shown, calls)
    assert parsed(text, cuts=tuple(range(len(text)))) == (shown, calls)


def test_json_is_text_where_it_may_be_the_answer() -> None:
    text = head_of("find") + "{}}"
    assert parsed(text, bare=False) == (text, [])


@settings(deadline=None)
@given(PIECES, st.lists(st.integers(0, 1000)).map(tuple), st.booleans())
def test_the_same_is_found_however_the_text_is_cut(
    text: str,
    cuts: tuple[int, ...],
    bare: bool,
) -> None:
    assert parsed(text, bare=bare, cuts=cuts) == parsed(text, bare=bare)


@given(PIECES)
def test_only_offered_tools_are_called(text: str) -> None:
    assert {name for name, _ in parsed(text)[1]} <= set(NAMES)


@given(ENCODABLE.filter(lambda text: OPEN not in text and text[:1] not in {"{", "`"}))
def test_text_without_marks_stays_as_it_is(text: str) -> None:
    assert parsed(text) == (text, [])


def test_a_call_has_only_so_many_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls_module, "MAX_ARGUMENT_CHARS", 10)
    parser = CallParser(["find"], bare=False)
    parser.push(written_call("find", '{"a": 123}') * 3)
    assert len(parser.calls) == 3
    with pytest.raises(RequestError) as refused:
        parser.push(written_call("find", '{"canary": 1}'))
    assert "canary" not in str(refused.value)
    slow = CallParser(["find"], bare=False)
    slow.push(f"{OPEN}\n{head_of('find')}")
    for piece in ('{"a', '": 12'):
        slow.push(piece)
    with pytest.raises(RequestError):
        slow.push("345")


def test_ids_differ_and_come_from_one_place() -> None:
    parser = CallParser(["find"], bare=False, make_id=iter(["one", "two"]).__next__)
    parser.push(written_call("find", "{}") * 2)
    assert [call.id for call in parser.calls] == ["one", "two"]
    drawn = CallParser(["find"], bare=False)
    drawn.push(written_call("find", "{}") * 20)
    assert len({call.id for call in drawn.calls}) == 20


def check(arguments: str) -> None:
    value = json.loads(arguments)
    assert isinstance(value["what"], str)
    assert len(value["what"]) <= 4


@settings(deadline=None)
@given(st.integers(0, 2**32), st.booleans())
def test_required_calls_are_calls_and_nothing_else(seed: int, several: bool) -> None:
    shown, calls = parsed(walk_of(calls_rule, several=several)(seed), bare=False)
    assert shown == ""
    assert len(calls) >= 1
    assert several or len(calls) == 1
    for _, written in calls:
        check(written)


@settings(deadline=None)
@given(st.integers(0, 2**32), st.booleans())
def test_a_free_answer_is_text_and_then_calls(seed: int, several: bool) -> None:
    text = walk_of(free_rule, several=several)(seed)
    shown, calls = parsed(text)
    assert text.startswith(shown)
    # What the grammar permits is read to the end: nothing is neither text nor call.
    assert calls or shown == text
    assert several or len(calls) <= 1
    for _, written in calls:
        check(written)
