"""Decisions on many queries: JSON lines in, JSON lines out, in order, without texts.

A line in is an object with ``id`` (text or integer), and either ``text`` (one
user message) or ``messages`` (objects with ``role``, ``content`` and optionally
``name``). A line out has the id, the route, the classes, the rules that fired
and what was uncertain. A line that cannot be read is kept local, and so is a
blank one, except at the end of the input, where blank lines are ignored.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, islice, repeat
from typing import cast

from curtilage.cli.json_lines import LineId, is_id, object_of
from curtilage.client.chat.answer import without_notes
from curtilage.client.chat.query import ROLES, Message, Query
from curtilage.client.detection.checked import InspectsMany
from curtilage.policy.decision.decide import assess
from curtilage.policy.decision.findings import Where
from curtilage.policy.decision.routes import Route
from curtilage.policy.document.model import Policy

BATCH_LINES = 256
MAX_LINE_BYTES = 8 * 1024 * 1024
_LINE_FIELDS = frozenset({"id", "text", "messages"})
_MESSAGE_FIELDS = frozenset({"role", "content", "name"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    id: LineId | None
    query: Query | None
    problem: str = ""


def decide_lines(
    lines: Iterable[bytes],
    policy: Policy,
    inspector: InspectsMany,
    *,
    unread: Callable[[int, str], None] = lambda _number, _problem: None,
) -> Iterator[bytes]:
    """Yield one decision for each line, in order, newline included.

    Args:
        lines: JSON objects in UTF-8; read in batches.
        policy: the policy to apply.
        inspector: runs the detectors.
        unread: called with the number (from 1) of each line that cannot be read,
            and what is wrong with it; the text is not included.
    """
    numbers = count(1)
    waiting = (_parse_line(line) for line in _without_trailing(lines))
    while batch := list(islice(waiting, BATCH_LINES)):
        queries = [line.query for line in batch if line.query is not None]
        # A list, so that a detector that fails does so before any line of the batch is
        # printed.
        inspections = iter(list(inspector.inspect_many(queries)))
        for line in batch:
            number = next(numbers)
            # What cannot be read is kept local, as in `ask`.
            if line.query is None:
                unread(number, line.problem)
                yield _encode(
                    line.id,
                    route=Route.LOCAL,
                    classes=(),
                    # As ``ask`` would decide a text that cannot be read.
                    rules=("any-uncertain",),
                    uncertain=("uncertain.undecodable",),
                )
                continue
            decision = assess(policy.rulebook, next(inspections))
            yield _encode(
                line.id,
                route=decision.route,
                classes=decision.classes,
                rules=tuple(hit.id for hit in decision.rules),
                uncertain=decision.uncertain,
            )


def read_lines(lines: Iterable[bytes]) -> Iterator[tuple[LineId | None, Query | None]]:
    """Yield each line's id and query; the query is None if it cannot be read."""
    for line in _without_trailing(lines):
        read = _parse_line(line)
        yield read.id, read.query


def _without_trailing(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield every line except trailing blank ones."""
    blank = 0
    for line in lines:
        if line.strip():
            # Blank lines between others keep their place: each line in has its line
            # out, and numbers stay the same.
            yield from repeat(b"", blank)
            blank = 0
            yield line
        else:
            blank += 1


def _encode(
    line_id: LineId | None,
    *,
    route: Route,
    classes: Sequence[str],
    rules: Sequence[str],
    uncertain: Sequence[str],
) -> bytes:
    line = {
        "id": line_id,
        "route": route.value,
        "classes": list(classes),
        "rules": list(rules),
        "uncertain": list(uncertain),
    }
    # In ASCII: the id is the input's, and could otherwise hold characters that control
    # a terminal.
    return json.dumps(line, separators=(",", ":")).encode("ascii") + b"\n"


def _parse_line(line: bytes) -> _Line:
    """Parse a line; an invalid one keeps its id, if it has one."""
    fields = object_of(line) if len(line) <= MAX_LINE_BYTES else None
    if fields is None:
        return _Line(id=None, query=None, problem=problem_of(line))
    line_id, query = fields.get("id"), _parse_query(fields)
    return _Line(
        id=line_id if is_id(line_id) else None,
        query=query,
        problem="" if query is not None else problem_of(line),
    )


def problem_of(line: bytes) -> str:
    """Return what is wrong with an unreadable line, without its text."""
    if not line.strip():
        return "it is blank"
    if len(line) > MAX_LINE_BYTES:
        return f"it is longer than {MAX_LINE_BYTES:,} bytes"
    fields = object_of(line)
    if fields is None:
        return "it is not a JSON object in UTF-8, or repeats a key"
    if not fields.keys() <= _LINE_FIELDS:
        return f"unknown key; the keys are {', '.join(map(repr, sorted(_LINE_FIELDS)))}"
    if ("text" in fields) == ("messages" in fields):
        return "it needs either 'text' or 'messages'"
    wrong_messages = (
        "'messages' is not a list of messages, each with a known 'role', "
        "'content' and optionally 'name'"
    )
    return "'text' is not a string" if "text" in fields else wrong_messages


def _parse_query(fields: Mapping[str, object]) -> Query | None:
    text, parts = fields.get("text"), fields.get("messages")
    if not fields.keys() <= _LINE_FIELDS or ("text" in fields) == (
        "messages" in fields
    ):
        return None
    if isinstance(text, str):
        return Query(messages=(Message(role="user", content=text),))
    if not isinstance(parts, list) or not parts:
        return None
    read = [
        _parse_message(part, index)
        for index, part in enumerate(cast("list[object]", parts))
    ]
    # All or nothing: a decision on the readable part would look like one on the whole
    # line.
    known = [each for each in read if each is not None]
    if len(known) != len(read):
        return None
    return Query(
        messages=tuple(message for message, _ in known),
        opaque=tuple(place for _, places in known for place in places),
    )


def _parse_message(
    part: object, index: int
) -> tuple[Message, tuple[Where, ...]] | None:
    if not isinstance(part, dict):
        return None
    fields = cast("dict[str, object]", part)
    role, content, name = (fields.get(key) for key in ("role", "content", "name"))
    if not (isinstance(role, str) and role in ROLES):
        return None
    # An unknown key may hold text that no detector would see, such as a tool's result.
    if not fields.keys() <= _MESSAGE_FIELDS or not isinstance(name, str | None):
        return None
    # As at the endpoint, an assistant's turn may have no content.
    if content is None and role == "assistant":
        content = ""
    if isinstance(content, str):
        if role == "assistant":
            content = without_notes(content)
        return Message(role=role, content=content, name=name), ()
    # Content parts are not supported here: one may be an image or a file.
    place = Where(message=index, role=role, json_path="content")
    return Message(role=role, content="", name=name), (place,)
