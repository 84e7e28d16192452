"""The size of a context, before a model is loaded."""

import pytest

from curtilage.inference.errors import ContextSizeError, EngineMemoryError
from curtilage.inference.settings import DEFAULTS, EngineSettings
from curtilage.inference.shape import ModelShape
from curtilage.inference.sizing import (
    LEAST,
    MOST_UNASKED,
    USUAL,
    ContextPlan,
    contexts_at_once,
    plan_contexts,
)

FILE_BYTES = 1 << 30
SHAPE = ModelShape(
    layers=28, kv_heads=2, head_dim=128, trained_context=131_072, heads=12
)
SMALL = ModelShape(layers=30, kv_heads=3, head_dim=64, trained_context=8192, heads=9)


def room(tokens: int, contexts: int, settings: EngineSettings = DEFAULTS) -> int:
    return SHAPE.memory_bytes(
        FILE_BYTES,
        tokens,
        contexts=contexts,
        kv_type=settings.kv_type,
        flash_attention=settings.attention,
    )


def plan(
    memory_bytes: int | None,
    *,
    tokens: int | None = None,
    sequences: int | None = None,
    settings: EngineSettings = DEFAULTS,
    shape: ModelShape | None = SHAPE,
) -> ContextPlan:
    return plan_contexts(
        shape,
        FILE_BYTES,
        memory_bytes,
        tokens=tokens,
        sequences=sequences,
        settings=settings,
    )


def sizes(found: ContextPlan) -> tuple[int, int]:
    return found.settings.context_tokens, found.settings.sequences


ONE, TWO = contexts_at_once(1), contexts_at_once(2)


@pytest.mark.parametrize(
    ("memory_bytes", "expected"),
    [
        (None, (MOST_UNASKED, 2)),
        (room(MOST_UNASKED, TWO), (MOST_UNASKED, 2)),
        (room(MOST_UNASKED, TWO) - 1, (MOST_UNASKED // 2, 2)),
        (room(USUAL, TWO), (USUAL, 2)),
        # For one at a time it may be larger again.
        (room(USUAL, TWO) - 1, (2 * USUAL, 1)),
        (room(LEAST, ONE), (LEAST, 1)),
        # No room for copies.
        (room(LEAST, 1), (LEAST, 1)),
    ],
)
def test_a_context_is_as_large_as_model_and_memory_allow(
    memory_bytes: int | None, expected: tuple[int, int]
) -> None:
    found = plan(memory_bytes)
    assert sizes(found) == expected
    assert found.settings.least_context_tokens == LEAST
    if memory_bytes is not None:
        assert found.need_bytes is not None
        assert found.need_bytes <= memory_bytes


def test_a_model_is_not_given_more_than_it_was_trained_for() -> None:
    assert sizes(plan(None, shape=SMALL)) == (8192, 2)


def test_without_memory_for_the_least_there_is_none() -> None:
    with pytest.raises(EngineMemoryError) as error:
        plan(room(LEAST, 1) - 1)
    assert error.value.need_bytes == room(LEAST, 1)
    assert error.value.memory_bytes == room(LEAST, 1) - 1


@pytest.mark.parametrize(
    ("memory_bytes", "expected"),
    [(None, 2), (room(9000, TWO), 2), (room(9000, TWO) - 1, 1), (room(9000, 1), 1)],
)
def test_a_requested_context_is_not_reduced(
    memory_bytes: int | None, expected: int
) -> None:
    found = plan(memory_bytes, tokens=9000)
    assert sizes(found) == (9000, expected)
    assert found.settings.least_context_tokens is None


@pytest.mark.parametrize("missing", [0, 1])
def test_the_line_says_if_memory_does_not_hold_all_that_were_asked_for(
    missing: int,
) -> None:
    need = room(9000, contexts_at_once(4))
    found = plan(need - missing, tokens=9000, sequences=4)
    assert sizes(found) == (9000, 4)
    line, one = found.line("small"), room(9000, 1)
    assert (
        f"WARNING: too little memory for 4, which take {need >> 20:,} MiB; one takes "
        f"{one >> 20:,} MiB, {(need - 1) >> 20:,} MiB are free" in line
    ) == bool(missing)
    assert (f"at most {need >> 20:,} MiB of memory" in line) == (not missing)


def test_one_at_a_time_without_room_for_copies_is_no_warning() -> None:
    found = plan(room(9000, 1), tokens=9000, sequences=1)
    assert f"at most {room(9000, 1) >> 20:,} MiB of memory" in found.line("small")


@pytest.mark.parametrize(
    ("tokens", "memory_bytes", "words"),
    [
        (SHAPE.trained_context + 1, None, "more than the 131072"),
        (9000, room(9000, 1) - 1, f"needs {room(9000, 1) >> 20} MiB"),
    ],
)
def test_a_requested_context_that_is_not_possible_is_refused(
    tokens: int, memory_bytes: int | None, words: str
) -> None:
    with pytest.raises(ContextSizeError, match=words):
        plan(memory_bytes, tokens=tokens)


def test_so_many_at_a_time_as_were_asked_for_get_smaller_contexts() -> None:
    memory_bytes = room(MOST_UNASKED, contexts_at_once(8)) // 2
    assert sizes(plan(memory_bytes, sequences=8)) == (MOST_UNASKED // 4, 8)


@pytest.mark.parametrize("sequences", [None, 5])
def test_of_an_unknown_model_nothing_is_computed(sequences: int | None) -> None:
    found = plan(1 << 20, shape=None, sequences=sequences)
    assert sizes(found) == (USUAL, sequences or 2)
    assert found.need_bytes is None
    assert "MiB" not in found.line("x")


@pytest.mark.parametrize(
    "settings",
    [
        EngineSettings(kv_type="q8_0", threads=3, gpu_layers=4),
        EngineSettings(flash_attention="on"),
    ],
)
def test_the_other_settings_count_and_stay(settings: EngineSettings) -> None:
    memory_bytes = room(MOST_UNASKED, TWO, settings)
    assert sizes(plan(memory_bytes, settings=settings)) == (MOST_UNASKED, 2)
    smaller = plan(memory_bytes - 1, settings=settings)
    assert sizes(smaller) == (MOST_UNASKED // 2, 2)
    chosen = smaller.settings
    assert (
        chosen.kv_type,
        chosen.flash_attention,
        chosen.threads,
        chosen.gpu_layers,
    ) == (
        settings.kv_type,
        settings.flash_attention,
        settings.threads,
        settings.gpu_layers,
    )


def test_the_line_for_people_has_every_number() -> None:
    line = plan(8 << 30, settings=EngineSettings(kv_type="q8_0")).line("small")
    assert line == (
        "local model small: context 32,768 tokens (trained for 131,072; 2 at a time; "
        "keys and values q8_0; at most 4,516 MiB of memory, 8,192 MiB are free)"
    )
