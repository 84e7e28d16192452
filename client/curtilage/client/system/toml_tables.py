"""The user's TOML files: read whole, with everything that is wrong in one error."""

import tomllib
from pathlib import Path
from typing import Any, cast

from curtilage.client.errors import ConfigError
from curtilage.client.system.files import read_text


def read_tree(path: Path, max_bytes: int) -> dict[str, Any]:
    """Read a TOML file.

    Raises:
        ConfigError: it cannot be read, or is not TOML.
    """
    try:
        return tomllib.loads(read_text(path, max_bytes))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: {error}") from None
    # The parser's own do not cover a long number, or deep nesting.
    except (ValueError, RecursionError):
        raise ConfigError(f"{path}: not TOML that can be read") from None


class Tables:
    """Takes values from tables; what is wrong with them is collected.

    Args:
        folder: of the file, which its paths start from.

    Attributes:
        problems: what is wrong.
        folder: as given.
    """

    def __init__(self, folder: Path) -> None:
        self.problems: list[str] = []
        self.folder = folder

    def table(self, tree: dict[str, Any], name: str) -> dict[str, Any]:
        """Take a table out of another; an empty one if there is none."""
        value: object = tree.pop(name, {})
        if isinstance(value, dict):
            return cast("dict[str, Any]", value)
        self.problems.append(f"{name} is not a table")
        return {}
