import gc
import os
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Final

import pytest
from hypothesis import settings

from support import needs
from support.samples import Sample

# First of all: a native library reads it once, when a test imports it.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"

# A busy machine must not fail a property: none of ours is about time.
settings.register_profile("curtilage", deadline=None)
settings.load_profile("curtilage")

ROOT = Path(__file__).resolve().parents[1]


# A test that takes this fixture is of `make test-exhaustive`.
SAMPLED: Final = "sample: Sample"

# What the Makefile asks for, and which files and folders have any of it. The others
# are not even imported: some take seconds.
SETS: Final[dict[str, Callable[[Path], bool]]] = {
    "not process and not timing": lambda path: not needs.of_file(path),
    "process and not timing": lambda path: "process" in needs.of_some(path),
    "timing": lambda path: "timing" in needs.of_some(path),
    "exhaustive": lambda path: path.is_dir() or SAMPLED in path.read_text("utf-8"),
}
MARKERS: Final = pytest.StashKey[frozenset[str]]()
WATCH: Final = pytest.StashKey[needs.Watch]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--exhaustive", action="store_true", help="try every cut and every flipped byte"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.stash[WATCH] = needs.Watch()
    if not config.option.collectonly:
        sys.addaudithook(config.stash[WATCH].note)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None]:
    # Collecting makes a million objects that all stay: looking through them again and
    # again for garbage takes a third of the time, and each test's own search as well.
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    wanted = SETS.get(config.option.markexpr)
    within = needs.TESTS in collection_path.parents
    return True if wanted and within and not wanted(collection_path) else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        name = getattr(item, "originalname", item.name)
        markers = needs.of_test(item.path, name)
        item.stash[MARKERS] = markers
        for marker in sorted(markers):
            item.add_marker(marker)
        if "sample" in getattr(item, "fixturenames", ()):
            item.add_marker("exhaustive")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None]:
    item.config.stash[WATCH].begin(item.stash[MARKERS])
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None]:
    try:
        return (yield)
    finally:
        if did := item.config.stash[WATCH].end():
            pytest.fail(f"see tests/support/needs.py: {', '.join(did)}", pytrace=False)


def find_shared() -> Path | None:
    """Return the folder of outside vectors and evidence, or None."""
    path = Path(os.environ.get("CURTILAGE_SHARED", str(ROOT.parent / "shared")))
    return path.resolve() if path.is_dir() else None


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    path = find_shared()
    if path is None:
        pytest.skip(
            "SKIPPED LOUDLY: outside vectors and evidence are not here; "
            "point CURTILAGE_SHARED at them"
        )
    return path


@pytest.fixture(scope="session")
def sample(request: pytest.FixtureRequest) -> Sample:
    """Which of many places a test tries: some, or every one with ``--exhaustive``."""
    return Sample(every=bool(request.config.getoption("--exhaustive")))
