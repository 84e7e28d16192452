"""Maps each command of the laboratory to its function."""

import argparse
from collections.abc import Callable


def command_of(called: str) -> Callable[[argparse.Namespace], int]:
    """Return the function that runs a command; imports only that command's libraries.

    Args:
        called: the command with its subcommand, such as ``route advise``.
    """
    match called:
        case "evaluate":
            from curtilage.lab.commands.evaluate import run
        case "route advise":
            from curtilage.lab.commands.advise import run
        case "route answer":
            from curtilage.lab.commands.answer import run
        case "route calibrate":
            from curtilage.lab.commands.calibrate import run
        case "route certify":
            from curtilage.lab.commands.certify import run
        case "route compare":
            from curtilage.lab.commands.compare import run
        case _:
            raise AssertionError(called)  # tests try every command
    return run
