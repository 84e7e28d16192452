"""The laboratory's commands, which are declared there, where it is installed."""

import importlib.util
from typing import Any

import click
from typing_extensions import override

from curtilage.cli.declared import PROGRAM, Command, Group, Run
from curtilage.client.errors import ClientError

NO_LABORATORY = (
    "needs the laboratory, which is not installed: run `pip install . ./lab` in a "
    "source checkout of this version, or `make setup` there and `.venv/bin/curtilage`"
)


class _Elsewhere(Command):
    """A command of the laboratory; its name and summary are all that is known here."""

    called: str

    @override
    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        if importlib.util.find_spec("curtilage.lab") is None:
            asked = [each for each in args if each in {"-h", "--help"}]
            return super().make_context(info_name, asked, parent, **extra)
        from curtilage.lab.commands.table import laboratory

        declared = laboratory.commands[self.called]
        return declared.make_context(info_name, args, parent, **extra)


def from_laboratory(of: Group, called: str, summary: str) -> None:
    """Add a command of the laboratory to a group.

    Args:
        of: the group.
        called: the command's name in the laboratory, with its group's name.
        summary: the first line of its help, which a test compares.
    """

    def missing() -> Run:
        raise ClientError(f"{called} {NO_LABORATORY}")

    text = f"{summary}. This command {NO_LABORATORY}."
    made = _Elsewhere(called.rpartition(" ")[2], help=text, short_help=summary)
    made.example = f"  {PROGRAM} {called} --help"
    made.called, made.load = called, missing
    of.add_command(made)
