import json
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.client.detection.spans import (
    MAX_SPANS_PER_CLASS,
    GarbageError,
    Span,
    checked,
    merge,
    parse_findings,
    parse_found,
    to_fields,
)
from curtilage.policy.decision.findings import Normalization, Where

HERE = Where(message=0, role="user", json_path="content")
CLASSES = ("financial.pan", "identifier.direct.email", "uncertain.number_run")


def span(
    start: int = 0,
    end: int = 4,
    *,
    data_class: str = "financial.pan",
    score: int = 50,
    validated: bool = False,
    normalization: Normalization = Normalization.RAW,
) -> Span:
    return Span(
        data_class=data_class,
        detector="test",
        start=start,
        end=end,
        score=score,
        validated=validated,
        normalization=normalization,
    )


@st.composite
def any_span(draw: st.DrawFn) -> Span:
    start = draw(st.integers(0, 50))
    return span(
        start,
        start + draw(st.integers(1, 20)),
        data_class=draw(st.sampled_from(CLASSES)),
        score=draw(st.integers(0, 100)),
        validated=draw(st.booleans()),
        normalization=draw(st.sampled_from(list(Normalization))),
    )


SPANS = any_span()


def test_merge_keeps_the_validated_one_of_overlapping_spans() -> None:
    best = span(2, 6, score=40, validated=True)
    assert merge([span(0, 4, score=90), best]) == (best,)


def test_merge_keeps_neighbours_apart() -> None:
    assert len(merge([span(0, 4), span(4, 8)])) == 2


def test_merge_drops_what_another_view_merely_repeats() -> None:
    raw = span(0, 4)
    assert merge([raw, span(1, 5, normalization=Normalization.NFKC)]) == (raw,)


def test_merge_keeps_what_only_another_view_shows() -> None:
    found = merge(
        [
            span(0, 4),
            span(1, 5, normalization=Normalization.NFKC),
            span(9, 12, normalization=Normalization.NFKC),
        ]
    )
    assert {each.normalization for each in found} == {
        Normalization.RAW,
        Normalization.NFKC,
    }


def test_merge_bounds_the_number_of_spans() -> None:
    many = [span(2 * at, 2 * at + 1) for at in range(1000)]
    assert len(merge(many)) == MAX_SPANS_PER_CLASS


@given(st.lists(SPANS))
def test_merge_never_loses_a_class(spans: list[Span]) -> None:
    before = {each.data_class for each in spans}
    assert {each.data_class for each in merge(spans)} == before


@given(st.lists(SPANS))
def test_merge_of_merged_changes_nothing(spans: list[Span]) -> None:
    once = merge(spans)
    assert set(merge(once)) == set(once)


@given(st.lists(SPANS))
def test_spans_survive_the_way_through_json(spans: list[Span]) -> None:
    sent = json.loads(json.dumps([to_fields(0, each) for each in spans]))
    assert parse_findings(sent, [HERE]) == tuple(each.at(HERE) for each in spans)


BAD: Final[list[object]] = [
    None,
    "financial.pan",
    {},
    [None],
    [[]],
    [[0, "financial.pan", "test", 0, 4, 50, False]],
    [[0, "no.such_class", "test", 0, 4, 50, False, "raw", []]],
    [[1, "financial.pan", "test", 0, 4, 50, False, "raw", []]],
    [[-1, "financial.pan", "test", 0, 4, 50, False, "raw", []]],
    [[True, "financial.pan", "test", 0, 4, 50, False, "raw", []]],
    [[0, "financial.pan", "my name is Ann", 0, 4, 50, False, "raw", []]],
    [[0, "financial.pan", "x" * 65, 0, 4, 50, False, "raw", []]],
    [[0, "financial.pan", "test", 5, 4, 50, False, "raw", []]],
    [[0, "financial.pan", "test", -1, 4, 50, False, "raw", []]],
    [[0, "financial.pan", "test", 0, 2**40, 50, False, "raw", []]],
    [[0, "financial.pan", "test", 0, 4, 101, False, "raw", []]],
    [[0, "financial.pan", "test", 0, 4, 50.0, False, "raw", []]],
    [[0, "financial.pan", "test", 0, 4, 50, 1, "raw", []]],
    [[0, "financial.pan", "test", 0, 4, 50, False, "sideways", []]],
    [[0, "financial.pan", "test", 0, 4, 50, False, "raw", [], "my text"]],
    [[0, "financial.pan", "test", 0, 4, 50, False, "raw"]],
    [[0, "financial.pan", "test", 0, 4, 50, False, "raw", "public"]],
    [[0, "financial.pan", "test", 0, 4, 50, False, "raw", ["my text"]]],
    [[0, "financial.pan", "test", 0, 4, 50, False, "raw", [7]]],
]


@pytest.mark.parametrize("bad", BAD)
def test_parse_findings_refuses_garbage(bad: object) -> None:
    with pytest.raises(GarbageError):
        parse_findings(bad, [HERE])


@pytest.mark.parametrize(
    "bad",
    [
        [None],
        ["text"],
        [span(0, 5)],
        [span(3, 2)],
        [span(score=101)],
        [span(score=-1)],
        [span(data_class="no.such_class")],
        [span(data_class="uncertain")],
        [span(), object()],
    ],
)
def test_checked_refuses_a_detectors_garbage(bad: list[object]) -> None:
    with pytest.raises(GarbageError):
        checked(bad, length=4)


def test_checked_passes_what_fits() -> None:
    assert checked([span()], length=4) == (span(),)


def test_parse_findings_takes_the_names_of_lists() -> None:
    sent = [[0, "financial.pan", "test", 0, 4, 50, False, "raw", ["public"]]]
    (found,) = parse_findings(sent, [HERE], lists=frozenset({"public"}))
    assert found.listed == ("public",)
    with pytest.raises(GarbageError, match="list"):
        parse_findings(sent, [HERE], lists=frozenset({"other"}))


@pytest.mark.parametrize("value", [7, [], [[]], [[], [], []], [[], 7], {"0": []}])
def test_an_answer_for_other_conversations_is_refused(value: object) -> None:
    with pytest.raises(GarbageError):
        parse_found(value, [[], []])
    with pytest.raises(GarbageError):
        parse_found(7, [])


def test_each_conversation_has_its_own_places() -> None:
    nothing: list[object] = []
    assert parse_found([nothing, nothing], [[], []]) == [(), ()]
