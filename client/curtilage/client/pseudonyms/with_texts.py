"""Puts rewritten texts into a query, in the place of those of its leaves.

It does not know whether they are the texts to be sent or those to be read, so both have
the same places.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Final, cast

from curtilage.client.chat.document import Document
from curtilage.client.chat.query import Message, Query
from curtilage.policy.decision.findings import Where

Stretch = Callable[[int, int], str]
"""Returns a stretch of a text, rewritten."""

# Where the strings of a schema are prose, or values that a call returns. Others, and
# every name and number, are known to a tool as they are.
_LOOSE: Final = frozenset(
    {"description", "title", "default", "examples", "enum", "const"}
)


def strings_of(document: Document) -> Iterator[tuple[int, int]]:
    """Yield the places in a document's text that can be rewritten."""
    found: list[tuple[int, int]] = []

    def note(start: int, end: int) -> str:
        found.append((start, end))
        return ""

    _Walk(document, note).value()
    yield from found


def with_texts(query: Query, texts: Mapping[Where, Stretch]) -> Query:
    """Return the query with other texts.

    Args:
        query: the query.
        texts: of all its leaves.
    """
    found = {(at.message, at.json_path): text for at, text in texts.items()}
    last = max(len(query.messages) - 1, 0)

    def document(of: Document, message: int, path: str) -> Document:
        value = _Walk(of, found[message, path]).value()
        return Document.of(value, schema=of.schema)

    def turn(index: int, message: Message) -> Message:
        whole = found[index, "content"](0, len(message.content))
        calls = (
            replace(
                call,
                arguments=document(
                    call.arguments, index, f"tool_calls[{number}].function.arguments"
                ),
            )
            for number, call in enumerate(message.calls)
        )
        return replace(message, content=whole, calls=tuple(calls))

    tools = (
        document(tool, last, f"tools[{number}].function")
        for number, tool in enumerate(query.tools)
    )
    wanted = query.response_format
    return replace(
        query,
        messages=tuple(turn(at, each) for at, each in enumerate(query.messages)),
        tools=tuple(tools),
        response_format=wanted and document(wanted, last, "response_format"),
    )


class _Walk:
    """One pass over a document, which follows where each string is in its text.

    Args:
        document: the document.
        text: of it, rewritten.
    """

    def __init__(self, document: Document, text: Stretch) -> None:
        self._document = document
        self._text = text
        self._at = 0

    def value(self) -> object:
        """Return the document's value with its strings rewritten."""
        return self._of(self._document.value(), "")

    def _of(self, value: object, within: str) -> object:
        if isinstance(value, dict):
            members: dict[str, object] = {}
            for name, each in cast("dict[str, object]", value).items():
                self._at += 0 if self._document.omits(name) else len(f"{name}: ")
                members[name] = self._of(each, name)
            return members
        if isinstance(value, list):
            items = cast("list[object]", value)
            return [self._of(each, within) for each in items]
        start = self._at
        if not isinstance(value, str):
            self._at += len(Document.of(value).text())
        elif not self._document.omits(value):
            self._at += len(value) + 1
            if not self._document.schema or within in _LOOSE:
                return self._text(start, start + len(value))
        return value
