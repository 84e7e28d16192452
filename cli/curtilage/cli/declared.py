"""Commands and their options, each declared once: in the docstring that is its help.

A command is a function that imports and returns what runs it, so that parsing and
``--help`` import nothing else. Its docstring has a summary, a text, lines that the help
shows under ``Example:``, and before them the options::

    Options:
        [FILE]: an argument; in brackets where it may be missing
        --column NAME..., required: a repeatable option, at least once
        --trace FILE+: takes all values up to the next option
        --format jsonl|csv = jsonl: one of these words; the default is the first
        --jsonl [-|FILE]: without a value, the first of these
        --class NAME as classes: the name of the value in the program
        --new FILE was --old: the option's name of version 0.1
        --json: a flag

A name such as FILE or N says what is accepted: see ``TYPES``.
"""

import os
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any, Final, NamedTuple, cast

import click
from typing_extensions import override

from curtilage.cli.terminal import EXIT_CODES, WRONG_USE, err, out

PROGRAM: Final = "curtilage"
TEXT_WIDTH: Final = 79
COMPLETION: Final = "_CURTILAGE_COMPLETE"
"""The variable by which a shell's script asks this program for completions."""
Arguments = SimpleNamespace
"""The values of a command's options and arguments."""
Run = Callable[[Arguments], int]
Found = click.Command | None


class Value(click.ParamType[object]):
    """A kind of value: ``read`` parses it, or raises ValueError."""

    def __init__(self, expected: str, read: Callable[[str], object]) -> None:
        self.name = expected
        self._read = read

    @override
    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> object:
        """Return the parsed value; the message of a refusal does not repeat it."""
        # click's own types repeat the value in their messages.
        try:
            return self._read(str(value))
        except ValueError:
            self.fail(f"expected {self.name}", param, ctx)


def number_from(least: int, most: int | None = None, *, noun: str = "") -> Value:
    """Return the kind of a whole number that has bounds."""

    def read(text: str) -> int:
        # ``isdecimal`` and not ``int`` alone, which accepts "1_000" and " 7 ".
        number = int(text) if text.isascii() and text.isdecimal() else -1
        if number < least or (most is not None and number > most):
            raise ValueError
        return number

    bounds = f"{least} or more" if most is None else f"{least} to {most}"
    return Value(f"{noun}{bounds}", read)


def ascii_only(read: Callable[[str], object]) -> Callable[[str], object]:
    """Return the reader, which then refuses ``1_000`` and digits of other scripts."""

    def checked(text: str) -> object:
        if not text.isascii() or "_" in text:
            raise ValueError
        return read(text)

    return checked


class Choice(click.Choice[str]):
    """One of a few words; ``renamed`` maps those of version 0.1 to today's."""

    def __init__(
        self, words: Sequence[str], renamed: Callable[[str], str] = str
    ) -> None:
        super().__init__(words)
        self._renamed = renamed

    @override
    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        """Return the word, or today's word for one of version 0.1."""
        word = self._renamed(str(value))
        if word not in self.choices:
            self.fail(f"expected one of {', '.join(self.choices)}", param, ctx)
        return word

    @override
    def get_missing_message(
        self, param: click.Parameter, ctx: click.Context | None
    ) -> str:
        """Return the words in one line; click writes a line for each."""
        return f"Choose from: {', '.join(self.choices)}"


Types = Mapping[str, click.ParamType[Any]]
# For completion: files are opened elsewhere.
_PATH: Final = click.Path(readable=False)
PATHLIB: Final = click.Path(readable=False, path_type=Path)
TYPES: Final[Types] = MappingProxyType(
    {"FILE": _PATH, "DIR": _PATH, "N": Value("a whole number", ascii_only(int))}
)
"""Accepted values by the name in a declaration; other names accept any text."""


class Option(click.Option):
    """An option.

    Attributes:
        section: the heading that the help shows it under.
        many: it takes all values up to the next option.
        old: its name of version 0.1.
    """

    section: str = "Options"
    many: bool = False
    old: str | None = None


