"""Readers of an answer's content: server-sent events, one JSON object, or a refusal.

Pure. Comments in the event stream and white space around the JSON are accepted: a
shaped answer is padded with them. Each reader knows its own end mark, so an answer can
be shown as finished before the remaining frames arrive.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import partial
from typing import Final, NoReturn, cast

from typing_extensions import override

from curtilage.client.chat.answer import (
    AnswerEvent,
    Called,
    Delta,
    Finished,
    Logprobs,
    token_said,
)
from curtilage.client.chat.event_stream import EventParser
from curtilage.client.errors import EnclaveError
from curtilage.client.remote.reasons import (
    DateRefusedError,
    EnclaveFailure,
    TooLongForEnclaveError,
)
from curtilage.wire import bhttp, media
from curtilage.wire.dates import parse_date

SSE_END: Final = b"[DONE]"
MAX_HELD_BYTES: Final = 8 * 1024 * 1024
"""Of one event or one object; thousands of times the largest answer."""

FINISH_REASONS: Final = frozenset({"stop", "length", "tool_calls"})
MAX_ANSWERS: Final = 4
_MOST_TOKENS: Final = 2**31
MAX_CALLS: Final = 128
"""Of one answer."""

_AROUND_BYTES: Final = 64
"""Bytes allowed for the wrapper around the evidence, `{"evidence":}`, and more."""
_OK: Final = 200
_REASONS: Final = {
    400: EnclaveFailure.REFUSED_QUERY,
    413: EnclaveFailure.TOO_LARGE,
    429: EnclaveFailure.BUSY,
    500: EnclaveFailure.MODEL_FAILED,
    503: EnclaveFailure.BUSY,
    504: EnclaveFailure.TIMEOUT,
}
_WITH_CODE: Final = frozenset(
    {
        EnclaveFailure.MODEL_FAILED,
        EnclaveFailure.REFUSED,
        EnclaveFailure.REFUSED_QUERY,
    }
)
_CODES: Final[Mapping[str, EnclaveFailure]] = {
    **dict.fromkeys(
        (
            "invalid_json",
            "invalid_value",
            "out_of_range",
            "schema_invalid",
            "schema_not_enforced",
            "schema_too_large",
            "too_complex",
            "too_many_messages",
            "unsupported_parameter",
        ),
        EnclaveFailure.REFUSED_QUERY,
    ),
    "engine_crashed": EnclaveFailure.MODEL_FAILED,
    "engine_hung": EnclaveFailure.MODEL_FAILED,
    "model_unavailable": EnclaveFailure.MODEL_UNAVAILABLE,
}
"""What an enclave's error says more exactly than its status."""
_FIELDS: Final = frozenset(
    {
        "content",
        "deterministic",
        "frequency_penalty",
        "max_tokens",
        "messages",
        "model",
        "n",
        "name",
        "presence_penalty",
        "response_format",
        "role",
        "seed",
        "stop",
        "temperature",
        "tool_call_id",
        "tool_calls",
        "tool_choice",
        "tools",
        "top_logprobs",
        "top_p",
    }
)
"""Fields that an enclave may name in an error."""
_PLACE: Final = re.compile(
    r"(?:messages|tools)\[[0-9]{1,4}\](?:\.function\.parameters)?"
    r"|response_format\.json_schema\.schema"
)
"""One of several fields, or a schema in one."""
_KEYWORDS: Final = frozenset(
    {
        "$anchor", "$comment", "$defs", "$id", "$ref", "$schema", "additionalItems",
        "additionalProperties", "allOf", "anyOf", "const", "contains",
        "contentEncoding", "contentMediaType", "contentSchema", "default",
        "definitions", "dependencies", "dependentRequired", "dependentSchemas",
        "deprecated", "description", "else", "enum", "examples", "exclusiveMaximum",
        "exclusiveMinimum", "format", "if", "items", "maxContains", "maxItems",
        "maxLength", "maxProperties", "maximum", "minContains", "minItems", "minLength",
        "minProperties", "minimum", "multipleOf", "not", "oneOf", "pattern",
        "patternProperties", "prefixItems", "properties", "propertyNames", "readOnly",
        "required", "then", "title", "type", "unevaluatedItems",
        "unevaluatedProperties", "uniqueItems", "writeOnly",
    }
)  # fmt: skip
"""Of JSON Schema, which an enclave may name as well."""
_NAME: Final = re.compile("[a-z_]+")
_STEP: Final = re.compile(r"([$A-Za-z]*)(?:\[[0-9]{1,5}\])?")
"""A step of a path in a schema: a keyword, a position, or both."""
_MOST_WHERE_CHARS: Final = 256
_SOON: Final = re.compile(rb"[0-9]|10")
"""Longest Retry-After that is honoured, in seconds."""
_REFUSALS: Final = frozenset({media.PROBLEM_JSON.encode(), b"application/json"})
_REPLAYED: Final = "replayed"
_JSON_SPACE: Final = b" \t\r\n"
# The tokens that determine the nesting depth of JSON, outside and inside a string. A
# single backslash matches only at the end of the data: it escapes the next byte.
_OUTSIDE: Final = re.compile(rb'["{}\[\]]')
_INSIDE: Final = re.compile(rb'"|\\.|\\', re.DOTALL)
_LEVELS: Final = {b"{": 1, b"[": 1, b"}": -1, b"]": -1}


