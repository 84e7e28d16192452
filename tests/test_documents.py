"""What the documents show is true: commands parse, targets and files exist."""

import io
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

import pytest
from typing_extensions import override

from curtilage.cli.declared import parse
from curtilage.cli.main import main
from curtilage.cli.table import root
from curtilage.enclave_server.__main__ import main as enclave_main
from curtilage.enclave_server.stapler.__main__ import main as stapler_main
from curtilage.relay.__main__ import main as relay_main
from support.examples import examples

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "deploy").glob("*.md"),
    ]
)
PROGRAMS: dict[str, Callable[[Sequence[str]], object]] = {
    "curtilage": lambda words: parse(root, words),
    "curtilage-relay": relay_main,
    "curtilage-enclave": enclave_main,
    "curtilage-stapler": stapler_main,
}
INLINE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
PLACEHOLDERS = {"...", "…"}


@dataclass(frozen=True, slots=True)
class Command:
    """One command as a document shows it.

    Attributes:
        document: the document's name.
        line: where it is in the document.
        words: the program and its arguments; comments, redirections and what
            follows a pipe are left out.
        whole: it is in a block, so it is complete; in running text it may
            be a command's name with an option or two.
    """

    document: str
    line: int
    words: tuple[str, ...]
    whole: bool

    @override
    def __str__(self) -> str:
        """Name it for a test's id."""
        return f"{self.document}:{self.line} {' '.join(self.words)[:60]}"


def blocks(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Yield the lines of a document's code blocks, continued ones joined."""
    fenced, held, begun = False, "", 0
    for number, line in enumerate(lines, start=1):
        if line.startswith("```"):
            fenced = not fenced
        elif fenced or line.startswith("    "):
            begun = begun if held else number
            held += line.strip().removesuffix("\\")
            if not line.endswith("\\"):
                yield begun, held
                held = ""


def split(text: str) -> Iterator[tuple[str, ...]]:
    """Yield each program with its arguments, as a shell would take them."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    words: list[str] = []
    redirected = False
    for word in lexer:
        if redirected:
            redirected = False
        elif word.startswith(("<", ">")):
            redirected = True
        elif word in {"|", "&&", ";"}:
            yield tuple(words)
            words = []
        else:
            words.append(word)
    yield tuple(words)


def shown() -> Iterator[Command]:
    """Yield every command of ours that a document shows."""
    for path in DOCUMENTS:
        name, lines = str(path.relative_to(ROOT)), path.read_text("utf-8").split("\n")
        found = [(number, text, True) for number, text in blocks(lines)]
        found += [
            (number, text, False)
            for number, line in enumerate(lines, start=1)
            if path.name != "CHANGELOG.md"  # which mentions commands that were
            for text in INLINE.findall(line)
        ]
        for number, text, whole in found:
            if re.match(r"(\.venv/bin/|echo .*\| |make )?(curtilage|make )", text):
                for words in split(text):
                    plain = (words[0].removeprefix(".venv/bin/"), *words[1:])
                    complete = whole and PLACEHOLDERS.isdisjoint(plain)
                    yield Command(name, number, plain, complete)


COMMANDS = sorted(set(shown()), key=str)


def of(*programs: str) -> list[Command]:
    return [command for command in COMMANDS if command.words[0] in programs]


def test_the_documents_show_commands() -> None:
    """The tests below would pass on documents without any."""
    assert len([each for each in of("curtilage") if each.whole]) > 30
    assert len(of(*PROGRAMS)) > 80
    assert len(of("make")) > 20


@examples("command", [each for each in of("curtilage") if each.whole])
def test_a_command_in_a_block_is_one_that_the_program_takes(command: Command) -> None:
    try:
        parse(root, command.words[1:])
    except SystemExit as ended:
        if ended.code != 0:
            pytest.fail(f"{command}: not a command")


@examples("command", of(*PROGRAMS))
def test_a_command_and_its_options_exist(
    command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    program, *words = command.words
    path = takewhile(re.compile(r"[a-z][a-z-]*").fullmatch, words)
    with pytest.raises(SystemExit) as ended:
        PROGRAMS[program]([*path, "--help"])
    assert ended.value.code == 0, "no such command"
    taken = capsys.readouterr().out
    if PLACEHOLDERS.isdisjoint(words):
        given = {word.partition("=")[0] for word in words if word.startswith("--")}
        assert {option for option in given if option not in taken} == set()


def test_every_target_of_make_that_is_shown_exists() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    wanted = {
        (str(command), word)
        for command in of("make")
        for word in command.words[1:]
        if re.fullmatch(r"[a-z-]+", word)
    }
    assert {each for each in wanted if each[1] not in targets} == set()


@pytest.mark.parametrize("question", [0, 1])
def test_the_policy_in_the_readme_answers_as_it_says(
    question: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    policy = tmp_path / "ward.yaml"
    policy.write_text(text.partition("```yaml\n")[2].partition("```")[0], "utf-8")
    rows = text.partition("--policy ward.yaml` |\n|---|---|\n")[2].split("\n")
    asked, answer = rows[question].strip("| ").split(" | ")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(asked.encode())))
    assert main(["explain", "--policy", str(policy), "-"]) == 0
    result = capsys.readouterr().out
    assert [line for line in answer.split("<br>") if line not in result] == []


@examples("path", DOCUMENTS)
def test_every_link_leads_somewhere(path: Path) -> None:
    text = path.read_text("utf-8")
    lost: list[str] = []
    for link in LINK.findall(text):
        if link.startswith(("http:", "https:", "mailto:")):
            continue
        name, _, anchor = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        if not target.exists() or (anchor and anchor not in anchors(target)):
            lost.append(link)
    assert lost == []


def test_the_index_lists_every_page_once() -> None:
    index = (ROOT / "docs/README.md").read_text("utf-8")
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"}
    listed = [link for link in LINK.findall(index) if "#" not in link]
    rows = [link for link in listed if "/" not in link and link.endswith(".md")]
    assert sorted(rows) == sorted(pages)


def test_every_module_that_is_named_exists() -> None:
    folders = [each for each in ROOT.iterdir() if not each.name.startswith(".")]
    files = [
        f"/{file.relative_to(ROOT)}" for each in folders for file in each.rglob("*.py")
    ]
    lost = [
        (path.name, name)
        for path in DOCUMENTS
        if path.name != "CHANGELOG.md"
        for name in re.findall(r"`([\w./…]+\.py)`", path.read_text("utf-8"))
        if not any(fits(name, file) for file in files)
    ]
    assert lost == []


def fits(name: str, file: str) -> bool:
    """Return whether a name is the end of a file's path; ``…`` means folders."""
    return re.search("/" + re.escape(name).replace("…", ".*") + "$", file) is not None


def anchors(path: Path) -> set[str]:
    """Return the anchors of a document's headings, as forges make them."""
    headings = re.findall(r"^#+ (.+)$", path.read_text("utf-8"), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.strip().replace(" ", "-") for heading in plain}
