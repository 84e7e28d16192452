"""Finds all uses of network, processes and code loading, ignoring exemptions.

Ruff finds names that its list bans, through any alias. It does not find builtins,
methods of an event loop, or modules that are not on the list: those are searched
in the syntax tree here.
"""

import ast
import asyncio
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

ROOT = Path(__file__).resolve().parents[2]
TOOL: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))[
    "tool"
]
DOORS = cast("dict[str, dict[str, str]]", TOOL["curtilage"]["doors"])
CONTRACTS = cast("list[dict[str, Any]]", TOOL["importlinter"]["contracts"])

_HARMLESS = frozenset(cast("list[str]", TOOL["curtilage"]["harmless"]))
# Roots of which every submodule may be imported: ours (the contracts order them),
# libraries that are harmless as a whole, and those that a contract protects.
_PROTECTED = {
    name
    for contract in CONTRACTS
    for name in (
        *cast("list[str]", contract.get("protected_modules", ())),
        *cast("dict[str, list[str]]", contract.get("doors", {})),
    )
}
_TRUSTED = {"curtilage"} | _PROTECTED | (_HARMLESS - sys.stdlib_module_names)

_BUILT_IN = frozenset(
    {"__import__", "breakpoint", "compile", "eval", "exec", "globals"}
)
_BACK_DOORS = frozenset(
    {
        "__builtins__",
        "__dict__",
        "__globals__",
        "__loader__",
        "__spec__",
        "__subclasses__",
        "exec_module",
        "load_module",
    }
)
_OF_A_LOOP = frozenset(
    name
    for name in dir(asyncio.AbstractEventLoop)
    if name.startswith(
        ("connect_", "create_", "getaddr", "getname", "sock_", "subproc")
    )
) - {"create_future", "create_task"}
# What a harmless module has imported for itself can be had from it
# (``asyncio.base_events.socket``, ``from shutil import os``), and ruff sees another
# name then. So can what one of our doors has imported.
_BANNED = cast("dict[str, object]", TOOL["ruff"]["lint"]["flake8-tidy-imports"])
_SECOND_HAND = (
    {
        name.partition(".")[0]
        for name in cast("dict[str, object]", _BANNED["banned-api"])
    }
    - {name.partition(".")[0] for name in _HARMLESS}
) | {"os", "sys"}


@dataclass(frozen=True, slots=True, order=True)
class Use:
    """One place where a module reaches for a way out."""

    module: str
    line: int
    name: str


def parts(root: Path) -> list[Path]:
    """Return the parts' folders, from the tree and not from a list."""
    found = {
        folder.parent
        for folder in root.glob("*/curtilage/*")
        if folder.is_dir() and folder.name != "__pycache__"
    }
    return sorted(found)


def sources(root: Path) -> list[Path]:
    """Return every file of Python in the parts, in a package or not."""
    return sorted(path for part in parts(root) for path in part.rglob("*.py"))


def module_of(path: Path, root: Path) -> str:
    """Return a file's name as a module."""
    steps = path.relative_to(root).with_suffix("").parts[1:]
    return ".".join(steps[:-1] if steps[-1] == "__init__" else steps)


def banned(root: Path, *, excused: bool) -> Iterator[Use]:
    """Yield what ruff's list bans, with this tree's settings.

    Args:
        root: the tree; its ``pyproject.toml`` counts.
        excused: also what a comment excuses.
    """
    command = [sys.executable, "-m", "ruff", "check", "--no-cache", "--exit-zero"]
    command += ["--select", "TID251", "--output-format", "json"]
    command += ["--ignore-noqa"] if excused else []
    done = subprocess.run(
        [*command, *(str(part) for part in parts(root))],
        cwd=root,
        check=True,
        capture_output=True,
    )
    for row in cast("list[dict[str, Any]]", json.loads(done.stdout)):
        found = re.match(r"`([^`]+)` is banned", cast("str", row["message"]))
        assert found is not None, row["message"]
        module = module_of(Path(cast("str", row["filename"])), root)
        yield Use(module, cast("int", row["location"]["row"]), found[1])


def unlisted(path: Path, root: Path) -> Iterator[Use]:
    """Yield what ruff cannot see in one file."""
    module = module_of(path, root)
    tree = ast.parse(path.read_text("utf-8"))
    imported = {
        (each.asname or each.name).partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for each in node.names
    }
    for node in ast.walk(tree):
        match node:
            case ast.Import() | ast.ImportFrom():
                names = _not_known(node)
            case ast.Attribute(attr=name) if (
                name in _SECOND_HAND and _root(node) in imported
            ):
                names = [name]
            case ast.Name(id=name) if name in _BUILT_IN | _BACK_DOORS:
                names = [name]
            case ast.Attribute(attr=name) if name in _BACK_DOORS | _OF_A_LOOP:
                names = [name]
            case _:
                continue
        for name in names:
            yield Use(module, node.lineno, name)


def _root(node: ast.Attribute) -> str | None:
    """Return the name that a dotted name begins with."""
    value = node.value
    while isinstance(value, ast.Attribute):
        value = value.value
    return value.id if isinstance(value, ast.Name) else None


def _not_known(node: ast.Import | ast.ImportFrom) -> list[str]:
    """Return the modules of a statement that are neither harmless nor protected."""
    names = [each.name for each in node.names]
    if isinstance(node, ast.Import):
        return [name for name in names if not _is_known(name)]
    home = node.module or "."  # ruff refuses relative imports
    if "*" in names:
        return [f"{home}.*"]
    if second_hand := _SECOND_HAND & set(names):
        return sorted(second_hand)
    whole = _is_known(home) or all(_is_known(f"{home}.{name}") for name in names)
    return [] if whole else [home]


def _is_known(name: str) -> bool:
    return name in _HARMLESS or name.partition(".")[0] in _TRUSTED


def uses(root: Path) -> set[Use]:
    """Return every use of a way out in a tree's parts."""
    found = set(banned(root, excused=True))
    for path in sources(root):
        found |= set(unlisted(path, root))
    return found
