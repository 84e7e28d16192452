"""Our programs' look-ups, connections and writes, observed from outside.

An audit hook binds Python code; the libraries are native. So every program runs at
its work for 90 s, in a world of its own in which every address, every name and
every folder belongs to the test. ``outside.toml`` lists what is allowed.
"""

import os
import tomllib
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from support.outside.network import LOOKED_UP, UNKNOWN
from support.outside.programs import (
    CONTROL_FILE,
    CONTROL_FOLDER,
    CONTROL_NAME,
    CONTROL_TCP,
    CONTROL_TCP6,
    CONTROL_UDP,
)
from support.outside.run import SECONDS, Report, SceneError, watched
from support.outside.world import ACCOUNT_HOME, ENVIRONMENT_HOME, WorldError

REQUIRED = "outside" in os.environ.get("CURTILAGE_REQUIRE", "").split(",")
LISTED = tomllib.loads(Path(__file__).with_name("outside.toml").read_text("utf-8"))
PROGRAMS = (
    *("ask: local", "ask: enclave", "serve: local", "serve: enclave"),
    *("library: local", "library: enclave", "decide: local", "decide: enclave"),
    *("evaluate", "evidence", "stapler"),
)
NAMES = {LOOKED_UP, "tls"}
DEEDS = {
    "name": (LOOKED_UP, f"{CONTROL_NAME} A"),
    "name of IPv6": (LOOKED_UP, f"{CONTROL_NAME} AAAA"),
    "TCP": ("tcp", f"{CONTROL_TCP[0]}:{CONTROL_TCP[1]}"),
    "TCP over IPv6": ("tcp", f"[{CONTROL_TCP6[0]}]:{CONTROL_TCP6[1]}"),
    "UDP": ("udp", f"{CONTROL_UDP[0]}:{CONTROL_UDP[1]}"),
    "TLS": ("tls", CONTROL_NAME),
}
FILES = {
    "the account's home": f"{ACCOUNT_HOME}/{CONTROL_FILE}",
    "the environment's home": f"{ENVIRONMENT_HOME}/{CONTROL_FILE}",
    "shared memory": f"/dev/shm/{CONTROL_FILE}",  # noqa: S108 - watched
    "a folder of the checkout": f"/support/outside/{CONTROL_FILE}",
    "a file that came and went": f"{CONTROL_FOLDER}/",
}


def observed(folder: Path, seconds: float) -> Report:
    try:
        return watched(folder, seconds)
    except WorldError as error:
        words = f"SKIPPED LOUDLY: no world to watch programs in: {error}"
        if REQUIRED:
            pytest.fail(words)
        pytest.skip(words)
    except SceneError as error:
        pytest.fail(str(error), pytrace=False)


def connected(entry: dict[str, str]) -> str:
    return f"{entry['who']} to {entry['to']}"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """All programs running for as long as it takes; a control at the end."""
    return observed(tmp_path_factory.mktemp("outside"), SECONDS)


@pytest.fixture(scope="module")
def control(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """Only the control."""
    return observed(tmp_path_factory.mktemp("control"), 0)


def is_control(seen: dict[str, str]) -> bool:
    if "path" in seen:
        return seen["path"].endswith(tuple(FILES.values()))
    return (seen["kind"], seen["to"]) in DEEDS.values()


def attempts(report: Report) -> list[dict[str, str]]:
    """Return the attempts of our programs, with the names of listeners."""
    return [
        {**seen, "to": report.ports.get(seen["to"], seen["to"])}
        for seen in report.attempts
        if not is_control(seen)
    ]


def allows(entry: dict[str, str], seen: dict[str, str]) -> bool:
    # If a socket was closed before its owner was known, it counts as one of the
    # programs that may connect there.
    known = seen["who"] in {entry["who"], UNKNOWN}
    return known and (seen["kind"], seen["to"]) == ("tcp", entry["to"])


def permits(entry: dict[str, str], seen: dict[str, str]) -> bool:
    matches = fnmatchcase(seen["path"], entry["path"])
    return matches and seen["change"] == entry["change"]


def lines(found: list[dict[str, str]]) -> str:
    return "\n".join(["not on the list:", *(" ".join(each.values()) for each in found)])


@pytest.mark.outside
def test_no_program_looks_a_name_up(report: Report) -> None:
    found = [seen for seen in attempts(report) if seen["kind"] in NAMES]
    assert not found, lines(found)


@pytest.mark.outside
def test_no_program_connects_but_as_listed(report: Report) -> None:
    found = [
        seen
        for seen in attempts(report)
        if seen["kind"] not in NAMES
        and not any(allows(entry, seen) for entry in LISTED["connection"])
    ]
    assert not found, lines(found)


@pytest.mark.outside
def test_no_program_writes_outside_its_folders_but_as_listed(report: Report) -> None:
    found = [
        seen
        for seen in report.written
        if not is_control(seen)
        and not any(permits(entry, seen) for entry in LISTED["file"])
    ]
    assert not found, lines(found)


@pytest.mark.outside
@pytest.mark.parametrize("entry", LISTED["connection"], ids=connected)
def test_listed_connection_is_needed(report: Report, entry: dict[str, str]) -> None:
    assert any(allows(entry, seen) for seen in attempts(report))


@pytest.mark.outside
@pytest.mark.parametrize("work", PROGRAMS)
def test_each_program_was_at_work(report: Report, work: str) -> None:
    assert report.work.get(work, 0) > 0


@pytest.mark.outside
def test_watch_was_awake_to_the_end(report: Report) -> None:
    seen = {(each["kind"], each["to"]) for each in report.attempts}
    assert seen.issuperset(DEEDS.values())
    assert report.lost == 0


@pytest.mark.parametrize("deed", DEEDS.values(), ids=DEEDS)
def test_watch_sees_the_control_on_the_network(
    control: Report, deed: tuple[str, str]
) -> None:
    assert deed in {(each["kind"], each["to"]) for each in control.attempts}


@pytest.mark.parametrize("path", FILES.values(), ids=FILES)
def test_watch_sees_what_the_control_writes(control: Report, path: str) -> None:
    assert any(seen["path"].endswith(path) for seen in control.written)


def test_what_the_control_wrote_is_not_on_this_machine(control: Report) -> None:
    assert control.written
    assert not Path(f"/dev/shm/{CONTROL_FILE}").exists()  # noqa: S108 - watched
    assert not list(Path(__file__).parents[1].glob(f"support/outside/{CONTROL_FILE}"))
