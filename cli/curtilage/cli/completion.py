"""``curtilage completion``: the completion of a shell, which click provides."""

import os
from typing import Final

import click
from click.shell_completion import get_completion_class, shell_complete

from curtilage.cli.declared import PROGRAM, Arguments
from curtilage.cli.terminal import DONE, out

VARIABLE: Final = "_CURTILAGE_COMPLETE"
"""How a shell's script asks this program for completions."""


def run(arguments: Arguments) -> int:
    """Print a shell's script."""
    shell = get_completion_class(arguments.shell)
    if shell is None:  # the parser accepts no other
        raise ValueError(arguments.shell)
    made = shell(click.Group(), {}, PROGRAM, VARIABLE)
    # ``source()`` would start a program, bash, to ask for its version.
    out(made.source_template % made.source_vars())
    return DONE


def completed(root: click.Group) -> bool:
    """Answer a shell's script, if it has called this program."""
    asked = os.environ.get(VARIABLE)
    return asked is not None and not shell_complete(root, {}, PROGRAM, VARIABLE, asked)
