"""The client's parsers: what an enclave seals, and what a program requests."""

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from fuzz.common import Harness, hold

from curtilage.client.chat.answer import Delta
from curtilage.client.chat.openai_chat import parse_completion_request
from curtilage.client.errors import ClientError, EnclaveError, UsageError
from curtilage.client.remote.answer_opener import AnswerReader
from curtilage.client.remote.answer_reader import (
    ContentReader,
    content_reader,
    nothing_reader,
)
from curtilage.wire.bhttp import ResponseHead, encode_response_head
from curtilage.wire.chunked import ChunkedResponseOpener
from curtilage.wire.dates import format_date, parse_date
from curtilage.wire.encapsulation import (
    CHUNKED_LABELS,
    ResponseSecret,
    begin_request,
)
from curtilage.wire.frames import AnswerFramer, fill_event_stream, fill_json
from curtilage.wire.hpke.suite import KEM_X25519, private_key_from_bytes
from curtilage.wire.keyconfig import KeyConfig, SymmetricAlgorithms
from curtilage.wire.shaping import TransportParameters
from curtilage.wire.varint import encode_vector

SHAPE: Final = TransportParameters(
    frame_bytes=128, period_ms=1, first_bucket=2, buckets=7
)
CONFIG: Final = KeyConfig(
    key_id=1,
    kem_id=KEM_X25519,
    public_key=private_key_from_bytes(KEM_X25519, b"\1" * 32).public_key,
    algorithms=(SymmetricAlgorithms(kdf_id=1, aead_id=1),),
)
MEDIA_TYPES: Final = {
    "event_stream": b"text/event-stream",
    "completion": b"application/json",
    "problem": b"application/problem+json",
}


def pieces(data: bytes) -> Iterator[bytes]:
    """Cut an input at places that depend on its length alone."""
    step = len(data) % 13 + 1
    return (data[start : start + step] for start in range(0, len(data), step))


def read(
    make: Callable[[], ContentReader], parts: Iterator[bytes]
) -> tuple[object, str]:
    """Return how a content ends, or the kind of its refusal; and its text."""
    text: list[str] = []
    try:
        reader = make()
        for part in parts:
            for event in reader.push(part):
                assert isinstance(event, Delta)
                event.text.encode()
                text.append(event.text)
        finished = reader.end()
    except ClientError as error:
        return type(error), "".join(text)
    json.dumps([finished.finish_reason, finished.completion_tokens])
    return finished, "".join(text)


def head(media_type: bytes, status: int = 200) -> ResponseHead:
    return ResponseHead(status=status, fields=((b"content-type", media_type),))


def check_event_stream(data: bytes) -> None:
    """Deltas and an end, or a ClientError; whole as in pieces, filled or not."""
    make = partial(content_reader, head(MEDIA_TYPES["event_stream"]))
    whole = read(make, iter([data]))
    assert read(make, pieces(data)) == whole
    filled = fill_event_stream(len(data)) + data
    assert read(make, iter([filled])) == whole


def check_completion(data: bytes) -> None:
    """One answer, or a ClientError; whole as in pieces, filled or not."""
    whole = completion(iter([data]))
    assert completion(pieces(data)) == whole
    assert completion(iter([fill_json(3) + data + fill_json(9)])) == whole


def completion(parts: Iterator[bytes]) -> object:
    """Return the result; text shown before a failure does not count."""
    said = read(partial(content_reader, head(MEDIA_TYPES["completion"])), parts)
    return said[0] if isinstance(said[0], type) else said


def check_problem(data: bytes) -> None:
    """A refusal remains a refusal, whatever its content; whole as in pieces."""
    make = partial(content_reader, head(MEDIA_TYPES["problem"], 400))
    whole = read(make, iter([data]))
    assert isinstance(whole[0], type)
    assert read(make, pieces(data)) == whole


