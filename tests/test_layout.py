import ast
import re
import tomllib
from pathlib import Path
from typing import Any

NOT_PARTS = {
    *("dev", "deploy/containers", "deploy/image"),
    *("benchmarks", "tools", "tests"),
}
NOT_INSTALLED = {"lab"}
ROOT = Path(__file__).resolve().parents[1]


def parts_on_disk() -> set[str]:
    """Names of the parts: the folders X that hold X/curtilage/X."""
    return {
        path.name
        for path in ROOT.glob("*/curtilage/*")
        if path.is_dir() and path.name != "__pycache__"
    }


def test_namespace_root_has_no_init() -> None:
    assert list(ROOT.glob("*/curtilage/__init__.py")) == []


def test_each_part_lies_in_the_folder_of_its_name() -> None:
    misplaced = [
        path
        for path in ROOT.glob("*/curtilage/*/__init__.py")
        if path.parent.name != path.parents[2].name
    ]
    assert misplaced == []


def test_every_part_is_typed() -> None:
    typed = {path.parent.name for path in ROOT.glob("*/curtilage/*/py.typed")}
    assert parts_on_disk() == typed


def test_every_tool_knows_every_part() -> None:
    tool: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    build = tool["hatch"]["build"]
    make = re.search(r"^PARTS := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert make is not None
    named = {
        "make lint": make[1].split(),
        "hatch dev-mode-dirs": build["dev-mode-dirs"],
        "hatch packages": {
            *(
                name.removesuffix("/curtilage")
                for name in build["targets"]["wheel"]["packages"]
            ),
            *NOT_INSTALLED,
        },
        "mypy_path": tool["mypy"]["mypy_path"].split(":"),
        "mypy files": tool["mypy"]["files"],
        "pyright include": tool["pyright"]["include"],
        "pyright extraPaths": tool["pyright"]["extraPaths"],
        "ruff src": tool["ruff"]["src"],
        "importlinter": [
            name.removeprefix("curtilage.")
            for name in tool["importlinter"]["root_packages"]
        ],
    }
    parts = parts_on_disk()
    wrong = {
        where: names
        for where, names in named.items()
        if set(names) - NOT_PARTS != parts
    }
    assert wrong == {}, f"the tree holds {sorted(parts)}"


def test_every_folder_says_what_it_knows_and_may_not_touch() -> None:
    """One sentence names a folder; the text behind it is its contract."""
    silent = [
        str(path.relative_to(ROOT))
        for part in parts_on_disk()
        for path in (ROOT / part / "curtilage").rglob("__init__.py")
        if "\n\n" not in (ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "")
    ]
    assert silent == []
