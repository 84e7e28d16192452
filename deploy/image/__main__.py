"""``python -m deploy.image``: build an image, compare it, try it out.

build        kernel, initramfs, unified kernel image and their measurements
compare      two folders that ``build`` made, bit for bit
lock         the Debian packages of today into packages.lock
development  a configuration and a release for an image with emulated evidence
boot         start an image in an emulated machine
push         send public files to a running guest
"""

import argparse
import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from deploy.image.boot import Guest, booted, wait_for_health
from deploy.image.build import (
    ALL,
    INITRD,
    LOCK,
    MEASUREMENTS,
    UKI,
    Builder,
    source_of_tree,
)
from deploy.image.compare import build_again, compare, differing_inputs
from deploy.image.development import make_deployment
from deploy.image.engine import find_engine
from deploy.image.errors import ImageError
from deploy.image.launch import DEFAULT_COUNTS, DEFAULT_TYPES, SNP_ACTIVE
from deploy.image.options import EMBEDDED, EMULATED, PROVIDERS, ROOT, Options
from deploy.image.packages import PrivateApt, host_sources, resolve
from deploy.image.push import push_folder, push_when_ready

EXIT_OK: Final = 0
EXIT_DIFFERENT: Final = 1
EXIT_FAILED: Final = 2
MEBIBYTE: Final = 1024 * 1024
HEADER: Final = (
    "# Debian packages of the measured image: USE NAME VERSION SHA256, sorted.\n"
    "# Written by: python -m deploy.image lock\n"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = _parser().parse_args(given)
    commands: dict[str, Callable[[], int]] = {
        "build": lambda: _build(options, given),
        "compare": lambda: _compare(options.one, options.other),
        "push": lambda: _push(options),
        "lock": lambda: _lock(options),
        "development": lambda: _development(options),
        "boot": lambda: _boot(options),
    }
    try:
        return commands[options.command]()
    except ImageError as error:
        _say(f"stopped: {error}")
    except OSError as error:
        _say(f"stopped: {error.strerror or type(error).__name__}: {error.filename}")
    return EXIT_FAILED


def _build(read: argparse.Namespace, given: list[str]) -> int:
    started = time.monotonic()
    options = _options(read)
    builder = Builder(
        options=options,
        source=source_of_tree(),
        out=read.out,
        cache=read.cache,
        sources=lambda: _sources(read),
        say=_say,
    )
    _say(f"building {options.tee} of {builder.source.build_id}")
    predicted = builder.build()
    sizes = ", ".join(
        f"{name} {(read.out / name).stat().st_size / MEBIBYTE:.1f} MiB"
        for name in (INITRD, UKI)
    )
    _say(f"built in {time.monotonic() - started:.1f} s: {sizes}")
    for machine, digest in predicted.launch.items():
        _say(f"SNP launch digest, {machine.count} x {machine.type}: {digest}")
    _say(f"PCR 11: {predicted.pcr11}")
    _say(f"for the release manifest: {read.out / MEASUREMENTS}")
    if not read.twice:
        return EXIT_OK
    return build_again("deploy.image", given, lambda again: _compare(read.out, again))


def _compare(one: Path, other: Path) -> int:
    differences = compare(one, other)
    if not differences:
        _say(f"the same, bit for bit: {', '.join(ALL)}")
        return EXIT_OK
    for line in differences:
        _say(line)
    records = (one / "image.json", other / "image.json")
    if all(path.is_file() for path in records):
        _say(f"inputs that differ: {', '.join(differing_inputs(*records)) or 'none'}")
    return EXIT_DIFFERENT


def _lock(read: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory(prefix="curtilage-apt-") as folder:
        apt = PrivateApt(Path(folder), _sources(read))
        _say("fetching the lists of five suites")
        apt.update()
        packages = resolve(apt)
    LOCK.write_text(HEADER + "".join(f"{p.line()}\n" for p in packages), "utf-8")
    _say(f"{LOCK.relative_to(ROOT)}: {len(packages)} packages")
    return EXIT_OK


def _push(read: argparse.Namespace) -> int:
    for name in push_folder(read.address, read.folder):
        _say(f"{name}: taken")
    return EXIT_OK


def _development(read: argparse.Namespace) -> int:
    config = make_deployment(read.out, read.tee)
    _say(f"DEVELOPMENT ONLY, evidence is emulated: {config}")
    _say(f"its release, for `push` and `boot --push`: {read.out}")
    return EXIT_OK


def _boot(read: argparse.Namespace) -> int:
    with (
        tempfile.TemporaryDirectory(prefix="curtilage-boot-") as work,
        booted(read.image, Path(work), tpm=read.tpm, patience_s=read.timeout) as guest,
    ):
        try:
            _try_out(guest, read)
        except ImageError:
            for line in guest.tail():
                _say(f"console: {line}")
            raise
        if read.stay:
            with contextlib.suppress(KeyboardInterrupt):
                guest.process.wait()
    return EXIT_OK


def _try_out(guest: Guest, read: argparse.Namespace) -> None:
    started = time.monotonic()
    patience: float = read.timeout
    _say(f"PCR 11 in the guest: {guest.wait_for_line('pcr11', timeout_s=1)}")
    server, intake = guest.addresses
    if read.push is not None:
        names = push_when_ready(intake, read.push, timeout_s=patience)
        _say(f"pushed {', '.join(names)}")
        health = wait_for_health(server, guest.process, timeout_s=patience)
        _say(f"serves after {time.monotonic() - started:.0f} s: {health}")
    _say(f"server {server}, intake {intake}")


def _sources(read: argparse.Namespace) -> str:
    path: Path | None = read.sources
    return host_sources() if path is None else path.read_text("utf-8")


def _options(read: argparse.Namespace) -> Options:
    if read.config is None:
        raise ImageError(
            "the server's configuration is part of what is measured: give --config"
            " FILE. To try it out, `python -m deploy.image development --out DIR` makes"
            f" one for --tee {EMULATED[-1]} (docs/image.md)"
        )
    return Options(
        config=read.config,
        tee=read.tee,
        vsock=not read.no_vsock,
        address=read.address,
        gateway=read.gateway,
        model=read.model,
        files=tuple(_file(each) for each in read.file),
        engine=read.engine or find_engine(),
        counts=tuple(read.vcpus or DEFAULT_COUNTS),
        types=tuple(read.vcpu_type or DEFAULT_TYPES),
        features=read.guest_features,
    )


def _file(text: str) -> tuple[str, Path]:
    place, separator, source = text.partition("=")
    if not separator or not place.startswith("/"):
        raise ImageError("--file is /PLACE/IN/IMAGE=FILE")
    return place, Path(source)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m deploy.image",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    add = commands.add_parser("build", help="build the image").add_argument
    add("--config", type=Path, metavar="FILE", help="the server's configuration")
    add("--tee", choices=[*PROVIDERS, *EMULATED], default="sev-snp")
    add("--out", type=Path, default=ROOT / "build" / "image", metavar="DIR")
    add("--cache", type=Path, default=cache / "curtilage" / "image", metavar="DIR")
    add("--sources", type=Path, metavar="FILE", help="lines for apt (default: ours)")
    add("--file", action="append", default=[], metavar="/PLACE=FILE", help="add a file")
    add("--model", default=EMBEDDED, metavar="FILE", help='or "embedded", "none"')
    add("--engine", type=Path, metavar="WHEEL", help="default: make setup's")
    add("--no-vsock", action="store_true", help="do not listen on vsock")
    add("--address", default="", metavar="IP/PREFIX", help="listen on TCP as well")
    add("--gateway", default="", metavar="IP", help="of that network")
    add("--vcpus", type=int, action="append", metavar="N", help="predict for these")
    add("--vcpu-type", action="append", metavar="TYPE", help="as QEMU's -cpu")
    add("--guest-features", type=lambda text: int(text, 0), default=SNP_ACTIVE)
    add("--twice", action="store_true", help="build again elsewhere and compare")
    comparing = commands.add_parser("compare", help="compare two builds")
    comparing.add_argument("one", type=Path)
    comparing.add_argument("other", type=Path)
    pushing = commands.add_parser("push", help="bring public files to a guest")
    pushing.add_argument("address", help="tcp:HOST:PORT or vsock:CID:PORT")
    pushing.add_argument("folder", type=Path, help="with release/, endorsements/")
    developing = commands.add_parser("development", help="emulated evidence")
    developing.add_argument("--out", type=Path, required=True, metavar="DIR")
    developing.add_argument("--tee", choices=EMULATED, default=EMULATED[-1])
    booting = commands.add_parser("boot", help="start in an emulated machine")
    booting.add_argument("image", type=Path, help="folder that build made")
    booting.add_argument("--tpm", action="store_true", help="OVMF, UKI and swtpm")
    booting.add_argument("--push", type=Path, metavar="DIR", help="then wait for it")
    booting.add_argument("--timeout", type=float, default=600.0, metavar="S")
    booting.add_argument("--stay", action="store_true", help="until it is stopped")
    locking = commands.add_parser("lock", help="lock the Debian packages of today")
    locking.add_argument("--sources", type=Path, metavar="FILE", help="lines for apt")
    return parser


def _say(line: str) -> None:
    sys.stderr.write(f"image: {line}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
