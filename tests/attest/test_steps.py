import pytest

from curtilage.attest.errors import RefusalCode, RefusedError, Step
from curtilage.attest.steps import UNFORESEEN, Check, StepLog, refusing


def test_steps_are_numbered_as_they_run() -> None:
    log = StepLog()
    for name in (Check.BUNDLE, "another step", Check.BUNDLE):
        log.begin(name)
        log.passed("seen")
    assert [(step.number, step.name) for step in log.steps] == [
        (1, "bundle"),
        (2, "another step"),
        (3, "bundle"),
    ]


def test_a_refusal_ends_with_the_step_that_refused() -> None:
    log = StepLog()
    log.begin("first")
    log.passed("seen")
    log.begin("second")
    refusal = log.refusal(RefusalCode.STALE, "too old")
    assert (refusal.step, refusal.code) == ("second", RefusalCode.STALE)
    assert refusal.steps[-1] == Step(
        number=2, name="second", passed=False, detail="stale: too old"
    )
    assert log.steps == refusal.steps[:-1]


def test_a_step_that_forgets_to_pass_stops_everything() -> None:
    log = StepLog()
    log.begin("first")
    with pytest.raises(RuntimeError, match="neither passed"):
        log.begin("second")
    assert log.refusal(RefusalCode.STALE, "").step == "first"


def test_a_step_that_has_not_begun_cannot_pass() -> None:
    log = StepLog()
    with pytest.raises(RuntimeError, match=" begun"):
        log.passed("seen")
    log.begin("first")
    log.passed("seen")
    with pytest.raises(RuntimeError, match=" begun"):
        log.passed("seen again")


def test_a_result_is_returned() -> None:
    assert refusing(StepLog(), lambda: 7) == 7


@pytest.mark.parametrize("failure", [ValueError, KeyError, RuntimeError, MemoryError])
def test_whatever_fails_is_a_refusal(failure: type[Exception]) -> None:
    def fail() -> None:
        raise failure("canary")

    with pytest.raises(RefusedError) as caught:
        refusing(StepLog(), fail)
    assert caught.value.code is RefusalCode.VERIFIER_UNAVAILABLE
    assert caught.value.detail == UNFORESEEN
    assert caught.value.__suppress_context__


def test_a_panic_of_a_library_is_a_refusal() -> None:
    """In Rust's libraries it is no ``Exception``, and would run on to the caller."""
    panic = type("PanicException", (BaseException,), {})("canary")

    def fail() -> None:
        raise panic

    with pytest.raises(RefusedError) as caught:
        refusing(StepLog(), fail)
    assert caught.value.detail == UNFORESEEN
    assert caught.value.__suppress_context__


@pytest.mark.parametrize("end", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_interrupts_and_exits_are_not_caught(end: type[BaseException]) -> None:
    def fail() -> None:
        raise end

    with pytest.raises(end):
        refusing(StepLog(), fail)


def test_a_forgotten_step_is_a_refusal() -> None:
    log = StepLog()

    def forget() -> None:
        log.begin("first")
        log.begin("second")

    with pytest.raises(RefusedError) as caught:
        refusing(log, forget)
    assert caught.value.step == "first"


def test_names_of_steps_are_distinct() -> None:
    assert len(set(Check)) == len(list(Check))
