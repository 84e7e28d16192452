"""Finds the engine's wheel that ``make setup`` compiled.

pip records the file, and its digest, from which it installed a distribution (PEP 610);
that very file is put into the image, or the build stops.
"""

import hashlib
import json
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final, TypedDict, cast
from urllib.parse import unquote, urlsplit

from deploy.image.errors import MismatchError, MissingError

DISTRIBUTION: Final = "llama-cpp-python"


class _ArchiveInfo(TypedDict):
    hashes: dict[str, str]


class _Stated(TypedDict):
    url: str
    archive_info: _ArchiveInfo


def find_engine() -> Path:
    """Return the wheel's path.

    Raises:
        MissingError: it was not installed, or is no longer there.
        MismatchError: the file has changed.
    """
    try:
        text = distribution(DISTRIBUTION).read_text("direct_url.json")
    except PackageNotFoundError:
        text = None
    if text is None:
        raise MissingError("the engine is not installed: run `make setup`")
    stated = cast("_Stated", json.loads(text))
    path = Path(unquote(urlsplit(stated["url"]).path))
    if not path.is_file():
        raise MissingError("the engine's wheel is gone: remove .venv, `make setup`")
    wanted = stated["archive_info"]["hashes"]["sha256"]
    if hashlib.sha256(path.read_bytes()).hexdigest() != wanted:
        raise MismatchError("the engine's wheel is not the one that was installed")
    return path
