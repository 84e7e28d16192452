"""Answers in OpenAI's shapes: whole, event by event, and errors; pure.

Makes bytes from text and counts. Errors are made of fixed words only.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from curtilage.enclave_server.errors import ChatError

JSON_TYPE: Final = b"application/json"
EVENT_STREAM_TYPE: Final = b"text/event-stream"
DONE_EVENT: Final = b"data: [DONE]\n\n"

_MESSAGES: Final[Mapping[str, str]] = {
    "busy": "Too many requests are waiting. Try again later.",
    "context_length_exceeded": "The messages and max_tokens exceed the context.",
    "expectation_failed": "No expectation is supported.",
    "internal_error": "The answer could not be made.",
    "invalid_json": "The content is not one JSON object in UTF-8.",
    "invalid_request": "The encapsulated request is not well formed.",
    "invalid_value": "A field has the wrong type or value.",
    "method_not_allowed": "The method is not allowed here.",
    "model_not_found": "There is no model of this name here.",
    "not_found": "There is nothing here.",
    "out_of_range": "A field is outside its range.",
    "replayed": "This encapsulated request was seen before.",
    "time_limit": "The answer took too long.",
    "too_many_messages": "There are too many messages.",
    "unsupported_media_type": "The content must be application/json.",
    "unsupported_parameter": "A key is not supported.",
}
ERROR_CODES: Final = frozenset(_MESSAGES)
"""Every code an inner error may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerHead:
    """What every part of one answer repeats.

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
    """The model has taken the request; from now on text may come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Some text of the answer.

    Attributes:
        text: may be empty when bytes are held back.
        logprob: natural logarithm, or None when not asked for.
    """

    text: str = field(repr=False)
    logprob: float | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How an answer ended.

    Attributes:
        finish_reason: ``stop`` or ``length``.
        prompt_tokens: tokens read.
        completion_tokens: tokens made.
    """

    finish_reason: str
    prompt_tokens: int
    completion_tokens: int


Answer = Begun | Piece | Ending
"""``Begun``, then pieces, then exactly one ``Ending``; or an exception."""


def encode_completion(
    head: AnswerHead, pieces: Sequence[Piece], ending: Ending, *, logprobs: bool
) -> bytes:
    """Encode a whole answer (``chat.completion``)."""
    text = "".join(piece.text for piece in pieces)
    choice: dict[str, object] = {
        "index": 0,
        "message": {"role": "assistant", "content": text},
        "logprobs": _logprobs(pieces) if logprobs else None,
        "finish_reason": ending.finish_reason,
    }
    return _encode(
        {
            **_common(head, "chat.completion"),
            "choices": [choice],
            "usage": _usage(ending),
        }
    )


def first_event(head: AnswerHead) -> bytes:
    """Encode the event that opens a stream: the role, no text."""
    return _chunk_event(head, {"role": "assistant", "content": ""})


def piece_event(head: AnswerHead, piece: Piece) -> bytes:
    """Encode one piece of text as an event (``chat.completion.chunk``)."""
    logprobs = None if piece.logprob is None else _logprobs([piece])
    return _chunk_event(head, {"content": piece.text}, logprobs=logprobs)


def last_events(head: AnswerHead, ending: Ending) -> bytes:
    """Encode the event with finish reason and usage, then ``[DONE]``."""
    event = _chunk_event(
        head, {}, finish_reason=ending.finish_reason, usage=_usage(ending)
    )
    return event + DONE_EVENT


def tellable(error: ChatError) -> ChatError:
    """Return the error, or an internal one when its code has no message.

    An error that cannot be told would end as an answer outside the seal.
    """
    return error if error.code in ERROR_CODES else ChatError(500, "internal_error")


def error_event(error: ChatError) -> bytes:
    """Encode an error in the middle of a stream; no ``[DONE]`` follows it."""
    return b"data: " + encode_error(error) + b"\n\n"


def encode_error(error: ChatError) -> bytes:
    """Encode an error object; made of fixed words and known field names."""
    error = tellable(error)
    kind = "invalid_request_error" if error.status < 500 else "server_error"  # noqa: PLR2004
    return _encode(
        {
            "error": {
                "message": _MESSAGES[error.code],
                "type": kind,
                "param": error.param,
                "code": error.code,
            }
        }
    )


def _common(head: AnswerHead, kind: str) -> dict[str, object]:
    return {
        "id": head.answer_id,
        "object": kind,
        "created": head.created,
        "model": head.model,
    }


def _chunk_event(
    head: AnswerHead,
    delta: Mapping[str, str],
    *,
    logprobs: object = None,
    finish_reason: str | None = None,
    usage: object = None,
) -> bytes:
    choice: dict[str, object] = {
        "index": 0,
        "delta": delta,
        "logprobs": logprobs,
        "finish_reason": finish_reason,
    }
    body = {**_common(head, "chat.completion.chunk"), "choices": [choice]}
    if usage is not None:
        body["usage"] = usage
    return b"data: " + _encode(body) + b"\n\n"


def _logprobs(pieces: Sequence[Piece]) -> dict[str, object]:
    return {
        "content": [
            {
                "token": piece.text,
                "logprob": piece.logprob,
                "bytes": list(piece.text.encode()),
                "top_logprobs": [],
            }
            for piece in pieces
            if piece.logprob is not None
        ]
    }


def _usage(ending: Ending) -> dict[str, int]:
    return {
        "prompt_tokens": ending.prompt_tokens,
        "completion_tokens": ending.completion_tokens,
        "total_tokens": ending.prompt_tokens + ending.completion_tokens,
    }


def _encode(value: object) -> bytes:
    return json.dumps(
        value, ensure_ascii=False, separators=(",", ":"), allow_nan=False
    ).encode()
