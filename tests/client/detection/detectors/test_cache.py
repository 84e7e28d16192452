import gc
from collections.abc import Iterator

import pytest

from curtilage.client.chat.query import Message, Query
from curtilage.client.detection.detectors.cache import FindingsCache, Found
from curtilage.client.detection.detectors.readings import Reading
from curtilage.client.detection.detectors.scanner import (
    EVERY_FORM,
    Detector,
    Equipment,
    Scanner,
)
from curtilage.client.detection.inspection import prepare
from curtilage.client.detection.spans import Span
from curtilage.policy.document.load import load_profile
from curtilage.policy.document.model import Limits

CANARY = "zq7canary4711"
PLAN = bytes(32)
NOTHING = Found(first=(), last=())


class Counting:
    """A detector that counts what it is shown, and finds what the test says."""

    id = "counting"

    def __init__(self, *data_classes: str, validated: bool = False) -> None:
        self.seen: list[str] = []
        self._data_classes = data_classes
        self._validated = validated

    def find(self, reading: Reading) -> Iterator[Span]:
        self.seen.append(reading.text)
        for name in self._data_classes:
            yield Span(
                data_class=name,
                detector=self.id,
                start=0,
                end=1,
                score=90,
                validated=self._validated,
            )


def fitted(*detectors: Detector) -> Equipment:
    return tuple((each, EVERY_FORM) for each in detectors)


def span(name: str = "financial.pan") -> Span:
    return Span(data_class=name, detector="x", start=0, end=1, score=90)


# --- the store --------------------------------------------------------------------


def test_what_was_kept_is_recalled() -> None:
    memory = FindingsCache(PLAN)
    found = Found(first=(span(),))
    memory.keep(memory.name_of("text"), found)
    assert memory.recall(memory.name_of("text")) is found
    assert memory.recall(memory.name_of("text ")) is None


def test_a_name_depends_on_key_and_plan() -> None:
    names = {
        FindingsCache(PLAN, random=bytes).name_of("text"),
        FindingsCache(b"\x01" * 32, random=bytes).name_of("text"),
        FindingsCache(PLAN).name_of("text"),
        FindingsCache(PLAN).name_of("text"),
    }
    assert len(names) == 4
    assert {len(name) for name in names} == {32}


def test_the_oldest_is_forgotten() -> None:
    memory = FindingsCache(PLAN, most=3)
    for text in ("a", "b", "c"):
        memory.keep(memory.name_of(text), NOTHING)
    memory.recall(memory.name_of("a"))
    memory.keep(memory.name_of("d"), NOTHING)
    known = [text for text in "abcd" if memory.recall(memory.name_of(text))]
    assert known == ["a", "c", "d"]


def test_room_is_counted_in_findings() -> None:
    memory = FindingsCache(PLAN, most=10)
    for text in "abcd":
        memory.keep(memory.name_of(text), Found(first=(span(),) * 4, last=()))
    assert len(memory) == 2
    memory.keep(memory.name_of("d"), NOTHING)  # in place of the same text's
    memory.keep(memory.name_of("e"), Found(first=(span(),) * 3, last=()))
    assert len(memory) == 3


def test_a_lone_surrogate_has_a_name() -> None:
    assert len(FindingsCache(PLAN).name_of("\ud800")) == 32


def test_no_content_is_kept() -> None:
    memory = FindingsCache(PLAN)
    scanner = Scanner(fitted(_Mute()), cache=memory)
    text = f"{CANARY} my password is {CANARY} and more"
    scanner.scan([text])
    assert len(memory) == 1
    assert CANARY not in _strings_below(memory)


class _Mute:
    id = "mute"

    def find(self, reading: Reading) -> tuple[Span, ...]:
        del reading
        return (span(),)


def _strings_below(root: object) -> str:
    """Return every text and byte string that an object leads to."""
    seen: dict[int, object] = {}
    waiting: list[object] = [root]
    while waiting:
        each = waiting.pop()
        if id(each) in seen or isinstance(each, type) or callable(each):
            continue
        seen[id(each)] = each
        waiting.extend(gc.get_referents(each))
    return repr([each for each in seen.values() if isinstance(each, str | bytes)])


# --- a conversation that grows ------------------------------------------------------


def talk(turns: int) -> Query:
    said = (
        Message(role="user", content=f"{number} " + "a question of some length " * 40)
        for number in range(turns)
    )
    return Query(messages=tuple(said))


LIMITS = Limits(max_chars=100_000)