class ContentReader:
    """Base class: reads the content of an answer as it arrives; a failure is final.

    An instance of this class represents the content before any head: there is none,
    so anything is an error.

    Attributes:
        finished: the end of the answer, once its end mark was read.
    """

    def __init__(self) -> None:
        self.finished: Finished | None = None

    def push(self, data: bytes) -> Iterator[AnswerEvent]:
        """Yield what ``data`` completes, but not the end.

        Raises:
            EnclaveError: broken, or an answer that is a refusal.
        """
        del data
        raise EnclaveError(EnclaveFailure.ANSWER_BROKEN)

    def end(self) -> Finished:
        """Return the end of the answer, once all content was pushed.

        Raises:
            EnclaveError: the content ended before its end mark.
        """
        if self.finished is None:
            raise EnclaveError(EnclaveFailure.ANSWER_INCOMPLETE)
        return self.finished


class EventStream(ContentReader):
    """Server-sent events: ``chat.completion.chunk`` objects, then ``[DONE]``."""

    def __init__(self) -> None:
        super().__init__()
        self._events = EventParser(
            partial(EnclaveError, EnclaveFailure.ANSWER_BROKEN),
            most_bytes=MAX_HELD_BYTES,
        )
        self._begun = {0}
        self._called = Counter[int]()
        self._reasons: dict[int, str] = {}
        self._usage: object = None
        self._text_began = False

    @override
    def push(self, data: bytes) -> Iterator[AnswerEvent]:
        """Yield the deltas of every whole event."""
        for event in self._events.push(data):
            yield from self._event(event)

    def _event(self, data: bytes) -> Iterator[AnswerEvent]:
        # Only comments (filler) may follow the end mark; an event there would be text
        # added to a complete answer.
        if self.finished is not None:
            _broken()
        if data == SSE_END:
            # Both the model's finish reason and the stream's end mark are required:
            # otherwise an engine that crashed half way would look like one that ended.
            if self._begun != self._reasons.keys():
                raise EnclaveError(EnclaveFailure.ANSWER_INCOMPLETE)
            self.finished = _finished(self._reasons, self._usage)
            return
        chunk = _object(data)
        if "error" in chunk:
            # Once a part was shown, any error means that the answer was cut.
            _refuse_error(chunk, cut=self._text_began)
        for number, choice in _choices(chunk):
            self._begun.add(number)
            delta = choice.get("delta")
            # A first event may name the role and hold no text.
            text = _member(delta, "content")
            calls = _calls(delta, self._called[number])
            piece = _delta(number, choice, text, calls)
            # A token without a text may have a log-probability: half a character has.
            if piece.text or calls or piece.logprobs:
                self._text_began = True
                yield piece
            self._called[number] += len(calls)
            if choice.get("finish_reason") is not None:
                self._reasons[number] = _reason(choice, calls=self._called[number])
                self._usage = chunk.get("usage")


