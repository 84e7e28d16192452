"""Tool calls in the text of an answer: the grammar that permits them, and their parser.

One form, which Hermes, Qwen and others are trained for, and which the system message
describes to all others (``turns``)::

    <tool_call>
    {"name": "find", "arguments": {"what": "it"}}
    </tool_call>

Calls come last. Where the model may decide, its text is free up to ``<tool_call>``;
from there on the grammar permits a call and nothing else. Some models leave the marks
out: an answer that begins with ``{"name": "find", "arguments": `` and a tool's name is
a call as well, also as a block of code; any other JSON stays text. So the model decides
by what it writes, and grammar and parser follow the same states.

Pure.
"""

import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from curtilage.inference.errors import RequestError
from curtilage.inference.grammar import (
    EMPTY,
    Grammar,
    Node,
    Repeat,
    Rule,
    Text,
    any_except,
    chain,
    choice,
    optional,
    prefix_tree,
)
from curtilage.inference.protocol import ToolCall

OPEN: Final = "<tool_call>"
CLOSE: Final = "</tool_call>"
MARKS: Final = (OPEN, CLOSE, "<tool_response>", "</tool_response>")
"""What templates write around calls and their results."""
FENCE: Final = "```json"
MAX_PARALLEL: Final = 16
"""Calls of one answer."""
MAX_ARGUMENT_CHARS: Final = 256 * 1024
"""Of one call, which is one event: at most 3 MiB on the way to the engine's caller,
where a character may take twelve bytes."""

_DEPTH: Final = 8
_GAP: Final = re.compile(r"\s*")
_MARKED: Final = chain(Text(OPEN), optional(Text("\n")))
_CLOSED: Final = chain(optional(Text("\n")), Text(CLOSE))


def head_of(name: str) -> str:
    """Return the beginning of a call; its arguments follow, and a brace."""
    return f'{{"name": "{name}", "arguments": '


def bare_heads_of(name: str) -> tuple[str, ...]:
    """Return the beginnings of a call without marks, as models write them."""
    plain = head_of(name)
    spread = f'{{\n  "name": "{name}",\n  "arguments": '
    return plain, spread, f"{FENCE}\n{plain}", f"{FENCE}\n{spread}"


def written_call(name: str, arguments: str) -> str:
    """Return a call as a model writes it."""
    return f"{OPEN}\n{head_of(name)}{arguments}}}\n{CLOSE}"


def calls_rule(
    grammar: Grammar, arguments: Mapping[str, Rule], *, several: bool
) -> Rule:
    """Add the rule of an answer that is calls and nothing else.

    Args:
        grammar: takes it.
        arguments: of each tool's name, the rule of its arguments.
        several: permit more than one call.
    """
    return grammar.add(
        chain(Text(OPEN), _after_mark(grammar, arguments, several=several))
    )


def free_rule(
    grammar: Grammar, arguments: Mapping[str, Rule], *, several: bool
) -> Rule:
    """Add the rule of an answer that is any text, calls, or a text and then calls."""
    call = _after_mark(grammar, arguments, several=several)
    text = _text_up_to_mark(grammar, call)
    # The states of a text that may still become a call without marks: the name's
    # letters so far, and what may follow each.
    heads = {
        head: rule for name, rule in arguments.items() for head in bare_heads_of(name)
    }
    return grammar.add(_prefix_node(grammar, heads, "", text))


def _after_mark(
    grammar: Grammar, arguments: Mapping[str, Rule], *, several: bool
) -> Rule:
    # As a tree: names and what precedes them begin alike.
    ends = {head_of(name): chain(rule, Text("}")) for name, rule in arguments.items()}
    body = grammar.add(prefix_tree(grammar, ends)[0])
    first = chain(optional(Text("\n")), body, _CLOSED)
    if not several:
        return grammar.add(first)
    more = grammar.add(chain(optional(Text("\n")), _MARKED, body, _CLOSED))
    return grammar.add(chain(first, Repeat(more, 0, MAX_PARALLEL - 1)))


def _text_up_to_mark(grammar: Grammar, call: Rule) -> list[Rule]:
    """Add a rule for each number of the mark's characters that were just written.

    Any text may follow, up to the mark; then the call.
    """
    states = [grammar.reserve() for _ in OPEN]
    for written, state in enumerate(states):
        due = OPEN[written]
        last = written + 1 == len(OPEN)
        options: list[Node] = [
            EMPTY,
            chain(Text(due), call if last else states[written + 1]),
            # The mark's first character does not come again within it.
            chain(any_except(due, OPEN[0]), states[0]),
        ]
        if due != OPEN[0]:
            options.append(chain(Text(OPEN[0]), states[1]))
        grammar.define(state, choice(*options))
    return states


