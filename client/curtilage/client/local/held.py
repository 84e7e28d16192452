"""A local model that is closed after its last answer, for hot replacement."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path

from curtilage.client.chat.answer import AnswerEvent
from curtilage.client.chat.query import Query
from curtilage.client.local.model import LocalModel, require_room
from curtilage.inference.memory import available_memory


@dataclass(slots=True, eq=False)
class Held:
    """A model, and the number of its unfinished answers.

    Attributes:
        model: the model.
        tag: its label in the trace.
        answering: answers that have begun, or wait for it to be loaded.
    """

    model: LocalModel
    tag: str
    answering: int = 0
    _idle: asyncio.Event = field(default_factory=asyncio.Event)

    async def generate(
        self, query: Query, *, signals: bool = False
    ) -> AsyncGenerator[AnswerEvent]:
        """Answer a query; as ``LocalModel.generate``."""
        # Before the first await: a caller that has just read the model's name is
        # answered by that model.
        self.answering += 1
        try:
            async with aclosing(self._answer(query, signals)) as events:
                async for event in events:
                    yield event
        finally:
            self.answering -= 1
            if not self.answering:
                self._idle.set()

    def _answer(self, query: Query, signals: bool) -> AsyncGenerator[AnswerEvent]:
        return self.model.generate(query, signals=signals)

    async def close_when_idle(self) -> None:
        """Free the model after its last answer; it must get no new ones."""
        if self.answering:
            self._idle.clear()
            await self._idle.wait()
        await self.model.close()


class Replaceable:
    """A local model that is replaced between answers, as the session uses it."""

    @property
    def _now(self) -> Held:
        """The model that the next question gets."""
        raise NotImplementedError

    @property
    def model_id(self) -> str:
        """The name of the model for the next question."""
        return self._now.model.model_id

    @property
    def sha256(self) -> str:
        """Of its file, hex."""
        return self._now.model.sha256

    @property
    def tag(self) -> str:
        """The model's label in the trace."""
        return self._now.tag

    @property
    def digests(self) -> tuple[str, str | None] | None:
        """As ``LocalModel.digests``."""
        return self._now.model.digests

    @property
    def context_tokens(self) -> int | None:
        """Tokens of question and answer together."""
        return self._now.model.context_tokens

    async def generate(
        self, query: Query, *, signals: bool = False
    ) -> AsyncGenerator[AnswerEvent]:
        """Answer a query, by one model to its end; as ``LocalModel.generate``."""
        async with aclosing(self._now.generate(query, signals=signals)) as events:
            async for event in events:
                yield event


async def loaded_in_parallel(
    open_model: Callable[[int | None], LocalModel],
    path: Path,
    context_tokens: int | None,
) -> LocalModel:
    """Load a model while another one answers.

    Args:
        open_model: creates it, with a context of this many tokens.
        path: its file.
        context_tokens: question and answer together; None: the default.

    Raises:
        ConfigError: the memory does not hold both; then its file is not even hashed.
        LocalUnavailableError: it cannot be loaded.
    """
    memory = available_memory()
    await asyncio.to_thread(require_room, path, context_tokens, memory)
    model = open_model(context_tokens)
    starting = asyncio.ensure_future(model.start())
    try:
        await asyncio.shield(starting)
    except asyncio.CancelledError:
        # Otherwise the model being loaded would never be freed.
        await asyncio.gather(starting, return_exceptions=True)
        await model.close()
        raise
    return model
