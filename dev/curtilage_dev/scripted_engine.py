"""An engine that plays a fixed script, for the tests of its callers.

Same Protocol, same order of events, same errors; no library, no thread.
"""

import asyncio
import math
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Final

from curtilage.inference.errors import EngineBusyError, EngineClosedError
from curtilage.inference.protocol import (
    Called,
    CancelToken,
    Done,
    EngineInfo,
    Event,
    Finish,
    GenerateRequest,
    Load,
    Started,
    Token,
    ToolCall,
    TopLogprob,
    Usage,
)
from curtilage.inference.structured import demands, form_of

SCRIPTED_INFO = EngineInfo(
    model_id="scripted",
    model_sha256="00" * 32,
    template_sha256="00" * 32,
    architecture="script",
    context_tokens=4096,
    threads=1,
)


_LOOK_S: Final = 0.02
"""How often it is looked whether a turn of reading is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """One answer, played word for word.

    Attributes:
        pieces: texts of the tokens; and complete tool calls, each played as one token
            without text. A call must be of a tool of the request.
        finish: how it ends; ``stop`` after a call is ``tool_calls``.
        prompt_tokens: reported; not counted.
        delay_s: pause before each token.
        read_s: pause before the first event, for each character of the request; if
            others wait, its turn may be over meanwhile.
        probability: of each token, above 0 and below 1; a second one has the rest.
        second: the text of that second token, shown where ``top_logprobs`` are asked.
        fault: raised after ``fault_after`` tokens.
        fault_after: how many tokens precede the fault.
    """

    pieces: Sequence[str | ToolCall] = field(
        default=("Hello", ", ", "world", "."), repr=False
    )
    finish: Finish = "stop"
    prompt_tokens: int = 7
    delay_s: float = 0.0
    read_s: float = 0.0
    probability: float = 0.5
    second: str = field(default="?", repr=False)
    fault: Exception | None = None
    fault_after: int = 0


class ScriptedEngine:
    """Plays one script after the other; the last one repeats.

    Args:
        scripts: the scripts.
        info: returned as the engine's.
        max_queued: how many may wait.
        sequences: how many are played at the same time.
        turn_s: how long one is played while others wait.
        start_fault: raised by ``start``.

    Attributes:
        requests: that were received, for tests.
        cancelled: how many answers ended by cancel or by closing the iterator.
    """

    def __init__(
        self,
        *scripts: Script,
        info: EngineInfo = SCRIPTED_INFO,
        max_queued: int = 16,
        sequences: int = 1,
        turn_s: float = math.inf,
        start_fault: Exception | None = None,
    ) -> None:
        self._scripts = list(scripts) or [Script()]
        self._info = replace(info, sequences=sequences)
        self._sequences = sequences
        self._max_queued = max_queued
        self._turn_s = turn_s
        self._start_fault = start_fault
        self._turn = asyncio.Semaphore(sequences)
        self._playing = 0
        self._waiting = 0
        self._started = False
        self.requests: list[GenerateRequest] = []
        self.cancelled = 0

    @property
    def info(self) -> EngineInfo:
        """The scripted model; see the Protocol."""
        if not self._started:
            raise EngineClosedError("the engine is not running")
        return self._info

    async def start(self) -> None:
        """Start, or raise the scripted fault."""
        if self._start_fault is not None:
            raise self._start_fault
        self._started = True

    async def generate(
        self, request: GenerateRequest, *, cancel: CancelToken | None = None
    ) -> AsyncGenerator[Event]:
        """Play the next script; see the Protocol."""
        self._check(request)
        self.requests.append(request)
        script = self._scripts.pop(0) if len(self._scripts) > 1 else self._scripts[0]
        await self._take_turn()
        holds, end = True, self._end_of_turn()
        try:
            played = self._read_and_play(script, request, cancel or CancelToken())
            async with aclosing(played) as events:
                async for event in events:
                    if event is not None:
                        yield event
                    if not self._waiting or end > self._now():
                        continue
                    self._end_turn()
                    holds = False
                    await self._take_turn()
                    holds, end = True, self._end_of_turn()
        except GeneratorExit:
            self.cancelled += 1
            raise
        finally:
            if holds:
                self._end_turn()

    def load(self) -> Load:
        """Return how busy the engine is now; every turn counts as a whole one."""
        ahead = max(0, self._playing + self._waiting - self._sequences + 1)
        turn_s = self._turn_s if math.isfinite(self._turn_s) else 0.0
        return Load(
            running=self._playing,
            queued=self._waiting,
            max_queued=self._max_queued,
            wait_s=ahead * turn_s / self._sequences,
        )

    async def close(self) -> None:
        """Stop; streams end with EngineClosedError at their next token."""
        self._started = False

    def _check(self, request: GenerateRequest) -> None:
        if not self._started:
            raise EngineClosedError("the engine is not running")
        if demands(request):
            form_of(request)
        if self._turn.locked() and self._waiting >= self._max_queued:
            raise EngineBusyError("too many requests are waiting")

    async def _take_turn(self) -> None:
        self._waiting += 1
        try:
            await self._turn.acquire()
        finally:
            self._waiting -= 1
        self._playing += 1

    def _end_turn(self) -> None:
        self._playing -= 1
        self._turn.release()

    def _end_of_turn(self) -> float:
        return self._now() + self._turn_s

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()

    async def _read_and_play(
        self, script: Script, request: GenerateRequest, cancel: CancelToken
    ) -> AsyncGenerator[Event | None]:
        """Play a script; None: time has passed."""
        for pause_s in _pauses(script.read_s * request.chars):
            await asyncio.sleep(pause_s)
            if cancel.cancelled:
                break
            yield None
        async with aclosing(self._play(script, request, cancel)) as events:
            async for event in events:
                yield event

    async def _play(
        self, script: Script, request: GenerateRequest, cancel: CancelToken
    ) -> AsyncGenerator[Event]:
        if not cancel.cancelled:
            yield Started(prompt_tokens=script.prompt_tokens)
        limit, made, calls = request.settings.max_tokens, 0, 0
        asked, sure = request.settings, script.probability
        logprob = math.log(sure) if asked.logprobs or asked.margins else None
        margin = abs(math.log(sure) - math.log(1 - sure)) if asked.margins else None
        finish: Finish = script.finish
        for piece in script.pieces:
            await asyncio.sleep(script.delay_s)
            if not self._started:
                raise EngineClosedError("the engine was closed")
            if cancel.cancelled or made == limit:
                finish = "cancelled" if cancel.cancelled else "length"
                break
            self._fail_after(script, made)
            made += 1
            if isinstance(piece, ToolCall):
                _refuse_unknown(piece, request)
                data = piece.arguments.encode() if asked.logprobs else b""
                yield Token(text="", logprob=logprob, margin=margin, data=data)
                yield Called(index=calls, call=piece)
                calls += 1
            else:
                yield Token(
                    text=piece,
                    logprob=logprob,
                    margin=margin,
                    data=piece.encode() if asked.logprobs else b"",
                    top=_top(script, piece)[: asked.top_logprobs],
                )
        else:
            self._fail_after(script, made)
            if calls and finish == "stop":
                finish = "tool_calls"
        self.cancelled += finish == "cancelled"
        usage = Usage(prompt_tokens=script.prompt_tokens, completion_tokens=made)
        yield Done(usage=usage, finish=finish)

    @staticmethod
    def _fail_after(script: Script, made: int) -> None:
        if script.fault is not None and made == script.fault_after:
            raise script.fault


def _pauses(seconds: float) -> Iterator[float]:
    """Divide a long pause."""
    while seconds > 0:
        yield min(seconds, _LOOK_S)
        seconds -= _LOOK_S


def _refuse_unknown(call: ToolCall, request: GenerateRequest) -> None:
    offered = {tool.name for tool in request.tools}
    if call.name not in offered or request.tool_choice == "none":
        raise ValueError("the script calls a tool that the request does not offer")


def _top(script: Script, piece: str) -> tuple[TopLogprob, ...]:
    """Return the piece and the second token, likeliest first."""
    shares = ((piece, script.probability), (script.second, 1 - script.probability))
    both = [
        TopLogprob(data=text.encode(), logprob=math.log(share))
        for text, share in shares
    ]
    return tuple(sorted(both, key=lambda one: -one.logprob))