def _prefix_node(
    grammar: Grammar, heads: Mapping[str, Rule], written: str, text: Sequence[Rule]
) -> Node:
    """Return what may follow the beginning that the heads have in common."""
    if written in heads:
        end = chain(optional(Text("\n")), Text("}"))
        if written.startswith(FENCE):
            end = chain(end, Text("\n```"))
        return chain(heads[written], end)
    place = len(written)
    following = sorted({head[place] for head in heads})
    grammar.spend(len(heads))
    # It is no head: a text like any other. One rule, wherever the same would be one.
    other = grammar.add(
        choice(
            EMPTY,
            chain(Text(OPEN[0]), text[1]),
            chain(any_except(*following, OPEN[0]), text[0]),
        )
    )
    options = (
        chain(
            Text(character),
            _prefix_node(
                grammar,
                {h: rule for h, rule in heads.items() if h[place] == character},
                written + character,
                text,
            ),
        )
        for character in following
    )
    node = choice(*options, other)
    # A rule takes more room than a part of one, but parts must not be nested deeply.
    return node if place % _DEPTH else grammar.add(node)


class CallParser:
    """Separates an answer's text from its calls, as it grows.

    Work is in proportion to the text, however it is cut.

    Args:
        names: of the tools; a call of any other is text.
        bare: take a text for a call that begins like one without marks.
        make_id: makes the calls' ids.
    """

    def __init__(
        self,
        names: Sequence[str],
        *,
        bare: bool,
        make_id: Callable[[], str] = lambda: f"call_{secrets.token_hex(12)}",
    ) -> None:
        self._heads = {head_of(name): name for name in names}
        self._bare_heads = {
            head: name for name in names for head in bare_heads_of(name)
        }
        self._bare = bare
        self._make_id = make_id
        self._held = ""
        self._call: _OpenCall | None = None
        self._marked = False
        self._after = False
        self.calls: list[ToolCall] = []

    def push(self, text: str) -> str:
        """Take more of the answer; return the text that is certain now.

        Complete calls are added to ``calls``.

        Raises:
            RequestError: a call has more than ``MAX_ARGUMENT_CHARS``.
        """
        self._held += text
        return "".join(self._steps())

    def flush(self) -> str:
        """Return the text that was held back at the end; an open call is dropped."""
        held, self._held = self._held, ""
        if self._call is not None or self._after or self._marked:
            self._call = None
            return ""
        return held

    def _steps(self) -> Iterator[str]:
        while self._held:
            before = self._state()
            if self._call is not None:
                self._read_call(self._call)
            elif self._after:
                self._read_after()
            elif self._marked or self._bare:
                yield self._read_head()
            else:
                yield self._read_text()
            if self._state() == before:
                return

    def _state(self) -> tuple[object, ...]:
        return len(self._held), self._call, self._after, self._marked, self._bare

    def _read_text(self) -> str:
        """Return the text up to a mark, or to what may become one."""
        at = self._held.find(OPEN)
        if at >= 0:
            text, self._held = self._held[:at], self._held[at + len(OPEN) :]
            self._marked = True
            return text
        sizes = range(min(len(OPEN) - 1, len(self._held)), 0, -1)
        held = next((size for size in sizes if self._held.endswith(OPEN[:size])), 0)
        cut = len(self._held) - held
        text, self._held = self._held[:cut], self._held[cut:]
        return text

    def _read_head(self) -> str:
        """Begin a call if there is its head; else return what is no call."""
        start = 0
        if self._marked:
            match = _GAP.match(self._held)
            start = 0 if match is None else match.end()
        rest = self._held[start:]
        heads = self._heads if self._marked else self._bare_heads
        for head, name in heads.items():
            if rest.startswith(head):
                self._held = rest[len(head) :]
                self._call = _OpenCall(name)
                return ""
        if any(head.startswith(rest) for head in heads):
            return ""
        # Only without a grammar: an unknown name, or no call at all.
        text = OPEN if self._marked else ""
        self._marked = self._bare = False
        return text

    def _read_call(self, call: "_OpenCall") -> None:
        end = call.end_in(self._held)
        if end is None:
            call.add(self._held)
            self._held = ""
            return
        call.add(self._held[:end])
        self._held = self._held[end + 1 :]
        arguments = "".join(call.arguments).strip()
        self.calls.append(
            ToolCall(id=self._make_id(), name=call.name, arguments=arguments)
        )
        self._call = None
        self._after, self._marked, self._bare = True, False, False

    def _read_after(self) -> None:
        """Skip the closing mark; after a call there is no text."""
        at = self._held.find(OPEN)
        if at >= 0:
            self._held = self._held[at + len(OPEN) :]
            self._after, self._marked = False, True
        else:
            self._held = self._held[-(len(OPEN) - 1) :]


class _OpenCall:
    """A call of which not everything was read."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.arguments: list[str] = []
        self._size = 0
        self._depth = 0
        self._quoted = False
        self._escaped = False

    def add(self, text: str) -> None:
        self._size += len(text)
        if self._size > MAX_ARGUMENT_CHARS:
            raise RequestError("a call of the answer has too many characters")
        self.arguments.append(text)

    def end_in(self, text: str) -> int | None:
        """Return the place of the brace that ends the call, after its arguments."""
        for at, character in enumerate(text):
            if self._quoted:
                self._in_text(character)
            elif character == '"':
                self._quoted = True
            elif character in "{[":
                self._depth += 1
            elif character in "}]":
                self._depth -= 1
                if self._depth < 0:
                    return at
        return None

    def _in_text(self, character: str) -> None:
        if self._escaped:
            self._escaped = False
        elif character == "\\":
            self._escaped = True
        elif character == '"':
            self._quoted = False
