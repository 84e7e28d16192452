# pyright: reportPrivateUsage=false
# The owner thread's side of the engine is private, and is called here.
"""An engine that is stepped by hand: ours, but for the library, the thread and time.

Planner, jobs, turns and answers are the shipped ones. The context is a list of tokens
for each sequence, which refuses what the library would not survive; a step takes as
long as its tokens cost on a slow machine.
"""

from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Final, cast

import pytest

from curtilage.inference import decoding
from curtilage.inference import engine as engine_module
from curtilage.inference.batch import Phase
from curtilage.inference.decoding import Loaded
from curtilage.inference.engine import LlamaCppEngine
from curtilage.inference.errors import InferenceError
from curtilage.inference.native import Context, Model, Row, Saved
from curtilage.inference.protocol import (
    CancelToken,
    ChatMessage,
    Done,
    EngineInfo,
    Event,
    GenerateRequest,
    Token,
)
from curtilage.inference.sampling import SamplingSettings
from curtilage.inference.settings import EngineSettings
from curtilage.inference.structured import AnswerForm

if TYPE_CHECKING:
    from curtilage.inference.modelfile import ModelFile
    from curtilage.inference.templates import ChatTemplate

READ_S: Final = 0.002
"""Of one token of a prompt, as with a model of 1.5 billion weights on two cores."""
WRITE_S: Final = 0.05
"""Of a decode of one token of each answer."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One token in a sequence.

    Attributes:
        token: its number.
        shape: how many tokens were decoded with it, of how many sequences: the last
            bits of what is computed depend on it.
    """

    token: int
    shape: tuple[int, int]


