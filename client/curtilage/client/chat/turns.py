"""A request in the terms of OpenAI's chat API: turns, tools and settings.

``query`` reads every text of ``Request.conversation``, and encodes exactly that.
"""

from dataclasses import dataclass, field
from typing import Final, cast

from curtilage.client.chat.answer import AnswerEvent, Finished
from curtilage.client.chat.document import Document

PROMPTS: Final = frozenset({"system", "developer"})
ROLES: Final = PROMPTS | {"user", "assistant", "tool"}
CHOICES: Final = frozenset({"none", "auto", "required"})
"""Of tools; any other is the name of one."""
MESSAGE_TOKENS: Final = 8
"""Approximate number of tokens that a model's template adds to each message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A call of a tool, in an assistant's turn.

    Attributes:
        number: its position among all calls of the conversation, from 1.
        name: of the tool.
        arguments: a JSON object.
    """

    number: int
    name: str = field(repr=False)
    arguments: Document


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One turn: the speaker and the text.

    Attributes:
        role: one of ``ROLES``.
        content: the text.
        name: the speaker's name as the caller gave it, or None.
        calls: of tools, by an assistant.
        result_of: the number of the call whose result this is, or None.
    """

    role: str
    content: str = field(repr=False)
    name: str | None = field(default=None, repr=False)
    calls: tuple[ToolCall, ...] = ()
    result_of: int | None = None

    def body(self) -> dict[str, object]:
        """Return the turn as OpenAI's API has it."""
        turn: dict[str, object] = {"role": self.role, "content": self.content}
        if self.name is not None:
            turn["name"] = self.name
        if self.result_of is not None:
            turn["tool_call_id"] = id_of(self.result_of)
        if self.calls:
            turn["tool_calls"] = [
                {
                    "id": id_of(each.number),
                    "type": "function",
                    "function": {"name": each.name, "arguments": each.arguments},
                }
                for each in self.calls
            ]
        return turn

    @property
    def said(self) -> str:
        """Everything that the turn says, its calls included."""
        calls = (f"{each.name}\n{each.arguments.text()}" for each in self.calls)
        return "\n".join((self.content, *calls))

    def encoded(self) -> bytes:
        """Return a unique encoding of the turn, for a keyed digest."""
        parts = [self.role, self.name or "", self.content]
        for each in self.calls:
            parts += [f"{each.number}", each.name, each.arguments.encoded]
        if self.result_of is not None:
            parts.append(f"{self.result_of}")
        # Lone surrogates have no UTF-8 form, and such a query is kept local anyway.
        encoded = [part.encode("utf-8", "surrogatepass") for part in parts]
        return b"".join(len(part).to_bytes(8, "big") + part for part in encoded)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Sampling settings and limits; the caller's numbers, already validated.

    Attributes:
        max_tokens: upper bound of the answer's length, at least 1.
        temperature: 0 (greedy) to 2.
        top_p: above 0, at most 1.
        seed: None: a random one.
        stop: strings that end the answer; content, so inspected too.
        logprobs: report the log-probability of each token.
        top_logprobs: and of this many alternatives, at most 20.
        n: number of answers, at most 4.
        presence_penalty: -2 to 2.
        frequency_penalty: -2 to 2.
        deterministic: the same tokens for the same request and seed, whatever else the
            engine answers.
    """

    max_tokens: int = 512
    temperature: float = 0.7
    top_p: float = 0.95
    seed: int | None = None
    stop: tuple[str, ...] = field(default=(), repr=False)
    logprobs: bool = False
    top_logprobs: int = 0
    n: int = 1
    presence_penalty: float = 0
    frequency_penalty: float = 0
    deterministic: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A conversation, and how it is to be answered.

    Attributes:
        messages: the turns, oldest first.
        settings: sampling and limits, as the caller gave them.
        stream: whether the caller wants the answer token by token.
        tools: definitions of functions that the model may call.
        tool_choice: ``none``, ``auto``, ``required``, or the name of the function to
            call.
        parallel_tool_calls: whether an answer may have several calls.
        response_format: of the answer, as in OpenAI's API; None: text.
    """

    messages: tuple[Message, ...]
    settings: Settings = field(default_factory=Settings)
    stream: bool = False
    tools: tuple[Document, ...] = ()
    tool_choice: str = field(default="auto", repr=False)
    parallel_tool_calls: bool = True
    response_format: Document | None = None

    def conversation(self) -> dict[str, object]:
        """Return everything that it says, as OpenAI's API has it; with documents."""
        body: dict[str, object] = {}
        if self.tools:
            body["tools"] = [
                {"type": "function", "function": each} for each in self.tools
            ]
        # After the tools, as templates place them: the first texts of a conversation
        # remain the same in every turn.
        body["messages"] = [each.body() for each in self.messages]
        if self.response_format is not None:
            body["response_format"] = self.response_format
        if self.tool_choice in {"none", "required"}:
            body["tool_choice"] = self.tool_choice
        elif self.tool_choice != "auto":
            named = {"name": self.tool_choice}
            body["tool_choice"] = {"type": "function", "function": named}
        if not self.parallel_tool_calls:
            body["parallel_tool_calls"] = False
        if self.settings.stop:
            body["stop"] = list(self.settings.stop)
        return body

    def expects(self, event: AnswerEvent) -> bool:
        """Return whether an event can belong to an answer to this request."""
        if isinstance(event, Finished):
            reasons = (event.finish_reason, *event.others)
            calls = "tool_calls" in reasons
            may = bool(self.tools) and self.tool_choice != "none"
            return len(reasons) == self.settings.n and (may or not calls)
        if event.choice >= self.settings.n or not event.calls:
            return event.choice < self.settings.n
        # Read for a call alone, and not again for every piece of text.
        names = {_name(each) for each in filter(self.may_call, self.tools)}
        # A choice by name is one call.
        several = self.parallel_tool_calls and self.tool_choice in CHOICES
        return all(
            each.name in names and (several or not each.index) for each in event.calls
        )

    def may_call(self, tool: Document) -> bool:
        """Return whether an answer may call this tool, which is one of its own."""
        if self.tool_choice in CHOICES:
            return self.tool_choice != "none"
        return _name(tool) == self.tool_choice

    @property
    def is_plain(self) -> bool:
        """Whether turns and answer are texts: no call, no format, one answer."""
        asks = self.tools or self.response_format is not None or self.settings.n > 1
        return not asks and not any(each.calls for each in self.messages)

    @property
    def text_bytes(self) -> int:
        """Length of what it says in bytes, for code that must not read it."""
        texts = [each.said for each in self.messages]
        texts += [each.encoded for each in self.tools]
        texts += [self.response_format.encoded] if self.response_format else []
        return sum(len(each.encode("utf-8", "surrogatepass")) for each in texts)


def _name(tool: Document) -> object:
    return cast("dict[str, object]", tool.value())["name"]


def id_of(number: int) -> str:
    """Return the id by which a call is sent and shown to models."""
    return f"call_{number}"
