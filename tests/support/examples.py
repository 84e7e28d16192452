"""Many examples in one test, with one report of all that fail.

A sentence is no test of its own: thousands of them take seconds to collect and say no
more than a list does. A refusal stays a case of ``pytest.mark.parametrize``: its id
says which check is gone.
"""

import functools
import inspect
import reprlib
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, cast

import pytest

Test = Callable[..., None]
Example = dict[str, Any]

SHORT: Final = reprlib.Repr()
SHORT.maxstring = SHORT.maxother = 300
LINES_EACH: Final = 6
# An example that skips was not tried: it fails as well.
FAILS: Final = (Exception, pytest.fail.Exception, pytest.skip.Exception)


def examples(
    names: str | Sequence[str], rows: Iterable[Any] | Mapping[str, Iterable[Any]]
) -> Callable[[Test], Test]:
    """Call a test with each row, and report every failing row together.

    `names` and `rows` are those of ``pytest.mark.parametrize``. A mapping makes one
    test for each of its keys. All rows of a test share its fixtures.
    """
    grouped = isinstance(rows, Mapping)
    groups: Mapping[str, Iterable[Any]] = (
        cast("Mapping[str, Iterable[Any]]", rows) if grouped else {"": rows}
    )
    tried = {group: _examples(names, each) for group, each in groups.items()}
    if not tried or not all(tried.values()):
        raise ValueError("a test without an example")
    looped = set(names if not isinstance(names, str) else [names])

    def decorate(test: Test) -> Test:
        if inspect.iscoroutinefunction(test):
            raise TypeError(f"{test.__name__}: nothing would await it")

        @functools.wraps(test)
        def try_all(*, examples_of: str = "", **fixtures: object) -> None:
            mine = tried[examples_of]
            problems = [
                problem
                for each in mine
                if (problem := _problem(test, each, fixtures)) is not None
            ]
            if problems:
                first = f"{len(problems)} of {len(mine)} examples fail:"
                pytest.fail("\n".join([first, *problems]), pytrace=False)

        # What pytest reads: the fixtures, and the group.
        kinds = inspect.Parameter
        fixtures = [
            each.replace(kind=kinds.KEYWORD_ONLY)
            for name, each in inspect.signature(test).parameters.items()
            if name not in looped
        ]
        group = [kinds("examples_of", kinds.KEYWORD_ONLY)] if grouped else []
        signature = inspect.Signature([*fixtures, *group])
        vars(try_all).update(__signature__=signature, examples=tried)
        return (
            pytest.mark.parametrize("examples_of", tried)(try_all)
            if grouped
            else try_all
        )

    return decorate


def _examples(names: str | Sequence[str], rows: Iterable[Any]) -> list[Example]:
    if isinstance(names, str):
        return [{names: row} for row in rows]
    return [dict(zip(names, row, strict=True)) for row in rows]


def _problem(test: Test, example: Example, fixtures: dict[str, object]) -> str | None:
    try:
        test(**example, **fixtures)
    except FAILS as error:
        shown = ", ".join(f"{name}={SHORT.repr(v)}" for name, v in example.items())
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{frame.filename.rpartition('/')[2]}:{frame.lineno}"
        said = f"{type(error).__name__}: {error}".splitlines()[:LINES_EACH]
        return "\n".join([f"- {shown}  ({place})", *(f"    {line}" for line in said)])
    return None
