"""Several models by name: which are loaded, which answers, and what replaces them."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from typing_extensions import override

from curtilage.client.chat.answer import AnswerEvent, Delta
from curtilage.client.chat.query import Message, Query
from curtilage.client.errors import ConfigError, LocalUnavailableError
from curtilage.client.local import held, named
from curtilage.client.local.computing import Computing
from curtilage.client.local.model import (
    LocalModel,
    LocalModelBusyError,
    LocalModelDigestError,
    LocalModelMemoryError,
    ModelChoice,
)
from curtilage.client.local.models_file import ModelSettings, ModelsFile
from curtilage.client.local.named import GONE, NO_ROOM, NamedModels, open_from
from curtilage.client.local.registry.store import Registry
from curtilage.client.routing.trace import model_tag
from curtilage.inference.errors import (
    EngineClosedError,
    EngineFailedError,
    EngineMemoryError,
    ModelDigestError,
)
from curtilage_dev.scripted_engine import SCRIPTED_INFO, Script, ScriptedEngine
from support.byte_model import make_byte_model, sha256_of
from support.fakes import returns

HELLO = Query(messages=(Message(role="user", content="hello canary"),))
DIGESTS = {name: f"{number:02x}" * 32 for number, name in enumerate("abcdez", start=1)}


class Counted(ScriptedEngine):
    """An engine that says when it is closed."""

    def __init__(self, device: "Device", name: str) -> None:
        info = replace(SCRIPTED_INFO, model_sha256=DIGESTS[name])
        script = Script(pieces=(name, " ", name))
        super().__init__(script, info=info, sequences=4)
        self._device, self._name = device, name

    @override
    async def start(self) -> None:
        self._device.loads.append(self._name)
        await self._device.may_load.wait()
        if fault := self._device.faults.get(self._name):
            raise fault
        await super().start()
        self._device.loaded.append(self._name)

    @override
    async def close(self) -> None:
        if self._name in self._device.loaded:
            self._device.loaded.remove(self._name)
        await super().close()


class Device:
    """Named models, and the engines that run."""

    def __init__(self, *, usual: str = "", most: int | None = None) -> None:
        self.loads: list[str] = []
        self.loaded: list[str] = []
        self.faults: dict[str, BaseException] = {}
        self.missing: set[str] = set()
        self.notices: list[str] = []
        self.may_load = asyncio.Event()
        self.may_load.set()
        self.models = NamedModels(
            self.file(most=most), self._open, usual=usual, notify=self.notices.append
        )

    @staticmethod
    def file(
        models: str = "a b c", most: int | None = None, **changed: str
    ) -> ModelsFile:
        """Models of these names; ``b="z"`` makes another model answer as b."""
        settings = {
            name: ModelSettings(model=changed.get(name, name))
            for name in models.split()
        }
        return ModelsFile(
            path=Path("models.toml"), models=settings, aliases={}, most_loaded=most
        )

    def _open(
        self, settings: ModelSettings, tokens: int | None
    ) -> tuple[ModelChoice, LocalModel]:
        name = settings.model
        if name in self.missing:
            raise ConfigError(f"no model {name!r}")
        digest = DIGESTS[name]
        choice = ModelChoice(model_id=name, path=Path(__file__), sha256=digest)
        model = LocalModel(
            lambda: Counted(self, name),
            model_id=name,
            sha256=digest,
            context_tokens=tokens,
        )
        return choice, model

    async def answer(self, name: str) -> str:
        return text_of([event async for event in self.events(name)])

    async def events(self, name: str) -> AsyncGenerator[AnswerEvent]:
        async with aclosing(self.models.get(name).generate(HELLO)) as events:
            async for event in events:
                yield event


@asynccontextmanager
async def device(*, usual: str = "", most: int | None = None) -> AsyncGenerator[Device]:
    made = Device(usual=usual, most=most)
    try:
        yield made
    finally:
        await made.models.close()
        assert made.loaded == []


def text_of(events: list[AnswerEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, Delta))


async def until(condition: Callable[[], object]) -> None:
    for _ in range(60_000):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it never came")


# Which are loaded.


async def test_a_model_is_loaded_when_it_is_first_asked_and_once() -> None:
    async with device() as home:
        assert home.loads == []
        model = home.models.get("b")
        assert (model.model_id, model.sha256) == ("b", DIGESTS["b"])
        before = model.digests
        assert before == (DIGESTS["b"], None)
        answers = await asyncio.gather(*(home.answer("b") for _ in range(3)))
        assert answers == ["b b"] * 3
        assert home.loads == ["b"]
        assert model.digests == (DIGESTS["b"], SCRIPTED_INFO.template_sha256)
        assert model.tag == model_tag(DIGESTS["b"])
        assert await home.answer("a") == "a a"
        assert home.loaded == ["b", "a"]


async def test_what_is_to_be_loaded_at_the_start_is() -> None:
    async with device() as home:
        file = home.file()
        eager = replace(file.models["c"], load_at_start=True)
        await home.models.replace(replace(file, models={**file.models, "c": eager}))
        await until(lambda: home.loaded == ["c"])


async def test_the_one_that_was_asked_longest_ago_makes_room() -> None:
    async with device(most=2) as home:
        for name in "abacab":
            assert await home.answer(name) == f"{name} {name}"
        assert home.loads == ["a", "b", "c", "b"]
        assert sorted(home.loaded) == ["a", "b"]


async def test_the_usual_model_never_makes_room() -> None:
    async with device(most=1, usual="a") as home:
        await home.models.start("a")
        for name in "bcb":
            assert await home.answer(name) == f"{name} {name}"
        assert home.loads == ["a", "b", "c", "b"]
        assert await home.answer("a") == "a a"
        assert home.loads.count("a") == 1


async def test_one_that_answers_makes_room_after_its_answer() -> None:
    async with device(most=1) as home:
        running = home.events("a")
        begun = [await anext(running)]
        other = asyncio.create_task(home.answer("b"))
        await asyncio.sleep(0.01)
        # It gets no further question first, or it might never make room.
        again = asyncio.create_task(home.answer("a"))
        await asyncio.sleep(0.01)
        assert (home.loaded, other.done(), again.done()) == (["a"], False, False)
        begun += [event async for event in running]
        assert text_of(begun) == "a a"
        assert await other == "b b"
        assert await again == "a a"
        assert home.loads == ["a", "b", "a"]


async def test_an_answer_that_nobody_reads_makes_others_busy_and_not_wait_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(named, "ROOM_S", 0.01)
    async with device(most=1) as home:
        running = home.events("a")
        await anext(running)
        with pytest.raises(LocalModelBusyError, match=NO_ROOM):
            await home.answer("b")
        assert home.notices == []
        await running.aclose()
        assert await home.answer("b") == "b b"


async def test_a_caller_that_leaves_stops_no_loading_for_others() -> None:
    async with device() as home:
        home.may_load.clear()
        first, second = (asyncio.create_task(home.answer("a")) for _ in range(2))
        await until(lambda: home.loads)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        home.may_load.set()
        assert await second == "a a"
        assert home.loads == ["a"]


# What cannot be loaded.


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (EngineFailedError("no AVX2"), LocalUnavailableError),
        (EngineMemoryError(4096), LocalModelMemoryError),
        (ModelDigestError(expected="aa", found="bb"), LocalModelDigestError),
    ],
)
async def test_one_that_fails_says_so_and_others_answer(
    fault: Exception, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with device() as home:
        home.faults["a"] = fault
        for _ in range(3):
            with pytest.raises(error):
                await home.answer("a")
        # Its file is not hashed again for each question.
        assert home.loads == ["a"]
        assert len(home.notices) == 1
        assert await home.answer("b") == "b b"
        monkeypatch.setattr(named, "AGAIN_S", 0.0)
        del home.faults["a"]
        assert await home.answer("a") == "a a"


async def test_a_context_that_is_not_possible_is_an_error_of_that_model(
    tmp_path: Path,
) -> None:
    path = make_byte_model(tmp_path / "byte.gguf")
    settings = ModelSettings(
        model=str(path), sha256=sha256_of(path), context_tokens=100_000
    )
    file = ModelsFile(path=tmp_path, models={"m": settings}, aliases={})
    models = NamedModels(file, open_from(Registry(tmp_path)), notify=returns(None))
    with pytest.raises(LocalUnavailableError, match="trained for"):
        await models.start("m")
    await models.close()


def test_a_model_that_is_not_registered_is_refused_at_once(tmp_path: Path) -> None:
    file = Device.file("m")
    with pytest.raises(ConfigError, match=r"models\.m: no model is registered"):
        NamedModels(file, open_from(Registry(tmp_path)), notify=returns(None))


async def test_a_usual_model_that_is_not_in_the_file_is_refused() -> None:
    with pytest.raises(ConfigError, match="no model 'z'"):
        Device(usual="z")


async def test_a_name_that_was_removed_is_an_error() -> None:
    async with device() as home:
        await home.models.replace(home.file("a"))
        assert home.models.names.listed == ("curtilage", "a")
        with pytest.raises(LocalUnavailableError, match=GONE):
            await home.answer("b")


# Another one takes over.


async def test_another_model_takes_the_name_and_the_answer_that_runs_ends() -> None:
    async with device(usual="b") as home:
        usual = home.models.get("b")
        running = home.events("b")
        begun = [await anext(running)]
        await home.models.replace(home.file(b="z"))
        # New questions go to the new model while the old answer is still written.
        assert await home.answer("b") == "z z"
        assert (usual.model_id, usual.sha256) == ("z", DIGESTS["z"])
        assert sorted(home.loaded) == ["b", "z"]
        begun += [event async for event in running]
        assert text_of(begun) == "b b"
        await until(lambda: home.loaded == ["z"])
        assert home.notices == ["the model 'b' is now z"]


async def test_the_new_one_is_loaded_while_the_old_one_answers() -> None:
    async with device() as home:
        await home.answer("b")
        home.may_load.clear()
        replacing = asyncio.create_task(home.models.replace(home.file(b="z")))
        await until(lambda: home.loads == ["b", "z"])
        assert await home.answer("b") == "b b"
        home.may_load.set()
        await replacing
        assert await home.answer("b") == "z z"


async def test_one_that_was_not_loaded_is_not_loaded_for_its_replacement() -> None:
    async with device() as home:
        await home.models.replace(home.file(b="z"))
        assert home.loads == []
        assert await home.answer("b") == "z z"


async def test_what_did_not_change_goes_on() -> None:
    async with device() as home:
        await home.answer("a")
        assert await home.models.replace(home.file("a d"))
        assert await home.answer("a") == "a a"
        assert await home.answer("d") == "d d"
        assert home.loads == ["a", "d"]


async def test_a_replacement_that_cannot_be_loaded_changes_nothing_of_its_name() -> (
    None
):
    async with device() as home:
        await home.answer("b")
        home.faults["z"] = EngineFailedError("another architecture")
        assert not await home.models.replace(home.file("a b c d", b="z"))
        assert "'b' is not replaced" in home.notices[0]
        assert "another architecture" in home.notices[0]
        assert await home.answer("b") == "b b"
        assert await home.answer("d") == "d d"
        # The next time it may succeed.
        del home.faults["z"]
        await home.models.replace(home.file("a b c d", b="z"))
        assert await home.answer("b") == "z z"


async def test_a_file_that_is_wrong_changes_nothing() -> None:
    async with device(usual="b") as home:
        await home.answer("a")
        home.missing.add("z")
        for wrong in (home.file("a b d", a="z"), home.file("a d")):
            with pytest.raises(ConfigError):
                await home.models.replace(wrong)
        assert home.models.names.listed == ("curtilage", "a", "b", "c")
        assert await home.answer("a") == "a a"
        assert home.loads == ["a"]


async def test_without_memory_for_both_the_old_one_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = make_byte_model(tmp_path / "old.gguf")
    new = make_byte_model(tmp_path / "new.gguf", layers=3)

    def file(path: Path) -> ModelsFile:
        settings = ModelSettings(
            model=str(path), sha256=sha256_of(path), computing=Computing(threads=1)
        )
        return ModelsFile(path=tmp_path, models={"m": settings}, aliases={})

    notices: list[str] = []
    models = NamedModels(
        file(old), open_from(Registry(tmp_path)), notify=notices.append
    )
    try:
        await models.start("m")
        monkeypatch.setattr(held, "available_memory", returns(1 << 20))
        await models.replace(file(new))
        assert models.get("m").sha256 == sha256_of(old)
        assert "MiB of memory" in notices[0]
        monkeypatch.setattr(held, "available_memory", returns(None))
        await models.replace(file(new))
        assert models.get("m").sha256 == sha256_of(new)
        async with aclosing(models.get("m").generate(HELLO)) as events:
            assert [event async for event in events]
    finally:
        await models.close()


async def test_a_replacement_that_is_cancelled_leaves_nothing_loaded() -> None:
    async with device() as home:
        await home.answer("a")
        await home.answer("b")
        home.faults["e"] = asyncio.CancelledError()
        with pytest.raises(asyncio.CancelledError):
            await home.models.replace(home.file(a="z", b="e"))
        assert home.loaded == ["a", "b"]
        assert await home.answer("a") == "a a"


# The end.


async def test_closing_does_not_wait_for_a_file_to_be_loaded() -> None:
    home = Device()
    home.may_load.clear()
    waiting = asyncio.create_task(home.answer("b"))
    await until(lambda: home.loads)
    async with asyncio.timeout(30):
        await home.models.close()
        with pytest.raises(LocalUnavailableError, match="no model of this name"):
            await waiting


async def test_closing_ends_answers_and_what_is_being_loaded() -> None:
    home = Device(most=1)
    running = home.events("a")
    await anext(running)
    waiting = asyncio.create_task(home.answer("b"))
    await asyncio.sleep(0.01)
    await home.models.close()
    assert home.loaded == []
    with pytest.raises(LocalUnavailableError):
        await waiting
    with pytest.raises((LocalUnavailableError, EngineClosedError)):
        _ = [event async for event in running]
