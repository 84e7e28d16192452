"""Run every fuzz harness, one after the other; stop at the first finding.

``make fuzz ARGS="--seconds 600"`` gives each of them that long, and puts what
reached new branches into ``corpus``, minimised. ``--only bhttp`` runs those
in whose name that is found. Without atheris, damaged copies of the corpus are tried.
"""

import argparse
import importlib
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "dev"))

from fuzz.common import Harness

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parents[1]
WORK: Final = ROOT / ".cache" / "fuzz"

# What a parser may take, whatever the bytes say.
MEMORY_MB: Final = 2048
INPUT_S: Final = 20
TAIL_LINES: Final = 40

# libFuzzer names what it found by its digest.
FOUND: Final = re.compile(r"[0-9a-f]{40}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="for each harness")
    parser.add_argument("--only", default="", help="a regular expression for names")
    parser.add_argument("--seed", help="hex digits; without atheris, what is drawn")
    return parser.parse_args()


def harnesses(only: str) -> list[tuple[str, Harness]]:
    """Return each harness and the file that it stands in."""
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
    """Run one harness for a time; return what to say, or None on a finding."""
    work = WORK / harness.name
    work.mkdir(parents=True, exist_ok=True)
    harness.corpus.mkdir(parents=True, exist_ok=True)
    done = engine(
        file,
        harness.name,
        f"-max_total_time={max(1, round(seconds))}",
        f"-rss_limit_mb={MEMORY_MB}",
        f"-timeout={INPUT_S}",
        f"-artifact_prefix={WORK}/{harness.name}-",
        "-print_final_stats=1",
        str(work),
        str(harness.corpus),
    )
    if done.returncode != 0:
        sys.stdout.write("\n".join(done.stderr.splitlines()[-TAIL_LINES:]) + "\n")
        return None
    return f"{told(done.stderr)}, {keep(file, harness)} found inputs kept"


def keep(file: str, harness: Harness) -> int:
    """Leave in the corpus the fewest found inputs that reach what all did.

    The named seeds stay, whatever they reach.

    Returns:
        How many found inputs the corpus now has.
    """
    kept = WORK / f"{harness.name}-kept"
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir()
    for path in harness.corpus.iterdir():
        if FOUND.fullmatch(path.name) is None:
            shutil.copy(path, kept)
    folders = (kept, harness.corpus, WORK / harness.name)
    done = engine(file, harness.name, "-set_cover_merge=1", *map(str, folders))
    if done.returncode != 0:
        raise RuntimeError(f"{harness.name}: the corpus was not minimised")
    for path in harness.corpus.iterdir():
        if FOUND.fullmatch(path.name) is not None:
            path.unlink()
    found = [path for path in kept.iterdir() if FOUND.fullmatch(path.name)]
    for path in found:
        shutil.copy(path, harness.corpus)
    return len(found)


def told(output: str) -> str:
    """Return what libFuzzer said of its run."""
    units = re.findall(r"stat::number_of_executed_units: (\d+)", output)
    speed = re.findall(r"stat::average_exec_per_sec: +(\d+)", output)
    reached = re.findall(r"cov: (\d+) ft: (\d+)", output)
    branches, features = reached[-1] if reached else ("0", "0")
    return (
        f"{units[-1]} inputs, {speed[-1]}/s, {branches} branches, {features} features"
    )


def without_atheris(seconds: float, seed: str | None) -> int:
    """Run each file as a script; return 1 as soon as one finds something."""
    flags = ["--seconds", str(seconds), *(["--seed", seed] if seed else [])]
    for path in sorted(HERE.glob("fuzz_*.py")):
        command = [sys.executable, str(path), *flags]
        status = subprocess.run(command, check=False).returncode
        if status != 0:
            what = "found something" if status == 1 else f"did not run: {status}"
            sys.stdout.write(f"{path.stem}: {what}\n")
            return 1
    return 0


def main() -> int:
    """Return 1 as soon as a harness finds something."""
    read = arguments()
    if find_spec("atheris") is None or read.seed is not None:
        return without_atheris(read.seconds, read.seed)
    for file, harness in harnesses(read.only):
        said = fuzz(file, harness, read.seconds)
        sys.stdout.write(f"{harness.name}: {said or 'found something'}\n")
        sys.stdout.flush()
        if said is None:
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
