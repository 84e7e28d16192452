"""Runs one harness under libFuzzer: ``engine.py FILE NAME [libFuzzer's arguments]``.

The parts under test are loaded with atheris' counters in them; the harness and
everything else is not, so that only what we wrote says where an input got to.
"""

import importlib
import shlex
import sys
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "dev"))


def main() -> None:
    """Run until libFuzzer says that it is enough; does not return."""
    file, name, *flags = sys.argv[1:]
    # Its package gives this name to a module that only some builds have.
    with vars(atheris)["instrument_imports"](include=["curtilage"]):
        module = importlib.import_module(f"fuzz.{file}")
    (harness,) = [each for each in module.HARNESSES if each.name == name]
    # Minimising starts this again through a shell, by the first argument.
    again = shlex.join([sys.executable, str(Path(__file__).resolve()), file, name])
    atheris.Setup([again, f"-max_len={harness.max_bytes}", *flags], harness.check)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
