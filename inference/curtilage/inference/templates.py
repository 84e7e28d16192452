"""Renders chat turns into prompt parts with the model file's template.

The template is untrusted code. It runs in jinja2's immutable sandbox, within additional
bounds: a budget of loop rounds, a cap on every text it makes, few filters and string
methods. It never sees a message's text: each text is replaced by a random word, and our
code puts the text back afterwards as a separate part that is not special. So no
template can cut, decode or repeat a text into control tokens. The price: a template
that inspects a text (for example to remove a model's own reasoning) finds nothing
there.

Of a tool, and of a call's arguments, the template sees an object that it can only print
as JSON, which is replaced in the same way: so it must print them whole, as those
templates do whose models call tools in the form of ``calls``. For any other template,
tools, calls and results are written into plain turns.

Work is bounded without a clock, so that the same input always ends the same. The bounds
stop runaway loops and texts that grow; even so, a template is pinned together with its
model, and an untrusted model must not be loaded.
"""

import contextlib
import json
import re
import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NoReturn, cast

import jinja2
import jinja2.sandbox
from jinja2 import nodes
from jinja2.visitor import NodeTransformer
from typing_extensions import override

from curtilage.inference.calls import OPEN
from curtilage.inference.errors import TemplateError
from curtilage.inference.protocol import ChatMessage, Tool
from curtilage.inference.turns import (
    into_first_turn,
    plain_turns,
    tool_text,
    tools_note,
    with_names,
    with_note,
)

DEFAULT_SYSTEM_MESSAGE: Final = "You are a helpful assistant. Answer briefly."
"""Used when a request has no system message: the default model's template would
otherwise insert one that names its vendor."""

MAX_TEMPLATE_CHARS: Final = 64 * 1024
"""Known templates have up to about 20,000 characters."""

MAX_TEXT_CHARS: Final = 256 * 1024
"""Cap on any text that a template makes, without the messages' texts."""

MAX_ROUNDS: Final = 50_000
"""Loop rounds and macro calls of one rendering: turns are at most thousands."""

MAX_RANGE: Final = 10_000

MAX_INDENT: Final = 8

_TELLING_CHARS: Final = 8
"""A part of a random word this long is not there by chance."""

_FILTERS: Final = (
    "capitalize", "d", "default", "first", "int", "items", "last", "length",
    "list", "lower", "map", "reject", "rejectattr", "select", "selectattr",
    "title", "trim", "upper",
)  # fmt: skip
"""None expands its input; ``join``, ``string`` and ``tojson`` are ours."""

_STRING_METHODS: Final = frozenset(
    {
        "capitalize", "count", "endswith", "find", "isalnum", "isalpha", "isdigit",
        "isspace", "lower", "lstrip", "removeprefix", "removesuffix", "rsplit",
        "rstrip", "split", "splitlines", "startswith", "strip", "title", "upper",
    }
)  # fmt: skip
"""None expands its input: no ``replace``, ``center``, ``format``, ``join``."""

_TEMPLATE_FAULTS: Final = (
    jinja2.TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
)
"""What untrusted template code can make Python raise, RecursionError included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A piece of the prompt.

    Attributes:
        text: the piece.
        special: it is the template's, and may become control tokens; message text
            is never special.
    """

    text: str = field(repr=False)
    special: bool