class JsonText(ContentReader):
    """One JSON object with white space around it; ``parsed`` interprets it.

    Args:
        most_bytes: of the object; a longer one is broken.
    """

    def __init__(self, *, most_bytes: int | None = None) -> None:
        super().__init__()
        self._most_bytes = MAX_HELD_BYTES if most_bytes is None else most_bytes
        self._object = bytearray()
        self._scanned = 0
        self._depth = 0
        self._quoted = False
        self._over = False

    @override
    def push(self, data: bytes) -> Iterator[AnswerEvent]:
        """Buffer the data until the object ends, then yield what it contains."""
        # White space before and after is filler. It is not buffered: a bucket may hold
        # megabytes of it around an object of a hundred bytes.
        if not self._object or self._over:
            data = data.lstrip(_JSON_SPACE)
        if not data:
            return
        if self._over:
            _broken()
        # The end is searched incrementally, each byte once: parsing again with each
        # frame would take time quadratic in the length of the answer.
        self._object += data
        end = self._object_end()
        # Filler in the frame behind the object does not count.
        if (len(self._object) if end is None else end) > self._most_bytes:
            _broken()
        if end is not None:
            self._over = True
            # A second object: two readers could each take a different one.
            if bytes(self._object[end:]).strip(_JSON_SPACE):
                _broken()
            yield from self.parsed(_object(bytes(self._object[:end])))

    def parsed(self, value: dict[str, object]) -> Iterator[AnswerEvent]:
        """Yield the object's events, and set ``finished``.

        Raises:
            EnclaveError: it is not an answer, or it is a refusal.
        """
        del value
        _broken()

    def _object_end(self) -> int | None:
        """Return where the first object ends, or None if it is incomplete."""
        while match := (_INSIDE if self._quoted else _OUTSIDE).search(
            self._object, self._scanned
        ):
            token, self._scanned = match[0], match.end()
            if token == b'"':
                self._quoted = not self._quoted
            elif token in _LEVELS:
                self._depth += _LEVELS[token]
                if self._depth <= 0:
                    return match.end()
            # A backslash at the end of the data: the byte that it escapes is missing.
            elif len(token) == 1:
                self._scanned = match.start()
                return None
        self._scanned = len(self._object)
        return None


class Completion(JsonText):
    """One ``chat.completion`` object, whole; or an error object."""

    @override
    def parsed(self, value: dict[str, object]) -> Iterator[AnswerEvent]:
        """Yield the answer's text and end."""
        # An engine that fails after sending the head reports it here, after 200.
        if "error" in value:
            _refuse_error(value)
        deltas: list[Delta] = []
        reasons: dict[int, str] = {}
        for number, choice in _choices(value):
            message = choice.get("message")
            text = _member(message, "content")
            if not isinstance(text, str):
                _broken()
            calls = _calls(message)
            deltas.append(_delta(number, choice, text, calls))
            reasons[number] = _reason(choice, calls=len(calls))
        finished = _finished(reasons, value.get("usage"))
        yield from deltas
        self.finished = finished


class Problem(JsonText):
    """A refusal in JSON, more specific than its status (RFC 9457, or OpenAI's).

    Args:
        status: of the response.
        date: its ``date`` field.
        retry_after_s: its ``retry-after`` field, if it is short.
    """

    def __init__(
        self, status: int, date: datetime | None, retry_after_s: int | None
    ) -> None:
        super().__init__()
        self._status = status
        self._date = date
        self._retry_after_s = retry_after_s

    @override
    def parsed(self, value: dict[str, object]) -> Iterator[AnswerEvent]:
        """Raise the reason."""
        # RFC 9458, section 6.5.2: a refused date may be corrected, once. The problem
        # was inside the seal, so it comes from the enclave and not from the relay.
        if value.get("type") == media.PROBLEM_DATE:
            raise DateRefusedError(self._date)
        if value.get("code") == _REPLAYED:
            raise EnclaveError(EnclaveFailure.REFUSED, code=_REPLAYED)
        error = value.get("error")
        _refuse_too_long(error)
        _refuse(self._status, error, self._retry_after_s)

    @override
    def end(self) -> Finished:
        """Refuse: a refusal without a body is still one."""
        _refuse(self._status, retry_after_s=self._retry_after_s)


