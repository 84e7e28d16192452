"""Putting a model together: whole or not at all."""

import errno
import fcntl
import hashlib
import os
import stat
from collections.abc import Sequence
from itertools import permutations
from pathlib import Path

import pytest

from curtilage.client.local.registry import store as registry_module
from curtilage.client.local.registry.join import (
    TWICE,
    PartsError,
    in_order,
    put_together,
)
from curtilage.client.local.registry.store import (
    ModelArrivingError,
    ModelEntry,
    ModelRegistryError,
    NoRoomError,
    Registry,
)
from support.fakes import returns

# Longer than a piece that is copied at once, and no two parts alike.
CONTENT = b"GGUF" + bytes(range(251)) * 20_000
SHA256 = hashlib.sha256(CONTENT).hexdigest()
CUTS = (0, 1_200_000, 1_200_004, 4_000_000, len(CONTENT))


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(tmp_path / "data")


def cut(folder: Path, names: Sequence[str]) -> list[Path]:
    for at, name in enumerate(names):
        (folder / name).write_bytes(CONTENT[CUTS[at] : CUTS[at + 1]])
    return [folder / name for name in names]


def join(registry: Registry, parts: Sequence[Path], **changes: str) -> ModelEntry:
    name, digest = changes.get("name", "whole"), changes.get("sha256", SHA256)
    return put_together(registry, name, parts, sha256=digest, progress=returns(None))


def left(registry: Registry) -> list[str]:
    if not registry.folder.exists():
        return []
    return sorted(path.suffix for path in registry.folder.iterdir())


def test_parts_become_one_registered_file(tmp_path: Path, registry: Registry) -> None:
    parts = cut(tmp_path, [f"part{at}.bin" for at in range(1, 5)])
    reported: list[tuple[int, int | None]] = []
    entry = put_together(
        registry,
        "whole",
        parts,
        sha256=SHA256.upper(),
        size_bytes=len(CONTENT),
        progress=lambda done, total: reported.append((done, total)),
    )
    assert Path(entry.path).read_bytes() == CONTENT
    assert stat.S_IMODE(Path(entry.path).stat().st_mode) == 0o600
    assert registry.verify("whole") == entry
    assert entry.source.endswith(" 4 parts")
    assert reported[-1] == (len(CONTENT), len(CONTENT))
    assert left(registry) == [".gguf"]
    assert all(part.exists() for part in parts)


def test_a_whole_file_is_one_part(tmp_path: Path, registry: Registry) -> None:
    whole = tmp_path / "model-1.5b.gguf"
    whole.write_bytes(CONTENT)
    assert join(registry, [whole]).size_bytes == len(CONTENT)


def test_numbers_put_a_shells_order_right(tmp_path: Path, registry: Registry) -> None:
    parts = cut(tmp_path, ["m2.p0", "m2.p1", "m2.p2", "m2.p3"])
    for path in parts:
        path.rename(path.with_name(path.name.replace("p", "p0")))
    mixed = [parts[at].with_name(f"m2.p0{at}") for at in (3, 0, 2, 1)]
    assert join(registry, mixed).sha256 == SHA256


def test_two_comes_before_ten() -> None:
    found = in_order(
        [Path(f"x-{at}-of-12.bin") for at in (1, 10, 11, 12, *range(2, 10))]
    )
    assert [path.name for path in found] == [f"x-{at}-of-12.bin" for at in range(1, 13)]


@pytest.mark.parametrize(
    "names",
    [
        ["x.aa", "x.ab", "x.b"],
        ["x1.y2", "x2.y1"],
        ["m-0-of-9", "m-9-of-18", "m-18-of-20"],
        ["d2/model", "d10/model"],
        ["z/part1", "a/part2", "y/part3"],
        ["part1", "part1b", "part2"],
    ],
    ids=str,
)
def test_names_say_the_order_however_parts_are_given(names: list[str]) -> None:
    wanted = tuple(map(Path, names))
    for given in permutations(wanted):
        assert in_order(given) == wanted


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ((2, 3), "part 1 is missing"),
        ((1, 2, 4), "part 3 is missing"),
        ((0, 2), "part 1 is missing"),
        ((1,), None),
    ],
    ids=str,
)
def test_missing_numbers_are_named(numbers: tuple[int, ...], said: str | None) -> None:
    parts = [Path(f"part{at:02}.bin") for at in numbers]
    if said is None:
        assert in_order(parts) == tuple(parts)
        return
    with pytest.raises(PartsError, match=said):
        in_order(parts)


def test_a_number_twice_is_named() -> None:
    with pytest.raises(PartsError, match=f"part 1 {TWICE}"):
        in_order([Path("part1"), Path("part01"), Path("part2")])


def test_a_part_twice_under_two_names_is_refused(
    tmp_path: Path, registry: Registry
) -> None:
    parts = cut(tmp_path, ["xa", "xb", "xc", "xd"])
    (tmp_path / "xe").hardlink_to(parts[3])
    with pytest.raises(PartsError, match=TWICE):
        join(registry, [*parts, tmp_path / "xe"])
    assert left(registry) == []


def test_no_parts_are_refused(registry: Registry) -> None:
    with pytest.raises(PartsError, match="no parts"):
        join(registry, [])


