"""The report of many examples in one test: tests/support/examples.py."""

import pytest

from support.examples import examples


@examples(("low", "high"), {"small": [(1, 2), (3, 4)], "large": [(10, 20)]})
def test_each_key_makes_a_test_with_its_fixtures(
    low: int, high: int, request: pytest.FixtureRequest
) -> None:
    assert low < high
    assert (high > 9) is ("large" in request.node.name)


def test_every_failing_example_is_reported_with_its_reason() -> None:
    seen: list[int] = []

    @examples("number", [1, 2, 3, 4, 5])
    def tried(number: int) -> None:
        seen.append(number)
        if number == 2:
            pytest.skip("not here")
        if number == 3:
            raise KeyError("lost")
        assert number != 4, "four is wrong"

    with pytest.raises(pytest.fail.Exception) as failed:
        tried()
    assert seen == [1, 2, 3, 4, 5]
    report = str(failed.value).splitlines()
    assert report[0] == "3 of 5 examples fail:"
    assert [line.partition("  (")[0] for line in report if line[0] == "-"] == [
        "- number=2",
        "- number=3",
        "- number=4",
    ]
    assert "    Skipped: not here" in report
    assert "    KeyError: 'lost'" in report
    assert "    AssertionError: four is wrong" in report


def test_no_example_is_dropped_because_another_one_passes() -> None:
    @examples("number", {"odd": [1, 3], "even": [2, 5]})
    def tried(number: int) -> None:
        assert number < 4

    tried(examples_of="odd")
    with pytest.raises(pytest.fail.Exception, match="1 of 2 examples"):
        tried(examples_of="even")


@pytest.mark.parametrize("rows", [[], {}, {"a": [1], "b": []}], ids=str)
def test_a_test_has_an_example(rows: list[int] | dict[str, list[int]]) -> None:
    with pytest.raises(ValueError, match="without an example"):
        examples("number", rows)


def test_a_test_that_nothing_awaits_is_refused() -> None:
    async def tried(number: int) -> None:
        pytest.fail(str(number))

    with pytest.raises(TypeError, match="await"):
        examples("number", [1])(tried)  # type: ignore[arg-type]
