"""Local models by name: loaded when first asked, replaced between answers.

Each has an engine of its own. If only some may be loaded at a time, the one that was
asked longest ago is closed for another; one that answers gets no further question
first. A model that takes another's place under its name is loaded while the old one
answers, and takes all questions from then on. What cannot be loaded changes nothing.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from typing_extensions import override

from curtilage.client.chat.answer import AnswerEvent
from curtilage.client.chat.model_names import ModelNames
from curtilage.client.chat.query import Query
from curtilage.client.errors import ConfigError, LocalUnavailableError
from curtilage.client.local.held import Held, Replaceable, loaded_in_parallel
from curtilage.client.local.model import (
    AGAIN_S,
    LocalModel,
    LocalModelBusyError,
    ModelChoice,
    resolve,
)
from curtilage.client.local.models_file import ModelSettings, ModelsFile
from curtilage.client.local.reasons import LocalModelError
from curtilage.client.local.registry.store import Registry
from curtilage.client.routing.trace import model_tag

ROOM_S: Final = 60.0
"""How long a question waits for the last answer of a model that makes room for its."""
NO_ROOM: Final = "every local model that may be loaded is answering"
GONE: Final = "there is no model of this name any more"

Open = Callable[[ModelSettings, int | None], tuple[ModelChoice, LocalModel]]
"""Finds a model's file and creates the model, not loaded yet; the number is its
context, if not that of the settings."""


def open_from(
    registry: Registry, sized: Callable[[str], object] = lambda _: None
) -> Open:
    """Return how to find and create a model, with a user's registered models.

    Args:
        registry: the user's registered models.
        sized: as for ``LocalModel.open``.
    """

    def opened(
        settings: ModelSettings, tokens: int | None
    ) -> tuple[ModelChoice, LocalModel]:
        choice = resolve(settings.model, sha256=settings.sha256, registry=registry)
        model = LocalModel.of(
            choice,
            context_tokens=tokens or settings.context_tokens,
            sequences=settings.sequences,
            computing=settings.computing,
            sized=sized,
        )
        return choice, model

    return opened


@dataclass(slots=True, eq=False, kw_only=True)
class _Slot(Held):
    """A model under a name, until another one takes its place.

    Attributes:
        settings: from the file.
        choice: its file.
        begin: waits until it is loaded.
        writing: answers that it owes before it makes room for another model.
        asked_s: when it was last asked, on the loop's clock.
        stays: cleared while it makes room: it is closed after its last answer.
        loading: its loading, while that runs.
        failed: when it could not be loaded, on the loop's clock, and why.
        silent: set once it owes no answer.
    """

    settings: ModelSettings
    choice: ModelChoice
    begin: Callable[["_Slot"], Awaitable[None]]
    writing: int = 0
    asked_s: float = 0.0
    stays: asyncio.Event = field(default_factory=asyncio.Event)
    loading: "asyncio.Task[None] | None" = None
    failed: tuple[float, LocalUnavailableError] | None = None
    silent: asyncio.Event = field(default_factory=asyncio.Event)

    def is_like(self, other: "_Slot") -> bool:
        """Return whether another slot has the same file and settings."""
        return (self.settings, self.choice) == (other.settings, other.choice)

    @property
    def loaded(self) -> bool:
        """Whether its engine runs."""
        digests = self.model.digests
        return digests is not None and digests[1] is not None

    @override
    async def _answer(self, query: Query, signals: bool) -> AsyncGenerator[AnswerEvent]:
        self.asked_s = asyncio.get_running_loop().time()
        # It gets no question while it makes room: else it might never do.
        while not self.stays.is_set():
            await self.stays.wait()
        # Counted before it is loaded: else it might be closed before it answers.
        self.writing += 1
        try:
            if not self.loaded:
                await self.begin(self)
            async with aclosing(self.model.generate(query, signals=signals)) as events:
                async for event in events:
                    yield event
        finally:
            self.writing -= 1
            if not self.writing:
                self.silent.set()


class NamedModel(Replaceable):
    """The local model of a name, as the session uses it; ``NamedModels`` makes them."""

    def __init__(self, slot: _Slot) -> None:
        self._slot = slot

    @property
    @override
    def _now(self) -> Held:
        return self._slot

    def become(self, slot: _Slot) -> None:
        """Let another model answer from now on."""
        self._slot = slot

    async def close(self) -> None:
        """Do nothing: ``NamedModels.close`` frees it with the others."""


class NamedModels:
    """All local models of a file.

    Attributes:
        usual: see below.

    Args:
        file: the file.
        open_model: see ``Open``.
        usual: the name of the model that also answers requests for no model in
            particular; it is never closed for another. Empty: it is not of this file.
        notify: takes notices for the user of this machine.

    Raises:
        ConfigError: a model is not registered, or ``usual`` is not in the file.
        LocalUnavailableError: a model has another digest, or is not installed.
    """

    def __init__(
        self,
        file: ModelsFile,
        open_model: Open,
        *,
        usual: str = "",
        notify: Callable[[str], object],
    ) -> None:
        self._open = open_model
        self.usual = usual
        self._notify = notify
        self._closed = False
        self._loads = asyncio.Lock()
        self._replaces = asyncio.Lock()
        self._ending: set[asyncio.Task[None]] = set()
        self._old: set[_Slot] = set()
        self._file = file
        self._slots = self._slots_of(file)
        self._models = {name: NamedModel(slot) for name, slot in self._slots.items()}

    @property
    def names(self) -> ModelNames:
        """What requests may ask for."""
        return self._file.names

    def get(self, name: str) -> NamedModel:
        """Return the model of a name.

        Raises:
            LocalModelError: it was removed meanwhile.
        """
        try:
            return self._models[name]
        except KeyError:
            raise LocalModelError(GONE) from None

    async def start(self, name: str) -> None:
        """Load a model now.

        Raises:
            LocalUnavailableError: it cannot be loaded.
        """
        slot = self._slots[name]
        if not slot.loaded:
            await self._begin(slot)

    def warm(self, also: str = "") -> None:
        """Begin to load what is to be loaded at the start; failures are reported.

        Args:
            also: the name of a model that is loaded as well.
        """
        for name, slot in self._slots.items():
            if (slot.settings.load_at_start or name == also) and not slot.loaded:
                self._loading(slot)

    async def replace(self, file: ModelsFile) -> bool:
        """Take the models, aliases and limits of another file.

        Names take effect once every model is ready that replaces a loaded one. Answers
        that have begun end with the model that began them. A model that cannot be
        loaded is reported, and the one before keeps its name.

        Returns:
            Whether no model was kept for that reason.

        Raises:
            ConfigError: as when it is created; nothing is changed.
            LocalUnavailableError: likewise.
        """
        async with self._replaces:
            slots = await asyncio.to_thread(self._slots_of, file)
            ready: list[_Slot] = []
            kept = False
            try:
                for name, new in slots.items():
                    old = self._slots.get(name)
                    if old is not None and not await self._takes_over(new, old, name):
                        slots[name] = old
                        kept |= not old.is_like(new)
                    elif new.loaded:
                        ready.append(new)
            except BaseException:
                for slot in ready:
                    await slot.model.close()
                raise
            self._take(slots, file)
        self.warm()
        return not kept

    def _take(self, slots: dict[str, _Slot], file: ModelsFile) -> None:
        for name, old in self._slots.items():
            if slots.get(name) is not old:
                self._end(old)
        models: dict[str, NamedModel] = {}
        for name, slot in slots.items():
            models[name] = self._models.get(name) or NamedModel(slot)
            models[name].become(slot)
        self._slots, self._models, self._file = slots, models, file

    async def close(self) -> None:
        """Stop every answer and free all models; ``replace`` must not run."""
        self._closed = True
        for task in self._ending:
            task.cancel()
        for slot in self._all():
            slot.silent.set()
            await slot.model.close()
        loading = [each.loading for each in self._all() if each.loading is not None]
        for task in loading:
            task.cancel()  # not waited for: the file may be large
        await asyncio.gather(*loading, *self._ending, return_exceptions=True)
        for slot in self._all():
            await slot.model.close()

    def _all(self) -> Iterator[_Slot]:
        yield from (*self._slots.values(), *self._old)

    async def _takes_over(self, new: _Slot, old: _Slot, name: str) -> bool:
        """Return whether a model replaces another; if that is loaded, it is as well."""
        if old.is_like(new):
            return False
        if not old.loaded:
            return True
        try:
            # One after the other: each measures the memory that is left.
            async with self._loads:
                new.model = await loaded_in_parallel(
                    lambda tokens: self._open(new.settings, tokens)[1],
                    new.choice.path,
                    new.settings.context_tokens,
                )
        except (ConfigError, LocalUnavailableError) as failure:
            self._notify(f"the model {name!r} is not replaced: {failure}")
            return False
        self._notify(f"the model {name!r} is now {new.model.model_id}")
        return True

    def _slots_of(self, file: ModelsFile) -> dict[str, _Slot]:
        if self.usual and self.usual not in file.models:
            raise ConfigError(
                f"{file.path}: no model {self.usual!r}, which answers what names no "
                "model (--model)"
            )
        slots: dict[str, _Slot] = {}
        for name, settings in file.models.items():
            try:
                choice, model = self._open(settings, None)
            except ConfigError as error:
                raise ConfigError(f"{file.path}: models.{name}: {error}") from None
            except LocalUnavailableError as error:
                raise error.with_message(
                    f"{file.path}: models.{name}: {error}"
                ) from None
            slot = _Slot(
                model,
                model_tag(choice.sha256, choice.adapter_sha256),
                settings=settings,
                choice=choice,
                begin=self._begin,
            )
            slot.stays.set()
            slots[name] = slot
        return slots

    async def _begin(self, slot: _Slot) -> None:
        loading = self._loading(slot)
        try:
            # Shielded: a caller that gives up does not stop the loading.
            await asyncio.shield(loading)
        except LocalUnavailableError as error:
            raise error.alone() from None
        except asyncio.CancelledError:
            if not loading.cancelled():
                raise
            raise LocalModelError(GONE) from None

    def _loading(self, slot: _Slot) -> "asyncio.Task[None]":
        """Return the loading of a model, one for all that wait for it."""
        if slot.loading is None:
            slot.loading = asyncio.ensure_future(self._load(slot))
            # Without a query, a failure need not be raised.
            slot.loading.add_done_callback(
                lambda task: None if task.cancelled() else task.exception()
            )
        return slot.loading

    async def _load(self, slot: _Slot) -> None:
        now_s = asyncio.get_running_loop().time
        try:
            if slot.failed is not None and now_s() < slot.failed[0] + AGAIN_S:
                # Its file is not hashed again for each question.
                raise slot.failed[1].alone()
            slot.failed = None
            # One after the other, in order.
            async with self._loads:
                if slot.loaded:
                    return
                await self._make_room(slot)
                if self._closed:
                    raise LocalModelError(GONE)
                try:
                    await slot.model.start()
                except ConfigError as error:  # the context exceeds model or memory
                    raise LocalModelError(str(error)) from None
        except LocalUnavailableError as error:
            if slot.failed is None and not isinstance(error, LocalModelBusyError):
                slot.failed = now_s(), error.alone()
                self._notify(f"a local model is not loaded: {error}")
            raise
        finally:
            slot.loading = None

    async def _make_room(self, slot: _Slot) -> None:
        """Close models until one more may be loaded."""
        usual, most = self._slots.get(self.usual), self._file.most_loaded
        if most is None or slot is usual:
            return
        while True:
            loaded = [
                each
                for each in self._slots.values()
                if each.loaded and each not in {slot, usual}
            ]
            if len(loaded) < most:
                return
            # One that answers gets no further question first: else a model that is
            # always asked would never make room.
            leaving = min(loaded, key=lambda each: (each.writing > 0, each.asked_s))
            leaving.stays.clear()
            try:
                if leaving.writing:
                    leaving.silent.clear()
                    async with asyncio.timeout(ROOM_S):
                        await leaving.silent.wait()
                await leaving.model.close()
            except TimeoutError:
                raise LocalModelBusyError(NO_ROOM) from None
            finally:
                leaving.stays.set()

    def _end(self, slot: _Slot) -> None:
        """Close a model after its last answer; it gets no new ones."""
        self._old.add(slot)
        task = asyncio.ensure_future(slot.close_when_idle())
        self._ending.add(task)
        task.add_done_callback(partial(self._ended, slot))

    def _ended(self, slot: _Slot, task: "asyncio.Task[None]") -> None:
        self._ending.discard(task)
        if not task.cancelled():
            self._old.discard(slot)
