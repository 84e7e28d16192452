"""Downloading, from a hub of our own on loopback."""

import hashlib
import stat
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from curtilage.client.local.registry import store as registry_module
from curtilage.client.local.registry.download import (
    TOO_MUCH,
    ModelPullError,
    PullRequest,
    pull,
)
from curtilage.client.local.registry.store import (
    ModelArrivingError,
    ModelRegistryError,
    NoRoomError,
    Registry,
)
from support.fakes import returns
from support.imports import values_at_import
from support.model_hub import REVISION, FakeHub, serving

CONTENT = b"GGUF" + bytes(range(256)) * 4096
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def registry(root: Path) -> Registry:
    return Registry(root)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(CONTENT)
    return path


def request(**changes: str) -> PullRequest:
    fields = {
        "name": "tiny",
        "repo_id": "somebody/tiny",
        "filename": "tiny.gguf",
        "revision": REVISION,
        "sha256": SHA256,
    }
    return PullRequest(**(fields | changes), size_bytes=None)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    pytest.importorskip(
        "huggingface_hub", reason="SKIPPED LOUDLY: the extra 'models' is absent"
    )
    # Credentials that must not be sent.
    monkeypatch.setenv("HF_TOKEN", "hf_canary")
    monkeypatch.setattr("time.sleep", returns(None))
    # The library writes in pieces of 10 MiB, more than the test's file has.
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 1 << 14)
    with serving(FakeHub(content=CONTENT)) as hub:
        yield hub


def test_pull_fetches_verifies_and_registers(
    registry: Registry, root: Path, hub: FakeHub, capfd: pytest.CaptureFixture[str]
) -> None:
    seen: list[tuple[int, int | None]] = []
    entry = pull(
        registry,
        request(),
        progress=lambda done, total: seen.append((done, total)),
        endpoint=hub.url,
    )
    assert Path(entry.path).read_bytes() == CONTENT
    assert Path(entry.path).parent == root / "models"
    assert stat.S_IMODE(Path(entry.path).stat().st_mode) == 0o600
    assert entry.source == f"somebody/tiny@{REVISION}/tiny.gguf"
    assert registry.verify("tiny") == entry
    assert seen[0] == (0, len(CONTENT))
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert [path.suffix for path in (root / "models").iterdir()] == [".gguf"]
    output = capfd.readouterr()
    assert (output.out, output.err) == ("", "")


def test_pull_sends_no_credentials(registry: Registry, hub: FakeHub) -> None:
    pull(registry, request(), endpoint=hub.url)
    assert hub.asked
    assert not any("authorization" in headers for _, _, headers in hub.asked)
    assert "canary" not in repr(hub.asked)


def test_an_interrupted_download_is_resumed(
    registry: Registry, root: Path, hub: FakeHub
) -> None:
    hub.break_after = 100_000
    # The library itself retries; the partial file is kept.
    with pytest.raises(ModelPullError, match="download failed"):
        _pull_once(registry, hub)
    (partial,) = (root / "models").iterdir()
    assert partial.suffix == ".partial"
    here = partial.stat().st_size
    assert 0 < here < len(CONTENT)
    assert registry.entries() == ()
    hub.break_after = None
    hub.asked.clear()
    pull(registry, request(), endpoint=hub.url)
    ranges = [h.get("range") for method, _, h in hub.asked if method == "GET"]
    assert ranges == [f"bytes={here}-"]
    assert registry.verify("tiny").size_bytes == len(CONTENT)


def _pull_once(registry: Registry, hub: FakeHub) -> None:
    def stop_at_third_try(_done: int, _total: int | None) -> None:
        if sum(method == "GET" for method, _, _ in hub.asked) >= 3:
            raise OSError("the network is gone")

    pull(registry, request(), progress=stop_at_third_try, endpoint=hub.url)


def test_a_download_restarts_if_the_server_supports_no_ranges(
    registry: Registry, root: Path, hub: FakeHub
) -> None:
    hub.ignore_ranges = True
    (root / "models").mkdir(parents=True)
    (root / "models" / f"{SHA256}.partial").write_bytes(b"GGUF and something else")
    pull(registry, request(), endpoint=hub.url)
    assert registry.verify("tiny").size_bytes == len(CONTENT)


def test_a_download_restarts_after_an_overlong_partial_file(
    registry: Registry, root: Path, hub: FakeHub
) -> None:
    (root / "models").mkdir(parents=True)
    (root / "models" / f"{SHA256}.partial").write_bytes(CONTENT + b"and more")
    pull(registry, request(), endpoint=hub.url)
    assert registry.verify("tiny").size_bytes == len(CONTENT)


def test_a_download_with_another_digest_is_deleted(
    registry: Registry, root: Path, hub: FakeHub
) -> None:
    hub.content = CONTENT[:-1] + b"x"
    with pytest.raises(ModelRegistryError, match="it was deleted"):
        pull(registry, request(), endpoint=hub.url)
    assert list((root / "models").iterdir()) == []
    assert registry.entries() == ()


def test_pull_refuses_a_damaged_partial_file(
    registry: Registry, root: Path, hub: FakeHub
) -> None:
    (root / "models").mkdir(parents=True)
    (root / "models" / f"{SHA256}.partial").write_bytes(b"rotten")
    with pytest.raises(ModelRegistryError, match="it was deleted"):
        pull(registry, request(), endpoint=hub.url)
    pull(registry, request(), endpoint=hub.url)


def test_pull_refuses_more_than_was_announced(registry: Registry, hub: FakeHub) -> None:
    hub.extra = b"x" * 100_000
    with pytest.raises(ModelPullError, match=TOO_MUCH):
        pull(registry, request(), endpoint=hub.url)
    assert registry.entries() == ()
    (partial,) = registry.folder.iterdir()
    assert partial.stat().st_size <= len(CONTENT)


