"""A model that changes while others ask: no answer is cut, none is another's."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from typing_extensions import override

from curtilage.client.chat.answer import Delta
from curtilage.client.chat.query import Message, Query
from curtilage.client.errors import ConfigError, LocalUnavailableError
from curtilage.client.local import held
from curtilage.client.local.model import (
    LocalModel,
    LocalModelMemoryError,
    ModelChoice,
)
from curtilage.client.local.rollout import model as rolled_out
from curtilage.client.local.rollout.model import UNCHANGED, RolledOutModel
from curtilage.client.local.rollout.state import NO_MANIFEST
from curtilage.client.routing.trace import model_tag
from curtilage.inference.errors import (
    EngineClosedError,
    EngineFailedError,
    EngineMemoryError,
)
from curtilage_dev.scripted_engine import SCRIPTED_INFO, Script, ScriptedEngine
from support.byte_model import make_byte_model, sha256_of
from support.fakes import returns
from support.rollouts import NOW, FollowedRollout

HELLO = Query(messages=(Message(role="user", content="hello canary"),))


class Device:
    """A client's local model under a rollout, and the engines that it made."""

    def __init__(self, home: FollowedRollout) -> None:
        self.home = home
        self.engines: dict[str, ScriptedEngine] = {}
        self.made: dict[str, ScriptedEngine] = {}
        self.faults: dict[str, Exception] = {}
        self.notices: list[str] = []
        self.looked: list[float] = []
        self.look_again = asyncio.Event()
        self.model = RolledOutModel(
            home.rollout(),
            self._open,
            context_tokens=None,
            clock=returns(NOW),
            sleep=self._sleep,
            notify=self.notices.append,
        )

    def _open(self, choice: ModelChoice | None, tokens: int | None) -> LocalModel:
        name = "usual" if choice is None else choice.model_id
        sha256 = "00" * 32 if choice is None else choice.sha256

        def make() -> ScriptedEngine:
            self.engines[name] = self.made.get(name) or ScriptedEngine(
                Script(pieces=(name, " ", name)),
                info=replace(SCRIPTED_INFO, model_sha256=sha256),
                start_fault=self.faults.get(name),
            )
            return self.engines[name]

        return LocalModel(make, model_id=name, sha256=sha256, context_tokens=tokens)

    async def _sleep(self, seconds: float) -> None:
        self.looked.append(seconds)
        await self.look_again.wait()
        self.look_again.clear()

    async def answer(self) -> str:
        async with aclosing(self.model.generate(HELLO)) as events:
            return "".join([e.text async for e in events if isinstance(e, Delta)])


@asynccontextmanager
async def started(home: FollowedRollout) -> AsyncGenerator[Device]:
    device = Device(home)
    await device.model.start()
    try:
        yield device
    finally:
        await device.model.close()


async def until(condition: Callable[[], object]) -> None:
    for _ in range(60_000):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it never came")


@pytest.fixture
def home(tmp_path: Path) -> FollowedRollout:
    return FollowedRollout(tmp_path)


# What it starts with.


async def test_without_a_manifest_the_usual_model_answers(
    home: FollowedRollout,
) -> None:
    async with started(home) as device:
        assert await device.answer() == "usual usual"
        assert device.notices == [NO_MANIFEST]
        assert device.model.tag == model_tag("00" * 32)


async def test_the_model_of_the_manifest_answers(home: FollowedRollout) -> None:
    home.take(home.manifest())
    async with started(home) as device:
        assert await device.answer() == "new new"
        assert (device.model.model_id, device.model.sha256) == ("new", home.new.sha256)
        assert device.model.tag == model_tag(home.new.sha256)
        assert device.model.digests == (home.new.sha256, "00" * 32)
        assert device.model.context_tokens == SCRIPTED_INFO.context_tokens
        assert device.notices == []


async def test_if_it_fails_the_previous_model_answers(home: FollowedRollout) -> None:
    home.take(home.manifest())
    device = Device(home)
    device.faults["new"] = EngineFailedError("another architecture")
    await device.model.start()
    assert await device.answer() == "old old"
    assert " new fails: " in device.notices[0]
    # It is not tried with every look.
    del device.engines["new"]
    await device.model.look()
    assert "new" not in device.engines
    await device.model.close()


async def test_if_both_are_missing_the_default_model_answers(
    home: FollowedRollout,
) -> None:
    home.take(home.manifest())
    (home.base / "data" / "models.json").unlink()
    async with started(home) as device:
        assert await device.answer() == "usual usual"
        assert "no longer installed" in device.notices[-1]


async def test_without_any_model_it_raises(home: FollowedRollout) -> None:
    device = Device(home)
    device.faults["usual"] = EngineFailedError("no AVX2")
    with pytest.raises(LocalUnavailableError):
        await device.model.start()
    with pytest.raises(LocalUnavailableError, match="not running"):
        await device.answer()
    await device.model.close()


async def test_memory_that_is_short_at_first_makes_no_other_model(
    home: FollowedRollout,
) -> None:
    home.take(home.manifest())
    device = Device(home)
    device.faults["new"] = EngineMemoryError(4096)
    await device.model.start()
    assert device.model.model_id == "new"
    with pytest.raises(LocalModelMemoryError):
        await device.answer()
    await device.model.close()


# Another one takes over.


