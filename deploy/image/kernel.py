"""Extracts the kernel, and the few modules that the guest loads, from its package."""

import lzma
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deploy.image.debs import read_package
from deploy.image.errors import FormatError

_DEPENDS: Final = re.compile(rb"(?:^|\0)depends=([^\0]*)\0")
_MODULE: Final = re.compile(r"/([^/]+)\.ko(\.xz)?$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """The contents of a kernel's package.

    Attributes:
        image: the kernel itself.
        release: as in ``uname -r``.
        packed: each module, as in the package, by name.
        built_in: modules that are part of the kernel.
    """

    image: bytes
    release: str
    packed: Mapping[str, bytes]
    built_in: frozenset[str]

    def modules(self, names: Iterable[str]) -> list[tuple[str, bytes]]:
        """Return these modules and their dependencies, in the order of loading.

        They keep their signatures, which the locked-down kernel requires.

        Raises:
            FormatError: one is neither a module nor built in.
        """
        ordered: dict[str, bytes] = {}
        for name in names:
            self._add(normal(name), ordered)
        return list(ordered.items())

    def _add(self, name: str, ordered: dict[str, bytes]) -> None:
        if name in ordered or name in self.built_in:
            return
        if name not in self.packed:
            raise FormatError(f"the kernel has no module {name}")
        content = unpack(self.packed[name])
        for needed in depends(content):
            self._add(needed, ordered)
        ordered[name] = content


def read_kernel(package: Path) -> Kernel:
    """Read a kernel's Debian package.

    Raises:
        FormatError: it contains no kernel, or more than one.
    """
    images: dict[str, bytes] = {}
    packed: dict[str, bytes] = {}
    built_in: frozenset[str] = frozenset()
    for member, content in read_package(package):
        path = member.name
        if path.startswith("./boot/vmlinuz-"):
            images[path.removeprefix("./boot/vmlinuz-")] = content
        elif path.endswith("/modules.builtin"):
            lines = content.decode().splitlines()
            listed = (_MODULE.search(line) for line in lines)
            built_in = frozenset(normal(name[1]) for name in listed if name)
        elif (found := _MODULE.search(path)) is not None:
            packed[normal(found[1])] = content
    if len(images) != 1:
        raise FormatError(f"{package.name}: {len(images)} kernels")
    release, image = images.popitem()
    return Kernel(image=image, release=release, packed=packed, built_in=built_in)


def depends(module: bytes) -> list[str]:
    """Return a module's dependencies (from its ``.modinfo``).

    Raises:
        FormatError: it has none of that section, so it is not a module.
    """
    found = _DEPENDS.search(module)
    if found is None:
        raise FormatError("a kernel module without modinfo")
    return [normal(name) for name in found[1].decode("ascii").split(",") if name]


def normal(name: str) -> str:
    """Return a module's name in the form that the kernel compares."""
    return name.replace("-", "_")


def unpack(content: bytes) -> bytes:
    """Unpack a module; the guest has no program for that.

    Raises:
        FormatError: not xz.
    """
    try:
        return lzma.decompress(content, format=lzma.FORMAT_XZ)
    except lzma.LZMAError:
        raise FormatError("a kernel module that is not packed with xz") from None
