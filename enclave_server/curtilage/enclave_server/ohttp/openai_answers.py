"""Encodes answers in OpenAI's formats: whole, as events, and errors. Pure.

Makes bytes from text and counts. Errors consist only of fixed texts.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Final

from curtilage.enclave_server.errors import ChatError, SchemaPlace, TooLong
from curtilage.wire.media import PROBLEM_DATE, PROBLEM_JSON

JSON_TYPE: Final = b"application/json"
EVENT_STREAM_TYPE: Final = b"text/event-stream"
DONE_EVENT: Final = b"data: [DONE]\n\n"

_MESSAGES: Final[Mapping[str, str]] = {
    "busy": "Too many requests are waiting. Try again later.",
    "context_length_exceeded": "The messages and max_tokens exceed the context.",
    "date": "The Date field is missing or too far from the time here.",
    "engine_crashed": "The model's process ended. Try again.",
    "engine_hung": "The model's process made no progress. Try again later.",
    "expectation_failed": "No expectation is supported.",
    "internal_error": "The answer could not be generated.",
    "invalid_json": "The content is not one JSON object in UTF-8.",
    "invalid_request": "The encapsulated request is not well formed.",
    "invalid_value": "A field has the wrong type or value.",
    "method_not_allowed": "The method is not allowed here.",
    "model_not_found": "There is no model of this name here.",
    "model_unavailable": "The model is not available. Try again later.",
    "no_evidence": "No evidence was available in time.",
    "not_found": "There is nothing here.",
    "out_of_range": "A field is outside its range.",
    "replayed": "This encapsulated request was seen before.",
    "schema_invalid": "A JSON schema is malformed, or permits nothing.",
    "schema_not_enforced": "A strict JSON schema has what is not enforced.",
    "schema_too_large": "A JSON schema is too large.",
    "time_limit": "The answer took too long.",
    "too_complex": "The content has too many parts.",
    "too_many_messages": "There are too many messages.",
    "unsupported_media_type": "The content must be application/json.",
    "unsupported_parameter": "A key is not supported.",
}
ERROR_CODES: Final = frozenset(_MESSAGES)
"""Every code that an inner error may have."""

_PROBLEMS: Final[Mapping[str, str]] = {
    "date": PROBLEM_DATE,
    "replayed": "about:blank",
}
"""Codes about the message rather than the query: sent as problem details."""

LOWEST_LOGPROB: Final = -9999.0
"""OpenAI's value for a token with almost no probability; JSON has no infinity."""
_SERVER_FAULT: Final = 500
_FINISH_REASONS: Final = ("stop", "length", "tool_calls")
MAX_WHERE_CHARS: Final = 88
_MOST_TOKENS: Final = 2**31
"""For bounds: no count of tokens has more digits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerHead:
    """The values that every part of one answer repeats.

    Attributes:
        answer_id: random; says nothing about the request.
        created: unix seconds.
        model: the model's public name.
    """

    answer_id: str
    created: int
    model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """The model has taken the request; text may follow.

    Attributes:
        prompt_tokens: tokens read.
    """

    prompt_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A whole call of a tool, in an answer.

    Attributes:
        index: its position among the calls of the answer, from 0.
        name: of the tool.
        arguments: a JSON object, as text.
    """

    index: int
    name: str = field(repr=False)
    arguments: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Some text of the answer, or a call of a tool.

    Attributes:
        text: may be empty when bytes are held back.
        token: that was drawn, as ``token_of`` its bytes; None: it is the text.
        logprob: natural logarithm, or None when not asked for.
        top: the likeliest tokens in its place, likewise, and their logarithms.
        choice: to which of several answers it belongs, from 0.
        call: of a tool; then there is no text.
    """

    text: str = field(repr=False)
    token: str | None = field(default=None, repr=False)
    logprob: float | None = field(default=None, repr=False)
    top: tuple[tuple[str, float], ...] = field(default=(), repr=False)
    choice: int = 0
    call: Call | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How an answer ended.

    Attributes:
        finish_reason: ``stop``, ``length`` or ``tool_calls``.
        prompt_tokens: tokens read.
        completion_tokens: tokens made.
        others: finish reasons of the second answer and those after it.
    """

    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    others: tuple[str, ...] = ()

    @property
    def reasons(self) -> tuple[str, ...]:
        """The finish reason of each answer."""
        return (self.finish_reason, *self.others)


Answer = Begun | Piece | Ending
"""``Begun``, then pieces, then exactly one ``Ending``; or an exception."""


