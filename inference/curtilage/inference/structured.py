"""The form that a request demands of its answer: JSON, calls or any text. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from curtilage.inference.calls import CallParser, calls_rule, free_rule
from curtilage.inference.errors import (
    ALL_TOOLS,
    FORMAT_SCHEMA,
    SchemaError,
    SchemaFault,
    in_field,
    tool_schema,
)
from curtilage.inference.grammar import Grammar, Rule, choice
from curtilage.inference.protocol import (
    GenerateRequest,
    JsonSchema,
    NamedTool,
    Tool,
)

MAX_GRAMMAR_CHARS: Final = 512 * 1024
"""The library reads it before the first token."""
MAX_SECONDS: Final = 5.0
"""Of one conversion, in processor time. The largest schemas take one."""
_BYTES_PER_CHAR: Final = 20
_BYTES_PER_REPEAT: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerForm:
    """What an answer must be.

    Attributes:
        grammar: in llama.cpp's notation; empty: any text.
        tools: those that it may call.
        bare: a text that begins like a call without marks is one.
        note: for the model, in the system message; empty if there is nothing to say.
        held_bytes: of the library, for the grammar, at most.
    """

    grammar: str = field(default="", repr=False)
    tools: tuple[Tool, ...] = field(default=(), repr=False)
    bare: bool = False
    note: str = field(default="", repr=False)
    held_bytes: int = 0

    def parser(self) -> CallParser | None:
        """Return a parser of the answer; None if it calls nothing."""
        names = [tool.name for tool in self.tools]
        return CallParser(names, bare=self.bare) if names else None


def form_of(
    request: GenerateRequest, clock: Callable[[], float] = lambda: 0.0
) -> AnswerForm:
    """Return the form of a request's answer.

    Takes up to ``MAX_SECONDS`` of processor time: not for an event loop if the request
    ``demands`` one.

    Args:
        request: the request.
        clock: returns this thread's processor time in seconds. Without it, only the
            steps are counted.

    Raises:
        SchemaError: a schema cannot be converted (``Tool.arguments_rule``), or the
            grammar would be too large.
    """
    until = clock() + MAX_SECONDS
    grammar = Grammar(expired=lambda: clock() > until)
    wanted, tools = request.response_format, _callable(request)
    answer = None
    if wanted is not None:
        with in_field(FORMAT_SCHEMA):
            answer = wanted.answer_rule(grammar)
    root = _root(grammar, request, tools, answer)
    text = "" if root is None else grammar.gbnf(root)
    if len(text) > MAX_GRAMMAR_CHARS:
        # Of all schemas together.
        with in_field(ALL_TOOLS if request.tools else FORMAT_SCHEMA):
            raise SchemaError(SchemaFault.GRAMMAR)
    return AnswerForm(
        grammar=text,
        tools=tools,
        bare=bool(tools) and request.tool_choice == "auto" and answer is None,
        note="" if wanted is None else _format_note(request),
        held_bytes=_BYTES_PER_CHAR * len(text) + _BYTES_PER_REPEAT * grammar.written,
    )


def demands(request: GenerateRequest) -> bool:
    """Whether a request has schemas to convert."""
    return bool(request.tools) or request.response_format is not None


def _callable(request: GenerateRequest) -> tuple[Tool, ...]:
    if request.tool_choice == "none":
        return ()
    if isinstance(request.tool_choice, NamedTool):
        named = request.tool_choice.name
        return tuple(tool for tool in request.tools if tool.name == named)
    return request.tools


def _root(
    grammar: Grammar,
    request: GenerateRequest,
    tools: Sequence[Tool],
    answer: Rule | None,
) -> Rule | None:
    # Also of those that cannot be called: an invalid one is refused in any case.
    every: dict[str, Rule] = {}
    for place, tool in enumerate(request.tools):
        with in_field(tool_schema(place)):
            every[tool.name] = tool.arguments_rule(grammar)
    if not tools:
        return answer
    rules = {tool.name: every[tool.name] for tool in tools}
    # A named choice is one call: so other engines of this interface do it.
    several = request.parallel_tool_calls and not isinstance(
        request.tool_choice, NamedTool
    )
    if request.tool_choice != "auto":
        return calls_rule(grammar, rules, several=several)
    if answer is None:
        return free_rule(grammar, rules, several=several)
    return grammar.add(choice(calls_rule(grammar, rules, several=several), answer))


def _format_note(request: GenerateRequest) -> str:
    wanted = request.response_format
    if not isinstance(wanted, JsonSchema):
        return "Answer with one JSON object and nothing else."
    lines = [
        f"Answer with JSON and nothing else. Its name is {wanted.name}.",
        f"It fulfils this JSON schema: {wanted.schema}",
    ]
    if wanted.description:
        lines.insert(1, wanted.description)
    return "\n".join(lines)
