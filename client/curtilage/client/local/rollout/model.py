"""The local model of a rollout, which is replaced between answers.

Checks the rollout periodically. When it specifies another model, that one is loaded
while the old one still answers, and takes all questions from then on; the old one is
freed after its last answer. A model that cannot be loaded changes nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Final, Self

from typing_extensions import override

from curtilage.client.errors import ClientError, LocalUnavailableError
from curtilage.client.local.computing import AS_USUAL, Computing
from curtilage.client.local.held import Held, Replaceable, loaded_in_parallel
from curtilage.client.local.model import (
    LocalModel,
    LocalModelMemoryError,
    ModelChoice,
)
from curtilage.client.local.reasons import LocalModelError
from curtilage.client.local.registry.store import Registry
from curtilage.client.local.rollout.state import Rollout
from curtilage.client.routing.trace import model_tag
from curtilage.policy.document.routing_settings import Rollout as RolloutSettings

UNCHANGED: Final = "the rollout changes nothing"
LOOK_S: Final = 300.0
"""Longest time for which a grade or a new manifest remains unnoticed."""

Open = Callable[[ModelChoice | None, int | None], LocalModel]
"""Creates a model that is not loaded yet, with a context of this many tokens; without a
choice, the one used without a rollout."""


class RolledOutModel(Replaceable):
    """Answers queries with the model that a rollout specifies.

    Args:
        rollout: specifies the model.
        open_model: see ``Open``.
        context_tokens: question and answer together; None: the default.
        clock: the time, aware.
        sleep: waits for the next check.
        notify: takes notices for the user of this machine.
    """

    def __init__(
        self,
        rollout: Rollout,
        open_model: Open,
        *,
        context_tokens: int | None,
        clock: Callable[[], datetime],
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        notify: Callable[[str], object],
    ) -> None:
        self._rollout = rollout
        self._open = open_model
        self._tokens = context_tokens
        self._clock = clock
        self._sleep = sleep
        self._notify = notify
        self._last_notice = ""
        self._broken: set[str] = set()
        self._held: Held | None = None
        self._leaving: Held | None = None
        self._looking: asyncio.Task[None] | None = None

    @classmethod
    def on_this_device(
        cls,
        settings: RolloutSettings,
        *,
        context_tokens: int | None,
        sequences: int | None = None,
        computing: Computing = AS_USUAL,
        sized: Callable[[str], object] = lambda _: None,
        notify: Callable[[str], object],
    ) -> Self:
        """Return the model of a rollout, not loaded yet, with this user's files."""
        registry = Registry()

        def open_model(choice: ModelChoice | None, tokens: int | None) -> LocalModel:
            if choice is None:
                return LocalModel.open(
                    registry=registry,
                    context_tokens=tokens,
                    sequences=sequences,
                    computing=computing,
                    sized=sized,
                )
            return LocalModel.of(
                choice,
                context_tokens=tokens,
                sequences=sequences,
                computing=computing,
                sized=sized,
            )

        return cls(
            Rollout.on_this_device(settings),
            open_model,
            context_tokens=context_tokens,
            clock=lambda: datetime.now(UTC),
            notify=notify,
        )

    async def start(self) -> None:
        """Load the rollout's model, else the previous one, else the default.

        Raises:
            ConfigError: the registry or the file of the rollout cannot be read.
            LocalUnavailableError: none of them can be loaded.
        """
        standing = await asyncio.to_thread(self._rollout.look, self._clock())
        if standing.problem:
            self._report(standing.problem)
        wanted = [
            standing.run,
            None if standing.manifest is None else standing.manifest.previous,
        ]
        for files in dict.fromkeys(each for each in wanted if each is not None):
            tag = model_tag(files.sha256, files.adapter)
            choice = self._rollout.choice(files)
            if choice is None:
                self._report(f"the rollout's model {tag} is no longer installed")
                continue
            model = self._open(choice, self._tokens)
            try:
                await _started(model)
            except LocalUnavailableError as failure:
                self._broken.add(tag)
                self._report(f"the rollout's model {choice.model_id} fails: {failure}")
            else:
                break
        else:
            model = self._open(None, self._tokens)
            await _started(model)
            tag = model_tag(model.sha256)
        self._held = Held(model, tag)
        self._looking = asyncio.create_task(self._look_now_and_then())

    async def close(self) -> None:
        """Stop checking and answering, and free the models."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        for held in (self._leaving, self._held):
            if held is not None:
                await held.model.close()

    async def look(self) -> None:
        """Check the rollout, and change the model if it specifies another.

        Raises:
            ClientError: it cannot be read, or the other model cannot be loaded; the
                current one continues.
            OSError: a withdrawal cannot be saved.
        """
        standing = await asyncio.to_thread(self._rollout.look, self._clock())
        if standing.problem:
            self._report(standing.problem)
        files = standing.run
        if files is None:
            return
        tag = model_tag(files.sha256, files.adapter)
        if tag == self.tag or tag in self._broken:
            return
        choice = self._rollout.choice(files)
        if choice is None:
            self._report(f"the rollout's model {tag} is no longer installed")
            return
        try:
            model = await loaded_in_parallel(
                partial(self._open, choice), choice.path, self._tokens
            )
        except LocalUnavailableError as failure:
            if not isinstance(failure, LocalModelMemoryError):  # it may succeed later
                self._broken.add(tag)
            raise
        self._report(f"the local model is now {model.model_id}")
        self._leaving, self._held = self._held, Held(model, tag)
        await self._free_old()

    async def _free_old(self) -> None:
        old = self._leaving
        if old is not None:
            # It gets no new questions, and the rollout is not checked until it is
            # freed: so there are never three models.
            await old.close_when_idle()
            self._leaving = None

    async def _look_now_and_then(self) -> None:
        while True:
            await self._sleep(LOOK_S)
            try:
                await self.look()
            except (ClientError, OSError) as failure:
                self._report(f"{UNCHANGED}: {failure}")

    def _report(self, text: str) -> None:
        # Once, and not with every look.
        if text != self._last_notice:
            self._last_notice = text
            self._notify(text)

    @property
    @override
    def _now(self) -> Held:
        if self._held is None:
            raise LocalModelError("the local model is not running")
        return self._held


async def _started(model: LocalModel) -> None:
    """Load a model; one that memory is short for now tries again by itself."""
    with suppress(LocalModelMemoryError):
        await model.start()