def test_one_more_turn_costs_only_the_new_text() -> None:
    counting = Counting()
    scanner = Scanner(fitted(counting), cache=FindingsCache(PLAN))
    scanner.scan(prepare(talk(20), LIMITS).texts)
    before = sum(map(len, counting.seen))
    counting.seen.clear()
    scanner.scan(prepare(talk(20), LIMITS).texts)
    assert counting.seen == []
    scanner.scan(prepare(talk(21), LIMITS).texts)
    new = talk(21).messages[-1].content
    assert new in counting.seen
    assert len(counting.seen) == 2  # and the seam before it
    assert sum(map(len, counting.seen)) < before / 10


def test_how_long_it_takes_does_not_show_what_another_application_asked() -> None:
    counting = Counting()
    scanner = Scanner(fitted(counting), cache=FindingsCache(PLAN))
    for application in ("letters", "triage", ""):
        for seen in (["a text"], []):
            counting.seen.clear()
            scanner.scan_all([["a text"]], application=application)
            assert counting.seen == seen


def test_findings_of_a_known_text_are_the_same() -> None:
    policy = load_profile("default")
    plain = Scanner(fitted(Counting("financial.pan"), _Mute()))
    keeping = Scanner(
        fitted(Counting("financial.pan"), _Mute()), cache=FindingsCache(PLAN)
    )
    texts = prepare(talk(3), policy.limits).texts
    assert keeping.scan(texts) == keeping.scan(texts) == plain.scan(texts)


class _Sometimes:
    """Fail on the first text only."""

    id = "sometimes"
    calls = 0

    def find(self, reading: Reading) -> tuple[Span, ...]:
        del reading
        self.calls += 1
        if self.calls == 1:
            raise OSError
        return ()


def test_a_failure_is_not_remembered() -> None:
    scanner = Scanner(fitted(_Sometimes()), cache=FindingsCache(PLAN))
    assert [each.data_class for each in scanner.scan(["a"])[0]] == ["uncertain.error"]
    assert scanner.scan(["a"]) == [()]


# --- two stages -----------------------------------------------------------------


def test_names_are_looked_for_in_the_new_turn_only() -> None:
    last = Counting("identifier.direct.person")
    scanner = Scanner(fitted(Counting()), fitted(last), cache=FindingsCache(PLAN))
    scanner.scan(prepare(talk(20), LIMITS).texts)
    assert len(last.seen) == len(prepare(talk(20), LIMITS).texts)
    last.seen.clear()
    (*_, found) = scanner.scan(prepare(talk(21), LIMITS).texts)
    new = talk(21).messages[-1].content
    assert len(last.seen) == 2  # the turn, and the seam before it
    assert new in last.seen
    assert [each.data_class for each in found] == ["identifier.direct.person"]


@pytest.mark.parametrize(
    ("found", "validated", "runs"),
    [
        ("financial.pan", True, False),
        ("financial.pan", False, True),
        ("financial.iban", True, True),
        ("uncertain.number_run", False, False),
    ],
    ids=["settles", "not validated", "another class", "uncertain"],
)
def test_the_last_stage_runs_unless_something_settled_the_route(
    found: str, *, validated: bool, runs: bool
) -> None:
    last = Counting("identifier.direct.person")
    scanner = Scanner(
        fitted(Counting(found, validated=validated)),
        fitted(last),
        exits=("financial.pan", "uncertain.number_run"),
    )
    scanner.scan(["a", "b"])
    assert bool(last.seen) is runs


def test_everything_runs_without_exits() -> None:
    last = Counting("identifier.direct.person")
    first = fitted(Counting("financial.pan", validated=True))
    (spans,) = Scanner(first, fitted(last)).scan(["a"])
    assert {each.data_class for each in spans} == {
        "financial.pan",
        "identifier.direct.person",
    }


def test_a_known_text_gets_the_last_stage_when_it_is_wanted_later() -> None:
    class Reads:
        id = "reads"

        def find(self, reading: Reading) -> tuple[Span, ...]:
            settled = reading.text == "card"
            return (
                (
                    Span(
                        data_class="financial.pan",
                        detector="x",
                        start=0,
                        end=1,
                        score=90,
                        validated=True,
                    ),
                )
                if settled
                else ()
            )

    last = Counting("identifier.direct.person")
    scanner = Scanner(
        fitted(Reads()),
        fitted(last),
        exits=("financial.pan",),
        cache=FindingsCache(PLAN),
    )
    scanner.scan(["mia", "card"])
    assert last.seen == []
    (spans,) = scanner.scan(["mia"])
    assert [each.data_class for each in spans] == ["identifier.direct.person"]
