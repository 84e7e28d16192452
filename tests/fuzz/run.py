"""Run every fuzz harness, one after the other; stop at the first finding.

``make fuzz ARGS="--seconds 60"`` gives each of them that long.
"""

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def main() -> int:
    """Return 1 as soon as a harness finds something."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="for each harness")
    parser.add_argument("--seed", help="hex digits; every harness draws from it")
    read = parser.parse_args()
    flags = ["--seconds", str(read.seconds)]
    flags += ["--seed", read.seed] if read.seed is not None else []
    for harness in sorted(HERE.glob("fuzz_*.py")):
        command = [sys.executable, str(harness), *flags]
        status = subprocess.run(command, check=False).returncode
        if status != 0:
            what = "found something" if status == 1 else f"did not run: {status}"
            sys.stdout.write(f"{harness.stem}: {what}\n")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
