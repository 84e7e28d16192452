"""The declared commands: the help imports nothing slow, no error repeats a text."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from cli.test_main import WORDS

from curtilage.attest.evidence import DeviceKind, Tee
from curtilage.cli.attest.table import TEES
from curtilage.cli.audit.table import OUTCOMES
from curtilage.cli.completion import complete
from curtilage.cli.declared import Command, Group, command, group, parse
from curtilage.cli.main import main
from curtilage.cli.table import EMULATED, MAX_GPUS, TASKS, root
from curtilage.client.audit.record import Outcome
from curtilage.client.chat.openai_fields import USED
from curtilage.client.local.registry import catalogue
from curtilage.lab.commands.table import GROUPS, PARTS, laboratory
from curtilage.lab.evaluation import run
from curtilage.lab.evaluation.rows import Part
from curtilage.transparency import log
from curtilage.wire.shaping import PADDED
from curtilage_dev.emulated import machines

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
SECRET = "Is 536-22-1234 the number of Jane Doe?"


def leaves(of: Group, path: str = "") -> Iterator[tuple[str, Command]]:
    """Yield every command without subcommands; the laboratory's from there."""
    for name, each in of.commands.items():
        called = f"{path}{name}"
        if isinstance(each, Group):
            yield from leaves(each, f"{called} ")
        else:
            found = laboratory.commands.get(called, each)
            assert isinstance(found, Command)
            yield called, found


CALLED = dict(leaves(root))


def option_of(called: str, name: str) -> click.Parameter:
    (found,) = (each for each in CALLED[called].params if each.name == name)
    return found


def refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "536" not in shown.err
    assert "Jane" not in shown.err
    return shown.err


@pytest.mark.parametrize(
    "result",
    ["--version", "--help", "ask --help", "demo --help", "policy --help", "ask -x"],
)
def test_help_imports_nothing_slow(result: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADED, *result.split()],
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "curtilage.cli.table" in loaded
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
    assert callable(CALLED[called].load())


def test_a_command_is_named_by_all_its_words() -> None:
    assert "release log init" in CALLED
    assert "models rollout take" in CALLED


def test_commands_that_need_no_network() -> None:
    whole = {each for each in WORDS if " " not in each} | {"completion"}
    offline = {called for called, each in CALLED.items() if each.offline}
    named = {each for each in WORDS if " " in each}
    assert offline == named | {each for each in CALLED if each.split()[0] in whole}


def test_the_laboratorys_commands_have_one_summary() -> None:
    routed = root.commands["route"]
    assert isinstance(routed, Group)
    listed = {**root.commands, **routed.commands}
    for called, each in laboratory.commands.items():
        assert listed[called.rpartition(" ")[2]].short_help == each.short_help


