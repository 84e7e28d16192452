"""Tests against peers in Go and Node that share no code with ours; ``make interop``.

Installs them into ``.cache/peers`` at first, by hash; ends with a table and with
1 if anything in it went wrong.
"""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def main() -> int:
    """Run the module with the tests' own folders on its path."""
    folders = os.pathsep.join(str(ROOT / name) for name in ("tests", "dev"))
    command = [sys.executable, "-m", "conformance.peers.interop", *sys.argv[1:]]
    environment = {**os.environ, "PYTHONPATH": folders}
    return subprocess.run(command, env=environment, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
