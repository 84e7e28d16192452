"""Figures for the enclave's operator, once a minute, of no single request. Pure.

The operator sees every exchange on its network, but not whether it is a question or a
dummy, nor how long a text is. Exact counts would say both when the enclave is quiet. So
figures change once a minute, and each minute's amounts are rounded up or down to whole
steps by chance, in proportion. Sums are right on average. No remainder is carried over,
so questions of the operator's own measure nobody else's (docs/decisions/0079).
"""

from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import aclosing, contextmanager
from typing import Final

from typing_extensions import override

from curtilage.enclave_server.answer.run import AnswersChat
from curtilage.enclave_server.ohttp.chat import ChatCompletionRequest
from curtilage.enclave_server.ohttp.openai_answers import Answer, Begun, Ending, Piece
from curtilage.enclave_server.telemetry import Counters, Event

UPDATE_S: Final = 60.0
TOKEN_STEP: Final = 5000
REQUEST_STEP: Final = 10
TIME_STEP_S: Final = 600
WINDOW: Final = 10
"""Updates over which speed and load are averaged."""
WINDOW_S: Final = int(WINDOW * UPDATE_S)
EDGES_S: Final = (0.25, 1.0, 4.0, 16.0, 64.0)
"""Upper edges of the classes of waiting times; the last class has none."""
EXACT: Final = frozenset(
    {
        # The enclave's own, whatever is asked.
        Event.BUNDLE_MADE,
        Event.BUNDLE_REFUSED,
        Event.ENGINE_ENDED,
        Event.EVIDENCE_FAILED,
        Event.INTERNAL_ERROR,
        Event.KEY_MADE,
        # Visible outside the seal, on the operator's network.
        Event.ANSWER_LATE,
        Event.FRAMES_SENT,
        Event.KEY_UNKNOWN,
        Event.MALFORMED_HTTP,
        Event.OPENED,
        Event.OUTER_REFUSED,
        Event.UNOPENABLE,
    }
)
"""Events that are shown as they are; all others are known only inside the seal."""
PREFIX: Final = "curtilage_enclave_"


