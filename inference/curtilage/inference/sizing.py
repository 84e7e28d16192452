"""How large the contexts of an engine are: by the model, the memory, the settings.

Pure. Computed before the model is loaded: overcommitted memory fails in the middle of
an answer, and an allocation failure in the library ends the whole program.
"""

from dataclasses import dataclass, replace
from typing import Final

from curtilage.inference.errors import ContextSizeError, EngineMemoryError
from curtilage.inference.settings import EngineSettings
from curtilage.inference.shape import ModelShape

MOST_UNASKED: Final = 32_768
"""Of a context whose size was not requested, in tokens. A small model on two processors
reads that in minutes; many models are trained for four times as much."""
USUAL: Final = 4096
"""Rather than fewer tokens than this, fewer answers are written at a time."""
LEAST: Final = 1024
"""Below it an unasked context is of little use."""
SEQUENCES: Final = 2
"""Answers at a time if no other number was requested: a short one then does not wait
for the end of a long one, and two take less time than one after the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextPlan:
    """The contexts of an engine.

    Attributes:
        settings: with context and sequences.
        trained: tokens that the model was trained for; None: unknown.
        need_bytes: memory for model and contexts, at most; None: unknown.
        memory_bytes: what was available; None: unknown.
        short_bytes: what all sequences take, if there is room for one of them alone:
            ``need_bytes`` is then that one's; None otherwise.
    """

    settings: EngineSettings
    trained: int | None
    need_bytes: int | None
    memory_bytes: int | None
    short_bytes: int | None = None

    def line(self, model_id: str) -> str:
        """Return one line for people."""
        settings = self.settings
        parts = [
            "" if self.trained is None else f"trained for {self.trained:,}",
            f"{settings.sequences} at a time",
            f"keys and values {settings.kv_type}",
        ]
        if self.need_bytes is not None and self.memory_bytes is not None:
            need = f"at most {self.need_bytes >> 20:,} MiB of memory"
            if self.short_bytes is not None:
                need = (
                    f"WARNING: too little memory for {settings.sequences}, which take "
                    f"{self.short_bytes >> 20:,} MiB; one takes "
                    f"{self.need_bytes >> 20:,} MiB"
                )
            parts.append(f"{need}, {self.memory_bytes >> 20:,} MiB are free")
        return (
            f"local model {model_id}: context {settings.context_tokens:,} tokens "
            f"({'; '.join(filter(None, parts))})"
        )


def contexts_at_once(sequences: int) -> int:
    """Return how many contexts of one sequence may be in memory at the same time.

    With several, the whole context is replaced by another one while both exist, and one
    sequence at a time is copied twice. What is saved of answers that give way to others
    is at most one (``KEPT_CONTEXTS``), and is copied when they continue. Where there is
    room for a single one and no copies, it is used even so.
    """
    return 3 if sequences == 1 else 2 * sequences + 3


def plan_contexts(
    shape: ModelShape | None,
    file_bytes: int,
    memory_bytes: int | None,
    *,
    tokens: int | None,
    sequences: int | None,
    settings: EngineSettings,
) -> ContextPlan:
    """Choose the size of a context, and how many there are.

    What was asked for is not reduced: the caller relies on it. Of a size and a number
    that were both asked for, memory must hold one context; the plan's line says so if
    it does not hold all. Otherwise a context is as large as the model was trained for,
    up to ``MOST_UNASKED``, and halved until memory holds it.

    Args:
        shape: the model's; None: unknown, so nothing can be computed.
        file_bytes: its size.
        memory_bytes: what is available; None: unknown, and refuses nothing.
        tokens: question and answer together; None: not requested.
        sequences: answers at a time; None: not requested.
        settings: the others.

    Raises:
        ContextSizeError: more than the model was trained for, or than memory holds,
            was asked for.
        EngineMemoryError: not even the smallest context fits.
    """
    if shape is None:
        chosen = replace(
            settings,
            context_tokens=tokens or USUAL,
            least_context_tokens=LEAST if tokens is None else None,
            sequences=sequences or SEQUENCES,
        )
        return ContextPlan(
            settings=chosen, trained=None, need_bytes=None, memory_bytes=memory_bytes
        )

    room = _Room(shape, file_bytes, memory_bytes, settings)
    if tokens is None:
        size, least = _largest(room, sequences), min(LEAST, shape.trained_context)
    else:
        _require(room, tokens)
        size, least = tokens, None
    count = sequences or (SEQUENCES if room.holds(size, SEQUENCES) else 1)
    need, fits = room.need(size, count), room.holds(size, count)
    return ContextPlan(
        settings=replace(
            settings,
            context_tokens=size,
            least_context_tokens=least,
            sequences=count,
        ),
        trained=shape.trained_context,
        need_bytes=need if fits else room.least_need(size),
        memory_bytes=memory_bytes,
        short_bytes=None if fits or count == 1 else need,
    )


@dataclass(frozen=True, slots=True)
class _Room:
    """A model and the memory for it."""

    shape: ModelShape
    file_bytes: int
    memory_bytes: int | None
    settings: EngineSettings

    def need(self, tokens: int, sequences: int) -> int:
        return self._need(tokens, contexts_at_once(sequences))

    def _need(self, tokens: int, contexts: int) -> int:
        return self.shape.memory_bytes(
            self.file_bytes,
            tokens,
            contexts=contexts,
            kv_type=self.settings.kv_type,
            flash_attention=self.settings.attention,
        )

    def holds(self, tokens: int, sequences: int) -> bool:
        most = self.memory_bytes
        return most is None or self.need(tokens, sequences) <= most

    def least_need(self, tokens: int) -> int:
        """Return the memory for one context, and no copy of it."""
        return self._need(tokens, 1)

    def holds_one(self, tokens: int) -> bool:
        most = self.memory_bytes
        return most is None or self.least_need(tokens) <= most


def _largest(room: _Room, sequences: int | None) -> int:
    """Return the size of a context that was not requested."""
    most = min(room.shape.trained_context, MOST_UNASKED)
    wanted = sequences or SEQUENCES
    # Two of the usual size are worth more than a larger one.
    if sequences is None and not room.holds(min(USUAL, most), wanted):
        wanted = 1
    size, least = most, min(LEAST, most)
    while not room.holds(size, wanted):
        if size <= least:
            if wanted == 1 and room.holds_one(size):
                break
            raise EngineMemoryError(
                size,
                need_bytes=room.least_need(size)
                if wanted == 1
                else room.need(size, wanted),
                memory_bytes=room.memory_bytes,
            )
        size = max(size // 2, least)
    return size


def _require(room: _Room, tokens: int) -> None:
    """Refuse a requested context that is not possible.

    It is not reduced silently: a long text would be refused later, or the system would
    kill the program in the middle of one.
    """
    trained, memory_bytes = room.shape.trained_context, room.memory_bytes
    if tokens > trained:
        raise ContextSizeError(
            f"a context of {tokens} tokens is more than the {trained} that the local "
            "model was trained for"
        )
    if memory_bytes is not None and not room.holds_one(tokens):
        raise ContextSizeError(
            f"a context of {tokens} tokens needs {room.least_need(tokens) >> 20} MiB "
            f"of memory with the local model; {memory_bytes >> 20} MiB are available"
        )
