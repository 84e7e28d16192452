import subprocess
from pathlib import Path

import pytest

from curtilage.client.errors import ConfigError
from curtilage.client.files import folder_digest


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    path = tmp_path / "tree"
    (path / "b" / "c").mkdir(parents=True)
    (path / "b.txt").write_bytes(b"one")
    (path / "b" / "c" / "é.bin").write_bytes(b"two")
    (path / "B").write_bytes(b"")
    return path


def test_digest_is_what_the_documented_command_prints(tree: Path) -> None:
    command = (
        "find . -type f -printf '%P\\0' | LC_ALL=C sort -z | "
        "xargs -0 sha256sum | sha256sum"
    )
    assert command.replace(" | xargs", " |\n            xargs") in str(
        folder_digest.__doc__
    )
    done = subprocess.run(
        ["/bin/sh", "-c", command], cwd=tree, check=True, capture_output=True
    )
    assert done.stdout.decode().split()[0] == folder_digest(tree)


@pytest.mark.parametrize("change", ["content", "name", "more", "fewer"])
def test_digest_changes_with_the_folder(tree: Path, change: str) -> None:
    before = folder_digest(tree)
    if change == "content":
        (tree / "B").write_bytes(b"x")
    elif change == "name":
        (tree / "B").rename(tree / "C")
    elif change == "more":
        (tree / "b" / "new").write_bytes(b"")
    else:
        (tree / "B").unlink()
    assert folder_digest(tree) != before


def test_digest_refuses_links(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").write_bytes(b"x")
    (tree / "link").symlink_to(tmp_path / "outside")
    with pytest.raises(ConfigError, match="link"):
        folder_digest(tree)