def encode_completion(
    head: AnswerHead, pieces: Sequence[Piece], ending: Ending, *, logprobs: bool
) -> bytes:
    """Encode a whole answer (``chat.completion``)."""
    choices: list[dict[str, object]] = []
    # Every member is present: a client that parses OpenAI's answers strictly must
    # accept it.
    for number, reason in enumerate(ending.reasons):
        own = [piece for piece in pieces if piece.choice == number]
        calls = [_call(piece.call) for piece in own if piece.call is not None]
        message: dict[str, object] = {
            "role": "assistant",
            "content": "".join(piece.text for piece in own),
        }
        choices.append(
            {
                "index": number,
                "message": message | ({"tool_calls": calls} if calls else {}),
                "logprobs": _logprobs(own) if logprobs else None,
                "finish_reason": reason,
            }
        )
    return _encode(
        {
            **_common(head, "chat.completion"),
            "choices": choices,
            "usage": _usage(ending),
        }
    )


def first_event(head: AnswerHead, n: int = 1) -> bytes:
    """Encode the first events of a stream: the role of each answer, no text."""
    start = {"role": "assistant", "content": ""}
    return b"".join(_chunk_event(head, start, choice=number) for number in range(n))


def piece_event(head: AnswerHead, piece: Piece) -> bytes:
    """Encode one piece as an event (``chat.completion.chunk``)."""
    logprobs = None if piece.logprob is None else _logprobs([piece])
    delta: dict[str, object] = {"content": piece.text}
    if piece.call is not None:
        delta = {"tool_calls": [_call(piece.call)]}
    return _chunk_event(head, delta, choice=piece.choice, logprobs=logprobs)


def merged_event(head: AnswerHead, texts: Sequence[str], choice: int = 0) -> bytes:
    """Encode texts that waited together as one event."""
    return _chunk_event(head, {"content": "".join(texts)}, choice=choice)


def text_bytes(text: str) -> int:
    """Return how many bytes ``text`` adds to an event or a completion."""
    # Without the quotes. Of the encoded text: a quote or a control character takes two
    # to six bytes.
    return len(_encode(text)) - 2


def piece_bytes(piece: Piece, *, logprobs: bool) -> int:
    """Return how many bytes at most ``piece`` adds to a completion."""
    listed = len(_encode(_logprobs([piece]))) if logprobs else 0
    called = (
        0 if piece.call is None else len(_encode({"tool_calls": [_call(piece.call)]}))
    )
    return text_bytes(piece.text) + listed + called


def completion_bytes(head: AnswerHead, n: int = 1) -> int:
    """Return the maximum length of a completion without text, or of an error."""
    ending = outgrown(_MOST_TOKENS, _MOST_TOKENS, n)
    empty = encode_completion(head, (), ending, logprobs=True)
    return max(len(empty), _longest_error())


def last_events_bytes(head: AnswerHead, n: int = 1) -> int:
    """Return the maximum length of the end of a stream, by error or not."""
    longest = (max(_FINISH_REASONS, key=len),) * n
    ending = replace(outgrown(_MOST_TOKENS, _MOST_TOKENS, n), others=longest[1:])
    ending = replace(ending, finish_reason=longest[0])
    error = len(b"data: \n\n") + _longest_error()
    return max(len(last_events(head, ending)), error)


def _longest_error() -> int:
    # A parameter is the name of a known field; none is longer.
    param = "x" * 64
    most = TooLong(
        prompt_tokens=_MOST_TOKENS, max_tokens=_MOST_TOKENS, context_tokens=_MOST_TOKENS
    )
    place = SchemaPlace(keyword="x" * 24, where="x" * MAX_WHERE_CHARS)
    return max(
        len(_error_object(500, code, param, *more))
        for code in ERROR_CODES
        for more in ((most, None), (None, place))
    )


def last_events(head: AnswerHead, ending: Ending) -> bytes:
    """Encode the event of each answer with finish reason and usage, then ``[DONE]``."""
    last = len(ending.others)
    events = [
        _chunk_event(
            head,
            {},
            choice=number,
            finish_reason=reason,
            usage=_usage(ending) if number == last else None,
        )
        for number, reason in enumerate(ending.reasons)
    ]
    return b"".join(events) + DONE_EVENT


def outgrown(prompt_tokens: int, completion_tokens: int, n: int = 1) -> Ending:
    """Return the end of an answer that was cut; of several, any may be incomplete."""
    return Ending(
        finish_reason="length",
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        others=("length",) * (n - 1),
    )


