import hashlib
import json
import os
import re
import stat
import threading
from pathlib import Path

import pytest

from curtilage.client.local.registry.store import (
    NONE_REGISTERED,
    ModelEntry,
    ModelRegistryError,
    Registry,
)
from curtilage.client.system.files import NOT_ORDINARY

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


def test_empty_registry_holds_nothing(registry: Registry, root: Path) -> None:
    assert registry.entries() == ()
    assert not root.exists()


def test_added_model_is_listed_and_verifies(registry: Registry, file: Path) -> None:
    entry = registry.add("tiny", file, SHA256.upper())
    assert entry == ModelEntry(
        name="tiny", path=str(file), sha256=SHA256, size_bytes=len(CONTENT)
    )
    assert registry.entries() == (entry,)
    assert registry.verify("tiny") == registry.get("tiny") == entry


def test_registry_is_for_its_owner_alone(
    registry: Registry, root: Path, file: Path
) -> None:
    registry.add("tiny", file, SHA256)
    assert stat.S_IMODE((root / "models.json").stat().st_mode) == 0o600
    assert stat.S_IMODE(root.stat().st_mode) == 0o700


def test_entries_are_sorted_and_replaced(registry: Registry, file: Path) -> None:
    for name in ("b", "a", "b"):
        registry.add(name, file, SHA256)
    assert [entry.name for entry in registry.entries()] == ["a", "b"]


def test_name_is_not_given_to_another_file(
    registry: Registry, file: Path, tmp_path: Path
) -> None:
    registry.add("tiny", file, SHA256)
    other = tmp_path / "other.gguf"
    other.write_bytes(b"GGUF")
    with pytest.raises(ModelRegistryError, match="for another file"):
        registry.add("tiny", other, hashlib.sha256(b"GGUF").hexdigest())
    assert registry.get("tiny").sha256 == SHA256


@pytest.mark.parametrize(
    ("name", "digest"),
    [
        ("tiny", "00" * 32),
        ("tiny", "00"),
        ("tiny", ""),
        ("../tiny", SHA256),
        ("Tiny", SHA256),
        ("", SHA256),
        ("x" * 65, SHA256),
        ("default", SHA256),
    ],
)
def test_add_refuses_a_wrong_name_or_digest(
    registry: Registry, file: Path, name: str, digest: str
) -> None:
    with pytest.raises(ModelRegistryError):
        registry.add(name, file, digest)
    assert registry.entries() == ()


def test_add_refuses_a_missing_file(registry: Registry, tmp_path: Path) -> None:
    with pytest.raises(ModelRegistryError, match="No such file"):
        registry.add("tiny", tmp_path / "none.gguf", SHA256)


@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "link to a pipe"])
def test_a_special_file_is_refused_at_once(
    registry: Registry, tmp_path: Path, kind: str
) -> None:
    pipe, link, folder = (tmp_path / each for each in ("pipe", "link", "folder"))
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    folder.mkdir()
    path = {"pipe": pipe, "device": Path("/dev/zero"), "folder": folder}.get(kind, link)
    # A pipe would be waited for without end, and a device read without end.
    with pytest.raises(ModelRegistryError, match=re.escape(NOT_ORDINARY)):
        registry.add("tiny", path, sha256="0" * 64)
    assert list(registry.entries()) == []


def test_a_file_that_became_a_pipe_is_refused_at_once(
    registry: Registry, file: Path
) -> None:
    registry.add("tiny", file, SHA256)
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(ModelRegistryError, match=re.escape(NOT_ORDINARY)):
        registry.verify("tiny")


def test_verify_finds_a_changed_file(registry: Registry, file: Path) -> None:
    registry.add("tiny", file, SHA256)
    file.write_bytes(CONTENT[:-1] + b"x")
    with pytest.raises(ModelRegistryError, match="has SHA-256"):
        registry.verify("tiny")
    file.unlink()
    with pytest.raises(ModelRegistryError, match="No such file"):
        registry.verify("tiny")