_ENTRY: Final = re.compile(
    r"(?P<names>(?:--\S+ ?)*)(?P<values>.*?)(?: = (?P<default>.+?))?"
    r"(?: as (?P<dest>\w+))?(?: was (?P<old>--\S+))?(?P<required>, required)?"
)
_HEADING: Final = re.compile(r"(?:^|\n\n)Options(?: \((.*)\))?:\n")


def renamed(old: str, new: str) -> str:
    """Return the notice about a renamed option or value."""
    return f"{old} is now {new}; version 0.2 will not accept the old name"


def _parameter(declared: str, text: str, section: str, types: Types) -> click.Parameter:
    """Return the option or the argument of one entry."""
    entry = _ENTRY.fullmatch(declared)
    # A declaration that does not fit must fail at once: as a text without options, it
    # would only be missing in the help.
    if entry is None:
        raise ValueError(declared)
    names, values = entry["names"].split(), entry["values"].removesuffix("...")
    several, many = values != entry["values"], values.endswith("+")
    values = values.removesuffix("+")
    optional = re.fullmatch(r"\[.*\]", values) is not None
    words = (values[1:-1] if optional else values).split("|")
    accepted = types.get(words[-1], click.STRING)
    metavar = values
    # In lower case these are words to type; in upper case, as in TIER=USD, they are
    # names of values.
    if len(words) > 1 and values.islower():
        accepted, metavar = Choice(words), f"[{'|'.join(words)}]"
    elif isinstance(accepted, Choice):  # more words than the metavar has room for
        text = f"one of {', '.join(accepted.choices)}; {text}".removesuffix("; ")
    more: dict[str, Any] = {"type": accepted, "help": text, "metavar": metavar}
    if not names:
        more["metavar"] = entry["values"]
        name = entry["dest"] or words[-1].lower()
        return click.Argument(
            [name], required=not optional, nargs=-1 if several else 1, **more
        )
    if not values:
        more = {"is_flag": True, "default": False, "help": text}
    elif optional:
        more |= {"is_flag": False, "flag_value": words[0]}
    if entry["default"] is not None:
        text = f"{text} (default: {entry['default']})".lstrip()
        more |= {"default": entry["default"], "help": text}
    made = Option(
        [*names, entry["dest"] or names[0].strip("-").replace("-", "_")],
        nargs=len(values.split()) or 1,
        multiple=several or many,
        required=entry["required"] is not None,
        **more,
    )
    made.section, made.many, made.old = section, many, entry["old"]
    return made