def check_nothing(data: bytes) -> None:
    """The answer to a dummy is empty, or is refused; whole as in pieces."""
    make = partial(nothing_reader, head(MEDIA_TYPES["completion"]))
    whole = read(make, iter([data]))
    assert whole[1] == ""
    assert read(make, pieces(data)) == whole


def check_head(data: bytes) -> None:
    """Any status and type give a reader or a ClientError; only 200 may answer."""
    status = 200 + (data[0] if data else 0)
    fields = ((b"content-type", data[1:]), (b"date", data[1:]))
    found = ResponseHead(status=status, fields=fields)
    for make in (content_reader, nothing_reader):
        said = read(partial(make, found), iter([b"{}"]))
        assert status == 200 or isinstance(said[0], type)


def check_chat_request(data: bytes) -> None:
    """A valid query, or a UsageError that does not quote it."""
    try:
        request = parse_completion_request(data)
    except UsageError as error:
        hold(len(str(error)) < 200)
        return
    query = request.query
    assert query.messages
    texts = [leaf.text.encode("utf-8", "surrogatepass") for leaf in query.leaves()]
    try:
        payload = query.payload().content
    except UnicodeEncodeError:
        # A lone surrogate has no payload; such a query is answered locally.
        hold(any(b"\xed" in text for text in texts))
        return
    assert json.loads(payload)["messages"]


def check_date(data: bytes) -> None:
    """A date is one that is written again the same, or none."""
    found = parse_date(data)
    assert found is None or format_date(found) == data


def check_sealed_answer(data: bytes) -> None:
    """An answer ends well only if every frame came, equal, and its content ended."""
    damage, place = (data[0] % 4, data[1]) if len(data) > 1 else (0, 0)
    _, _, secret = begin_request(CONFIG, CHUNKED_LABELS, suite=None, ephemeral=None)
    framed = frames_of(data[2:])
    place %= len(framed)
    if damage == 1:
        del framed[place]
    elif damage == 2:
        framed[place] = framed[place][:-1]
    reader = AnswerReader(ChunkedResponseOpener(secret), SHAPE)
    body = sealed(secret, framed, complete=damage != 3)
    text = ""
    try:
        for piece in pieces(body):
            text += "".join(e.text for e in reader.push(piece) if isinstance(e, Delta))
        reader.finish()
    except EnclaveError:
        return
    assert damage == 0
    whole = read(content_of_stream, iter([data[2:]]))
    assert whole[1] == text


def content_of_stream() -> ContentReader:
    return content_reader(head(MEDIA_TYPES["event_stream"]))


def frames_of(content: bytes) -> list[bytes]:
    """Return the frames of an answer that says this."""
    fields = ((b"content-type", MEDIA_TYPES["event_stream"]),)
    first = encode_response_head(200, fields)
    framer = AnswerFramer(SHAPE, first, filler=fill_event_stream)
    framer.write(content[: framer.room])
    framer.end()
    made: list[bytes] = []
    while not framer.over:
        made.append(framer.next().plaintext)
    return made


def sealed(secret: ResponseSecret, framed: list[bytes], *, complete: bool) -> bytes:
    """Seal frames as an enclave would, or one that leaves out the last."""
    nonce = bytes(secret.nonce_bytes)
    keys = secret.keys(nonce)
    *others, last = framed
    body = nonce
    for number, frame in enumerate(others):
        body += encode_vector(keys.seal(number, frame, b""))
    end = b"\0" + keys.seal(len(others), last, b"final")
    return body + end if complete else body


HARNESSES: Final = (
    Harness(name="sealed_answer", check=check_sealed_answer),
    Harness(name="event_stream", check=check_event_stream),
    Harness(name="completion", check=check_completion),
    Harness(name="problem", check=check_problem),
    Harness(name="nothing", check=check_nothing),
    Harness(name="answer_head", check=check_head, max_bytes=256),
    Harness(name="chat_request", check=check_chat_request),
    Harness(name="client_date", check=check_date, max_bytes=64),
)
