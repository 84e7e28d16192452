"""Answers and errors in the OpenAI chat schema; pure.

``openai_chat`` reads the requests. Errors never repeat what a sender wrote.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from curtilage.client.chat.answer import Answer, Delta, Finished, Provenance
from curtilage.client.chat.openai_chat import JsonObject
from curtilage.client.errors import (
    BlockedError,
    BusyError,
    ClientError,
    ConsentRequiredError,
    ElsewhereError,
    IncompleteAnswerError,
    LocalUnavailableError,
    NotRoutedError,
    QueuedError,
    UsageError,
)

TOO_MANY: Final = 429
SERVER_ERROR: Final = 500


def completion_object(answer: Answer, *, answer_id: str, created: int) -> JsonObject:
    """Create a ``chat.completion`` object."""
    choice: JsonObject = {
        "index": 0,
        "message": {"role": "assistant", "content": answer.text, "refusal": None},
        "logprobs": _logprobs(answer.logprobs),
        "finish_reason": answer.finished.finish_reason,
    }
    return {
        "id": answer_id,
        "object": "chat.completion",
        "created": created,
        **_answerer(answer.provenance),
        "choices": [choice],
        "usage": _usage(answer.finished),
        **_final_fields(answer.finished),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkBuilder:
    """Creates the ``chat.completion.chunk`` events of one stream.

    Attributes:
        answer_id: the id that all chunks share.
        created: Unix time, seconds.
        provenance: of the answer.
    """

    answer_id: str
    created: int
    provenance: Provenance

    def first(self) -> bytes:
        """Return the event with the role and the provenance.

        The provenance is repeated here because the headers may have been sent before
        it was known.
        """
        start: JsonObject = {"role": "assistant", "content": ""}
        said = provenance_fields(self.provenance)
        return self._event(start, None, (), curtilage=said)

    def piece(self, delta: Delta) -> bytes:
        """Return the event of one piece."""
        return self._event({"content": delta.text}, None, delta.logprobs)

    def last(self, finished: Finished, *, include_usage: bool) -> Iterator[bytes]:
        """Yield the final events of a complete stream."""
        # Only known now; the headers were sent long ago.
        final = _final_fields(finished)
        yield self._event({}, finished.finish_reason, (), **final)
        if include_usage:
            yield sse({**self._head(), "choices": [], "usage": _usage(finished)})
        yield b"data: [DONE]\n\n"

    def _event(
        self,
        delta: JsonObject,
        finish_reason: str | None,
        logprobs: tuple[tuple[str, float], ...],
        **extra: object,
    ) -> bytes:
        choice: JsonObject = {
            "index": 0,
            "delta": delta,
            "logprobs": _logprobs(logprobs),
            "finish_reason": finish_reason,
        }
        return sse({**self._head(), "choices": [choice], **extra})

    def _head(self) -> JsonObject:
        return {
            "id": self.answer_id,
            "object": "chat.completion.chunk",
            "created": self.created,
            **_answerer(self.provenance),
        }


def sse(value: JsonObject) -> bytes:
    """Encode one server-sent event."""
    return b"data: " + json.dumps(value, ensure_ascii=False).encode() + b"\n\n"


_NAMED_AS_OPENAI: Final = {"context_too_long": "context_length_exceeded"}


def error_object(error: ClientError) -> tuple[int, JsonObject]:
    """Return the HTTP status and the OpenAI-style body for an error."""
    param = error.param if isinstance(error, UsageError) else None
    match error:
        case UsageError():
            status, code = error.http_status, error.code
            kind = "invalid_request_error"
        case BlockedError():
            status, kind, code = 403, "policy_error", "blocked_by_policy"
        case BusyError():
            status, kind = TOO_MANY, "rate_limit_error"
            code = "rate_limit_exceeded"
        case LocalUnavailableError() | NotRoutedError():
            status, kind = error.http_status, "unavailable_error"
            code = _NAMED_AS_OPENAI.get(error.code, error.code)
            if status == TOO_MANY:
                kind = "rate_limit_error"
            elif status < SERVER_ERROR:
                kind = "invalid_request_error"
        case ElsewhereError() | IncompleteAnswerError():
            status, kind, code = 502, "unavailable_error", error.reason.value
        case _:
            status, kind, code = 500, "server_error", "internal"
    body = {"message": str(error), "type": kind, "param": param, "code": code}
    return status, {"error": body | _to_come_back_with(error)}


def _to_come_back_with(error: ClientError) -> dict[str, str | None]:
    match error:
        case ConsentRequiredError(token=str(token)) if token:
            return {"consent": token}
        case QueuedError(ticket=ticket):
            return {"ticket": ticket}
        case _:
            return {}


def fingerprint(provenance: Provenance) -> str:
    """Return the tier in one word and, if it is local, why the enclave did not answer.

    In the body as well, because programs store an answer's body and not its headers.
    """
    words = ["curtilage", provenance.route.value]
    if provenance.evidence is not None:
        words.append(provenance.evidence)
    if provenance.fallback is not None:
        words += ["fallback", provenance.fallback.value]
    if provenance.left_out:
        words.append("shortened")
    return ":".join(words)


def provenance_headers(provenance: Provenance) -> dict[str, str]:
    """Return the response headers with an answer's provenance."""
    fields = provenance_fields(provenance)
    return {f"x-curtilage-{name}": value for name, value in fields.items()}


def provenance_fields(provenance: Provenance) -> dict[str, str]:
    """Return the same, with the short names of the fields."""
    fields = {
        "route": provenance.route.value,
        "class": ",".join(provenance.classes),
        "rule": provenance.rule,
        "policy": provenance.policy_digest,
        "audit": "recorded" if provenance.recorded else "failed",
        "tier": provenance.tier,
    }
    fallback, obstacle = provenance.fallback, provenance.obstacle
    some = {
        "why": provenance.why,
        "uncertain": ",".join(provenance.uncertain),
        "verdict": provenance.verdict_id,
        "evidence": provenance.evidence,
        "fallback": None if fallback is None else fallback.value,
        "deidentified": ",".join(
            f"{name}={count}" for name, count in provenance.deidentified
        ),
        "boundary": provenance.boundary,
        "obstacle": None if obstacle is None else obstacle.value,
        "left-out": str(provenance.left_out or ""),
        "beside": "yes" if provenance.in_parallel else "",
        "floor": provenance.floor,
    }
    return fields | {name: value for name, value in some.items() if value}


def _answerer(provenance: Provenance) -> JsonObject:
    return {"model": provenance.model, "system_fingerprint": fingerprint(provenance)}


def _logprobs(pairs: tuple[tuple[str, float], ...]) -> JsonObject | None:
    if not pairs:
        return None
    return {
        "content": [
            {
                "token": token,
                "logprob": value,
                "bytes": list(token.encode()),
                "top_logprobs": [],
            }
            for token, value in pairs
        ],
        "refusal": None,
    }


def _final_fields(finished: Finished) -> JsonObject:
    """Return the fields that are only known at the end of an answer, if any."""
    fields: JsonObject = {}
    if finished.unrestored:  # this many placeholders hide a value
        fields["unrestored"] = finished.unrestored
    if finished.doubtful:
        fields["doubtful"] = True
    return {"curtilage": fields} if fields else {}


def _usage(finished: Finished) -> JsonObject:
    return {
        "prompt_tokens": finished.prompt_tokens,
        "completion_tokens": finished.completion_tokens,
        "total_tokens": finished.prompt_tokens + finished.completion_tokens,
    }