class Nothing(JsonText):
    """The answer to a cover request: an object without content."""

    @override
    def parsed(self, value: dict[str, object]) -> Iterator[AnswerEvent]:
        """Record the end."""
        del value
        self.finished = Finished(
            finish_reason="stop", prompt_tokens=0, completion_tokens=0
        )
        yield from ()


class FreshEvidence(JsonText):
    """The answer to a challenge: an object with evidence, unverified.

    Args:
        most_bytes: largest size of the evidence.

    Attributes:
        evidence: JSON bytes of the evidence, once they were read.
    """

    def __init__(self, *, most_bytes: int) -> None:
        super().__init__(most_bytes=most_bytes + _AROUND_BYTES)
        self.evidence: bytes | None = None

    def read(self, head: bhttp.ResponseHead) -> ContentReader:
        """Return the reader for the content of a head: this one, or a refusal's.

        Raises:
            EnclaveError: as ``content_reader``.
        """
        media_type = _refused_unless_ok(head)
        return media_type if isinstance(media_type, ContentReader) else self

    @override
    def parsed(self, value: dict[str, object]) -> Iterator[AnswerEvent]:
        """Extract the evidence; an error object, even after a 200, is a refusal."""
        # Extracted only; the verifier judges it.
        evidence = value.get("evidence")
        if not isinstance(evidence, dict) or len(value) != 1:
            _broken()
        self.evidence = json.dumps(evidence, separators=(",", ":")).encode()
        self.finished = Finished(
            finish_reason="stop", prompt_tokens=0, completion_tokens=0
        )
        yield from ()


def content_reader(head: bhttp.ResponseHead) -> ContentReader:
    """Return the reader of a chat answer's content.

    Raises:
        EnclaveError: the head alone refuses. Only status 200 is an answer; a redirect
            is not followed, and nothing of it is kept.
    """
    media_type = _refused_unless_ok(head)
    if isinstance(media_type, ContentReader):
        return media_type
    if media_type == b"text/event-stream":
        return EventStream()
    if media_type == b"application/json":
        return Completion()
    raise EnclaveError(EnclaveFailure.ANSWER_BROKEN)


def nothing_reader(head: bhttp.ResponseHead) -> ContentReader:
    """Return the reader of the answer to a cover request.

    Raises:
        EnclaveError: as ``content_reader``.
    """
    media_type = _refused_unless_ok(head)
    return media_type if isinstance(media_type, ContentReader) else Nothing()


def _refused_unless_ok(head: bhttp.ResponseHead) -> ContentReader | bytes:
    # Behind a proxy in the enclave, a redirect would name another party. Only status
    # 200 carries an answer, and nothing else in a head is acted upon.
    fields = dict(head.fields)
    media_type = fields.get(b"content-type", b"").partition(b";")[0].strip()
    if head.status != _OK:
        # Trusted because it was sealed; a Retry-After from the relay could be forged.
        said = fields.get(b"retry-after", b"")
        later = int(said) if _SOON.fullmatch(said) else None
        if media_type in _REFUSALS and head.status in _REASONS:
            return Problem(head.status, parse_date(fields.get(b"date", b"")), later)
        _refuse(head.status, retry_after_s=later)
    return media_type


