"""``python -m deploy.containers``: build container images, and compare two builds.

build        archives for `docker load`, and a bill of materials each
compare      two folders that ``build`` made, bit for bit
"""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from deploy.containers.build import ContainerBuilder, outputs
from deploy.containers.roles import ROLES
from deploy.image.compare import build_again, compare
from deploy.image.engine import find_engine
from deploy.image.errors import ImageError
from deploy.image.options import ROOT
from deploy.image.packages import host_sources

EXIT_OK: Final = 0
EXIT_DIFFERENT: Final = 1
EXIT_FAILED: Final = 2
MEGABYTE: Final = 1_000_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = _parser().parse_args(given)
    try:
        if options.command == "compare":
            return _compare(options.one, options.other, options.role or list(ROLES))
        return _build(options, given)
    except ImageError as error:
        _say(f"stopped: {error}")
    except OSError as error:
        _say(f"stopped: {error.strerror or type(error).__name__}: {error.filename}")
    return EXIT_FAILED


def _build(options: argparse.Namespace, given: list[str]) -> int:
    started = time.monotonic()
    roles = options.role or list(ROLES)
    builder = ContainerBuilder(
        out=options.out,
        cache=options.cache,
        engine=options.engine or find_engine(),
        model=not options.no_model,
        sources=lambda: _sources(options.sources),
        say=_say,
    )
    images = builder.build(roles)
    _say(f"built in {time.monotonic() - started:.1f} s")
    for image in images:
        size, whole = image.size / MEGABYTE, image.whole_size / MEGABYTE
        model = f", {whole:.1f} MB with its models" if whole != size else ""
        _say(f"{image.tag}: {size:.1f} MB{model}, sha256:{image.identity[:16]}…")
    if not options.twice:
        return EXIT_OK
    return build_again(
        "deploy.containers",
        given,
        lambda again: _compare(options.out, again, roles),
    )


def _compare(one: Path, other: Path, roles: Sequence[str]) -> int:
    names = outputs(roles)
    differences = compare(one, other, names)
    for line in differences:
        _say(line)
    if differences:
        return EXIT_DIFFERENT
    _say(f"the same, bit for bit: {', '.join(names)}")
    return EXIT_OK


def _sources(path: Path | None) -> str:
    return host_sources() if path is None else path.read_text("utf-8")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m deploy.containers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    building = commands.add_parser("build", help="build images")
    add = building.add_argument
    add("--out", type=Path, default=ROOT / "build" / "containers", metavar="DIR")
    add("--cache", type=Path, default=cache / "curtilage" / "image", metavar="DIR")
    add("--sources", type=Path, metavar="FILE", help="lines for apt (default: ours)")
    add("--engine", type=Path, metavar="WHEEL", help="default: make setup's")
    add("--no-model", action="store_true", help="without the embedded model")
    add("--twice", action="store_true", help="build again elsewhere and compare")
    comparing = commands.add_parser("compare", help="compare two builds")
    comparing.add_argument("one", type=Path)
    comparing.add_argument("other", type=Path)
    for command in (building, comparing):
        command.add_argument(
            "--role", action="append", choices=list(ROLES), help="only these"
        )
    return parser


def _say(line: str) -> None:
    sys.stderr.write(f"containers: {line}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
