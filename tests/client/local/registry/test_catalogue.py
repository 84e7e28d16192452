from dataclasses import replace

import pytest

from curtilage.client.local.registry.catalogue import (
    TASKS,
    Advice,
    KnownModel,
    LicenceError,
    advise,
    by_digest,
    catalogue,
    known,
)
from curtilage.client.local.registry.download import PullRequest
from curtilage.client.local.registry.machine import Machine
from curtilage.client.local.registry.shape import read_shape
from curtilage.client.local.registry.store import SHA256_HEX, check_name
from curtilage.inference.default_model import (
    DEFAULT_SHA256,
    DEFAULT_SIZE_BYTES,
    find_default_model,
)

GIB = 1 << 30
LARGE = Machine(memory_bytes=64 * GIB, cpus=8, room_bytes=64 * GIB, metered=None)
RESEARCH, BEST, SMALL = "qwen2.5-3b", "qwen2.5-1.5b", "qwen2.5-0.5b"


def best(advice: tuple[Advice, ...]) -> str | None:
    return next((each.model.name for each in advice if not each.against), None)


def named(name: str) -> KnownModel:
    model = known(name)
    assert model is not None
    return model


@pytest.mark.parametrize("model", catalogue(), ids=lambda model: model.name)
def test_every_model_is_pinned(model: KnownModel) -> None:
    assert SHA256_HEX.fullmatch(model.sha256)
    assert model.licence
    assert model.good_for <= frozenset(TASKS)
    assert model.memory_bytes > model.size_bytes
    if model.name == "default":
        return
    check_name(model.name)
    PullRequest(
        name=model.name,
        repo_id=model.repository,
        filename=model.file,
        revision=model.revision,
        sha256=model.sha256,
        size_bytes=model.size_bytes,
    )


def test_names_and_digests_are_each_of_one_model() -> None:
    models = catalogue()
    assert len({each.name for each in models}) == len(models)
    assert len({each.sha256 for each in models}) == len(models)


def test_embedded_model_is_the_engines() -> None:
    model = named("default")
    assert (model.sha256, model.size_bytes) == (DEFAULT_SHA256, DEFAULT_SIZE_BYTES)
    assert by_digest(DEFAULT_SHA256) == model


@pytest.mark.model
def test_embedded_models_file_says_the_same() -> None:
    assert read_shape(find_default_model()) == named("default").shape


def test_unknown_names_and_digests_are_none() -> None:
    assert known("../default") is None
    assert by_digest("00" * 32) is None


def test_the_first_that_fits_and_may_be_used_is_the_best() -> None:
    advice = advise(LARGE, here=())
    assert best(advice) == BEST
    assert advice[0].model.name == RESEARCH
    assert advice[0].against == ("licence qwen-research",)


@pytest.mark.parametrize("task", [None, *TASKS])
def test_a_model_that_was_made_for_code_is_best_for_code_alone(
    task: str | None,
) -> None:
    for memory in (1 << 30, 3 << 30, 64 << 30):
        chosen = best(advise(LARGE, here=(), memory_bytes=memory, task=task))
        assert ("coder" in (chosen or "")) is (task == "code" and memory > 1 << 30)


def test_an_accepted_licence_is_no_longer_a_reason() -> None:
    assert best(advise(LARGE, here=(), accepted="qwen-research")) == RESEARCH
    assert best(advise(LARGE, here=(), accepted="Apache-2.0")) == BEST


def test_three_quarters_of_the_memory_are_for_the_model() -> None:
    need = named(BEST).memory_bytes
    enough = replace(LARGE, memory_bytes=-(-need * 4 // 3))
    assert best(advise(enough, here=())) == BEST
    little = replace(LARGE, memory_bytes=need)
    assert best(advise(little, here=())) == SMALL


def test_memory_that_is_named_is_taken_whole() -> None:
    need = named(BEST).memory_bytes
    assert best(advise(LARGE, here=(), memory_bytes=need)) == BEST
    assert best(advise(LARGE, here=(), memory_bytes=need - 64)) == SMALL


def test_a_model_that_does_not_fit_is_not_recommended() -> None:
    advice = advise(LARGE, here=(), memory_bytes=1)
    assert best(advice) is None
    assert all("memory" in each.against for each in advice)


def test_room_is_needed_for_what_is_not_here() -> None:
    full = replace(LARGE, room_bytes=0)
    assert best(advise(full, here=())) is None
    (only,) = (each for each in advise(full, here={named(SMALL).sha256}) if each.here)
    assert (only.model.name, only.against) == (SMALL, ())


def test_unknown_resources_are_no_reason_against_a_model() -> None:
    unknown = Machine(memory_bytes=None, cpus=1, room_bytes=None, metered=None)
    assert best(advise(unknown, here=())) == BEST


def test_a_task_narrows_to_models_that_are_good_for_it() -> None:
    assert best(advise(LARGE, here=(), task="code")) == "qwen2.5-coder-1.5b"
    assert best(advise(LARGE, here=(), task="reasoning")) == BEST
    against = {
        each.model.name: each.against for each in advise(LARGE, here=(), task="code")
    }
    assert against[SMALL] == ("not for code",)


def test_a_research_licence_is_refused_unless_it_is_accepted() -> None:
    model = named(RESEARCH)
    for accepted in (None, "", "Apache-2.0", "QWEN-RESEARCH"):
        with pytest.raises(LicenceError, match=f"--accept-licence {model.licence}$"):
            model.require_licence(accepted)
    model.require_licence("qwen-research")
    named(BEST).require_licence(None)


def test_the_embedded_model_alone_is_for_demonstration() -> None:
    assert [each.name for each in catalogue() if each.demonstration] == ["default"]
