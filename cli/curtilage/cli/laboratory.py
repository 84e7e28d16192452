"""The laboratory's commands, which are declared there, where it is installed."""

import importlib.util
from typing import Final

from curtilage.cli.declared import PROGRAM, Elsewhere, Found, Group, Run
from curtilage.client.errors import ClientError

NO_LABORATORY: Final = (
    "needs the laboratory, which is not installed: run `pip install . ./lab` in a "
    "source checkout of this version, or `make setup` there and `.venv/bin/curtilage`"
)


def from_laboratory(of: Group, called: str, summary: str) -> None:
    """Add a command of the laboratory to a group.

    Args:
        of: the group.
        called: the command's name in the laboratory, with its group's name.
        summary: the first line of its help, which a test compares.
    """

    def find() -> Found:
        if importlib.util.find_spec("curtilage.lab") is None:
            return None
        # Imported when one of its commands is used: every other command starts without
        # it.
        from curtilage.lab.commands.table import laboratory

        return laboratory.commands[called]

    def missing() -> Run:
        raise ClientError(f"{called} {NO_LABORATORY}")

    text = f"{summary}. This command {NO_LABORATORY}."
    made = Elsewhere(called.rpartition(" ")[2], help=text, short_help=summary)
    made.example = f"  {PROGRAM} {called} --help"
    made.find, made.load = find, missing
    of.add_command(made)
