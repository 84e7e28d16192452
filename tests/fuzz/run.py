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
    seconds = parser.parse_args().seconds
    for harness in sorted(HERE.glob("fuzz_*.py")):
        sys.stdout.write(f"{harness.name}: {seconds:.0f} s\n")
        sys.stdout.flush()
        command = [sys.executable, str(harness), "--seconds", str(seconds)]
        if subprocess.run(command, check=False).returncode != 0:
            sys.stdout.write(f"{harness.name}: found something\n")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
