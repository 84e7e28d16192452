import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.inference.alternatives import (
    ANY_OBJECT,
    ANYTHING,
    NONE,
    Alternative,
    Alternatives,
    Array,
    Dictionary,
    Formatted,
    Integers,
    Literal,
    Member,
    Numbers,
    Object,
    Texts,
    Values,
    merged,
    order,
)
from curtilage.inference.errors import SchemaError

A, B = Literal("a"), Literal("b")
ENDS = st.none() | st.integers(-5, 25)
SPANS = st.tuples(ENDS, ENDS).filter(
    lambda span: span[0] is None or span[1] is None or span[0] <= span[1]
)


def values() -> Values:
    return Values(lambda _steps: None)


def test_equal_sets_have_one_number() -> None:
    known = values()
    assert known.add([A, B]) == known.add([B, A, A])
    assert known.add([A]) != known.add([A, B])
    assert known.of(known.add([A, B])) == {A, B}
    members = [Member('"a":', 0, required=True)]
    assert known.object_of(members) == known.object_of(members) == Object(0)
    assert known.object_of([]) == Object(1)
    assert known.objects == [(members[0],), ()]


def test_a_reference_is_what_it_refers_to() -> None:
    known = values()
    first, second = known.reserve(), known.reserve()
    inside = known.add([*known.of(first), *known.of(second)])
    known.define(first, known.add([A]))
    known.define(second, known.add([B, *known.of(first)]))
    known.resolve()
    assert known.of(first) == {A}
    assert known.of(second) == known.of(inside) == {A, B}


def test_a_set_that_is_a_part_of_itself_is_refused() -> None:
    known = values()
    first, second = known.reserve(), known.reserve()
    known.define(first, known.add([A, *known.of(second)]))
    known.define(second, known.add([B, *known.of(first)]))
    with pytest.raises(SchemaError) as refused:
        known.resolve()
    assert refused.value.keyword == "$ref"
    alone = values()
    reserved = alone.reserve()
    alone.define(reserved, reserved)
    with pytest.raises(SchemaError):
        alone.resolve()


def test_what_is_kept_counts() -> None:
    counted: list[int] = []
    known = Values(counted.append)
    known.add([A, B])
    first = sum(counted)
    known.add([A, B])
    assert first > 2 * (sum(counted) - first) > 0


@given(st.lists(SPANS, max_size=6), st.sampled_from([Integers, Texts, Numbers]))
def test_spans_that_overlap_are_one(
    spans: list[tuple[int | None, int | None]],
    kind: type[Integers] | type[Texts] | type[Numbers],
) -> None:
    def covered(found: list[Alternative]) -> set[float]:
        halves = [each / 2 for each in range(-20, 61)]
        return {
            each
            for each in halves
            if any(
                (low is None or low <= each) and (high is None or each <= high)
                for low, high in map(ends_of, found)
            )
            and (kind is Numbers or each == int(each))
        }

    given_ = [kind(low or 0 if kind is Texts else low, high) for low, high in spans]  # type: ignore[arg-type]
    given_ = [each for each in given_ if is_span(each)]
    found = sorted(merged(frozenset(given_)), key=order)
    assert covered(found) == covered(list(given_))
    for one in found:
        for other in found:
            assert one is other or not touch(ends_of(one), ends_of(other), kind)


def is_span(alternative: Alternative) -> bool:
    low, high = ends_of(alternative)
    return low is None or high is None or low <= high


def ends_of(alternative: Alternative) -> tuple[int | None, int | None]:
    if isinstance(alternative, Texts):
        return alternative.least, alternative.most
    assert isinstance(alternative, Integers | Numbers)
    return alternative.low, alternative.high


def touch(
    one: tuple[int | None, int | None],
    other: tuple[int | None, int | None],
    kind: type[Alternative],
) -> bool:
    apart = 0 if kind is Numbers else 1
    return (one[0] is None or other[1] is None or one[0] <= other[1] + apart) and (
        other[0] is None or one[1] is None or other[0] <= one[1] + apart
    )


def test_less_is_followed_where_more_is_permitted_anyhow() -> None:
    others: Alternatives = frozenset(
        {A, Formatted("date"), Object(0), Dictionary(1), Array(1, 0, 2)}
    )
    assert merged(others) == others
    assert merged(others | ANYTHING) == ANYTHING
    assert merged(others | {ANY_OBJECT}) == {
        A,
        Formatted("date"),
        Array(1, 0, 2),
        ANY_OBJECT,
    }
    whole: Alternatives = frozenset({Integers(1, 5), Integers(7, None), Numbers(1, 6)})
    assert merged(whole) == {Integers(7, None), Numbers(1, 6)}
    assert merged(whole | {Numbers(None, None)}) == {Numbers(None, None)}
    lengths = frozenset(
        {Array(1, 0, 2), Array(1, 3, 5), Array(1, 7, None), Array(2, 1, 1)}
    )
    assert merged(lengths) == {Array(1, 0, 5), Array(1, 7, None), Array(2, 1, 1)}
    assert merged(NONE) == NONE


def test_nothing_of_a_text_is_in_its_name() -> None:
    assert "canary" not in repr(Literal("canary"))
