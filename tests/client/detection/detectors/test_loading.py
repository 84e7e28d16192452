"""What is loaded at first use; that the parent's clock waits is ``test_worker``'s."""

from collections.abc import Iterator

import pytest

from curtilage.client.detection.detectors import all as module_of_all
from curtilage.client.detection.detectors import loading as module
from curtilage.client.detection.detectors.all import equipment_of
from curtilage.client.detection.detectors.languages import identifier
from curtilage.client.detection.detectors.loading import (
    NOT_LOADED,
    OnDemand,
    announce_to,
    loading,
)
from curtilage.client.detection.detectors.model import embedded
from curtilage.client.detection.detectors.names import small_letters
from curtilage.client.detection.detectors.scanner import Scanner
from curtilage.client.detection.detectors.topics import lexicon, markers
from curtilage.policy.document.load import load_profile


@pytest.fixture
def said() -> Iterator[list[bool]]:
    heard: list[bool] = []
    announce_to(heard.append)
    yield heard
    announce_to(None)


def test_loading_is_announced_at_its_begin_and_end(said: list[bool]) -> None:
    with loading():
        assert said == [True]
        with loading():
            assert said == [True]
    assert said == [True, False]


def test_loading_that_fails_ends_as_well(said: list[bool]) -> None:
    with pytest.raises(ValueError, match="broken"), loading():
        raise ValueError("broken")
    assert said == [True, False]
    with loading():
        pass
    assert said == [True, False, True, False]


def test_what_is_made_on_demand_is_made_once(said: list[bool]) -> None:
    made: list[int] = []

    def make() -> int:
        made.append(1)
        return 7

    wanted = OnDemand(make)
    assert (made, said) == ([], [])
    assert wanted.get() == wanted.get() == 7
    assert (made, said) == ([1], [True, False])


def test_what_cannot_be_made_is_not_tried_for_each_text() -> None:
    tried: list[int] = []

    def make() -> int:
        tried.append(1)
        raise MemoryError

    wanted = OnDemand(make)
    with pytest.raises(MemoryError):
        wanted.get()
    for _ in range(2):
        with pytest.raises(RuntimeError, match=NOT_LOADED):
            wanted.get()
    assert tried == [1]


def test_a_process_without_a_parent_announces_nothing() -> None:
    assert module._Announced.call is None  # pyright: ignore[reportPrivateUsage]
    with loading():
        pass


# --- what a text needs --------------------------------------------------------------


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Return what was loaded, as it is."""
    seen: set[str] = set()
    # Of the very class that is used: another test may have imported its module anew.
    used = module_of_all.PresidioOnDemand  # type: ignore[attr-defined] # as it is there
    made_by = used.__init__.__globals__
    load_guard, opened = embedded.load_guard, made_by["PresidioDetector"]

    def guard(folder: object = None) -> object:
        seen.add("english" if folder is None else "multilingual")
        return load_guard(folder)  # type: ignore[arg-type] # as it was called

    def presidio(*arguments: object) -> object:
        seen.add("presidio")
        return opened(*arguments)

    def rules(code: str) -> object:
        seen.add(f"rules {code}")
        return compiled(code)

    def loads() -> object:
        seen.add("identifier")
        return identify()

    def opens(code: str) -> object:
        seen.add(f"dictionary {code}")
        return looked_up(code)

    compiled = markers._rules_of  # pyright: ignore[reportPrivateUsage]
    looked_up = small_letters._dictionary  # pyright: ignore[reportPrivateUsage]
    identify = identifier._loaded  # pyright: ignore[reportPrivateUsage]
    identifier.load_identifier.cache_clear()
    lexicon._phrases_of.cache_clear()  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(embedded, "load_guard", guard)
    monkeypatch.setitem(made_by, "PresidioDetector", presidio)
    monkeypatch.setattr(markers, "_rules_of", rules)
    monkeypatch.setattr(identifier, "_loaded", loads)
    monkeypatch.setattr(small_letters, "_dictionary", opens)
    return seen


@pytest.mark.parametrize(
    ("text", "needs"),
    [
        ("What is the capital of France?", set[str]()),
        ("Please tell me how to write a short letter.", set[str]()),
        ("Wie schreibe ich einen kurzen Brief?", {"multilingual", "rules de"}),
        (
            "Wo kaufe ich einen Tisch und eine grunzwerte Leiter?",
            {"multilingual", "rules de", "dictionary de", "dictionary en"},
        ),
        ("What is 12 times 7?", {"presidio"}),
    ],
)
def test_a_text_loads_what_it_needs(
    text: str, needs: set[str], loaded: set[str]
) -> None:
    scanner = Scanner(*equipment_of(load_profile("default").plan))
    assert loaded == {"english"}
    scanner.scan([text])
    assert loaded - {"english", "identifier"} == needs


def test_what_most_texts_need_can_be_loaded_before_one_comes(loaded: set[str]) -> None:
    scanner = Scanner(*equipment_of(load_profile("default").plan))
    for preload in scanner.preloads:
        preload()
    assert loaded == {"english", "identifier", "presidio"}


def test_a_model_that_cannot_be_loaded_keeps_its_texts_home(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def only_english(folder: object = None) -> object:
        if folder is not None:
            raise embedded.GuardModelError("broken")
        return load_guard()

    load_guard = embedded.load_guard
    monkeypatch.setattr(embedded, "load_guard", only_english)
    scanner = Scanner(*equipment_of(load_profile("default").plan))
    (german,) = scanner.scan(["Wie schreibe ich einen kurzen Brief?"])
    assert "uncertain.error" in {span.data_class for span in german}
    (english,) = scanner.scan(["Please tell me how to write a short letter."])
    assert english == ()
