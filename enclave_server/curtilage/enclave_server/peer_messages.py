"""What is sent to an engine of others, and what is read of its answers. Pure.

OpenAI's API as vLLM, SGLang and llama.cpp's server implement it. Nothing of a question
or an answer enters an error: of a refusal only its kind and numbers are kept.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NoReturn, cast

from curtilage.enclave_server.errors import (
    ChatError,
    ModelError,
    PromptTooLongError,
    TooLong,
)
from curtilage.enclave_server.ohttp.chat import ChatCompletionRequest, ChatMessage
from curtilage.enclave_server.ohttp.openai_answers import (
    LOWEST_LOGPROB,
    Answer,
    Call,
    Ending,
    Piece,
)
from curtilage.enclave_server.ohttp.tools import (
    CHOICES,
    MAX_CALLS,
    ChatFormat,
    ChatTool,
)

MAX_EVENT_BYTES: Final = 1024 * 1024
MAX_CALL_CHARS: Final = 1024 * 1024
"""Of the arguments of all calls in one answer, which are held until it ends."""
FINISH_REASONS: Final = frozenset({"stop", "length", "tool_calls"})
_DONE: Final = b"[DONE]"
_MAX_TOKENS: Final = 1 << 31
_TOO_LONG_TYPES: Final = frozenset(
    {"context_length_exceeded", "exceed_context_size_error"}
)
_TOO_LONG: Final = "context length"
# Sentences of vLLM, of its releases until now, and of SGLang. From the beginning: a
# server may quote the question further on. The client's reader of an on-premises
# server's refusals has the same table.
_TOO_LONG_WORDS: Final = (
    re.compile(
        r"(?:'max_tokens'[^.]{0,80}\. )?This model's maximum context length is "
        r"(?P<context>[0-9]{1,9}) tokens(?:(?: and|\. However,) "
        r"(?:you requested [0-9]{1,9} output tokens and )?"
        r"(?:your request has |your prompt contains |you requested [0-9]{1,9} tokens "
        r"\()(?:at least |[0-9]{1,12} characters \(more than [0-9]{1,12} characters, "
        r"which is the upper bound for )?"
        r"(?P<prompt>[0-9]{1,9}) (?:in the messages|input tokens))?"
    ),
    re.compile(
        r"You passed (?P<prompt>[0-9]{1,9}) input tokens and requested [0-9]{1,9} "
        r"output tokens\. However, the model's context length is only "
        r"(?P<context>[0-9]{1,9})\b"
    ),
    re.compile(
        r"Requested token count exceeds the model's maximum context length of "
        r"(?P<context>[0-9]{1,9}) tokens\. You requested a total of [0-9]{1,9} "
        r"tokens: (?P<prompt>[0-9]{1,9}) tokens from the input messages"
    ),
    re.compile(
        r"The input \((?P<prompt>[0-9]{1,9}) tokens\) is longer than the model's "
        r"context length \((?P<context>[0-9]{1,9}) tokens\)"
    ),
)


def request_body(chat: ChatCompletionRequest, name: str, cache_salt: str) -> bytes:
    """Encode a request for the engine: every field of it.

    Args:
        chat: the request.
        name: the engine's name for the model.
        cache_salt: of this request only.

    Raises:
        ChatError: it has to be deterministic, which other engines do not promise.
    """
    if chat.deterministic:
        raise ChatError(400, "unsupported_parameter", param="deterministic")
    body: dict[str, object] = {
        "model": name,
        "messages": [*map(_message, chat.messages)],
        "max_tokens": chat.max_tokens,
        "temperature": chat.temperature,
        "top_p": chat.top_p,
        "n": chat.n,
        "presence_penalty": chat.presence_penalty,
        "frequency_penalty": chat.frequency_penalty,
        # Always: frames are filled as the text comes, also for an answer that is asked
        # for whole.
        "stream": True,
        "stream_options": {"include_usage": True},
        # Who sends another's beginning is answered no faster, even if the engine was
        # started with its prefix cache: vLLM and SGLang reuse nothing across salts,
        # llama.cpp's server nothing at all.
        "cache_salt": cache_salt,
        "cache_prompt": False,
    }
    if chat.seed is not None:
        body["seed"] = chat.seed
    if chat.stop:
        body["stop"] = list(chat.stop)
    if chat.logprobs:
        body["logprobs"] = True
    if chat.top_logprobs:
        # Not 0: llama.cpp's server would then send no log-probability at all.
        body["top_logprobs"] = chat.top_logprobs
    if chat.tools:
        body |= _tool_fields(chat)
    if chat.response_format is not None:
        body["response_format"] = _format(chat.response_format)
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def _message(message: ChatMessage) -> dict[str, object]:
    turn: dict[str, object] = {
        # Most chat templates know only "system"; OpenAI renamed it.
        "role": "system" if message.role == "developer" else message.role,
        "content": message.content,
    }
    if message.name is not None:
        turn["name"] = message.name
    if message.calls:
        turn["tool_calls"] = [
            {
                "id": each.id,
                "type": "function",
                "function": {"name": each.name, "arguments": each.arguments},
            }
            for each in message.calls
        ]
    if message.result_of:
        turn["tool_call_id"] = message.result_of
    return turn


def _callable(chat: ChatCompletionRequest) -> tuple[tuple[ChatTool, ...], bool]:
    """Return the tools that an answer may call, and whether it may call several."""
    match chat.tool_choice:
        case "none":
            return (), False
        case "auto" | "required":
            return chat.tools, chat.parallel_tool_calls
        case name:
            # A named choice is one call: so our own engine does it.
            return tuple(each for each in chat.tools if each.name == name), False


def _tool_fields(chat: ChatCompletionRequest) -> dict[str, object]:
    offered, several = _callable(chat)
    # llama.cpp's server ignores a choice by name. A call of the only tool is the same.
    named = chat.tool_choice not in CHOICES
    return {
        "tools": [*map(_tool, offered or chat.tools)],
        "tool_choice": "required" if named else chat.tool_choice,
        "parallel_tool_calls": several,
    }


def _tool(tool: ChatTool) -> dict[str, object]:
    function: dict[str, object] = {"name": tool.name}
    if tool.description:
        function["description"] = tool.description
    if tool.parameters is not None:
        function["parameters"] = json.loads(tool.parameters)
    if tool.strict:
        function["strict"] = True
    return {"type": "function", "function": function}


def _format(wanted: ChatFormat) -> dict[str, object]:
    if not wanted.name:
        return {"type": "json_object"}
    described: dict[str, object] = {
        "name": wanted.name,
        "schema": json.loads(wanted.schema),
    }
    if wanted.description:
        described["description"] = wanted.description
    if wanted.strict:
        described["strict"] = True
    return {"type": "json_schema", "json_schema": described}


class EventReader:
    """Turns the engine's server-sent events into answers. Pure; bounded.

    Args:
        chat: the request that they answer.

    Attributes:
        events: how many were read: these show that the engine writes.
        ended: the end mark was read.
    """

    def __init__(self, chat: ChatCompletionRequest) -> None:
        self._choices = tuple(_ChoiceReader(chat, number) for number in range(chat.n))
        self._held = bytearray()
        self._usage = (0, 0)
        self.events = 0
        self.ended = False

    def push(self, data: bytes) -> Iterator[Answer]:
        """Yield what ``data`` completes.

        Raises:
            ModelError: an error of the engine, or no answer of the expected form.
        """
        self._held += data
        *lines, rest = self._held.split(b"\n")
        self._held = rest
        if len(rest) > MAX_EVENT_BYTES:
            _broken()
        for line in lines:
            name, _, value = bytes(line).rstrip(b"\r").partition(b":")
            # Comments keep the connection alive; these servers put an event in a line.
            if name == b"data" and not self.ended:
                yield from self._event(value.removeprefix(b" "))

    def _event(self, data: bytes) -> Iterator[Answer]:
        self.events += 1
        if data == _DONE:
            self.ended = True
            yield self._ending()
            return
        chunk = _object(data)
        if chunk.get("error") is not None or chunk.get("object") == "error":
            raise ModelError("the engine reported an error")
        choices = _listed(chunk.get("choices"))
        usage = _member(chunk, "usage")
        if usage is not None:
            # llama.cpp's server counts each of several answers in an event of its own,
            # others all of them in one.
            alone = len(self._choices) > 1 and not choices
            before = self._usage[1] if alone else 0
            self._usage = (
                _count(_member(usage, "prompt_tokens")),
                before + _count(_member(usage, "completion_tokens")),
            )
        for choice in choices:
            yield from self._choice_of(choice).read(choice)

    def _choice_of(self, choice: object) -> "_ChoiceReader":
        index = _member(choice, "index")
        number = 0 if index is None else _index(index)
        # One that was not requested would be mixed into the others.
        if number >= len(self._choices):
            _broken()
        return self._choices[number]

    def _ending(self) -> Ending:
        first, *others = (each.finish for each in self._choices)
        # Without a finish reason the answer is incomplete in spite of the mark.
        if not all((first, *others)):
            _broken()
        prompt, completion = self._usage
        return Ending(
            finish_reason=first,
            prompt_tokens=prompt,
            completion_tokens=completion,
            others=tuple(others),
        )


@dataclass(slots=True)
class _Call:
    """A call of which pieces have arrived."""

    name: str = field(default="", repr=False)
    pieces: list[str] = field(default_factory=list[str], repr=False)

    @property
    def arguments(self) -> str:
        """The pieces, joined; an object without members if there are none."""
        return "".join(self.pieces) or "{}"

    @property
    def is_whole(self) -> bool:
        """Whether the engine wrote all of its arguments."""
        return bool(self.pieces) and _is_json_object(self.arguments)


class _ChoiceReader:
    """Reads one of the answers to a request.

    Args:
        chat: the request.
        number: of the answer, from 0.

    Attributes:
        finish: the finish reason; empty until it was read.
    """

    def __init__(self, chat: ChatCompletionRequest, number: int) -> None:
        self._chat = chat
        self._number = number
        self._calls: dict[int, _Call] = {}
        self._call_chars = 0
        self.finish = ""

    def read(self, choice: object) -> Iterator[Piece]:
        """Yield the text of one event; calls when the answer finishes.

        Raises:
            ModelError: it has another form, or calls what it may not.
        """
        delta, reason = _member(choice, "delta"), _member(choice, "finish_reason")
        text = _text(_member(delta, "content"))
        calls = _listed(_member(delta, "tool_calls"))
        if self.finish and (text or calls):
            _broken()
        if text:
            yield from self._pieces(text, _member(choice, "logprobs"))
        for call in calls:
            self._take_call(call)
        if reason is not None and not self.finish:
            # "abort" or "content_filter" would be a part of an answer.
            if not isinstance(reason, str) or reason not in FINISH_REASONS:
                _broken()
            self.finish = reason
            yield from self._called(reason)

    def _take_call(self, piece: object) -> None:
        """Take a piece of a call: an application must not execute half of it."""
        index = _index(_member(piece, "index"))
        if index >= MAX_CALLS:
            _broken()
        call = self._calls.setdefault(index, _Call())
        function = _member(piece, "function")
        # Some servers repeat the name with each piece, others send null.
        call.name = _text(_member(function, "name")) or call.name
        if arguments := _text(_member(function, "arguments")):
            self._call_chars += len(arguments)
            call.pieces.append(arguments)
        if self._call_chars > MAX_CALL_CHARS:
            _broken()

    def _called(self, reason: str) -> Iterator[Piece]:
        calls = [
            call for _, call in sorted(self._calls.items(), key=lambda each: each[0])
        ]
        self._calls.clear()
        # The token limit may have cut the last one. Our own engine omits it, too.
        if reason == "length" and calls and not calls[-1].is_whole:
            calls.pop()
        must = self._chat.tool_choice not in {"none", "auto"}
        if not calls and (reason == "tool_calls" or (must and reason == "stop")):
            raise ModelError("the engine did not call a tool as it had to")
        offered, several = _callable(self._chat)
        if len(calls) > 1 and not several:
            raise ModelError("the engine called more tools than one")
        for index, call in enumerate(calls):
            if call.name not in {each.name for each in offered}:
                raise ModelError("the engine called a tool that it was not offered")
            if not _is_json_object(call.arguments):
                raise ModelError("the engine called a tool without valid arguments")
            called = Call(index=index, name=call.name, arguments=call.arguments)
            yield Piece(text="", choice=self._number, call=called)

    def _pieces(self, text: str, logprobs: object) -> Iterator[Piece]:
        if not self._chat.logprobs:
            yield Piece(text=text, choice=self._number)
            return
        pieces = [
            Piece(
                text=_text(_member(entry, "token")),
                logprob=_logprob(_member(entry, "logprob")),
                top=self._top(entry),
                choice=self._number,
            )
            for entry in _listed(_member(logprobs, "content"))
        ]
        if not pieces:
            _broken()
        # Tokens that are half a character do not add up to the text; then the text is
        # one piece, with the probability of all of them together. Alternatives to all
        # of them together are not known.
        if "".join(each.text for each in pieces) == text:
            yield from pieces
            return
        total = sum(each.logprob or 0 for each in pieces)
        yield Piece(
            text=text,
            logprob=max(total, LOWEST_LOGPROB),
            top=pieces[0].top if len(pieces) == 1 else (),
            choice=self._number,
        )

    def _top(self, entry: object) -> tuple[tuple[str, float], ...]:
        # Some servers send more than was requested, and unrequested.
        most = self._chat.top_logprobs
        listed = _listed(_member(entry, "top_logprobs"))[:most]
        if most and not listed:
            _broken()
        return tuple(
            (_text(_member(each, "token")), _logprob(_member(each, "logprob")))
            for each in listed
        )


def refusal_of(
    data: bytes, chat: ChatCompletionRequest
) -> PromptTooLongError | ChatError:
    """Return the error for the body of a 400; only numbers of it are kept.

    llama.cpp's server names the error's type and both numbers; vLLM and SGLang say both
    in words, vLLM sometimes only the least that the question has.

    Args:
        data: the body.
        chat: the request that it refuses.
    """
    try:
        refusal: object = json.loads(data)
    except (ValueError, RecursionError):
        refusal = None
    error = _member(refusal, "error") or refusal
    kinds = (_member(error, "type"), _member(error, "code"))
    said = _member(error, "message")
    said = said if isinstance(said, str) else ""
    named = any(each in _TOO_LONG_TYPES for each in kinds if isinstance(each, str))
    if not named and _TOO_LONG not in said:
        # Which field it refuses is only in its words.
        return ChatError(400, "invalid_value")
    words = next(filter(None, (each.match(said) for each in _TOO_LONG_WORDS)), None)
    if words is None:
        numbers = _member(error, "n_prompt_tokens"), _member(error, "n_ctx")
    else:
        numbers = int(words["prompt"] or 0), int(words["context"])
    return PromptTooLongError(
        "the engine's context is too small", _too_long(*numbers, chat.max_tokens)
    )


def _too_long(prompt: object, context: object, max_tokens: int) -> TooLong | None:
    """Return the numbers, unless the engine names no two by which it is too long."""
    if type(prompt) is not int or type(context) is not int:
        return None
    if not (0 < prompt < _MAX_TOKENS and 0 < context < prompt + max_tokens):
        return None
    return TooLong(prompt_tokens=prompt, max_tokens=max_tokens, context_tokens=context)


def _broken() -> NoReturn:
    raise ModelError("the engine's answer has another form")


def _object(data: bytes) -> dict[str, object]:
    try:
        value: object = json.loads(data)
    except (ValueError, RecursionError):
        raise ModelError("the engine's answer is not JSON") from None
    if not isinstance(value, dict):
        _broken()
    return cast("dict[str, object]", value)


def _member(value: object, key: str) -> object:
    if not isinstance(value, dict):
        return None
    return cast("dict[str, object]", value).get(key)


def _count(value: object) -> int:
    return value if isinstance(value, int) and value >= 0 else 0


def _logprob(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        _broken()
    # Servers report an impossible token with -9999, or with -inf, which is not JSON.
    return max(min(float(value), 0.0), LOWEST_LOGPROB)


def _listed(value: object) -> list[object]:
    if value is None:
        return []
    if not isinstance(value, list):
        _broken()
    return cast("list[object]", value)


def _index(value: object) -> int:
    # True is 1 to Python.
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        _broken()
    return value


def _text(value: object) -> str:
    """Return a text that has a UTF-8 form; an empty one for null."""
    if value is None:
        return ""
    if not isinstance(value, str):
        _broken()
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ModelError("the engine's answer has another form") from None
    return value


def _is_json_object(text: str) -> bool:
    try:
        value: object = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict)


def _refuse_constant(_name: str) -> NoReturn:
    # NaN is Python's, not JSON.
    raise ValueError