def tellable(error: ChatError) -> ChatError:
    """Return the error, or an internal one if its code has no message.

    An error without a message would end as an answer outside the seal.
    """
    return error if error.code in ERROR_CODES else ChatError(500, "internal_error")


def error_event(error: ChatError) -> bytes:
    """Encode an error in the middle of a stream; no ``[DONE]`` follows it."""
    error = tellable(error)
    return b"data: " + _object_of(error) + b"\n\n"


def error_type(error: ChatError) -> bytes:
    """Return the media type of ``encode_error``."""
    return PROBLEM_JSON.encode() if error.code in _PROBLEMS else JSON_TYPE


def encode_error(error: ChatError) -> bytes:
    """Encode an error; it consists of fixed texts and known field names.

    OpenAI's error object with a ``status``, since the HTTP status may have been sent
    before; for a refused date or a replay, problem details (RFC 9457).
    """
    error = tellable(error)
    if error.code not in _PROBLEMS:
        return _object_of(error)
    return _encode(
        {
            "type": _PROBLEMS[error.code],
            "title": _MESSAGES[error.code],
            "status": error.status,
            "code": error.code,
        }
    )


def _object_of(error: ChatError) -> bytes:
    return _error_object(
        error.status, error.code, error.param, error.too_long, error.place
    )


def _error_object(
    status: int,
    code: str,
    param: str | None,
    found: TooLong | None,
    place: SchemaPlace | None,
) -> bytes:
    kind = "invalid_request_error" if status < _SERVER_FAULT else "server_error"
    members: dict[str, object] = {
        "message": _MESSAGES[code],
        "type": kind,
        "param": param,
        "code": code,
        "status": status,
    }
    if found is not None:
        members["message"] = (
            f"At least {found.prompt_tokens} tokens and an answer of "
            f"{found.max_tokens} exceed the context of {found.context_tokens}."
        )
        members |= asdict(found)
    if place is not None:
        members |= asdict(place)
    return _encode({"error": members})


def _common(head: AnswerHead, kind: str) -> dict[str, object]:
    return {
        "id": head.answer_id,
        "object": kind,
        "created": head.created,
        "model": head.model,
    }


def _chunk_event(
    head: AnswerHead,
    delta: Mapping[str, object],
    *,
    choice: int = 0,
    logprobs: object = None,
    finish_reason: str | None = None,
    usage: object = None,
) -> bytes:
    one: dict[str, object] = {
        "index": choice,
        "delta": delta,
        "logprobs": logprobs,
        "finish_reason": finish_reason,
    }
    body = {**_common(head, "chat.completion.chunk"), "choices": [one]}
    if usage is not None:
        body["usage"] = usage
    return b"data: " + _encode(body) + b"\n\n"


def token_of(data: bytes) -> str:
    """Return a token's bytes as text; of a part of a character, lone surrogates."""
    return data.decode("utf-8", "surrogateescape")


def _logprobs(pieces: Sequence[Piece]) -> dict[str, object]:
    return {
        "content": [
            {
                **_token(piece.text if piece.token is None else piece.token, logprob),
                "top_logprobs": [_token(*each) for each in piece.top],
            }
            for piece in pieces
            if (logprob := piece.logprob) is not None
        ]
    }


def _token(token: str, logprob: float) -> dict[str, object]:
    data = token.encode("utf-8", "surrogateescape")
    # An engine of others that sends no bytes marks a part of a character so.
    known = None if "\ufffd" in token else list(data)
    return {"token": data.decode(errors="replace"), "logprob": logprob, "bytes": known}


def _call(call: Call) -> dict[str, object]:
    # Without a random id: the client gives each call its own.
    return {
        "index": call.index,
        "id": f"call_{call.index}",
        "type": "function",
        "function": {"name": call.name, "arguments": call.arguments},
    }


def _usage(ending: Ending) -> dict[str, int]:
    return {
        "prompt_tokens": ending.prompt_tokens,
        "completion_tokens": ending.completion_tokens,
        "total_tokens": ending.prompt_tokens + ending.completion_tokens,
    }


def _encode(value: object) -> bytes:
    # Non-ASCII letters are not escaped: those of many scripts would take up to three
    # times the room, and frames are what an answer costs. NaN is Python's, not JSON.
    return json.dumps(
        value, ensure_ascii=False, separators=(",", ":"), allow_nan=False
    ).encode()
