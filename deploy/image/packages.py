"""The lock file of Debian packages (version and SHA-256), and fetching the packages.

The apt client fetches, in its own folders, from the mirrors that this machine's apt
uses; no mirror is named here. apt checks the archive's signatures, this module the
lock's digests. An old version is removed from the mirrors when a newer one appears:
then ``--sources`` names a file with an archive of old versions.
"""

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from deploy.image.errors import FormatError, MismatchError, MissingError

KEYRING: Final = "/usr/share/keyrings/debian-archive-keyring.gpg"
SUITES: Final = ("bookworm", "bookworm-security", "trixie", "trixie-security", "forky")
SECURITY: Final = "-security"
ARCHITECTURE: Final = "amd64"


class Use(StrEnum):
    """The purpose of a package.

    Those for the root are part of the measured image and of every container; the
    authorities' certificates are part of the containers only.
    """

    ROOT = "root"
    AUTHORITIES = "authorities"
    KERNEL = "kernel"
    FIRMWARE = "firmware"
    TOOL = "tool"


# The contents of the image. Python 3.11 is the version that the tests run on. The
# kernel, and the stub and ukify of one systemd, are of Debian 13: Debian 12's kernel
# has no SEV_GUEST and no TSM, and its stub hangs on kernels of this size. Only the
# release after Debian 13 builds a firmware with the section for SNP kernel hashes.
WANTED: Final[Mapping[Use, Mapping[str, tuple[str, ...]]]] = {
    Use.ROOT: {
        "bookworm": (
            "libbz2-1.0",
            "libc6",
            "libcrypt1",
            "libexpat1",
            "libffi8",
            "libgcc-s1",
            "libgomp1",
            "liblzma5",
            "libpython3.11-minimal",
            "libpython3.11-stdlib",
            "libsqlite3-0",
            "libssl3",
            "libstdc++6",
            "libuuid1",
            "python3.11-minimal",
            "zlib1g",
        )
    },
    Use.AUTHORITIES: {"bookworm": ("ca-certificates",)},
    Use.KERNEL: {"trixie": ("linux-image-cloud-amd64",)},
    Use.FIRMWARE: {"forky": ("ovmf-amdsev",)},
    Use.TOOL: {
        "bookworm": ("liblz4-1", "zstd"),
        "trixie": ("python3-pefile", "systemd-boot-efi", "systemd-ukify"),
    },
}