class ChatTemplate:
    """A compiled template; one object may render any number of times.

    Args:
        source: the template, as in the model file.
        bos_token: the text of the vocabulary's first-token marker.
        eos_token: the text of its end marker.

    Raises:
        TemplateError: it does not compile, or uses a construct that is not allowed.
    """

    def __init__(
        self, source: str, *, bos_token: str = "", eos_token: str = ""
    ) -> None:
        if len(source) > MAX_TEMPLATE_CHARS:
            raise TemplateError(
                f"the chat template has more than {MAX_TEMPLATE_CHARS} characters"
            )
        self._budget = _Budget()
        # Of other forms no call would be recognised.
        self._knows_calls = OPEN in source
        self._names = {"bos_token": bos_token, "eos_token": eos_token}
        environment = _Environment(self._budget)
        try:
            tree = environment.parse(source)
            # Another template would be code that is not pinned together with the model.
            others = (nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends)
            if next(tree.find_all(others), None) is not None:
                raise TemplateError("the chat template names another template")
            # Into the tree, before it is compiled: from then on no round and no piece
            # of output bypasses the budget.
            _Bounds().visit(tree)
            tree.set_environment(environment)
            self._template = environment.from_string(tree)
        except _TEMPLATE_FAULTS:
            # The cause quotes the template, which is the model's, not ours.
            raise TemplateError("the chat template does not compile") from None

    def render(
        self,
        messages: Sequence[ChatMessage],
        *,
        tools: Sequence[Tool] = (),
        note: str = "",
        random: Callable[[int], bytes] = secrets.token_bytes,
    ) -> tuple[Part, ...]:
        """Return the prompt up to the beginning of the answer.

        Adds ``DEFAULT_SYSTEM_MESSAGE`` when there is no system message, unless
        the template refuses system messages at all.

        Args:
            messages: the turns, oldest first.
            tools: what the answer may call.
            note: for the model, after the system message.
            random: makes the words that replace the texts.

        Raises:
            TemplateError: the template refuses these turns, exceeds a bound,
                or loses or changes a text.
        """
        messages = with_names(messages)
        if tools or any(turn.tool_calls or turn.role == "tool" for turn in messages):
            if self._knows_calls:
                with contextlib.suppress(TemplateError):
                    return self._with_note(messages, tools, note, random)
            if tools:
                note = "\n\n".join(filter(None, (tools_note(tools), note)))
            # A tool's turn that answers no call is the template's, as it always was.
            if tools or any(turn.tool_calls or turn.tool_call_id for turn in messages):
                messages = plain_turns(messages)
        return self._with_note(messages, (), note, random)

    def _with_note(
        self,
        messages: Sequence[ChatMessage],
        tools: Sequence[Tool],
        note: str,
        random: Callable[[int], bytes],
    ) -> tuple[Part, ...]:
        noted = with_note(messages, note, DEFAULT_SYSTEM_MESSAGE)
        if len(noted) == len(messages):
            return self._render(noted, tools, random(16).hex())
        try:
            return self._render(noted, tools, random(16).hex())
        except TemplateError:
            into = into_first_turn(messages, note)
            return self._render(into, tools, random(16).hex())

    def _render(
        self, messages: Sequence[ChatMessage], tools: Sequence[Tool], nonce: str
    ) -> tuple[Part, ...]:
        words = _Words(nonce)
        turns = [words.turn(message) for message in messages]
        # Undefined without any: templates ask whether there are tools.
        offered = (
            {"tools": [words.json(tool_text(tool)) for tool in tools]} if tools else {}
        )
        self._budget.reset()
        try:
            output = self._template.render(
                messages=turns, add_generation_prompt=True, **offered, **self._names
            )
        except TemplateError:
            raise
        except _TEMPLATE_FAULTS:
            raise TemplateError("the chat template refuses these turns") from None
        return words.put_back(output)


class _Json:
    """A JSON text of the caller's, for the template: it can print it, and no more."""

    __slots__ = ("_word",)

    def __init__(self, word: str) -> None:
        self._word = word

    @override
    def __str__(self) -> str:
        return self._word