class _Described(click.Command):
    """Shows its example, and paragraphs with indented lines, as they are written."""

    example: str = ""

    @override
    def format_help_text(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        # click would also join the lines of lists and examples.
        paragraphs = [
            each if "\n " in f"\n{each}" else textwrap.fill(each, TEXT_WIDTH)
            for each in (self.help or "").split("\n\n")
        ]
        formatter.write("\n" + "\n\n".join(paragraphs) + "\n")

    @override
    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write(f"\nexample:\n{self.example}\n\n{EXIT_CODES}\n")


class Command(_Described):
    """A command.

    Attributes:
        load: imports what runs it.
        offline: it needs no network.
        one_of: exactly one of these options must be there; none, too, where the first
            is an argument.
    """

    load: Callable[[], Run]
    offline: bool = False
    one_of: tuple[str, ...] = ()

    @override
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line, and check what no single option can."""
        # click's own message repeats what was typed, which may be a question.
        ctx.allow_extra_args = True
        with click.core.augment_usage_errors(ctx):
            left = super().parse_args(ctx, self._rewritten(ctx, args))
        if ctx.resilient_parsing:  # an unfinished command line, to be completed
            return []
        if left:
            ctx.fail("too many arguments")
        names = [each.strip("-").replace("-", "_").lower() for each in self.one_of]
        given = [each for each in names if ctx.params[each] is not None]
        if len(given) > 1:
            ctx.fail(f"{' and '.join(self.one_of)} exclude each other")
        if names and not given and self.one_of[0].startswith("--"):
            ctx.fail(f"one of {', '.join(self.one_of)} is needed")
        return []

    def _rewritten(self, ctx: click.Context, args: Sequence[str]) -> list[str]:
        """Replace old names, and repeat an option before each of its values.

        click takes the values of an option one by one.
        """
        options = [each for each in self.params if isinstance(each, Option)]
        many = {name for each in options if each.many for name in each.opts}
        old = {each.old: each.opts[0] for each in options if each.old is not None}
        written: list[str] = []
        repeated, first = "", False
        for at, each in enumerate(args):
            # What follows are arguments, even if they look like options.
            if each == "--":
                return [*written, *args[at:]]
            if each.startswith("-") and each != "-":
                name, equals, value = each.partition("=")
                if name in old:
                    if not ctx.resilient_parsing:
                        err(renamed(name, old[name]))
                    name = old[name]
                repeated, first = name if name in many else "", not equals
                written.append(name + equals + value)
                continue
            if repeated and not first:
                written.append(repeated)
            first = False
            written.append(each)
        return written

    @override
    def format_options(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        """Write the options under their headings."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for each in self.get_params(ctx):
            row = each.get_help_record(ctx)
            if row is not None and isinstance(each, click.Option):
                title = each.section if isinstance(each, Option) else Option.section
                sections.setdefault(title, []).append(row)
        for title, rows in sections.items():
            with formatter.section(title):
                formatter.write_dl(rows)


class Elsewhere(Command):
    """A command that another distribution declares, where it is installed.

    Attributes:
        find: imports it, or returns None; its name and summary are known here.
    """

    find: Callable[[], Found]

    @override
    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Parse by the other distribution's command, or only show the help."""
        if (found := self.find()) is not None:
            return found.make_context(info_name, args, parent, **extra)
        # Other options are unknown without the other distribution; as errors they would
        # hide how to install it.
        asked = [each for each in args if each in {"-h", "--help"}]
        return super().make_context(info_name, asked, parent, **extra)


class Group(_Described, click.Group):
    """A command that only has subcommands; the help lists them in this order."""

    offline: bool = False

    @override
    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order in which they were declared."""
        # click sorts them; the order here is that of use, beginning with ``ask``.
        return list(self.commands)

    @override
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the group's own options only."""
        # ``parse`` looks for the subcommand, not ``click.Group.invoke``.
        return click.Command.parse_args(self, ctx, args)


def _read(function: Callable[..., object]) -> tuple[str, str, str, str]:
    """Return summary, help, options and example of a docstring."""
    if function.__doc__ is None:
        raise RuntimeError("python -OO removes the declarations of the commands")
    first, _, rest = function.__doc__.partition("\n")
    text = f"{first}\n{textwrap.dedent(rest)}".rstrip()
    text, _, example = text.partition("\n\nExample:\n")
    text, mark, options = text.partition("\n\nOptions")
    summary = text.partition("\n")[0].removesuffix(".")
    example = textwrap.indent(textwrap.dedent(example), "  ")
    return summary, text, mark + options, example


def group(
    name: str, of: Group | None = None, *, offline: bool = False
) -> Callable[[Callable[[], None]], Group]:
    """Declare a group of commands by a function of which only the docstring is used.

    Args:
        name: its name in the group ``of``.
        of: the group that it is in, unless a later statement adds it to one.
        offline: its commands need no network.
    """

    def declare(function: Callable[[], None]) -> Group:
        summary, text, _, example = _read(function)
        made = Group(name, help=text, short_help=summary, no_args_is_help=False)
        made.example, made.offline = example, offline
        if of is not None:
            of.add_command(made)
        return made

    return declare


def command(
    name: str,
    of: Group,
    *shared: str,
    offline: bool = False,
    one_of: tuple[str, ...] = (),
    types: Types = MappingProxyType({}),
    more: str = "",
) -> Callable[[Callable[[], Run]], Command]:
    """Declare a command by the function that imports what runs it.

    Args:
        name: its name in the group ``of``.
        of: the group.
        shared: more options, which several commands have.
        offline: it needs no network.
        one_of: see ``Command``.
        types: what is accepted for names of values, in addition to ``TYPES``.
        more: text that the help shows after the docstring's.
    """

    def declare(function: Callable[[], Run]) -> Command:
        summary, text, options, example = _read(function)
        made = Command(name, help=text + more, short_help=summary)
        _, *parts = _HEADING.split("\n\n".join((options, *shared)))
        for title, entries in zip(parts[::2], parts[1::2], strict=True):
            for each in re.split(r"\n(?! )", textwrap.dedent(entries).strip()):
                declared, _, said = " ".join(each.split()).partition(": ")
                section, accepted = title or Option.section, {**TYPES, **types}
                made.params.append(_parameter(declared, said, section, accepted))
        made.example, made.load, made.one_of = example, function, one_of
        made.offline = offline or of.offline
        of.add_command(made)
        return made

    return declare


def version_option() -> click.Option:
    """Return ``--version``."""

    def show(ctx: click.Context, _: click.Parameter, asked: bool) -> None:
        if asked and not ctx.resilient_parsing:
            from importlib.metadata import version  # noqa: PLC0415 - slow

            out(f"{PROGRAM} {version(PROGRAM)}")
            ctx.exit()

    return click.Option(
        ["--version"],
        is_flag=True,
        # Before the other options are checked: ``--version`` must work without a
        # command.
        is_eager=True,
        expose_value=False,
        callback=show,
        help="Show the program's version number and exit.",
    )


def completion_is_asked_for() -> bool:
    """Return whether a shell's script has called this program."""
    modes = {f"{shell}_complete" for shell in ("bash", "zsh", "fish")}
    # click's other modes start a program.
    given = {"COMP_WORDS", "COMP_CWORD"} <= os.environ.keys()
    return given and os.environ.get(COMPLETION) in modes


class Call(NamedTuple):
    """A command with its arguments."""

    command: Command
    arguments: Arguments


def parse(root: Group, words: Sequence[str]) -> Call:
    """Find the command of a command line, and parse its options.

    Raises:
        SystemExit: the help was shown, or the command line is wrong.
    """
    settings: dict[str, Any] = {
        "help_option_names": ["-h", "--help"],
        "max_content_width": 88,
    }
    try:
        ctx = root.make_context(PROGRAM, list(words), **settings)
        while isinstance(ctx.command, Group):
            if not ctx.args:
                ctx.fail(f"name a command: {', '.join(ctx.command.commands)}")
            name, found, rest = ctx.command.resolve_command(ctx, ctx.args)
            if found is not None:  # else it has raised
                ctx = found.make_context(name, rest, parent=ctx)
    except click.exceptions.Exit as ended:
        raise SystemExit(ended.exit_code) from None
    except click.UsageError as error:
        where = error.ctx or click.Context(root, info_name=PROGRAM)
        path = where.command_path
        err(f"{where.get_usage()}\n{path}: {_problem(error, words)}")
        err(f"see `{path} --help`")
        # Without click's error as the cause, which contains what was typed.
        raise SystemExit(WRONG_USE) from None
    if not isinstance(ctx.command, Command):
        raise TypeError(ctx.command)
    values = {
        name: list(cast("tuple[object, ...]", value))
        if isinstance(value, tuple)
        else value
        for name, value in ctx.params.items()
    }
    return Call(ctx.command, Arguments(**values))


def _problem(error: click.UsageError, words: Sequence[str]) -> str:
    """Return what is wrong, without what was typed: it may be a question."""
    if isinstance(error, click.NoSuchCommand):
        said, near = "no such command", list(error.possibilities or ())
    elif isinstance(error, click.NoSuchOption):
        option = error.option_name
        words = words[: words.index("--")] if "--" in words else words
        at = [
            number
            for number, each in enumerate(words, 1)
            if each.partition("=")[0] == option
            # ``-abc`` means ``-a -b -c``.
            or (option[1] != "-" and re.match("-[^-]", each) and option[1] in each[1:])
        ]
        # An equal word may be the value of another option.
        named = f"argument {at[0]}" if len(at) == 1 else "an argument"
        said = f"{named} is not an option"
        # click compares the dashes, too, which are always equal.
        names = {each.strip("-"): each for each in error.possibilities or ()}
        bare = click.NoSuchOption(option.strip("-"), possibilities=names)
        near = [names[each] for each in bare.possibilities or ()]
    else:
        return error.format_message()
    return f"{said}; did you mean {' or '.join(near)}?" if near else said