async def test_a_new_manifest_is_followed_between_answers(
    home: FollowedRollout,
) -> None:
    home.take(home.manifest(1, percent=1))
    async with started(home) as device:
        assert await device.answer() == "old old"
        home.take(home.manifest(2))
        device.look_again.set()
        await until(lambda: device.model.model_id == "new")
        assert await device.answer() == "new new"
        assert [each.split()[-1] for each in device.notices] == ["new"]
        assert set(device.looked) == {rolled_out.LOOK_S}


async def test_an_answer_that_runs_ends_with_the_model_that_began_it(
    home: FollowedRollout,
) -> None:
    home.take(home.manifest(1, percent=1))
    async with started(home) as device:
        running = device.model.generate(HELLO)
        text = [await anext(running)]
        home.take(home.manifest(2))
        looking = asyncio.create_task(device.model.look())
        await until(lambda: device.model.model_id == "new")
        # New questions go to the new model while the old answer is still written.
        assert await device.answer() == "new new"
        assert not looking.done()
        assert device.engines["old"].load().running == 1
        text += [event async for event in running]
        assert "".join(e.text for e in text if isinstance(e, Delta)) == "old old"
        await looking
        # And only then is the old one freed.
        with pytest.raises(EngineClosedError):
            _ = device.engines["old"].info


async def test_the_announced_model_answers(
    home: FollowedRollout,
) -> None:
    home.take(home.manifest(1, percent=1))
    async with started(home) as device:
        home.take(home.manifest(2))
        looking = asyncio.create_task(device.model.look())
        answers: list[tuple[str, str]] = []
        while not looking.done():
            name = device.model.model_id
            answers.append((name, await device.answer()))
        assert {answer == f"{name} {name}" for name, answer in answers} == {True}
        await looking


async def test_a_worse_model_goes_back_by_itself(home: FollowedRollout) -> None:
    home.take(home.manifest())
    async with started(home) as device:
        home.grade(home.new, bad=100)
        device.look_again.set()
        await until(lambda: device.model.model_id == "old")
        assert await device.answer() == "old old"


# What changes nothing.


async def test_a_model_that_cannot_be_loaded_takes_nothing_over(
    home: FollowedRollout,
) -> None:
    home.take(home.manifest(1, percent=1))
    async with started(home) as device:
        device.faults["new"] = EngineFailedError("another architecture")
        home.take(home.manifest(2))
        device.look_again.set()
        await until(lambda: device.notices)
        assert device.notices[0].startswith(f"{UNCHANGED}: ")
        assert "another architecture" in device.notices[0]
        assert await device.answer() == "old old"
        # And is not tried again.
        await device.model.look()
        assert len(device.notices) == 1


async def test_a_model_without_memory_in_addition_to_the_other_waits(
    home: FollowedRollout, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_byte_model(home.base / "byte.gguf")
    home.registry.add("byte", path, sha256_of(path))
    byte = replace(home.new, sha256=sha256_of(path))
    home.take(home.manifest(1, percent=1))
    async with started(home) as device:
        home.take(home.manifest(2, model=byte))
        monkeypatch.setattr(held, "available_memory", returns(1 << 20))
        with pytest.raises(ConfigError, match="MiB of memory"):
            await device.model.look()
        assert "byte" not in device.engines
        assert await device.answer() == "old old"
        monkeypatch.setattr(held, "available_memory", returns(None))
        await device.model.look()
        assert await device.answer() == "byte byte"


async def test_a_file_that_is_gone_changes_nothing(home: FollowedRollout) -> None:
    home.take(home.manifest(1, percent=1))
    async with started(home) as device:
        home.take(home.manifest(2))
        (home.base / "data" / "models.json").unlink()
        await device.model.look()
        assert await device.answer() == "old old"
        assert "no longer installed" in device.notices[-1]


async def test_a_damaged_state_changes_nothing(
    home: FollowedRollout,
) -> None:
    home.take(home.manifest())
    async with started(home) as device:
        (home.base / "data" / "rollouts" / "clinic-home.json").write_bytes(b"{}")
        device.look_again.set()
        await until(lambda: device.notices)
        assert device.notices[0].startswith(f"{UNCHANGED}: ")
        assert "damaged" in device.notices[0]
        assert await device.answer() == "new new"


async def test_closing_frees_what_is_just_being_loaded(home: FollowedRollout) -> None:
    home.take(home.manifest(1, percent=1))
    device = Device(home)
    await device.model.start()
    loading, may_end = asyncio.Event(), asyncio.Event()

    class Slow(ScriptedEngine):
        @override
        async def start(self) -> None:
            loading.set()
            await may_end.wait()
            await super().start()

    slow = device.made["new"] = Slow()
    home.take(home.manifest(2))
    device.look_again.set()
    await loading.wait()
    closing = asyncio.create_task(device.model.close())
    await asyncio.sleep(0)
    may_end.set()
    await closing
    with pytest.raises(EngineClosedError):
        _ = slow.info


async def test_closing_ends_what_runs_and_what_is_loaded(
    home: FollowedRollout,
) -> None:
    home.take(home.manifest(1, percent=1))
    device = Device(home)
    await device.model.start()
    running = device.model.generate(HELLO)
    await anext(running)
    home.take(home.manifest(2))
    device.look_again.set()
    await until(lambda: device.model.model_id == "new")
    await device.model.close()
    with pytest.raises(LocalUnavailableError):
        _ = [event async for event in running]
    for engine in device.engines.values():
        with pytest.raises(EngineClosedError):
            _ = engine.info
