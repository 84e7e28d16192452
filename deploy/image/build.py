"""Builds the image: inputs, root, archive, unified kernel image, measurements.

Every step reports what it does and how long it took. Nothing of the machine affects the
result: not its clock, its users, its paths, its locale or its tools' versions, except
    for the engine's wheel, which is an input and named in ``image.json``.
"""

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deploy.image.cpio import write_cpio
from deploy.image.debs import find_in_package
from deploy.image.errors import ImageError, MissingError
from deploy.image.kernel import read_kernel
from deploy.image.launch import Boot, Processors, launch_digests
from deploy.image.options import EMBEDDED, ROOT, Options
from deploy.image.packages import Package, Use, fetch_packages, parse_lock
from deploy.image.pcr11 import predict_pcr11
from deploy.image.rootfs import Inputs, emulated_registers, make_root, os_release
from deploy.image.tools import Tools, UKIParts
from deploy.image.wheels import fetch_wheels

LOCK: Final = Path(__file__).resolve().parent / "packages.lock"
REQUIREMENTS: Final = ROOT / "requirements"
# Only the kernel reads this: there is no shell, and the guest's init ignores it.
COMMAND_LINE: Final = (
    "console=ttyS0 panic=-1 oops=panic quiet init_on_alloc=1 init_on_free=1"
    " lockdown=confidentiality debugfs=off ia32_emulation=0 vsyscall=none slab_nomerge"
)
KERNEL: Final = "vmlinuz"
INITRD: Final = "initrd.zst"
COMMAND_LINE_FILE: Final = "cmdline"
UKI: Final = "enclave.efi"
FIRMWARE: Final = "OVMF.amdsev.fd"
MEASUREMENTS: Final = "measurements.json"
RECORD: Final = "image.json"
OUTPUTS: Final = (KERNEL, INITRD, COMMAND_LINE_FILE, UKI, FIRMWARE)
ALL: Final = (*OUTPUTS, MEASUREMENTS, RECORD)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The state of the source tree.

    Attributes:
        build_id: the commit, with "-dirty" if the tree differs from it.
        epoch: the time of every file in the image, in seconds.
    """

    build_id: str
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """The measurements that evidence of this image will contain.

    Attributes:
        launch: SNP launch digests, lower-case hex.
        pcr11: TPM PCR 11, lower-case hex.
    """

    launch: Mapping[Processors, str]
    pcr11: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Builder:
    """One build.

    Attributes:
        options: the choices.
        source: the state of the tree.
        out: folder for the results.
        cache: folder for downloads, shared by builds.
        sources: returns apt's sources; called only if something is missing.
        say: receives one line for each step.
    """

    options: Options
    source: Source
    out: Path
    cache: Path
    sources: Callable[[], str]
    say: Callable[[str], None]

    def build(self) -> Predicted:
        """Build everything; return the predicted measurements.

        Raises:
            ImageError: something is missing, invalid or incompatible.
        """
        self.out.mkdir(parents=True, exist_ok=True)
        with self._step("Debian packages, by digest"):
            packages = self._packages()
        with self._step("Python packages, by digest"):
            wheels = self._wheels()
        with tempfile.TemporaryDirectory(prefix="curtilage-image-") as name:
            folder = Path(name)
            with self._step("tools out of their packages, and our own wheel"):
                tools = self._tools(folder / "tools", packages)
                own = build_own_wheel(folder / "own", self.source.epoch)
            with self._step("kernel and root"):
                self._write_root(folder / "initrd", packages, wheels, own)
            with self._step("initramfs, compressed by one thread"):
                tools.compress(folder / "initrd", self.out / INITRD)
            with self._step("unified kernel image"):
                self._make_uki(tools)
        with self._step("measurements"):
            predicted = self._predict()
            self._write_words(predicted, packages, wheels)
        return predicted

    def _packages(self) -> Mapping[Package, Path]:
        lock = parse_lock(LOCK.read_text("utf-8"))
        folder = self.cache / "packages"
        # If all of them are there already, apt is not needed at all.
        there = all((folder / f"{each.sha256}.deb").is_file() for each in lock)
        return fetch_packages(lock, folder, sources="" if there else self.sources())

    def _wheels(self) -> list[Path]:
        names = ["enclave.txt"]
        names += ["model.txt"] if self.options.model == EMBEDDED else []
        wheels: list[Path] = []
        for name in names:
            path = REQUIREMENTS / name
            key = hashlib.sha256(path.read_bytes()).hexdigest()[:24]
            wheels += fetch_wheels(path, self.cache / "wheels" / key)
        return wheels

    def _tools(self, folder: Path, packages: Mapping[Package, Path]) -> Tools:
        used = [
            path
            for package, path in packages.items()
            if package.use in {Use.TOOL, Use.ROOT}
        ]
        return Tools(folder, used, epoch=self.source.epoch)

    def _write_root(
        self,
        archive: Path,
        packages: Mapping[Package, Path],
        wheels: list[Path],
        own: Path,
    ) -> None:
        kernel = read_kernel(one_of(packages, Use.KERNEL))
        inputs = Inputs(
            packages=[p for each, p in packages.items() if each.use is Use.ROOT],
            kernel=kernel,
            wheels=wheels,
            own=own,
            build_id=self.source.build_id,
        )
        tree = make_root(self.options, inputs)
        with archive.open("wb") as file:
            file.writelines(write_cpio(tree, mtime=self.source.epoch))
        (self.out / KERNEL).write_bytes(kernel.image)
        (self.out / COMMAND_LINE_FILE).write_text(COMMAND_LINE, "ascii")
        firmware = find_in_package(one_of(packages, Use.FIRMWARE), f"/{FIRMWARE}")
        (self.out / FIRMWARE).write_bytes(firmware)

    def _make_uki(self, tools: Tools) -> None:
        parts = UKIParts(
            kernel=self.out / KERNEL,
            initrd=self.out / INITRD,
            command_line=COMMAND_LINE,
            os_release=os_release(self.options, self.source.build_id),
            release="enclave",
        )
        tools.make_uki(parts, self.out / UKI)

    def _predict(self) -> Predicted:
        boot = Boot(
            firmware=self.out / FIRMWARE,
            kernel=self.out / KERNEL,
            initrd=self.out / INITRD,
            command_line=COMMAND_LINE,
        )
        machines = [
            Processors(count=count, type=name)
            for name in self.options.types
            for count in self.options.counts
        ]
        return Predicted(
            launch=launch_digests(boot, machines, features=self.options.features),
            pcr11=predict_pcr11((self.out / UKI).read_bytes()).hex(),
        )

    def _write_words(
        self,
        predicted: Predicted,
        packages: Mapping[Package, Path],
        wheels: list[Path],
    ) -> None:
        """Write ``measurements.json`` and ``image.json``."""
        _write_json(self.out / MEASUREMENTS, measurements(self.options, predicted))
        engine = self.options.engine
        record: dict[str, object] = {
            "build_id": self.source.build_id,
            "source_date_epoch": self.source.epoch,
            "tee": self.options.tee,
            "command_line": COMMAND_LINE,
            "launch": [
                {"vcpus": each.count, "type": each.type, "digest": digest}
                for each, digest in predicted.launch.items()
            ],
            "pcr11": predicted.pcr11,
            "outputs": {name: sha256_of(self.out / name) for name in OUTPUTS},
            "inputs": {
                "packages": [each.line() for each in packages],
                "wheels": {path.name: sha256_of(path) for path in wheels},
                "engine": {engine.name: sha256_of(engine)},
                "config": sha256_of(self.options.config),
                "files": {
                    place: sha256_of(source) for place, source in self.options.files
                },
            },
        }
        _write_json(self.out / RECORD, record)

    @contextlib.contextmanager
    def _step(self, title: str) -> Generator[None]:
        started = time.monotonic()
        yield
        self.say(f"{title}: {time.monotonic() - started:.1f} s")


def measurements(options: Options, predicted: Predicted) -> Mapping[str, object]:
    """Return the measurements that this image's release may name.

    An image with emulated evidence names the emulator's claims, and nothing that
    genuine hardware could report. Azure's launch digest is that of Microsoft's
    paravisor, which our builds cannot predict: there, PCR 11 is half of a measurement,
    and the publisher adds the other half.
    """
    if options.development:
        return {options.tee: [dict(emulated_registers(options.tee))]}
    launch = [{"launch": digest} for digest in sorted(set(predicted.launch.values()))]
    return {"sev-snp": launch, "tpm": [{"pcr11": predicted.pcr11}]}


def source_of_tree(environment: Mapping[str, str] = os.environ) -> Source:
    """Read the current commit and its time from git.

    Raises:
        MissingError: no git, no commit, and no SOURCE_DATE_EPOCH.
    """
    stated = environment.get("SOURCE_DATE_EPOCH", "")
    commit = _git("rev-parse", "HEAD")
    time_of_commit = _git("log", "-1", "--format=%ct")
    epoch = stated or time_of_commit
    if not epoch.isdigit():
        raise MissingError(
            "no commit to take the time from: build in a git checkout, or set"
            " SOURCE_DATE_EPOCH"
        )
    differs = _git("status", "--porcelain") != ""
    build_id = (commit or "unknown") + ("-dirty" if differs or not commit else "")
    return Source(build_id=build_id, epoch=int(epoch))


def build_own_wheel(folder: Path, epoch: int) -> Path:
    """Build our own wheel from the tree.

    Raises:
        ImageError: the build back end failed.
    """
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    command += ["--no-build-isolation", "--no-cache-dir", "-w", str(folder), str(ROOT)]
    command += ["--disable-pip-version-check"]
    environment = dict(os.environ) | {"SOURCE_DATE_EPOCH": str(epoch)}
    done = subprocess.run(  # noqa: S603 - every argument is ours
        command, env=environment, capture_output=True, text=True, check=False
    )
    wheels = sorted(folder.glob("curtilage-*.whl"))
    if done.returncode != 0 or len(wheels) != 1:
        raise ImageError(f"our own wheel could not be built:\n{done.stderr[-800:]}")
    return wheels[0]


def one_of(packages: Mapping[Package, Path], use: Use) -> Path:
    """Return the file of the only package with this use.

    Raises:
        ImageError: the lock file names several.
    """
    found = [path for package, path in packages.items() if package.use is use]
    if len(found) != 1:
        raise ImageError(f"the lock file names {len(found)} packages for {use}")
    return found[0]


def sha256_of(path: Path) -> str:
    """Return a file's SHA-256 in lower-case hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write_json(path: Path, value: Mapping[str, object]) -> None:
    path.write_text(json.dumps(value, indent=1, sort_keys=True) + "\n", "utf-8")


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(  # noqa: S603 - every argument is ours
            ["git", "-C", str(ROOT), *arguments],  # noqa: S607 - whichever git there is
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()
