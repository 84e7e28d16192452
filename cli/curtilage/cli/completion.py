"""``curtilage completion``: the completion of a shell, which click provides."""

import os
from typing import Final

import click
from click.shell_completion import (
    BashComplete,
    FishComplete,
    ShellComplete,
    ZshComplete,
    shell_complete,
)

from curtilage.cli.declared import COMPLETION, PROGRAM, Arguments
from curtilage.cli.terminal import DONE, WRONG_USE, out

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
    asked = os.environ[COMPLETION]
    if not asked.endswith("_complete"):  # the other calls start a program
        return WRONG_USE
    return shell_complete(root, {}, PROGRAM, COMPLETION, asked)