def test_pull_refuses_another_revision(registry: Registry, hub: FakeHub) -> None:
    hub.revision = "f" * 40
    with pytest.raises(ModelPullError, match="another revision"):
        pull(registry, request(), endpoint=hub.url)


def test_pull_refuses_what_the_hub_does_not_have(
    registry: Registry, hub: FakeHub
) -> None:
    with pytest.raises(ModelPullError, match="download failed"):
        pull(registry, request(filename="other.gguf"), endpoint=hub.url)


def test_pull_says_that_the_hub_cannot_be_reached(registry: Registry) -> None:
    pytest.importorskip("huggingface_hub")
    with pytest.raises(ModelPullError, match="download failed"):
        pull(registry, request(), endpoint="http://127.0.0.1:9")


def test_pull_of_a_file_that_is_here_fetches_nothing(
    registry: Registry, hub: FakeHub
) -> None:
    pull(registry, request(), endpoint=hub.url)
    hub.asked.clear()
    pull(registry, request(), endpoint=hub.url)
    pull(registry, request(name="again"), endpoint=hub.url)
    assert hub.asked == []
    assert [entry.name for entry in registry.entries()] == ["again", "tiny"]


def test_second_pull_at_once_is_refused(registry: Registry, hub: FakeHub) -> None:
    refused: list[ModelArrivingError] = []

    def again(_done: int, _total: int | None) -> None:
        if not refused:
            with pytest.raises(ModelArrivingError, match="already") as refusal:
                pull(registry, request(name="other"), endpoint=hub.url)
            refused.append(refusal.value)

    pull(registry, request(), progress=again, endpoint=hub.url)
    assert len(refused) == 1


def test_pull_refuses_a_taken_name_before_it_fetches(
    registry: Registry, file: Path, hub: FakeHub
) -> None:
    registry.add("tiny", file, SHA256)
    with pytest.raises(ModelRegistryError, match="for another file"):
        pull(registry, request(sha256="00" * 32), endpoint=hub.url)
    assert hub.asked == []


@pytest.mark.parametrize(
    "changes",
    [
        {"revision": "main"},
        {"revision": REVISION[:-1]},
        {"revision": REVISION.upper()},
        {"sha256": ""},
        {"sha256": SHA256[:-1]},
        {"name": "../x"},
        {"name": "default"},
    ],
    ids=str,
)
def test_request_refuses_what_is_not_pinned(changes: dict[str, str]) -> None:
    with pytest.raises(ModelRegistryError):
        request(**changes)


def test_missing_extra_is_named(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ModelPullError, match="extra 'models'"):
        pull(registry, request())


def test_the_library_is_set_to_report_nothing_before_it_is_imported(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = values_at_import(
        monkeypatch, "huggingface_hub", "HF_HUB_DISABLE_TELEMETRY"
    )
    with pytest.raises(ModelPullError):
        pull(registry, request())
    assert values == ["1"]


def test_a_size_that_is_known_is_agreed_to_before_the_network_is_asked(
    registry: Registry, hub: FakeHub
) -> None:
    asked: list[int | None] = []

    def refuse(size: int | None) -> None:
        asked.append(size)
        raise ModelPullError("not now")

    known = replace(request(), size_bytes=len(CONTENT))
    with pytest.raises(ModelPullError, match="not now"):
        pull(registry, known, agree=refuse, endpoint=hub.url)
    assert (asked, hub.asked) == ([len(CONTENT)], [])


def test_a_size_that_is_not_known_is_agreed_to_before_the_file_is_fetched(
    registry: Registry, hub: FakeHub
) -> None:
    asked: list[int | None] = []

    def refuse(size: int | None) -> None:
        asked.append(size)
        raise ModelPullError("not now")

    with pytest.raises(ModelPullError, match="not now"):
        pull(registry, request(), agree=refuse, endpoint=hub.url)
    assert asked == [len(CONTENT)]
    assert {method for method, _, _ in hub.asked} == {"HEAD"}


def test_a_file_that_is_here_needs_no_agreement(
    registry: Registry, hub: FakeHub
) -> None:
    pull(registry, request(), endpoint=hub.url)
    asked: list[int | None] = []
    pull(registry, request(name="again"), agree=asked.append, endpoint=hub.url)
    assert asked == []


def test_another_size_than_was_agreed_to_is_refused(
    registry: Registry, hub: FakeHub
) -> None:
    known = replace(request(), size_bytes=len(CONTENT) - 1)
    with pytest.raises(ModelPullError, match="another size"):
        pull(registry, known, endpoint=hub.url)
    assert {method for method, _, _ in hub.asked} == {"HEAD"}


@pytest.mark.parametrize("size", [None, len(CONTENT)], ids=["unknown", "known"])
def test_no_room_is_said_before_the_file_is_fetched(
    registry: Registry,
    hub: FakeHub,
    monkeypatch: pytest.MonkeyPatch,
    size: int | None,
) -> None:
    monkeypatch.setattr(registry_module, "free_room", returns(len(CONTENT) - 1))
    with pytest.raises(NoRoomError):
        pull(registry, replace(request(), size_bytes=size), endpoint=hub.url)
    assert "GET" not in {method for method, _, _ in hub.asked}


def test_an_existing_file_needs_no_space(
    registry: Registry, hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.folder.mkdir(parents=True)
    (registry.folder / f"{SHA256}.partial").write_bytes(CONTENT[:100])
    monkeypatch.setattr(registry_module, "free_room", returns(len(CONTENT) - 100))
    assert pull(registry, request(), endpoint=hub.url).size_bytes == len(CONTENT)