class _Words:
    """The words of one rendering, and the texts that they replace.

    Random, so that nothing else that a template writes is taken for a text, and a part
    of a word is recognised. An empty text gets none: a template that tests whether
    there is a text must find that there is not.
    """

    def __init__(self, nonce: str) -> None:
        self._nonce = nonce
        self._texts: dict[str, str] = {}
        self._optional: set[str] = set()

    def turn(self, message: ChatMessage) -> dict[str, object]:
        """Return a turn as the template sees it."""
        turn: dict[str, object] = {
            # Templates know 'system' only; OpenAI renamed it 'developer'.
            "role": "system" if message.role == "developer" else message.role,
            "content": self._text(message.content),
        }
        if message.tool_calls:
            turn["tool_calls"] = [
                {
                    "type": "function",
                    "id": self._text(call.id, optional=True),
                    "function": {
                        "name": self._text(call.name),
                        "arguments": self.json(call.arguments or "{}"),
                    },
                }
                for call in message.tool_calls
            ]
        if message.tool_call_id:
            turn["tool_call_id"] = self._text(message.tool_call_id, optional=True)
        if message.name:
            turn["name"] = self._text(message.name, optional=True)
        return turn

    def json(self, text: str) -> _Json:
        """Return what the template sees of a JSON text."""
        return _Json(self._word("y", text))

    def _text(self, text: str, *, optional: bool = False) -> str:
        if not text:
            return ""
        word = self._word("x", text)
        if optional:
            self._optional.add(word)
        return word

    def _word(self, end: str, text: str) -> str:
        word = f"{self._nonce}x{len(self._texts)}{end}"
        self._texts[word] = text
        return word

    def put_back(self, output: str) -> tuple[Part, ...]:
        """Split the output at the words and put each text in its place."""
        nonce = self._nonce
        # A JSON text inside another JSON value that was printed is quoted.
        pieces = re.split(f'("{nonce}x[0-9]+y"|{nonce}x[0-9]+[xy])', output)
        found = {piece.strip('"') for piece in pieces}
        # Each at least once: without a turn the model would answer another conversation
        # than the inspected one.
        if missing := self._texts.keys() - self._optional - found:
            raise TemplateError(
                f"the chat template leaves out {len(missing)} of the texts"
            )
        parts: list[Part] = []
        for piece in pieces:
            word = piece.strip('"') if nonce in piece else piece
            if word in self._texts:
                parts.append(Part(text=self._texts[word], special=False))
            elif _holds_piece(piece.lower(), nonce):
                raise TemplateError("the chat template changes the text of a turn")
            elif piece:
                parts.append(Part(text=piece, special=True))
        return tuple(parts)


def _holds_piece(text: str, nonce: str) -> bool:
    """Return whether a part of the random word is left: a turn's text was cut."""
    ends = range(_TELLING_CHARS, len(nonce) + 1)
    return any(nonce[end - _TELLING_CHARS : end] in text for end in ends)


class _Budget:
    """Counts the rounds and the characters of one rendering."""

    def __init__(self) -> None:
        self._rounds = 0
        self._chars = 0

    def reset(self) -> None:
        self._rounds = MAX_ROUNDS
        self._chars = MAX_TEXT_CHARS

    def take_round(self) -> None:
        self._rounds -= 1
        if self._rounds < 0:
            raise TemplateError("the chat template takes too many rounds")

    def take_text(self, value: object) -> str:
        """Count a piece of output, wherever the template uses it."""
        text = _scalar_text(value)
        self._chars -= len(text)
        if self._chars < 0:
            raise TemplateError("the chat template makes too much text")
        return text


