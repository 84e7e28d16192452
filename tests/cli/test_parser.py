"""The argument parser: its help imports nothing slow, its copied values are current."""

import argparse
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from curtilage.attest.evidence import DeviceKind, Tee
from curtilage.cli.attest.parser import TEES
from curtilage.cli.audit.parser import OUTCOMES
from curtilage.cli.main import command_of
from curtilage.cli.parser import GROUPS, PARTS, build_parser
from curtilage.cli.release.parser import HEAD_SUFFIX
from curtilage.cli.terminal import Commands
from curtilage.client.audit.record import Outcome
from curtilage.lab.evaluation import run
from curtilage.lab.evaluation.rows import Part
from curtilage.transparency import log

ROOT = Path(__file__).resolve().parents[2]
# One module of each kind that is slow to import, and the client's core.
SLOW = {
    "aiohttp",
    "asyncio",
    "cryptography",
    "jinja2",
    "numpy",
    "presidio_analyzer",
    "pydantic",
    "yaml",
    "curtilage.attest.verify",
    "curtilage.client.assemble",
    "curtilage.client.session",
    "curtilage.lab",
    "curtilage.policy.document.model",
    "curtilage.transparency.files",
}
LOADED = """\
import sys
from curtilage.cli.main import main
try:
    main(sys.argv[1:])
except SystemExit:
    print("\\n", *sys.modules)
"""


def leaves(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Yield every parser without subcommands."""
    below = [
        cast("Commands[argparse.ArgumentParser]", each).choices
        for each in parser._actions
        if isinstance(each, Commands)
    ]
    if not below:
        yield parser
    for parsers in below:
        for each in parsers.values():
            yield from leaves(each)


CALLED = [each.get_default("called") for each in leaves(build_parser())]


@pytest.mark.parametrize("result", ["--version", "--help", "ask --help", "demo --help"])
def test_help_imports_nothing_slow(result: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADED, *result.split()],
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "curtilage.cli.parser" in loaded
    assert not loaded & SLOW


@pytest.mark.parametrize("module", ["explain", "decide", "policy.approve"])
def test_commands_that_only_inspect_do_not_load_the_tiers(module: str) -> None:
    """Importing the tiers takes longer than inspecting a text."""
    program = f"import sys, curtilage.cli.{module}\nprint(*sys.modules, sep='\\n')"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.splitlines())
    assert "curtilage.client.detection.checked" in loaded
    assert not loaded & {"curtilage.client.assemble", "curtilage.client.session"}


@pytest.mark.parametrize("called", CALLED)
def test_every_command_is_found(called: str) -> None:
    assert callable(command_of(called))


def test_a_command_is_named_by_all_its_words() -> None:
    assert "release log init" in CALLED
    assert len(set(CALLED)) == len(CALLED)


def test_names_written_out_are_those_of_the_parts() -> None:
    assert tuple(map(Outcome, OUTCOMES)) == tuple(Outcome)
    assert (*Tee, *DeviceKind) == TEES
    assert tuple(Part) == PARTS
    assert GROUPS == run.GROUPS
    assert HEAD_SUFFIX == log.HEAD_SUFFIX


@pytest.mark.parametrize("option", ["require", "mode", "floor", "preset"])
def test_every_value_of_a_routing_option_is_in_the_document(option: str) -> None:
    ask = next(
        each for each in leaves(build_parser()) if each.get_default("called") == "ask"
    )
    action = ask._option_string_actions[f"--{option}"]
    assert action.choices is not None
    document = (ROOT / "docs" / "commands.md").read_text("utf-8")
    rows = document.partition("\n| option | says |\n")[2].splitlines()
    row = next(each for each in rows if each.startswith(f"| `{option}` | "))
    assert [each for each in action.choices if f"`{each}`" not in row] == []


def test_old_names_of_flags_still_work(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["ask", "--house-key-file", "F", "--require", "house", "why?"]
    arguments = build_parser().parse_args(words)
    assert (arguments.on_premises_key_file, arguments.require) == ("F", "on_premises")
    assert "is now --on-premises-key-file" in capsys.readouterr().err
    prove = build_parser().parse_args(["audit", "prove", "--route", "house"])
    assert prove.route == "on_premises"
