"""Compose files with one protection taken out: each must turn its check red."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from tools.compose_test.checks import problems
from tools.compose_test.errors import FailedError
from tools.compose_test.stack import Stack


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A change of ``compose.yaml``.

    Attributes:
        name: for people.
        service: whose protection it is.
        old: text that occurs once below the service's name, or once in the hardening
            that all share, if ``shared``.
        new: what replaces it.
        check: the name of the check that must go off; empty: compose refuses it.
        shared: the text is in the shared part.
    """

    name: str
    service: str
    old: str
    new: str
    check: str
    shared: bool = False


MUTANTS: Final[Sequence[Mutant]] = (
    Mutant(
        name="shared memory for the relay",
        service="relay",
        old='ipc: "none"',
        new='ipc: "private"',
        check="writes",
        shared=True,
    ),
    Mutant(
        name="the enclave on a network",
        service="enclave",
        old="network_mode: none",
        new="networks: [relay]",
        check="isolation",
    ),
    Mutant(
        name="a root that can be written to",
        service="relay",
        old="read_only: true",
        new="read_only: false",
        check="writes",
        shared=True,
    ),
    Mutant(
        name="a socket that the relay can replace",
        service="relay",
        old="gateway:/run/enclave:ro",
        new="gateway:/run/enclave",
        check="sockets",
    ),
    Mutant(
        name="new privileges",
        service="relay",
        old='"no-new-privileges:true", ',
        new="",
        check="processes",
        shared=True,
    ),
    Mutant(
        name="the engine's own profile of seccomp",
        service="relay",
        old=', "seccomp:deploy/compose/seccomp.json"',
        new="",
        check="calls",
        shared=True,
    ),
    Mutant(
        name="a misspelt key",
        service="relay",
        old="read_only: true",
        new="read_onyl: true",
        check="",
        shared=True,
    ),
)


def mutated(text: str, mutant: Mutant) -> str:
    """Return the file's text with one change.

    Raises:
        FailedError: the text to change does not occur exactly once.
    """
    below = rf"\n  {mutant.service}:\n(?:(?:    .*)?\n)+"
    part = re.search(r"(?s)\A.*?\nservices:\n" if mutant.shared else below, text)
    if part is None or part[0].count(mutant.old) != 1:
        raise FailedError(f"{mutant.name}: {mutant.old!r} is not there exactly once")
    changed = part[0].replace(mutant.old, mutant.new)
    return text[: part.start()] + changed + text[part.end() :]


def try_mutant(stack: Stack, mutant: Mutant, folder: Path) -> str:
    """Start a stack with a mutant; return what went off, in one line.

    Raises:
        FailedError: nothing did, or another check.
    """
    path = folder / "mutant.yaml"
    path.write_text(mutated(stack.file.read_text("utf-8"), mutant), "utf-8")
    changed = replace(stack, file=path)
    if not mutant.check:
        done = changed.run("config", "-q")
        if done.returncode == 0:
            raise FailedError(f"mutant: {mutant.name}: accepted")
        return f"refused: {done.stderr.strip().splitlines()[-1][:120]}"
    changed.up("--no-deps", mutant.service)
    found = problems(changed, [mutant.service])
    red = [each for each in found if each.check == mutant.check]
    if not red:
        names = sorted({each.check for each in found})
        raise FailedError(
            f"mutant: {mutant.name}: {mutant.check} stayed green, red were {names}"
        )
    return red[0].line()