@pytest.mark.parametrize("missing", range(1, 4))
def test_a_size_that_is_not_the_wholes_is_refused_before_anything_is_written(
    tmp_path: Path, registry: Registry, missing: int
) -> None:
    parts = cut(tmp_path, ["xa", "xb", "xc", "xd"])
    del parts[missing]
    with pytest.raises(PartsError, match="a part is missing"):
        put_together(
            registry,
            "whole",
            parts,
            sha256=SHA256,
            size_bytes=len(CONTENT),
            progress=returns(None),
        )
    assert left(registry) == []


def test_another_beginning_is_refused(tmp_path: Path, registry: Registry) -> None:
    parts = cut(tmp_path, ["xb", "xa", "xc", "xd"])
    with pytest.raises(PartsError, match=r"\bxa\b.* GGUF "):
        join(registry, parts)
    assert left(registry) == []


def test_letters_put_a_given_order_right(tmp_path: Path, registry: Registry) -> None:
    parts = cut(tmp_path, ["xaa", "xab", "xac", "xad"])
    assert join(registry, [parts[at] for at in (2, 0, 3, 1)]).sha256 == SHA256


def test_names_in_another_order_are_another_digest(
    tmp_path: Path, registry: Registry
) -> None:
    parts = cut(tmp_path, ["xa", "xc", "xb", "xd"])
    with pytest.raises(PartsError) as refused:
        join(registry, parts)
    said = str(refused.value)
    assert " 4 parts " in said
    assert " from xa to xd: " in said
    assert left(registry) == []
    assert registry.entries() == ()


def test_a_changed_part_is_another_digest(tmp_path: Path, registry: Registry) -> None:
    parts = cut(tmp_path, ["xa", "xb", "xc", "xd"])
    parts[2].write_bytes(parts[2].read_bytes()[:-1] + b"\0")
    with pytest.raises(ModelRegistryError, match=f"not {SHA256}"):
        join(registry, parts)
    assert left(registry) == []


def test_an_unreadable_part_is_named(tmp_path: Path, registry: Registry) -> None:
    parts = cut(tmp_path, ["xa", "xb", "xc", "xd"])
    os.mkfifo(tmp_path / "pipe")
    for bad in (tmp_path / "none", tmp_path / "pipe", tmp_path):
        with pytest.raises(PartsError, match=str(bad)):
            join(registry, [*parts, bad])
    assert left(registry) == []


def test_no_room_is_said_before_anything_is_written(
    tmp_path: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = cut(tmp_path, ["xa", "xb", "xc", "xd"])
    monkeypatch.setattr(registry_module, "free_room", returns(len(CONTENT) - 1))
    with pytest.raises(NoRoomError, match=" 4 MiB"):
        join(registry, parts)
    (partial,) = registry.folder.iterdir()
    assert partial.stat().st_size == 0
    monkeypatch.setattr(registry_module, "free_room", returns(None))
    assert join(registry, parts).sha256 == SHA256


def test_a_full_disk_causes_no_traceback(tmp_path: Path, registry: Registry) -> None:
    parts = cut(tmp_path, ["xa", "xb", "xc", "xd"])

    def full(done: int, _total: int | None) -> None:
        if done > CUTS[1]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(PartsError, match=f"models: {os.strerror(errno.ENOSPC)}"):
        put_together(registry, "whole", parts, sha256=SHA256, progress=full)
    assert registry.entries() == ()
    # What broke off begins anew.
    assert join(registry, parts).size_bytes == len(CONTENT)
    assert left(registry) == [".gguf"]


def test_a_partial_file_of_another_program_is_not_continued(
    tmp_path: Path, registry: Registry
) -> None:
    parts = cut(tmp_path, ["xa", "xb", "xc", "xd"])
    registry.folder.mkdir(parents=True)
    (registry.folder / f"{SHA256}.partial").write_bytes(CONTENT + b"and more")
    assert join(registry, parts).size_bytes == len(CONTENT)


def test_two_at_once_are_refused(tmp_path: Path, registry: Registry) -> None:
    parts = cut(tmp_path, ["xa", "xb", "xc", "xd"])
    registry.folder.mkdir(parents=True)
    with (registry.folder / f"{SHA256}.partial").open("wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(ModelArrivingError, match="already"):
            join(registry, parts)


def test_a_file_that_is_here_is_only_named(tmp_path: Path, registry: Registry) -> None:
    parts = cut(tmp_path, ["xa", "xb", "xc", "xd"])
    join(registry, parts)
    join(registry, parts, name="again")
    assert [entry.name for entry in registry.entries()] == ["again", "whole"]
    assert left(registry) == [".gguf"]


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "../evil"},
        {"name": "a/b"},
        {"name": "default"},
        {"name": ""},
        {"sha256": "../../" + "0" * 58},
        {"sha256": SHA256[:-1]},
        {"sha256": ""},
    ],
    ids=str,
)
def test_a_name_or_digest_is_not_a_path(
    tmp_path: Path, registry: Registry, changes: dict[str, str]
) -> None:
    parts = cut(tmp_path, ["xa", "xb", "xc", "xd"])
    before = set(tmp_path.rglob("*"))
    with pytest.raises(ModelRegistryError):
        join(registry, parts, **changes)
    assert set(tmp_path.rglob("*")) == before


def test_a_taken_name_is_refused_before_anything_is_written(
    tmp_path: Path, registry: Registry
) -> None:
    parts = cut(tmp_path, ["xa", "xb", "xc", "xd"])
    other = tmp_path / "other.gguf"
    other.write_bytes(b"GGUF")
    registry.add("whole", other, hashlib.sha256(b"GGUF").hexdigest())
    with pytest.raises(ModelRegistryError, match="for another file"):
        join(registry, parts)
    assert left(registry) == []
