"""The OpenAI chat schema on one side, ``Query`` and answers on the other; pure.

Strict about what it does not do: a parameter that would change the answer and is not
supported is an error that names it, never ignored. So is a part of a message that is
not text: a model that is not shown a picture invents what is on it. Who only asks
where a query may go gets such a part's place, which the policy keeps home. Which
fields are taken and which are dropped, ``openai_fields`` says. Never repeats what a
sender wrote, but for the name of a field that could be an identifier.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast

from curtilage.client.answer import (
    Answer,
    Delta,
    Finished,
    Provenance,
    without_reading_note,
)
from curtilage.client.errors import (
    BlockedError,
    BusyError,
    ClientError,
    ConsentRequiredError,
    ElsewhereError,
    IncompleteAnswerError,
    LocalUnavailableError,
    ModelNotFoundError,
    NotRoutedError,
    QueuedError,
    TooLargeError,
    UnknownFieldError,
    UnsupportedContentError,
    UnsupportedFieldError,
    UsageError,
)
from curtilage.client.openai_fields import (
    DOCUMENT,
    DROPPED,
    DROPPED_IN_MESSAGES,
    DROPPED_IN_PARTS,
    MESSAGE_FIELDS,
    MODEL_ID,
    NEUTRAL,
    PARTS,
    USED,
    sayable,
)
from curtilage.client.options import ROUTING_FIELDS, flag, integer, options_from
from curtilage.client.query import ROLES, Message, Query, Settings
from curtilage.policy.decision.findings import Where

MAX_MESSAGES: Final = 1024
OTHER: Final = "other"
JsonObject = dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Other:
    """Something of a message that is not text.

    Attributes:
        where: its place.
        kind: what it is, in words for its sender.
        name: the name of a field that is not known, where it may be repeated; it is
            in no place that is recorded.
    """

    where: Where
    kind: str
    name: str = ""

    @property
    def param(self) -> str:
        """Its place as OpenAI's errors name it."""
        message, path = self.where.message, self.where.json_path
        named = self.name if path == OTHER else path
        return f"messages[{message}]" + (f".{named}" if named else "")


def require_text(others: Sequence[Other]) -> None:
    """Refuse what no answer can take into account.

    Raises:
        UnsupportedContentError: names the first, and what to do.
    """
    for other in others:
        raise UnsupportedContentError(
            f"{other.param} holds {other.kind}: only text is answered, at home and by "
            f"the enclave; leave it out, or send as text what it says ({DOCUMENT})",
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
        raise UsageError(
            f"{param}.role is not one that is known", param=f"{param}.role"
        )
    if name is not None and not isinstance(name, str):
        raise UsageError(f"{param}.name must be a string", param=f"{param}.name")
    refusal = message.get("refusal") if role == ASSISTANT else None
    spoken = {"refusal"} if isinstance(refusal, str) else set[str]()
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
            name="".join(sayable([key])),
        )
        for key, held in message.items()
        if key not in {"role", "name", "content"} | spoken | DROPPED_IN_MESSAGES
        and held not in (None, "", [], {})
    ]
    content = message.get("content")
    text, parts = "", list[Other]()
    # OpenAI's answers that hold tool calls or a refusal have no content, and come back
    # as turns so.
    if content is not None or not (others or role == ASSISTANT):
        text, parts = _content(index, role, content)
    if isinstance(refusal, str) and refusal:
        text = f"{text}\n{refusal}" if text else refusal
    text = without_reading_note(role, text)
    return Message(role=role, content=text, name=name), [*others, *parts]


