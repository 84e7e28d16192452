"""The turns of a chat request: text, and whatever else it holds, by name; pure.

A model that is not shown a picture invents what is on it, so nothing is dropped
in silence: who wants an answer is told what cannot be part of it. Who only asks
where a query may go gets its place, which the policy keeps home. Never repeats
what a sender wrote, names of fields included.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, cast

from curtilage.client.errors import UnsupportedContentError, UsageError
from curtilage.client.query import ROLES, Message
from curtilage.policy.findings import Where

MAX_MESSAGES: Final = 1024
OTHER: Final = "other"
JsonObject = dict[str, object]

# What a message can hold besides text, in words for whoever sent it. Any other
# is told without its name, which the sender chose.
PARTS: Final = {
    "image_url": "a picture",
    "input_image": "a picture",
    "input_audio": "a sound recording",
    "file": "a file",
    "input_file": "a file",
    "refusal": "a refusal",
    "text": "a text with other fields than type and text",
}
MESSAGE_FIELDS: Final = {
    "tool_calls": "tool calls",
    "tool_call_id": "the result of a tool call",
    "function_call": "a function call",
    "audio": "a sound recording",
    "refusal": "a refusal",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Other:
    """Something of a message that is not text.

    Attributes:
        where: its place.
        kind: what it is, in words for its sender.
    """

    where: Where
    kind: str

    @property
    def param(self) -> str:
        """Its place as OpenAI's errors name it."""
        message, path = self.where.message, self.where.json_path
        # A field's name that nobody knows is the sender's own word.
        return f"messages[{message}]" + ("" if path == OTHER else f".{path}")


def require_text(others: Sequence[Other]) -> None:
    """Refuse what no answer can take into account.

    Raises:
        UnsupportedContentError: names the first, and what to do.
    """
    for other in others:
        raise UnsupportedContentError(
            f"{other.param} holds {other.kind}: only text is answered, at home and by "
            "the enclave; leave it out, or send as text what it says",
            param=other.param,
        )


def turns_of(value: object) -> tuple[tuple[Message, ...], tuple[Other, ...]]:
    """Return the turns of a request's ``messages``, and what is not text in them.

    Raises:
        UsageError: one is no turn; says which, never what it held.
    """
    given = cast("list[object]", value) if isinstance(value, list) else []
    if not 0 < len(given) <= MAX_MESSAGES:
        raise UsageError(
            f"messages must be a list of 1 to {MAX_MESSAGES}", param="messages"
        )
    messages: list[Message] = []
    others: list[Other] = []
    for index, each in enumerate(given):
        message, found = _message(index, each)
        messages.append(message)
        others += found
    return tuple(messages), tuple(others)


def _message(index: int, value: object) -> tuple[Message, list[Other]]:
    param = f"messages[{index}]"
    if not isinstance(value, dict):
        raise UsageError(f"{param} must be an object", param=param)
    message = cast("JsonObject", value)
    role, name = message.get("role"), message.get("name")
    if not isinstance(role, str) or role not in ROLES:
        raise UsageError(f"{param}.role is not one that is known", param=param)
    if name is not None and not isinstance(name, str):
        raise UsageError(f"{param}.name must be a string", param=param)
    # Tool calls and whatever else a message may carry hold text that is not
    # read here. Answers that come back as turns have such fields, but empty.
    others = [
        Other(
            where=Where(
                message=index,
                role=role,
                json_path=key if key in MESSAGE_FIELDS else OTHER,
            ),
            kind=MESSAGE_FIELDS.get(key, "a field that is not known"),
        )
        for key, held in message.items()
        if key not in {"role", "name", "content"} and held not in (None, "", [], {})
    ]
    content = message.get("content")
    if others and content is None:
        return Message(role=role, content="", name=name), others
    text, parts = _content(index, role, content)
    return Message(role=role, content=text, name=name), [*others, *parts]


def _content(index: int, role: str, value: object) -> tuple[str, list[Other]]:
    if isinstance(value, str):
        return value, []
    if not isinstance(value, list) or not value:
        raise UsageError(
            f"messages[{index}].content must be a string or a list of parts",
            param=f"messages[{index}]",
        )
    texts: list[str] = []
    others: list[Other] = []
    for number, each in enumerate(cast("list[object]", value)):
        part = cast("JsonObject", each) if isinstance(each, dict) else {}
        text = part.get("text")
        if part == {"type": "text", "text": text} and isinstance(text, str):
            texts.append(text)
        else:
            others.append(
                Other(
                    where=Where(
                        message=index, role=role, json_path=f"content[{number}]"
                    ),
                    kind=_kind_of(part),
                )
            )
    return "\n".join(texts), others


def _kind_of(part: JsonObject) -> str:
    named = part.get("type")
    known = PARTS.get(named) if isinstance(named, str) else None
    return known or "a part of a kind that is not known"