def _refuse(
    status: int | None, error: object = None, retry_after_s: int | None = None
) -> NoReturn:
    """Raise the reason for a status; without a status, the answer was cut."""
    if status is None:
        raise EnclaveError(EnclaveFailure.ANSWER_INCOMPLETE)
    reason = _REASONS.get(status, EnclaveFailure.REFUSED)
    # Of closed sets: text of the other side enters no error. Otherwise the status.
    said, field = _member(error, "code"), _field_of(error)
    code = said if isinstance(said, str) and said in _CODES else str(status)
    reason = _CODES.get(code, reason)
    later = retry_after_s if reason is EnclaveFailure.BUSY else None
    if reason not in _WITH_CODE:
        raise EnclaveError(reason, retry_after_s=later)
    parts = filter(None, (code, field, _in_schema(error)))
    problem = EnclaveError(reason, code=": ".join(parts))
    # Positions and paths are the asker's, and enter no record.
    name = _NAME.match(field)
    problem.code = code if name is None else f"{code}: {name[0]}"
    problem.param = field or None
    raise problem


def _field_of(error: object) -> str:
    """Return the field that an error names, if it may name that; otherwise nothing."""
    field = _member(error, "param")
    if not isinstance(field, str):
        return ""
    return field if field in _FIELDS or _PLACE.fullmatch(field) else ""


def _in_schema(error: object) -> str:
    """Return the place in a schema that an error names, in words of JSON Schema."""
    keyword, where = _member(error, "keyword"), _member(error, "where")
    parts: list[str] = []
    if isinstance(keyword, str) and keyword in _KEYWORDS:
        parts.append(keyword)
    if isinstance(where, str) and 0 < len(where) <= _MOST_WHERE_CHARS:
        steps = [_STEP.fullmatch(step) for step in where.split(".")]
        if all(step and (not step[1] or step[1] in _KEYWORDS) for step in steps):
            parts.append(f"at {where}")
    return ", ".join(parts)


def _refuse_error(value: dict[str, object], *, cut: bool = False) -> NoReturn:
    """Raise the reason that an error object names."""
    if cut:
        _refuse(None)
    _refuse_too_long(value["error"])
    _refuse(_status_of(value), value["error"])


def _refuse_too_long(error: object) -> None:
    """Raise the reason if a query exceeds the context, with three numbers."""
    if _member(error, "code") == "context_length_exceeded":
        names = ("prompt_tokens", "max_tokens", "context_tokens")
        found = [_member(error, name) for name in names]
        counts = [n for n in found if type(n) is int and 0 <= n < _MOST_TOKENS]
        # Later queries are kept from this enclave by what it says: a context of which
        # this query is too long, and not of nothing.
        if len(counts) == len(names) and 0 < counts[2] < sum(counts[:2]):
            raise TooLongForEnclaveError(*counts)
        raise EnclaveError(EnclaveFailure.TOO_LONG)


def _broken() -> NoReturn:
    raise EnclaveError(EnclaveFailure.ANSWER_BROKEN)


def _status_of(value: dict[str, object]) -> int | None:
    """Return the status that an error object names, unless it means success."""
    status = _member(value.get("error"), "status")
    refusals = range(_OK + 100, 600)
    return status if isinstance(status, int) and status in refusals else None


def _object(data: bytes) -> dict[str, object]:
    # A verified enclave is still not trusted with this process: deep nesting raises
    # RecursionError, a number of a million digits ValueError.
    try:
        value: object = json.loads(data, parse_constant=_no_number)
    except (ValueError, RecursionError):
        raise EnclaveError(EnclaveFailure.ANSWER_BROKEN) from None
    if not isinstance(value, dict):
        _broken()
    return cast("dict[str, object]", value)


def _no_number(_: str) -> NoReturn:
    # NaN and Infinity are Python's: no other program could read such arguments.
    raise ValueError


def _choices(value: dict[str, object]) -> list[tuple[int, dict[str, object]]]:
    """Return the answers in an object, each with its position."""
    choices = value.get("choices")
    if not isinstance(choices, list) or not choices:
        _broken()
    found: list[tuple[int, dict[str, object]]] = []
    for each in cast("list[object]", choices):
        if not isinstance(each, dict):
            _broken()
        choice = cast("dict[str, object]", each)
        number = choice.get("index", 0)
        # True is 1 to Python.
        if type(number) is not int or not 0 <= number < MAX_ANSWERS:
            _broken()
        found.append((number, choice))
    return found