def _content(index: int, role: str, value: object) -> tuple[str, list[Other]]:
    if isinstance(value, str):
        return value, []
    if not isinstance(value, list) or not value:
        raise UsageError(
            f"messages[{index}].content must be a string or a list of parts",
            param=f"messages[{index}].content",
        )
    texts: list[str] = []
    others: list[Other] = []
    for number, each in enumerate(cast("list[object]", value)):
        part = cast("JsonObject", each) if isinstance(each, dict) else {}
        named = part.get("type")
        # An assistant's refusal is its text by another name.
        text = part.get("refusal" if named == "refusal" else "text")
        said = {key: held for key, held in part.items() if key not in DROPPED_IN_PARTS}
        spoken = [{"type": "text", "text": text}]
        spoken += [{"type": "refusal", "refusal": text}] if role == ASSISTANT else []
        # Exactly these two fields: a text with a third next to it would be answered
        # without what the third says.
        if said in spoken and isinstance(text, str):
            texts.append(text)
            continue
        kind = PARTS.get(named) if isinstance(named, str) else None
        more = sayable(said.keys() - {"type", "text"}) if named == "text" else ()
        if kind is not None and more:
            kind = f"{kind} ({', '.join(sorted(more))})"
        others.append(
            Other(
                where=Where(message=index, role=role, json_path=f"content[{number}]"),
                kind=kind or "a part of a kind that is not known",
            )
        )
    return "\n".join(texts), others


ASSISTANT: Final = "assistant"
MAX_REQUEST_BYTES: Final = 1024 * 1024
MAX_TOKENS: Final = 32768
MAX_STOPS: Final = 4
TOO_MANY: Final = 429
SERVER_ERROR: Final = 500