class _Environment(jinja2.sandbox.ImmutableSandboxedEnvironment):
    """The sandbox, with fewer features."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, budget: _Budget) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        self.filters = {name: self.filters[name] for name in _FILTERS}
        self.filters |= {"join": _join, "string": _scalar_text, "tojson": _to_json}
        self.globals = {
            "namespace": self.globals["namespace"],
            "range": _range,
            "raise_exception": _raise_exception,
        }
        # Reached by EnvironmentAttribute: no template can name or replace them.
        self.take_round = budget.take_round
        self.take_text = budget.take_text
        self.concatenate = _concatenate

    @override
    def is_safe_attribute(self, obj: object, attr: str, value: object) -> bool:
        # jinja2 guards ``format`` and similar methods against leaks, not against size:
        # a few calls of ``replace`` or ``center`` turn a word into gigabytes.
        if isinstance(obj, str):
            return attr in _STRING_METHODS
        return super().is_safe_attribute(obj, attr, value)

    @override
    def call_binop(
        self, context: object, operator: str, left: object, right: object
    ) -> object:
        """Calculate with numbers; add texts and lists within the bounds."""
        if operator == "+":
            return _add(left, right)
        if not (isinstance(left, int | float) and isinstance(right, int | float)):
            raise TemplateError("the chat template does arithmetic on a non-number")
        # Ten digits and two operators take minutes, and cannot be interrupted.
        if operator == "**":
            raise TemplateError(
                "the chat template uses an operator that is not allowed"
            )
        return left * right if operator == "*" else left % right


class _Bounds(NodeTransformer):
    """Inserts the budget into a template: rounds, pieces of output, every ``~``."""

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802 - jinja2's name
        return self._counted(node)

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:  # noqa: N802 - jinja2's name
        return self._counted(node)

    def visit_Output(self, node: nodes.Output) -> nodes.Node:  # noqa: N802 - jinja2's name
        self.generic_visit(node)
        # Text between the tags is data, not an expression that can be passed.
        pieces = [
            nodes.Const(each.data) if isinstance(each, nodes.TemplateData) else each
            for each in node.nodes
        ]
        node.nodes = [_call("take_text", [piece]) for piece in pieces]
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802 - jinja2's name
        self.generic_visit(node)
        return _call("concatenate", node.nodes)

    def _counted(self, node: nodes.For | nodes.Macro) -> nodes.Node:
        self.generic_visit(node)
        node.body.insert(0, nodes.ExprStmt(_call("take_round", [])))
        return node


def _call(name: str, arguments: list[nodes.Expr]) -> nodes.Call:
    return nodes.Call(nodes.EnvironmentAttribute(name), arguments, [], None, None)


def _scalar_text(value: object) -> str:
    """Return the text of a text, number, None or undefined; of nothing larger."""
    if isinstance(value, str | int | float | _Json | jinja2.Undefined | None):
        return str(value)
    raise TemplateError("the chat template prints a value that is not text")


def _concatenate(*values: object) -> str:
    texts = [_scalar_text(value) for value in values]
    _refuse_long(sum(len(text) for text in texts))
    return "".join(texts)


def _join(values: Iterable[object], separator: str = "") -> str:
    texts = [_scalar_text(value) for value in values]
    _refuse_long(sum(len(text) + len(separator) for text in texts))
    return separator.join(texts)


def _add(left: object, right: object) -> object:
    if isinstance(left, int | float) and isinstance(right, int | float):
        return left + right
    if isinstance(left, str) and isinstance(right, str):
        return _concatenate(left, right)
    if isinstance(left, list) and isinstance(right, list):
        both = [*cast("list[object]", left), *cast("list[object]", right)]
        if len(both) > MAX_RANGE:
            raise TemplateError("the chat template makes too long a list")
        return both
    raise TemplateError("the chat template adds what does not add")


def _to_json(value: object, indent: int | None = None) -> str:
    indent = None if indent is None else min(indent, MAX_INDENT)
    if isinstance(value, _Json):
        return str(value)
    encoder = json.JSONEncoder(ensure_ascii=False, indent=indent, default=_json_word)
    pieces: list[str] = []
    size = 0
    for piece in encoder.iterencode(value):
        size += len(piece)
        _refuse_long(size)
        pieces.append(piece)
    return "".join(pieces)


def _json_word(value: object) -> str:
    if isinstance(value, _Json):
        return str(value)
    raise TypeError


def _range(*bounds: int) -> range:
    numbers = range(*bounds)
    if len(numbers) > MAX_RANGE:
        raise TemplateError("the chat template counts too far")
    return numbers


def _raise_exception(_message: object = None) -> NoReturn:
    # The message may quote the conversation; it is not repeated.
    raise TemplateError("the chat template refuses these turns")


def _refuse_long(size: int) -> None:
    if size > MAX_TEXT_CHARS:
        raise TemplateError("the chat template makes too much text")