def test_names_written_out_are_those_of_the_parts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert tuple(map(Outcome, OUTCOMES)) == tuple(Outcome)
    assert (*Tee, *DeviceKind) == TEES
    assert tuple(Part) == PARTS
    assert GROUPS == run.GROUPS
    assert TASKS == catalogue.TASKS
    assert (EMULATED, MAX_GPUS) == (machines.KINDS, machines.MAX_GPUS)
    for name in ("max_tokens", "temperature"):
        option = option_of("ask", name)
        assert isinstance(option, click.Option)
        least, most = re.findall("[0-9]+", USED[name])[:2]
        assert re.search(rf"\b{least}\b.* to {most}\b", option.help or "")
    text = CALLED["evaluate"].help or ""
    listed = text.partition("groups of figures: ")[2].split("\n\n")[0]
    assert tuple(" ".join(listed.split()).split(", ")) == GROUPS
    assert f"KEY{log.HEAD_SUFFIX}" in (CALLED["release log init"].help or "")
    with pytest.raises(SystemExit):
        main(["release", "manifest", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    for name in ("frame_bytes", "period_ms", "first_bucket", "buckets"):
        words = f"--{name.replace('_', '-')} N how answers are padded"
        assert f"{words} (default: {getattr(PADDED, name)})" in shown


def nodes(of: Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the words of every command and of every group."""
    yield path
    for name, each in of.commands.items():
        if isinstance(each, Group):
            yield from nodes(each, (*path, name))
        else:
            yield (*path, name)


@pytest.mark.parametrize("words", list(nodes(root)), ids=" ".join)
def test_every_help_fits_a_terminal(
    words: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main([*words, "--help"])
    shown = capsys.readouterr().out
    assert [each for each in shown.splitlines() if len(each) > 80] == []
    example = shown.partition("\nexample:\n")[2].partition("\n\nexit: ")[0]
    continued = False
    for line in example.splitlines():
        assert re.match(r" {4}\S" if continued else r" {2}\S", line), line
        assert "   " not in line.strip()
        continued = line.endswith("\\")


@pytest.mark.parametrize("called", CALLED)
def test_every_example_is_accepted(called: str) -> None:
    lines = CALLED[called].example.replace("\\\n", " ").splitlines()
    for line in lines:
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|<>")
        lexer.whitespace_split = True
        words = list(lexer)
        if "curtilage" not in words:  # another program's
            continue
        words = words[words.index("curtilage") + 1 :]
        ends = [at for at, each in enumerate(words) if each in {"<", ">", "|"}]
        parse(root, words[: min(ends, default=len(words))])


def test_names_of_choices_are_spelt_out(capsys: pytest.CaptureFixture[str]) -> None:
    for words, known in (
        (["audit", "prove"], OUTCOMES),
        (["models", "recommend"], TASKS),
        (["attest", "verify-evidence"], TEES),
    ):
        with pytest.raises(SystemExit):
            main([*words, "--help"])
        shown = "".join(capsys.readouterr().out.split())
        assert f"oneof{','.join(known)}" in shown


@pytest.mark.parametrize("option", ["require", "mode", "floor", "preset"])
def test_every_value_of_a_routing_option_is_in_the_document(option: str) -> None:
    accepted = option_of("ask", option).type
    assert isinstance(accepted, click.Choice)
    document = (ROOT / "docs" / "commands.md").read_text("utf-8")
    rows = document.partition("\n| option | says |\n")[2].splitlines()
    row = next(each for each in rows if each.startswith(f"| `{option}` | "))
    assert [each for each in accepted.choices if f"`{each}`" not in row] == []


def test_old_names_of_options_still_work(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["ask", "--house-key-file", "F", "--require", "house", "why?"]
    arguments = parse(root, words).arguments
    assert (arguments.on_premises_key_file, arguments.require) == ("F", "on_premises")
    assert "--on-premises-key-file" in capsys.readouterr().err
    joined = parse(root, ["ask", "--house-key-file=F"]).arguments
    assert joined.on_premises_key_file == "F"
    capsys.readouterr()
    asked = parse(root, ["ask", "--", "--house-key-file"]).arguments
    assert asked.text == ["--house-key-file"]
    assert capsys.readouterr().err == ""
    prove = parse(root, ["audit", "prove", "--route", "house"]).arguments
    assert prove.route == "on_premises"


@pytest.mark.parametrize(
    ("words", "known"),
    [
        (["dcide"], "did you mean decide?"),
        (["route", "explan", "x"], "did you mean explain?"),
        (["ask", "--modle", "x"], "argument 2 is not an option; did you mean --"),
        (["ask", "--model=x", "--mod", "y"], "argument 3 is not an option"),
        (["ask", "--modle", "--modle"], "an argument is not an option"),
        (["ask", "a", "-hWeber"], "argument 3 is not an option"),
        (["explain", "-help"], "argument 2 is not an option"),
        (["ask", "--wrong"], "argument 2 is not an option\nsee `curtilage ask --help`"),
        (["serve", "--port", "٣"], "expected a port, 0 to 65535"),
        (["ask", "--seed", "1_0"], "expected a whole number"),
        (["ask", "--temperature", "1_0"], "expected a number"),
        (["completion"], "Choose from: bash, zsh, fish\n"),
        (["release", "log"], "name a command: init, add, request, cosign"),
    ],
)
def test_an_error_says_what_was_meant(
    words: list[str], known: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert known in refused(words, capsys)


@pytest.mark.parametrize(
    "words",
    [
        [SECRET],
        ["policy", SECRET],
        ["ask", f"--{SECRET}"],
        ["ask", f"-{SECRET}"],
        ["ask", "--max-tokens", SECRET],
        ["ask", "--temperature", SECRET],
        ["ask", f"--require={SECRET}"],
        ["ask", f"--json={SECRET}"],
        ["demo", "--tee", SECRET],
        ["demo", "--gpus", SECRET],
        ["serve", "--port", SECRET],
        ["serve", "--listen", SECRET],
        ["models", "recommend", "--memory", SECRET],
        ["audit", "prove", "--route", "local", "--from", SECRET],
        ["decide", SECRET],
        ["route", "feedback", "good", SECRET],
        ["route", "feedback", SECRET],
        ["route", "calibrate", "--data", "x", "--good", SECRET],
        ["queue", "show", *SECRET.split()],
        ["models", "rollout", "manifest", "--arm", SECRET],
    ],
    ids=" ".join,
)
def test_an_error_repeats_nothing(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert refused(words, capsys).startswith("Usage: curtilage")


@pytest.mark.parametrize(
    ("given", "accepted"),
    [
        (["--log-policy", "a"], True),
        (["--policy", "a"], True),
        ([], False),
        (["--policy", "a", "--log-policy", "b"], False),
    ],
)
def test_options_exclude_each_other(
    given: list[str], accepted: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["release", "verify", "--manifest", "m", "--proof", "p", *given]
    if accepted:
        parse(root, words)
    else:
        both = "--policy and --log-policy exclude each other"
        none = "one of --policy, --log-policy is needed"
        assert (both if given else none) in refused(words, capsys)


def test_an_option_may_take_all_values_up_to_the_next() -> None:
    words = ["models", "add", "big", "--from", "a", "b", "-", "--sha256", "HEX"]
    arguments = parse(root, words).arguments
    assert arguments.parts == [Path("a"), Path("b"), Path("-")]
    assert arguments.sha256 == "HEX"
    words = ["models", "add", "big", "--from=a", "b", "c"]
    assert parse(root, words).arguments.parts == [Path("a"), Path("b"), Path("c")]
    words = ["route", "explain", "--jsonl", "--max-tokens=7"]
    arguments = parse(root, words).arguments
    assert (arguments.jsonl, arguments.max_tokens) == ("-", 7)


def test_a_declaration_is_a_docstring() -> None:
    @group("own")
    def own() -> None:
        """Group."""

    def declared() -> None:
        """Say.

        Options:
            WORD...: words
            --n N..., required: numbers
        """

    made = command("say", own)(declared)  # type: ignore[arg-type]
    assert [each.name for each in made.params] == ["word", "n"]
    assert parse(own, ["say", "a", "b", "--n", "1", "--n", "2"]).arguments.n == [1, 2]
    declared.__doc__ = None
    with pytest.raises(RuntimeError, match="-OO"):
        command("say", own)(declared)  # type: ignore[arg-type]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert "_CURTILAGE_COMPLETE" in script


def completed(**environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "curtilage.cli", "--version"],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )


# ``bash_source`` would start a program.
@pytest.mark.parametrize("mode", ["", "Weber", "bash_source", "_complete"])
def test_an_odd_completion_mode_is_ignored(mode: str) -> None:
    done = completed(_CURTILAGE_COMPLETE=mode, COMP_WORDS="curtilage", COMP_CWORD="1")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("curtilage ")


def test_a_completion_mode_without_words_is_ignored() -> None:
    done = completed(_CURTILAGE_COMPLETE="bash_complete", COMP_CWORD="1")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("curtilage ")


@pytest.mark.parametrize(
    ("mode", "words", "at"),
    [
        ("bash_complete", "curtilage au", "Weber"),
        ("fish_complete", "curtilage ask", " "),
        ("fish_complete", "", " "),
    ],
)
def test_a_failed_completion_is_no_traceback(mode: str, words: str, at: str) -> None:
    done = completed(_CURTILAGE_COMPLETE=mode, COMP_WORDS=words, COMP_CWORD=at)
    assert "Traceback" not in done.stderr
    assert "Weber" not in done.stdout + done.stderr


def test_a_completion_shows_no_notice(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_CURTILAGE_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "curtilage ask --house-key-file F --pre")
    monkeypatch.setenv("COMP_CWORD", "4")
    assert complete(root) == 0
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("plain,--preset\n", "")


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("curtilage au", "audit"),
        ("curtilage ask --pre", "--preset"),
        ("curtilage ask --preset v", "voice"),
        ("curtilage decide too many words --js", "--jsonl"),
        ("curtilage route advise --ene", "--energy"),
    ],
)
def test_words_are_completed(typed: str, found: str) -> None:
    environment = {
        "COMP_WORDS": typed,
        "COMP_CWORD": str(len(typed.split()) - 1),
        "_CURTILAGE_COMPLETE": "bash_complete",
    }
    done = subprocess.run(
        [sys.executable, "-m", "curtilage.cli"],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    assert f"plain,{found}" in done.stdout.splitlines()
