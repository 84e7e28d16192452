from collections.abc import Callable, Iterator, Sequence
from threading import Barrier, Event

import pytest

from curtilage.client.chat.query import Query, single_query
from curtilage.client.detection.side_by_side import MOST, TOGETHER, SideBySide, cores
from curtilage.client.errors import DetectorsError
from curtilage.policy.decision.decide import Inspection
from support.fakes import returns
from support.inspections import inspection_of


class Counting:
    """Finds nothing, and says of each query which one it was."""

    advice = "no wall"

    def __init__(self, *, meets: Barrier | None = None) -> None:
        self.parts: list[Sequence[Query]] = []
        self.closed = False
        self._meets = meets

    def inspect_many(self, queries: Sequence[Query]) -> Iterator[Inspection]:
        self.parts.append(queries)
        if self._meets is not None:
            self._meets.wait(60)
        for query in queries:
            digest = query.payload_digest()
            yield inspection_of(findings=(), payload_digest=digest, messages=1)

    def close(self) -> None:
        self.closed = True


QUERIES = [single_query(f"query {number}") for number in range(3 * TOGETHER + 5)]
IN_ORDER = [each.payload_digest() for each in QUERIES]


def digests(found: Iterator[Inspection]) -> list[bytes]:
    return [each.payload_digest for each in found]


def one_after_the_other(*starts: Callable[[], Counting]) -> Callable[[], Counting]:
    left = iter(starts)

    def start() -> Counting:
        return next(left)()

    return start


def test_a_few_queries_need_no_help() -> None:
    made: list[Counting] = []

    def start() -> Counting:
        made.append(Counting())
        return made[-1]

    several = SideBySide(start, count=3)
    assert several.advice == "no wall"
    assert digests(several.inspect_many(QUERIES[:TOGETHER])) == IN_ORDER[:TOGETHER]
    several.close()
    assert [each.closed for each in made] == [True]


def test_many_are_shared_and_come_in_order() -> None:
    # Neither goes on before both have a part: so both have one.
    meets = Barrier(2)
    both = [Counting(meets=meets), Counting(meets=meets)]
    left = iter(both)
    several = SideBySide(lambda: next(left), count=2)
    assert digests(several.inspect_many(QUERIES)) == IN_ORDER
    several.close()
    assert all(each.parts for each in both)
    assert all(each.closed for each in both)


def test_the_others_are_not_waited_for() -> None:
    first, late = Counting(), Counting()
    asked = Event()

    def wait() -> Counting:
        asked.wait(60)
        return late

    several = SideBySide(one_after_the_other(lambda: first, wait), count=2)
    assert digests(several.inspect_many(QUERIES)) == IN_ORDER
    assert not late.parts
    asked.set()
    several.close()
    assert late.closed


def test_one_that_does_not_start_costs_no_answer() -> None:
    first = Counting()

    def fail() -> Counting:
        raise DetectorsError("the detectors did not start")

    several = SideBySide(one_after_the_other(lambda: first, fail), count=2)
    assert digests(several.inspect_many(QUERIES)) == IN_ORDER
    several.close()


def test_without_a_first_there_is_none() -> None:
    def fail() -> Counting:
        raise DetectorsError("the detectors did not start")

    with pytest.raises(DetectorsError):
        SideBySide(fail, count=2)


def test_there_are_as_many_as_cores_and_a_few_at_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert 1 <= cores() <= MOST
    monkeypatch.setattr("os.sched_getaffinity", returns(set(range(64))), raising=False)
    assert cores() == MOST