class Figures:
    """What the operator may know of the load, kept exactly and shown coarsely.

    Args:
        counters: counts of events.
        clock: seconds, of a clock that does not jump.
        draw: returns a random number from 0 to below 1.
    """

    def __init__(
        self,
        counters: Counters,
        *,
        clock: Callable[[], float],
        draw: Callable[[], float],
    ) -> None:
        self._counters = counters
        self._clock = clock
        self._draw = draw
        # What was counted before, such as the first key, joins the first update.
        self._before = dict.fromkeys(counters.snapshot(), 0)
        self._events = dict(self._before)
        self._amounts = _Amounts(clock)
        self._text = self._exposition()

    @property
    def text(self) -> str:
        """The figures of the last whole minute, in Prometheus' text format."""
        return self._text

    def update(self) -> None:
        """Show what happened since the last call; to be called every ``UPDATE_S``."""
        # One draw for all: with one for each, one question would show in one of them
        # more often than by any of them alone.
        chance = self._draw()
        now = self._counters.snapshot()
        for event in Event:
            amount = now[event] - self._before[event]
            step = 1 if event in EXACT else REQUEST_STEP
            self._events[event] += rounded(amount, step, chance)
        self._before = dict(now)
        for each in self._amounts.all:
            each.update(chance)
        self._text = self._exposition()

    @contextmanager
    def request(self) -> Generator[Callable[[Answer], None]]:
        """Follow one request: give the result each part of its answer."""
        follow = _Request(self._amounts, self._clock)
        try:
            yield follow.take
        finally:
            follow.close()

    def _exposition(self) -> str:
        lines, amounts = list[str](), self._amounts
        counted = [(f'event="{name}"', n) for name, n in self._events.items()]
        _family(lines, "events_total", "counter", "Events since the start.", counted)
        tokens = [
            ('kind="read"', amounts.read.shown),
            ('kind="written"', amounts.written.shown),
        ]
        _family(lines, "tokens_total", "counter", "Tokens since the start.", tokens)
        speed = [("", amounts.written.lately // WINDOW_S)]
        about = "Tokens written per second, in the last ten minutes."
        _family(lines, "tokens_per_second", "gauge", about, speed)
        levels = [
            ('state="queued"', amounts.queued.lately // WINDOW_S),
            ('state="running"', amounts.running.lately // WINDOW_S),
        ]
        about = "Requests at a time, in the last ten minutes."
        _family(lines, "requests", "gauge", about, levels)
        amounts.queue_s.write(
            lines, "queue_seconds", "From the question to the start of its turn."
        )
        amounts.first_s.write(
            lines, "first_token_seconds", "From the question to its first token."
        )
        return "\n".join(lines) + "\n"


class CountedModel:
    """A model whose answers are counted.

    Args:
        model: answers.
        figures: counts; nothing of a text gets there.
    """

    def __init__(self, model: AnswersChat, figures: Figures) -> None:
        self._model = model
        self._figures = figures

    async def answer(self, chat: ChatCompletionRequest) -> AsyncGenerator[Answer]:
        """Answer one request; raises and cancels as the model does."""
        with self._figures.request() as count:
            async with aclosing(self._model.answer(chat)) as answers:
                async for answer in answers:
                    count(answer)
                    yield answer


def rounded(amount: float, step: int, chance: float) -> int:
    """Round to a multiple of ``step``, up or down by chance, right on average.

    Args:
        amount: not negative.
        step: see above.
        chance: drawn evenly from 0 to below 1.
    """
    whole, rest = divmod(amount, step)
    return (int(whole) + (rest > chance * step)) * step


class _Rounded:
    """An amount that grows by whole steps.

    Attributes:
        shown: all of it.
        lately: of the last updates.
    """

    def __init__(self, step: int) -> None:
        self._step = step
        self._amount = 0.0
        self._lately: deque[int] = deque(maxlen=WINDOW)
        self.shown = 0

    @property
    def lately(self) -> int:
        return sum(self._lately)

    def add(self, amount: float) -> None:
        self._amount += amount

    def update(self, chance: float) -> None:
        grown = rounded(self._amount, self._step, chance)
        self.shown += grown
        self._lately.append(grown)
        self._amount = 0.0


class _Classes:
    """How many requests waited for how long, in a few classes."""

    def __init__(self) -> None:
        self.classes = tuple(_Rounded(REQUEST_STEP) for _ in range(len(EDGES_S) + 1))

    def add(self, seconds: float) -> None:
        self.classes[sum(seconds > edge for edge in EDGES_S)].add(1)

    def write(self, lines: list[str], name: str, about: str) -> None:
        """Write a histogram without its sum, which would hold single times."""
        total, samples = 0, list[tuple[str, int]]()
        edges = (*(f"{edge:g}" for edge in EDGES_S), "+Inf")
        for edge, each in zip(edges, self.classes, strict=True):
            total += each.shown
            samples.append((f'le="{edge}"', total))
        _family(lines, name, "histogram", about, samples, suffix="_bucket")
        lines.append(f"{PREFIX}{name}_count {total}")


class _Level(_Rounded):
    """For how long there was how much: an amount in seconds, of each request."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__(TIME_STEP_S)
        self._clock = clock
        self._number = 0
        self._since = clock()

    def change(self, by: int) -> None:
        now = self._clock()
        self.add(self._number * (now - self._since))
        self._number += by
        self._since = now

    @override
    def update(self, chance: float) -> None:
        self.change(0)
        super().update(chance)


class _Amounts:
    """What the requests of all people add up to."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.read = _Rounded(TOKEN_STEP)
        self.written = _Rounded(TOKEN_STEP)
        self.queue_s = _Classes()
        self.first_s = _Classes()
        self.queued = _Level(clock)
        self.running = _Level(clock)
        self.all = (
            self.read,
            self.written,
            self.queued,
            self.running,
            *self.queue_s.classes,
            *self.first_s.classes,
        )


class _Request:
    """One request, from its arrival at the model to its end."""

    def __init__(self, amounts: _Amounts, clock: Callable[[], float]) -> None:
        self._amounts = amounts
        self._clock = clock
        self._arrived = clock()
        self._in = amounts.queued
        self._in.change(1)
        self._pieces = 0
        self._prompt_tokens = 0

    def take(self, answer: Answer) -> None:
        match answer:
            case Begun():
                self._amounts.queue_s.add(self._clock() - self._arrived)
                self._move(self._amounts.running)
                self._count_read(answer.prompt_tokens)
            case Piece(call=None):
                if not self._pieces:
                    self._amounts.first_s.add(self._clock() - self._arrived)
                self._pieces += 1
                self._amounts.written.add(1)
            case Piece():
                # A whole call: its tokens were counted, or the end counts them.
                pass
            case Ending():
                self._count_read(answer.prompt_tokens)
                # Another server's piece may be several tokens.
                rest = max(0, answer.completion_tokens - self._pieces)
                self._amounts.written.add(rest)

    def close(self) -> None:
        self._in.change(-1)

    def _move(self, level: _Level) -> None:
        self._in.change(-1)
        self._in = level
        self._in.change(1)

    def _count_read(self, prompt_tokens: int) -> None:
        self._amounts.read.add(max(0, prompt_tokens - self._prompt_tokens))
        self._prompt_tokens = max(prompt_tokens, self._prompt_tokens)


def _family(
    lines: list[str],
    name: str,
    kind: str,
    about: str,
    samples: Sequence[tuple[str, int]],
    *,
    suffix: str = "",
) -> None:
    name = PREFIX + name
    lines += [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
    lines += [
        f"{name}{suffix}{{{labels}}} {value}" if labels else f"{name}{suffix} {value}"
        for labels, value in samples
    ]
