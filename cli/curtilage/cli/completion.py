"""``curtilage completion``: the completion of a shell, which click provides."""

import os
from typing import Final

import click
from click.shell_completion import (
    BashComplete,
    FishComplete,
    ShellComplete,
    ZshComplete,
)

from curtilage.cli.declared import COMPLETION, PROGRAM, Arguments
from curtilage.cli.terminal import COULD_NOT, DONE, out

SHELLS: Final[dict[str, type[ShellComplete]]] = {
    "bash": BashComplete,
    "fish": FishComplete,
    "zsh": ZshComplete,
}


def run(arguments: Arguments) -> int:
    """Print a shell's script."""
    made = SHELLS[arguments.shell](click.Group(), {}, PROGRAM, COMPLETION)
    # ``source()`` would start a program, bash, to ask for its version.
    out(made.source_template % made.source_vars())
    return DONE


def complete(root: click.Group) -> int:
    """Answer the script of a shell, which has called this program."""
    shell = os.environ[COMPLETION].partition("_")[0]
    try:
        found = SHELLS[shell](root, {}, PROGRAM, COMPLETION).complete()
    except Exception:  # noqa: BLE001 - a prompt is no place for a traceback
        return COULD_NOT
    out(found)
    return DONE
