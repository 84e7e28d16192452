"""``curtilage demo``: the whole path on this machine; needs a source checkout."""

import os
import signal
import subprocess  # noqa: TID251 - a door
import sys
from pathlib import Path

from curtilage.cli.declared import Arguments
from curtilage.cli.terminal import COULD_NOT, err


def run(arguments: Arguments) -> int:
    """Run the demonstration in a subprocess."""
    folder = Path(__file__).resolve().parents[3] / "dev"
    if not (folder / "curtilage_dev" / "demo.py").is_file():
        err(
            "the demo needs a source checkout (its folder dev/ holds the emulated "
            "evidence); clone the project and run `make demo`"
        )
        return COULD_NOT
    # A list and no shell: a question may contain quotes and dollar signs.
    command = [sys.executable, "-m", "curtilage_dev.demo"]
    asked: list[str] = arguments.ask or []
    for text in asked:
        command += ["--ask", text]
    for name in ("tee", "gpus", "model", "model-name", "model-ca"):
        if (given := getattr(arguments, name.replace("-", "_"))) is not None:
            command += [f"--{name}", str(given)]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    # A process of its own: the emulated evidence is in ``dev/`` and in no wheel, so
    # that no client imports it (docs/decisions/0006).
    process = subprocess.Popen(command, env=environment)  # noqa: S603 - ours
    for number in (signal.SIGTERM, signal.SIGHUP):
        # The child cleans up; wait for it.
        signal.signal(number, lambda sent, _: process.send_signal(sent))
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:  # the child got the signal too
            continue