def test_verify_finds_a_wrong_size(registry: Registry, root: Path, file: Path) -> None:
    registry.add("tiny", file, SHA256)
    path = root / "models.json"
    path.write_text(path.read_text().replace(str(len(CONTENT)), "5"))
    with pytest.raises(ModelRegistryError, match="wrong size"):
        registry.verify("tiny")


# Adapters.

BASE = "ab" * 32


def test_an_adapter_keeps_what_it_was_made_for(registry: Registry, file: Path) -> None:
    entry = registry.add("tuned", file, SHA256, base=BASE.upper())
    assert entry.base == BASE
    assert registry.entries() == (entry,)
    assert registry.verify("tuned") == entry
    with pytest.raises(ModelRegistryError, match="for another file"):
        registry.add("tuned", file, SHA256)


def test_a_file_is_found_by_its_digest(registry: Registry, file: Path) -> None:
    adapter = registry.add("tuned", file, SHA256, base=BASE)
    assert registry.find(SHA256) is None
    model = registry.add("tiny", file, SHA256)
    assert registry.find(SHA256) == model
    assert registry.find(SHA256, base=BASE) == adapter
    assert registry.find(BASE) is None


def test_an_adapter_with_an_invalid_base_is_refused(
    registry: Registry, file: Path
) -> None:
    with pytest.raises(ModelRegistryError, match="64 hex digits"):
        registry.add("tuned", file, SHA256, base="tiny")
    assert registry.entries() == ()


def test_models_without_adapter_keep_their_format(
    registry: Registry, root: Path, file: Path
) -> None:
    registry.add("tiny", file, SHA256)
    (written,) = json.loads((root / "models.json").read_text())["models"]
    assert written.keys() == entry_object().keys()


def test_unknown_name_is_refused(registry: Registry, file: Path) -> None:
    registry.add("other", file, SHA256)
    with pytest.raises(ModelRegistryError, match=f"{NONE_REGISTERED} 'tiny'"):
        registry.get("tiny")


def entry_object(**changes: object) -> dict[str, object]:
    entry: dict[str, object] = {
        "name": "tiny",
        "path": "/tiny.gguf",
        "sha256": SHA256,
        "size_bytes": 4,
        "source": "",
    }
    return entry | changes


DAMAGED: list[object] = [
    [],
    None,
    {},
    {"version": 2, "models": []},
    {"version": 1, "models": 5},
    {"version": 1, "models": [5]},
    {"version": 1, "models": [{}]},
    {"version": 1, "models": [entry_object(name=5)]},
    {"version": 1, "models": [entry_object(name="../x")]},
    {"version": 1, "models": [entry_object(sha256="00")]},
    {"version": 1, "models": [entry_object(size_bytes="4")]},
    {"version": 1, "models": [entry_object(more="x")]},
    {"version": 1, "models": [entry_object(base="")]},
    {"version": 1, "models": [entry_object(base="00")]},
    {"version": 1, "models": [entry_object(base=5)]},
]


@pytest.mark.parametrize("document", DAMAGED, ids=str)
def test_damaged_registry_is_refused(
    registry: Registry, root: Path, document: object
) -> None:
    root.mkdir()
    (root / "models.json").write_text(json.dumps(document))
    with pytest.raises(ModelRegistryError):
        registry.entries()


@pytest.mark.parametrize("data", [b"{", b"\xff", b" " * ((1 << 20) + 1), b"[" * 99999])
def test_unreadable_registry_is_refused(
    registry: Registry, root: Path, data: bytes
) -> None:
    root.mkdir()
    (root / "models.json").write_bytes(data)
    with pytest.raises(ModelRegistryError):
        registry.entries()


def test_a_failed_write_does_not_change_the_registry(
    registry: Registry, root: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.add("tiny", file, SHA256)
    before = (root / "models.json").read_bytes()

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("curtilage.client.system.files.os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        registry.add("other", file, SHA256)
    assert (root / "models.json").read_bytes() == before
    assert sorted(path.name for path in root.iterdir()) == [
        "models.json",
        "models.lock",
    ]


def test_writers_at_once_lose_nothing(root: Path, file: Path) -> None:
    def add(number: int) -> None:
        Registry(root).add(f"m{number}", file, SHA256)

    threads = [threading.Thread(target=add, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(Registry(root).entries()) == 8