class SavedCells(Saved):
    """A copy of a sequence's tokens."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        super().__init__(len(cells), len(cells))
        self.view[:] = b"x" * len(cells)
        self.cells = list(cells)


class Cells:
    """The context: checks each row as the real one does.

    Args:
        sequences: how many.
        size: how many tokens each may hold.
        spend: called with the seconds that a decode takes.
    """

    def __init__(
        self, sequences: int, size: int, spend: Callable[[float], None]
    ) -> None:
        self.size = size
        self.held: list[list[Cell]] = [[] for _ in range(sequences)]
        self.saved: list[SavedCells] = []
        self._decoded: list[tuple[int, Cell]] = []
        self._spend = spend

    def open(self, sequence: int, *, tokens: int = 1) -> None:
        """Make room; see the real one."""
        assert 0 <= sequence < len(self.held)
        assert tokens <= self.size

    def decode(
        self, rows: Sequence[Row], *, cancelled: Callable[[], bool] | None = None
    ) -> bool:
        """Read tokens; see the real one."""
        del cancelled
        numbers = [row.sequence for row in rows]
        assert rows
        assert numbers == sorted(numbers)
        shape = len(rows), len(set(numbers))
        for row in rows:
            assert row.position == len(self.held[row.sequence]) < self.size
            self.held[row.sequence].append(Cell(row.token, shape))
            self._decoded.append((row.position, Cell(row.token, shape)))
        self._spend(WRITE_S if len(rows) == shape[1] else len(rows) * READ_S)
        return True

    def sample(self, _sampler: object, row: int) -> int:
        """Return the row: whichever token."""
        return row

    def drop_logits(self) -> None:
        """There are none."""

    def save(self, sequence: int) -> Saved:
        """Save a sequence; see the real one."""
        self.saved.append(SavedCells(self.held[sequence]))
        return self.saved[-1]

    def restore(self, saved: Saved, sequence: int) -> None:
        """Continue from ``save`` in an empty sequence."""
        assert isinstance(saved, SavedCells)
        assert not self.held[sequence]
        self.held[sequence] = list(saved.cells)

    def erase(self, sequence: int) -> None:
        """Erase a sequence."""
        self.held[sequence] = []

    def used(self, sequence: int) -> int:
        """Return how many tokens a sequence holds."""
        return len(self.held[sequence])

    def flush(self, sequence: int) -> None:
        """Need an empty sequence; see the real one."""
        assert not self.held[sequence]

    def clear(self) -> None:
        """Erase all."""
        self.held = [[] for _ in self.held]

    def renew(self) -> None:
        """Change nothing."""

    def free(self) -> None:
        """Free nothing."""

    def read(self, *, above: int) -> int:
        """Return how many tokens were decoded at or above a position, in all."""
        return sum(place >= above for place, _ in self._decoded)

    def shapes(self, *, above: int) -> dict[int, set[tuple[int, int]]]:
        """Return with how many others the token at each position was decoded."""
        found: dict[int, set[tuple[int, int]]] = {}
        for place, cell in self._decoded:
            if place >= above:
                found.setdefault(place, set()).add(cell.shape)
        return found

    def kept(self) -> int:
        """Return how many tokens are saved outside it at the moment."""
        return sum(each.used for each in self.saved if any(each.buffer))


class _Words:
    """The model: every token is a letter, and none ends the answer."""

    def is_end(self, _token: int) -> bool:
        return False

    def piece(self, _token: int) -> bytes:
        return b"a"


class _NoSampler:
    def __init__(self, *_arguments: object) -> None:
        pass

    def free(self) -> None:
        pass


@dataclass(slots=True, eq=False)
class Asked:
    """One request, and what came of it.

    Attributes:
        token: cancels it.
        items: events, and the error.
        times_s: of each item.
        leave: what its caller calls at its end.
        ticket: of the planner.
    """

    token: CancelToken = field(default_factory=CancelToken)
    items: list[Event | InferenceError] = field(
        default_factory=list[Event | InferenceError]
    )
    times_s: list[float] = field(default_factory=list[float])
    leave: Callable[[], None] = lambda: None
    ticket: int = -1

    @property
    def ends(self) -> list[Event | InferenceError]:
        """Its ends: one, if all is right."""
        kinds = (Done, InferenceError)
        return [each for each in self.items if isinstance(each, kinds)]

    @property
    def finish(self) -> str:
        """How it ended; empty: it has not, or it failed."""
        return next((each.finish for each in self.ends if isinstance(each, Done)), "")

    @property
    def first_s(self) -> float | None:
        """When the first token came."""
        for item, time_s in zip(self.items, self.times_s, strict=True):
            if isinstance(item, Token):
                return time_s
        return None


class SteppedEngine:
    """The engine, its context, and the time.

    Args:
        sequences: of the context.
        size: of each, in tokens.
        turn_s: see ``EngineSettings``.
        max_queued: likewise.
    """

    def __init__(
        self, *, sequences: int, size: int, turn_s: float = 2.0, max_queued: int = 16
    ) -> None:
        self.now_s = 0.0
        settings = EngineSettings(
            context_tokens=size,
            sequences=sequences,
            turn_s=turn_s,
            max_queued=max_queued,
            threads=1,
        )
        self.engine = LlamaCppEngine(
            cast("ModelFile", None), model_id="cells", settings=settings
        )
        self.cells = Cells(sequences, size, self._spend)
        self._loaded = Loaded(
            model=cast("Model", _Words()),
            template=cast("ChatTemplate", None),
            context=cast("Context", self.cells),
        )
        info = EngineInfo(
            model_id="cells",
            model_sha256="",
            template_sha256="",
            architecture="",
            context_tokens=size,
            threads=1,
            sequences=sequences,
        )
        ready: Future[EngineInfo] = Future()
        ready.set_result(info)
        self.engine._ready = ready

    def ask(
        self,
        prompt: int,
        answer: int,
        *,
        chars: int | None = None,
        deterministic: bool = False,
    ) -> Asked:
        """Submit a request.

        Args:
            prompt: tokens to be read.
            answer: tokens to be written.
            chars: of the prompt; None: four a token.
            deterministic: see ``GenerateRequest``.

        Raises:
            EngineBusyError: too many wait.
        """
        text = f"{prompt}:".ljust(4 * prompt if chars is None else chars)
        request = GenerateRequest(
            messages=(ChatMessage(role="user", content=text),),
            settings=SamplingSettings(max_tokens=answer),
            deterministic=deterministic,
        )
        asked = Asked()

        def deliver(item: Event | InferenceError) -> bool:
            asked.items.append(item)
            asked.times_s.append(self.now_s)
            return True

        asked.leave = self.engine.submit(request, AnswerForm(), deliver, asked.token)
        asked.ticket = max(self.engine._jobs)
        return asked

    def step(self) -> None:
        """Run one step of the owner thread; its failures are raised."""
        if self.engine._jobs:
            self.engine._running = self.engine._planner.running
            self.engine._advance(self._loaded)

    def until(self, condition: Callable[[], object], *, within_s: float) -> float:
        """Step until something is so; return the seconds that it took.

        Raises:
            AssertionError: it took too long.
        """
        began_s = self.now_s
        while not condition():
            assert self.now_s <= began_s + within_s, "it never came"
            self.step()
        return self.now_s - began_s

    def answer(self, asked: Asked, *, within_s: float) -> float:
        """Step until a request has ended; return the seconds until its first token.

        Raises:
            AssertionError: it took too long, or was not answered.
        """
        began_s = self.now_s
        self.until(lambda: asked.ends, within_s=within_s)
        assert asked.first_s is not None
        return asked.first_s - began_s

    def phase(self, asked: Asked) -> Phase | None:
        """Return the state of a request."""
        return self.engine._planner.phase(asked.ticket)

    def _spend(self, seconds: float) -> None:
        self.now_s += seconds


@contextmanager
def stepped(
    *, sequences: int, size: int, turn_s: float = 2.0, max_queued: int = 16
) -> Generator[SteppedEngine]:
    """Run an engine by hand; see ``SteppedEngine``."""
    engine = SteppedEngine(
        sequences=sequences, size=size, turn_s=turn_s, max_queued=max_queued
    )

    def prompt(
        _loaded: Loaded, messages: Sequence[ChatMessage], *_more: object, **_how: object
    ) -> list[int]:
        return list(range(int(messages[0].content.split(":")[0])))

    clock = SimpleNamespace(
        monotonic=lambda: engine.now_s, thread_time=lambda: engine.now_s
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoding, "build_prompt", prompt)
        patch.setattr(decoding, "Sampler", _NoSampler)
        patch.setattr(engine_module, "time", clock)
        yield engine