_LINE: Final = re.compile(
    r"^(?P<use>[a-z]+) (?P<name>[a-z0-9][a-z0-9.+-]+) (?P<version>[0-9A-Za-z.+~:-]+)"
    r" (?P<sha256>[0-9a-f]{64})$"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """One line of the lock file."""

    use: Use
    name: str
    version: str
    sha256: str

    def line(self) -> str:
        """Return the package's line in the file."""
        return f"{self.use.value} {self.name} {self.version} {self.sha256}"


def parse_lock(text: str) -> tuple[Package, ...]:
    """Read a lock file: one package per line, sorted, unique; # begins a comment.

    Raises:
        FormatError: an invalid line, a duplicate, or lines out of order.
    """
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    if lines != sorted(set(lines)) or not text.endswith("\n"):
        raise FormatError("the lock file's lines must be sorted, each once")
    packages = tuple(_parse_line(line) for line in lines)
    names = [(package.use, package.name) for package in packages]
    if len(set(names)) != len(names):
        raise FormatError("the lock file names a package twice")
    if missing := sorted(set(Use) - {package.use for package in packages}):
        raise FormatError(f"the lock file has no package for: {', '.join(missing)}")
    return packages


def _parse_line(line: str) -> Package:
    found = _LINE.match(line)
    if found is None or found["use"] not in set(Use):
        raise FormatError("a line of the lock file is not USE NAME VERSION SHA256")
    return Package(
        use=Use(found["use"]),
        name=found["name"],
        version=found["version"],
        sha256=found["sha256"],
    )


def fetch_packages(
    packages: Sequence[Package], folder: Path, *, sources: str
) -> Mapping[Package, Path]:
    """Return the file of each package, downloading missing ones.

    Args:
        packages: to be fetched.
        folder: the cache; files are named by their digest.
        sources: lines for apt.

    Raises:
        MissingError: apt is missing or no longer has a version.
        MismatchError: a downloaded file differs from the lock.
    """
    folder.mkdir(parents=True, exist_ok=True)
    places = {each: folder / f"{each.sha256}.deb" for each in packages}
    missing = [each for each, path in places.items() if not path.is_file()]
    if missing:
        _download(missing, folder, sources)
    for package, path in places.items():
        if hashlib.sha256(path.read_bytes()).hexdigest() != package.sha256:
            raise MismatchError(f"{package.name}: not as locked; remove {path}")
    return places


def _download(missing: Sequence[Package], folder: Path, sources: str) -> None:
    apt = PrivateApt(folder / "apt", sources)
    apt.update()
    incoming = folder / "incoming"
    shutil.rmtree(incoming, ignore_errors=True)
    incoming.mkdir()
    apt.download([f"{each.name}={each.version}" for each in missing], incoming)
    brought = {
        hashlib.sha256(path.read_bytes()).hexdigest(): path
        for path in incoming.glob("*.deb")
    }
    for each in missing:
        if each.sha256 not in brought:
            raise MismatchError(
                f"{each.name} {each.version}: apt downloaded a file that differs from"
                f" the lock file"
            )
        brought[each.sha256].rename(folder / f"{each.sha256}.deb")
    shutil.rmtree(incoming)


class PrivateApt:
    """The apt client with its own lists, cache and sources; needs no root."""

    def __init__(self, folder: Path, sources: str) -> None:
        if shutil.which("apt-get") is None:
            raise MissingError(
                "apt-get is missing: the image is made of Debian packages; build on"
                " Debian or Ubuntu, or in a container of either"
            )
        (folder / "lists" / "partial").mkdir(parents=True, exist_ok=True)
        (folder / "archives" / "partial").mkdir(parents=True, exist_ok=True)
        (folder / "sources.list").write_text(sources, "utf-8")
        (folder / "status").touch()
        self._options = [
            f"-oDir::Etc::sourcelist={folder / 'sources.list'}",
            "-oDir::Etc::sourceparts=-",
            "-oDir::Etc::preferences=-",
            "-oDir::Etc::preferencesparts=-",
            f"-oDir::State={folder}",
            f"-oDir::State::lists={folder / 'lists'}",
            f"-oDir::State::status={folder / 'status'}",
            f"-oDir::Cache={folder}",
            f"-oAPT::Architecture={ARCHITECTURE}",
            "-oAPT::Architectures::=" + ARCHITECTURE,
            "-oAcquire::Languages=none",
            "-oAPT::Sandbox::User=",
            "-q",
        ]

    def update(self) -> None:
        """Fetch and check the lists."""
        self._run(["apt-get", "update", "--error-on=any"])

    def download(self, names: Sequence[str], folder: Path) -> None:
        """Download packages, ``NAME=VERSION`` each, into a folder."""
        self._run(["apt-get", "download", *names], folder)

    def newest(self, names: Sequence[str], suite: str) -> list[Mapping[str, str]]:
        """Return the fields of each package's newest version in a suite.

        The security suite of the same release counts as part of it.

        Raises:
            MissingError: the suite has none of that name.
        """
        shown = self._run(["apt-cache", "policy", *names])
        versions = newest_in(shown, suite)
        if missing := [name for name in names if name not in versions]:
            raise MissingError(f"{suite} has no package {missing[0]}")
        exact = [f"{name}={versions[name]}" for name in names]
        text = self._run(["apt-cache", "show", "--no-all-versions", *exact])
        return [_fields(part) for part in text.strip().split("\n\n")]

    def _run(self, command: list[str], folder: Path | None = None) -> str:
        environment = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C"}
        environment |= {k: v for k, v in os.environ.items() if k.endswith("_proxy")}
        done = subprocess.run(  # noqa: S603 - every argument is ours
            [command[0], *self._options, *command[1:]],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            env=environment,
        )
        if done.returncode != 0:
            raise MissingError(
                f"{command[0]} {command[1]} failed. A version that the mirror no"
                " longer has needs --sources with an archive of old versions, or"
                " `python -m deploy.image lock` for the versions of today.\n"
                + done.stderr[-800:]
            )
        return done.stdout


def host_sources() -> str:
    """Return sources for every suite, from the mirrors that this machine's apt uses.

    Raises:
        MissingError: apt is missing, or names no Debian mirror.
    """
    form = "$(ORIGIN)|$(REPO_URI)|$(RELEASE)"
    command = ["apt-get", "indextargets", "--format", form, "Created-By: Packages"]
    try:
        shown = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
    except (OSError, subprocess.CalledProcessError):
        raise MissingError(
            "apt-get is missing, or has no lists: apt-get update"
        ) from None
    mirrors = mirrors_of(shown.stdout)
    return sources_for(mirrors)


def mirrors_of(shown: str) -> tuple[str, str]:
    """Return the archive's and the security archive's address.

    Raises:
        MissingError: one of them is not among the lines.
    """
    rows = [line.split("|") for line in shown.splitlines() if line.count("|") == 2]  # noqa: PLR2004
    debian = [(uri, suite) for origin, uri, suite in rows if origin == "Debian"]
    plain = [uri for uri, suite in debian if SECURITY not in suite]
    security = [uri for uri, suite in debian if suite.endswith(SECURITY)]
    if not plain or not security:
        raise MissingError(
            "this machine's apt names no Debian mirror: give --sources FILE with lines"
            f" for {', '.join(SUITES)}"
        )
    return plain[0], security[0]


def sources_for(mirrors: tuple[str, str]) -> str:
    """Write one line of apt sources for each suite."""
    plain, security = mirrors
    return "".join(
        f"deb [signed-by={KEYRING}] {security if SECURITY in suite else plain}"
        f" {suite} main\n"
        for suite in SUITES
    )


def resolve(apt: PrivateApt) -> tuple[Package, ...]:
    """Ask apt for the newest version of everything in ``WANTED``."""
    found: list[Package] = []
    for use, suites in WANTED.items():
        for suite, names in suites.items():
            fields = apt.newest(names, suite)
            if use is Use.KERNEL:  # the name is a metapackage for the newest kernel
                fields = apt.newest([_kernel_of(each) for each in fields], suite)
            found += [
                Package(
                    use=use,
                    name=each["Package"],
                    version=each["Version"],
                    sha256=each["SHA256"],
                )
                for each in fields
            ]
    return tuple(sorted(found, key=Package.line))


def _kernel_of(fields: Mapping[str, str]) -> str:
    found = re.search(r"linux-image-[0-9][^ ,]*", fields.get("Depends", ""))
    if found is None:
        raise MissingError("the kernel's package names no kernel")
    return found[0]


def _fields(text: str) -> Mapping[str, str]:
    pairs = [line.split(": ", 1) for line in text.splitlines() if ": " in line]
    return {pair[0]: pair[1] for pair in pairs if not pair[0].startswith(" ")}


def newest_in(shown: str, suite: str) -> Mapping[str, str]:
    """Read the newest version in a release from the output of ``apt-cache policy``.

    apt lists versions from the newest to the oldest, each with its sources.
    """
    newest: dict[str, str] = {}
    name = version = ""
    for line in shown.splitlines():
        words = line.replace("***", " ").split()
        if line.endswith(":") and not line.startswith(" "):
            name = line.removesuffix(":")
        elif len(words) == 2 and words[1].lstrip("-").isdigit():  # noqa: PLR2004
            version = words[0]
        elif any(word.split("/")[0] in {suite, suite + SECURITY} for word in words[2:]):
            newest.setdefault(name, version)
    return newest
