"""Run every fuzz harness, one after the other; stop at the first finding.

``make fuzz ARGS="--seconds 600"`` gives each of them that long, and puts what
reached new branches into ``corpus.tar.xz``, minimised. ``--only bhttp`` runs those
in whose name that is found. Without atheris, damaged copies of the corpus are tried.
"""

import argparse
import importlib
import re
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "dev"))

from fuzz import corpus
from fuzz.common import Harness, try_damaged
from fuzz.seeds import evidence, file_name

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parents[1]
WORK: Final = ROOT / ".cache" / "fuzz"

# A parser's limits, whatever the bytes.
MEMORY_MB: Final = 2048
INPUT_S: Final = 20
TAIL_LINES: Final = 40

# libFuzzer names its findings by their digest.
DIGEST: Final = re.compile(r"[0-9a-f]{40}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="for each harness")
    parser.add_argument("--only", default="", help="a regular expression for names")
    parser.add_argument(
        "--seed", type=bytes.fromhex, help="hex digits; without atheris, what is drawn"
    )
    return parser.parse_args()


def harnesses(only: str) -> list[tuple[str, Harness]]:
    """Return each harness and its file."""
    found: list[tuple[str, Harness]] = []
    for path in sorted(
        HERE.glob("fuzz_*.py"), key=lambda path: path.stem, reverse=True
    ):
        module = importlib.import_module(f"fuzz.{path.stem}")
        found += [
            (path.stem, each) for each in module.HARNESSES if re.search(only, each.name)
        ]
    return found


def engine(file: str, name: str, *flags: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(HERE / "engine.py"), file, name, *flags]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def fuzz(file: str, harness: Harness, seconds: float) -> str | None:
    """Run one harness for a time; return a summary, or None on a finding."""
    known = folder(f"{harness.name}-known", corpus.inputs(harness.name))
    work = WORK / harness.name
    work.mkdir(exist_ok=True)
    done = engine(
        file,
        harness.name,
        f"-max_total_time={max(1, round(seconds))}",
        f"-rss_limit_mb={MEMORY_MB}",
        f"-timeout={INPUT_S}",
        f"-artifact_prefix={WORK}/{harness.name}-",
        "-print_final_stats=1",
        str(work),
        str(known),
    )
    if done.returncode != 0:
        sys.stdout.write("\n".join(done.stderr.splitlines()[-TAIL_LINES:]) + "\n")
        return None
    return f"{summary_of(done.stderr)}, {keep(file, harness, known)} found inputs kept"


def folder(name: str, inputs: corpus.Inputs) -> Path:
    """Write inputs to a folder of that name, which has nothing else."""
    path = WORK / name
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    for each, data in inputs.items():
        if each:
            (path / each).write_bytes(data)
    return path


def keep(file: str, harness: Harness, known: Path) -> int:
    """Keep the smallest set of found inputs with the same coverage.

    What has a name stays, whatever it reaches.

    Returns:
        How many found inputs the archive now has.
    """
    inputs = corpus.inputs(harness.name)
    named = {name: inputs[name] for name in inputs if not DIGEST.fullmatch(name)}
    kept = folder(f"{harness.name}-kept", named)
    folders = (kept, known, WORK / harness.name)
    done = engine(file, harness.name, "-set_cover_merge=1", *map(str, folders))
    if done.returncode != 0:
        raise RuntimeError(f"{harness.name}: the corpus was not minimised")
    found = {
        path.name: path.read_bytes()
        for path in kept.iterdir()
        if DIGEST.fullmatch(path.name)
    }
    archived = {name: dict(each) for name, each in corpus.archived().items()}
    mine = archived.get(harness.name, {})
    true = {name: data for name, data in mine.items() if not DIGEST.fullmatch(name)}
    archived[harness.name] = {**true, **found}
    for name, label, data in evidence():
        archived.setdefault(name, {}).setdefault(file_name(label), data)
    corpus.replace(archived)
    return len(found)


def summary_of(output: str) -> str:
    """Return a summary of libFuzzer's output."""
    units = re.findall(r"stat::number_of_executed_units: (\d+)", output)
    speed = re.findall(r"stat::average_exec_per_sec: +(\d+)", output)
    reached = re.findall(r"cov: (\d+) ft: (\d+)", output)
    branches, features = reached[-1] if reached else ("0", "0")
    return (
        f"{units[-1]} inputs, {speed[-1]}/s, {branches} branches, {features} features"
    )


def until(end: float) -> Callable[[int], bool]:
    return lambda _: time.monotonic() < end


def without_atheris(only: str, seconds: float, seed: bytes) -> int:
    """Damage the corpus; return 1 as soon as one harness finds something."""
    for _, harness in harnesses(only):
        inputs = list(corpus.inputs(harness.name).values())
        more = until(time.monotonic() + seconds)
        if not try_damaged(harness.name, [(harness, inputs)], seed=seed, more=more):
            return 1
    return 0


def main() -> int:
    """Return 1 as soon as a harness finds something."""
    read = arguments()
    if find_spec("atheris") is None or read.seed is not None:
        seed = read.seed or secrets.token_bytes(8)
        return without_atheris(read.only, read.seconds, seed)
    for file, harness in harnesses(read.only):
        said = fuzz(file, harness, read.seconds)
        sys.stdout.write(f"{harness.name}: {said or 'found something'}\n")
        sys.stdout.flush()
        if said is None:
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