OPTIONS: Final = frozenset(
    {"max_tokens", "temperature", "top_p", "seed", "stop", "logprobs"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatCompletionRequest:
    """A parsed request.

    Attributes:
        query: what is inspected and answered.
        include_usage: send the token counts at the end of a stream.
        dropped: which fields were dropped, by name; words of ``openai_fields``.
    """

    query: Query
    include_usage: bool
    dropped: tuple[str, ...] = ()


def parse_completion_request(body: bytes) -> ChatCompletionRequest:
    """Parse the body of ``POST /v1/chat/completions``.

    Raises:
        UsageError: says which field is wrong; never what it held.
    """
    request = _parse_object(body)
    # Null asks for nothing, whatever the field is.
    given = {name: value for name, value in request.items() if value is not None}
    _refuse_unknown(given.keys() - USED.keys() - NEUTRAL.keys() - DROPPED)
    for name, neutral in NEUTRAL.items():
        if name in given and given[name] not in neutral:
            raise UnsupportedFieldError(
                f"{name} is not supported ({DOCUMENT})", param=name
            )
    if given.get("model", MODEL_ID) != MODEL_ID:
        raise ModelNotFoundError(no_such_model(), param="model")
    messages, others = turns_of(request.get("messages"))
    require_text(others)
    stream = flag("stream", request.get("stream"))
    routing = request.get("curtilage")
    if routing is not None and not isinstance(routing, dict):
        raise UsageError("curtilage must be an object", param="curtilage")
    query = Query(
        messages=messages,
        settings=_settings(request),
        stream=stream,
        options=options_from(cast("JsonObject", routing or {})),
    )
    options = request.get("stream_options")
    if options is not None and not isinstance(options, dict):
        raise UsageError("stream_options must be an object", param="stream_options")
    asked = cast("JsonObject", options or {}).get("include_usage")
    return ChatCompletionRequest(
        query=query, include_usage=asked is True, dropped=_dropped(given)
    )


def no_such_model() -> str:
    """Return what to say to a request for another model; it lists those here."""
    return f"no such model; the models here are: {MODEL_ID} ({DOCUMENT})"


def _refuse_unknown(names: Collection[str]) -> None:
    if not names:
        return
    said = sayable(sorted(names))
    shown = ", ".join(said) or "one whose name is no identifier"
    raise UnknownFieldError(
        f"the request has fields that are not known: {shown} ({DOCUMENT})",
        param=said[0] if said else None,
    )


def _dropped(request: JsonObject) -> tuple[str, ...]:
    """Return the names of all fields that were dropped, of the fixed lists alone."""
    found = request.keys() & DROPPED
    for message in _objects(request.get("messages")):
        found |= message.keys() & DROPPED_IN_MESSAGES
        for part in _objects(message.get("content")):
            found |= part.keys() & DROPPED_IN_PARTS
    return tuple(sorted(found))


def _objects(value: object) -> Iterator[JsonObject]:
    if isinstance(value, list):
        for each in cast("list[object]", value):
            if isinstance(each, dict):
                yield cast("JsonObject", each)


def parse_feedback(body: bytes) -> tuple[str, bool]:
    """Parse the body of ``POST /v1/curtilage/feedback``: an answer's id, and a word.

    Raises:
        UsageError: says which field is wrong; never what it held.
    """
    said = _parse_object(body)
    _refuse_unknown(said.keys() - {"id", "good"})
    answer_id, good = said.get("id"), said.get("good")
    if not isinstance(answer_id, str):
        raise UsageError("id must be the id of an answer", param="id")
    if not isinstance(good, bool):
        raise UsageError("good must be true or false", param="good")
    return answer_id, good


def query_from(
    messages: str | Sequence[Mapping[str, object]],
    options: Mapping[str, object],
    *,
    stream: bool,
    answered: bool = True,
) -> Query:
    """Build a query from what a library's caller passed.

    Args:
        messages: one question, or a conversation's turns.
        options: settings by name.
        stream: whether pieces are wanted.
        answered: whether somebody is to answer it, or only to say where it may
            go; then what is not text becomes a place.

    Raises:
        UsageError: says which argument is wrong.
    """
    turns = [{"role": "user", "content": messages}]
    given = turns if isinstance(messages, str) else [dict(each) for each in messages]
    unknown = options.keys() - OPTIONS - ROUTING_FIELDS
    if unknown:
        raise UsageError("an option is not supported", param=min(unknown))
    parsed, others = turns_of(given)
    if answered:
        require_text(others)
    # ``stop`` may come as a tuple, which JSON has not.
    request: JsonObject = {
        name: list(cast("tuple[object, ...]", value))
        if isinstance(value, tuple)
        else value
        for name, value in options.items()
        if name in OPTIONS
    }
    return Query(
        messages=parsed,
        settings=_settings(request),
        stream=stream,
        opaque=tuple(other.where for other in others),
        options=options_from(
            {name: options[name] for name in options.keys() & ROUTING_FIELDS}
        ),
    )


def completion_object(answer: Answer, *, answer_id: str, created: int) -> JsonObject:
    """Build a ``chat.completion`` object."""
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
        **_told_at_the_end(answer.finished),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkBuilder:
    """Builds the ``chat.completion.chunk`` events of one stream.

    Attributes:
        answer_id: the id that all chunks share.
        created: Unix time, seconds.
        provenance: who answers.
    """

    answer_id: str
    created: int
    provenance: Provenance

    def first(self) -> bytes:
        """Build the event that names the role, and says what the headers do.

        They left without it where nobody answered for too long.
        """
        start: JsonObject = {"role": "assistant", "content": ""}
        said = provenance_fields(self.provenance)
        return self._event(start, None, (), curtilage=said)

    def piece(self, delta: Delta) -> bytes:
        """Build the event of one piece."""
        return self._event({"content": delta.text}, None, delta.logprobs)

    def last(self, finished: Finished, *, include_usage: bool) -> Iterator[bytes]:
        """Build what ends a complete stream."""
        # Only now is it known; the headers left long ago.
        told = _told_at_the_end(finished)
        yield self._event({}, finished.finish_reason, (), **told)
        if include_usage:
            yield sse({**self._head(), "choices": [], "usage": _usage(finished)})
        yield b"data: [DONE]\n\n"

    def _event(
        self,
        delta: JsonObject,
        finish_reason: str | None,
        logprobs: tuple[tuple[str, float], ...],
        **beside: object,
    ) -> bytes:
        choice: JsonObject = {
            "index": 0,
            "delta": delta,
            "logprobs": _logprobs(logprobs),
            "finish_reason": finish_reason,
        }
        return sse({**self._head(), "choices": [choice], **beside})

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
    """Return the HTTP status and the OpenAI-style body that tell an error."""
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
    told = {"message": str(error), "type": kind, "param": param, "code": code}
    return status, {"error": told | _to_come_back_with(error)}


def _to_come_back_with(error: ClientError) -> dict[str, str | None]:
    match error:
        case ConsentRequiredError(token=str(token)) if token:
            return {"consent": token}
        case QueuedError(ticket=ticket):
            return {"ticket": ticket}
        case _:
            return {}


def fingerprint(provenance: Provenance) -> str:
    """Return in a word who answers and, at home, why the enclave does not.

    Programs keep an answer's body and not its headers, so it stands there.
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
    """Return the response headers that say where an answer comes from."""
    fields = provenance_fields(provenance)
    return {f"x-curtilage-{name}": value for name, value in fields.items()}


def provenance_fields(provenance: Provenance) -> dict[str, str]:
    """Return the same by shorter names."""
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
        "beside": "yes" if provenance.beside else "",
        "floor": provenance.floor,
    }
    return fields | {name: value for name, value in some.items() if value}


def _parse_object(body: bytes) -> JsonObject:
    if len(body) > MAX_REQUEST_BYTES:
        raise TooLargeError(f"the request is larger than {MAX_REQUEST_BYTES} bytes")
    try:
        value: object = json.loads(body, object_pairs_hook=_unique)
    except (ValueError, RecursionError):
        value = None  # told below: the parser's error holds all of the body
    if not isinstance(value, dict):
        raise UsageError("the request is not a JSON object in UTF-8")
    return cast("JsonObject", value)


def _unique(pairs: list[tuple[str, object]]) -> JsonObject:
    # RFC 8259, section 4: readers differ in which of two equal names they keep. What
    # was inspected must be what any reader behind us would answer.
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("duplicate key")
    return found


def _answerer(provenance: Provenance) -> JsonObject:
    return {"model": provenance.model, "system_fingerprint": fingerprint(provenance)}


def _settings(request: JsonObject) -> Settings:
    given = Settings()
    limit = request.get("max_completion_tokens")
    if limit is None:
        limit = request.get("max_tokens")
    return Settings(
        max_tokens=integer("max_tokens", limit, 1, MAX_TOKENS) or given.max_tokens,
        temperature=_number(request, "temperature", given.temperature, (0, 2)),
        top_p=_number(request, "top_p", given.top_p, (0.001, 1)),
        seed=integer("seed", request.get("seed"), 0, 2**32 - 1),
        stop=_stop(request.get("stop")),
        logprobs=flag("logprobs", request.get("logprobs")),
    )


def _number(
    request: JsonObject, name: str, default: float, bounds: tuple[float, float]
) -> float:
    value = request.get(name)
    if value is None:
        return default
    low, high = bounds
    # NaN, which Python reads in JSON, is in no range either.
    if (
        not isinstance(value, int | float)
        or isinstance(value, bool)
        or not low <= value <= high
    ):
        raise UsageError(f"{name} must be a number, {low} to {high}", param=name)
    return float(value)


def _stop(value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    stops = [value] if isinstance(value, str) else value
    if not isinstance(stops, list) or len(cast("list[object]", stops)) > MAX_STOPS:
        raise UsageError(f"stop must be a string or up to {MAX_STOPS}", param="stop")
    found = cast("list[object]", stops)
    if not all(isinstance(each, str) and each for each in found):
        raise UsageError("stop must hold strings that are not empty", param="stop")
    return tuple(cast("list[str]", found))


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


def _told_at_the_end(finished: Finished) -> JsonObject:
    """Say what is known of an answer at its end alone, where anything is."""
    told: JsonObject = {}
    if finished.unrestored:  # so many placeholders hide a value
        told["unrestored"] = finished.unrestored
    if finished.doubtful:
        told["doubtful"] = True
    return {"curtilage": told} if told else {}


def _usage(finished: Finished) -> JsonObject:
    return {
        "prompt_tokens": finished.prompt_tokens,
        "completion_tokens": finished.completion_tokens,
        "total_tokens": finished.prompt_tokens + finished.completion_tokens,
    }
