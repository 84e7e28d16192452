"""Answers and errors in the OpenAI chat schema; pure.

``openai_chat`` reads the requests. Errors never repeat what a sender wrote.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from curtilage.client.chat.answer import (
    Answer,
    Called,
    Choice,
    Delta,
    Finished,
    Logprobs,
    Provenance,
    bytes_of,
)
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
_ID_CHARS: Final = 24
SERVER_ERROR: Final = 500


def completion_object(answer: Answer, *, answer_id: str, created: int) -> JsonObject:
    """Create a ``chat.completion`` object."""
    return {
        "id": answer_id,
        "object": "chat.completion",
        "created": created,
        **_answerer(answer.provenance),
        "choices": choices_object(answer, answer_id=answer_id),
        "usage": _usage(answer.finished),
        **_final_fields(answer.finished),
    }


def choices_object(answer: Answer, *, answer_id: str) -> list[JsonObject]:
    """Create the ``choices`` of such an object."""
    return [
        {
            "index": number,
            "message": _message(choice, answer_id, number),
            "logprobs": _logprobs(choice.logprobs, choice.tops),
            "finish_reason": choice.finish_reason,
        }
        for number, choice in enumerate(answer.choices)
    ]


def _message(choice: Choice, answer_id: str, number: int) -> JsonObject:
    calls = [_call(each, answer_id, number) for each in choice.calls]
    return {
        "role": "assistant",
        "content": choice.text or (None if calls else ""),
        "refusal": None,
        **({"tool_calls": calls} if calls else {}),
    }


def _call(call: Called, answer_id: str, choice: int) -> JsonObject:
    # Unique among all answers, as a conversation may contain many calls; its end, since
    # OpenAI's servers accept 40 characters.
    unique = answer_id[-_ID_CHARS:]
    return {
        "id": f"call_{unique}_{choice}_{call.index}",
        "type": "function",
        "function": {"name": call.name, "arguments": call.arguments},
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkBuilder:
    """Creates the ``chat.completion.chunk`` events of one stream.

    Attributes:
        answer_id: the id that all chunks share.
        created: Unix time, seconds.
        provenance: of the answer.
        n: number of answers.
    """

    answer_id: str
    created: int
    provenance: Provenance
    n: int = 1

    def first(self) -> bytes:
        """Return the event of each answer with the role, and with the provenance.

        The provenance is repeated here because the headers may have been sent before
        it was known.
        """
        start: JsonObject = {"role": "assistant", "content": ""}
        said = provenance_fields(self.provenance)
        return b"".join(
            self._event(start, choice=number, extra={"curtilage": said})
            for number in range(self.n)
        )

    def piece(self, delta: Delta) -> bytes:
        """Return the event of one piece."""
        said: JsonObject = {}
        if delta.text or not delta.calls:
            said["content"] = delta.text
        if delta.calls:
            said["tool_calls"] = [
                {"index": each.index, **_call(each, self.answer_id, delta.choice)}
                for each in delta.calls
            ]
        logprobs = _logprobs(delta.logprobs, delta.tops)
        return self._event(said, choice=delta.choice, logprobs=logprobs)

    def last(self, finished: Finished, *, include_usage: bool) -> Iterator[bytes]:
        """Yield the final events of a complete stream."""
        # Only known now; the headers were sent long ago.
        final = _final_fields(finished)
        reasons = (finished.finish_reason, *finished.others)
        for number, reason in enumerate(reasons):
            yield self._event({}, choice=number, finish_reason=reason, extra=final)
        if include_usage:
            yield sse({**self._head(), "choices": [], "usage": _usage(finished)})
        yield b"data: [DONE]\n\n"

    def _event(
        self,
        delta: JsonObject,
        *,
        choice: int,
        logprobs: JsonObject | None = None,
        finish_reason: str | None = None,
        extra: JsonObject | None = None,
    ) -> bytes:
        one: JsonObject = {
            "index": choice,
            "delta": delta,
            "logprobs": logprobs,
            "finish_reason": finish_reason,
        }
        return sse({**self._head(), "choices": [one], **(extra or {})})

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


OPENAI_TOO_LONG: Final = "context_length_exceeded"
_NAMED_AS_OPENAI: Final = {"context_too_long": OPENAI_TOO_LONG}
_TOO_LONG_ELSEWHERE: Final = frozenset({"enclave_too_long", "on_premises_too_long"})
_REFUSED_THERE: Final = "enclave_refused_query"


def error_object(error: ClientError) -> tuple[int, JsonObject]:
    """Return the HTTP status and the OpenAI-style body for an error."""
    param = error.param if isinstance(error, UsageError | ElsewhereError) else None
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
            status, kind, code = _of_reason(error.reason.value)
        case _:
            status, kind, code = 500, "server_error", "internal"
    body = {"message": str(error), "type": kind, "param": param, "code": code}
    return status, {"error": body | _to_come_back_with(error)}


def _of_reason(reason: str) -> tuple[int, str, str]:
    """Return status, type and code for why a tier elsewhere did not answer."""
    if reason in _TOO_LONG_ELSEWHERE:
        return 400, "invalid_request_error", OPENAI_TOO_LONG
    if reason == _REFUSED_THERE:
        return 400, "invalid_request_error", reason
    return 502, "unavailable_error", reason


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


def _logprobs(pairs: Logprobs, tops: tuple[Logprobs, ...]) -> JsonObject | None:
    if not pairs:
        return None
    return {
        "content": [
            {**_token(*pair), "top_logprobs": [_token(*each) for each in top]}
            for pair, top in zip(pairs, tops or ((),) * len(pairs), strict=True)
        ],
        "refusal": None,
    }


def _token(token: str, value: float) -> JsonObject:
    data = bytes_of(token)
    # A server that sends no bytes marks a part of a character so.
    known = None if "\ufffd" in token else list(data)
    return {"token": data.decode(errors="replace"), "logprob": value, "bytes": known}


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