def _delta(
    number: int, choice: dict[str, object], text: object, calls: tuple[Called, ...]
) -> Delta:
    logprobs, tops = _logprobs(choice)
    return Delta(
        text=_text(text) if isinstance(text, str) else "",
        logprobs=logprobs,
        tops=tops,
        choice=number,
        calls=calls,
    )


def _calls(holder: object, before: int = 0) -> tuple[Called, ...]:
    """Return the calls of tools in a message or a delta; each is whole.

    Args:
        holder: the message or delta.
        before: number of calls of the same answer before it.
    """
    listed = _member(holder, "tool_calls")
    if listed is None:
        return ()
    if not isinstance(listed, list):
        _broken()
    calls = cast("list[object]", listed)
    return tuple(_called(each, at) for at, each in enumerate(calls, start=before))


def _called(value: object, at: int) -> Called:
    index, function = _member(value, "index"), _member(value, "function")
    name, arguments = _member(function, "name"), _member(function, "arguments")
    # A caller joins two with one position, and a request without parallel calls permits
    # the first position alone.
    if type(index) is not int or index != at or at >= MAX_CALLS:
        _broken()
    if not isinstance(name, str) or not isinstance(arguments, str):
        _broken()
    # A program executes it, so it must be complete.
    _object(arguments.encode("utf-8", "replace"))
    return Called(index=index, name=_text(name), arguments=_text(arguments))


def _reason(choice: dict[str, object], *, calls: int) -> str:
    reason = choice.get("finish_reason")
    # "content_filter" would be a kind of answer that was not requested; it must not be
    # shown as a complete one.
    if not isinstance(reason, str) or reason not in FINISH_REASONS:
        _broken()
    # An application would wait for the call, and find none.
    if reason == "tool_calls" and not calls:
        _broken()
    return reason


def _finished(reasons: dict[int, str], usage: object) -> Finished:
    """Return the end of an answer, or of several."""
    counts = cast("dict[str, object]", usage) if isinstance(usage, dict) else {}
    # One that is missing would be an answer that is not complete.
    if sorted(reasons) != list(range(len(reasons))):
        _broken()
    first, *others = (reasons[number] for number in sorted(reasons))
    return Finished(
        finish_reason=first,
        prompt_tokens=_count(counts.get("prompt_tokens")),
        completion_tokens=_count(counts.get("completion_tokens")),
        others=tuple(others),
    )


def _count(value: object) -> int:
    # For display only; no decision depends on it, so a bad value is not a failure.
    return value if isinstance(value, int) and value >= 0 else 0


def _logprobs(choice: dict[str, object]) -> tuple[Logprobs, tuple[Logprobs, ...]]:
    """Return the log-probabilities of tokens, and of the likeliest in their places."""
    found: list[tuple[str, float]] = []
    tops: list[Logprobs] = []
    for entry in _listed(_member(choice.get("logprobs"), "content")):
        for pair in _pair(entry):
            found.append(pair)
            top = _listed(_member(entry, "top_logprobs"))
            tops.append(tuple(each for one in top for each in _pair(one)))
    return tuple(found), tuple(tops) if any(tops) else ()


def _pair(entry: object) -> Iterator[tuple[str, float]]:
    token, value = _member(entry, "token"), _member(entry, "logprob")
    if isinstance(token, str) and isinstance(value, int | float):
        yield token_said(_text(token), _member(entry, "bytes")), _finite(value)


def _listed(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []


def _finite(value: float) -> float:
    # Python's JSON parser accepts NaN and Infinity; other parsers would reject them
    # when the answer is serialised again.
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        _broken()
    return number


def _text(value: str) -> str:
    """Return a text that can be encoded; a lone surrogate cannot."""
    # "\\ud800" is well-formed JSON and not valid text; it would fail when printed.
    try:
        value.encode()
    except UnicodeEncodeError:
        raise EnclaveError(EnclaveFailure.ANSWER_BROKEN) from None
    return value


def _member(value: object, key: str) -> object:
    """Return an object's member, or None where there is none."""
    if not isinstance(value, dict):
        return None
    return cast("dict[str, object]", value).get(key)
