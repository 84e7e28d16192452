"""Tools, calls, results and names as plain text, for templates without them. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from curtilage.inference.calls import written_call
from curtilage.inference.json_text import write_json
from curtilage.inference.protocol import ChatMessage, Tool

SYSTEM_ROLES = frozenset({"system", "developer"})


def tool_text(tool: Tool) -> str:
    """Return a tool as JSON, as OpenAI's interface has it and models are trained."""
    before = write_json(
        {
            "type": "function",
            "function": {"name": tool.name, "description": tool.description},
        }
    )
    # The schema as it came: the order of its keys, and its numbers, are the caller's.
    return f'{before[:-2]}, "parameters": {tool.parameters}}}}}'


def tools_note(tools: Iterable[Tool]) -> str:
    """Return what a model has to know to call tools."""
    listed = "\n".join(tool_text(tool) for tool in tools)
    example = written_call("NAME", "{}").replace("{}", "ARGUMENTS")
    return (
        "You can call these functions. Each line describes one, and the JSON schema of"
        f" its arguments:\n{listed}\n\n"
        "To call a function, answer in this form, with its name and with arguments that"
        f" fulfil its schema:\n{example}"
    )


def with_note(
    messages: Sequence[ChatMessage], note: str, usual: str
) -> list[ChatMessage]:
    """Add a note to the last system message, or to the usual one if there is none."""
    places = [at for at, turn in enumerate(messages) if turn.role in SYSTEM_ROLES]
    turns = list(messages)
    if not places:
        turns.insert(0, ChatMessage(role="system", content=usual))
        places = [0]
    if note:
        turn = turns[places[-1]]
        text = f"{turn.content}\n\n{note}" if turn.content else note
        turns[places[-1]] = replace(turn, content=text)
    return turns


def into_first_turn(messages: Sequence[ChatMessage], note: str) -> list[ChatMessage]:
    """Add a note in front of the first turn, for templates without system messages."""
    if not note:
        return list(messages)
    first = messages[0]
    return [replace(first, content=f"{note}\n\n{first.content}"), *messages[1:]]


def with_names(messages: Iterable[ChatMessage]) -> list[ChatMessage]:
    """Write speakers' names in front of what they say, as hardly a template does."""
    return [
        replace(turn, content=f"{turn.name}: {turn.content}", name="")
        if turn.name and turn.role != "tool"
        else turn
        for turn in messages
    ]


def plain_turns(messages: Iterable[ChatMessage]) -> list[ChatMessage]:
    """Write calls and results as texts, for a template that knows neither.

    Results become the user's turns, one for those that follow each other: many
    templates have no other roles, and refuse two turns of one.
    """
    plain: list[ChatMessage] = []
    called: dict[str, str] = {}
    was_result = False
    for turn in messages:
        called |= {call.id: call.name for call in turn.tool_calls}
        is_result = turn.role == "tool"
        if is_result:
            name = called.get(turn.tool_call_id, turn.name)
            said = f"The result of {name}:" if name else "The result:"
            turn = ChatMessage(role="user", content=f"{said}\n{turn.content}")  # noqa: PLW2901
        elif turn.tool_calls:
            calls = [
                written_call(call.name, call.arguments) for call in turn.tool_calls
            ]
            texts = [turn.content, *calls] if turn.content else calls
            turn = ChatMessage(role="assistant", content="\n".join(texts))  # noqa: PLW2901
        if is_result and was_result:
            before = plain[-1]
            plain[-1] = replace(before, content=f"{before.content}\n\n{turn.content}")
        else:
            plain.append(turn)
        was_result = is_result
    return plain
