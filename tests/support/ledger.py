"""Read docs/metadata.yaml and hold messages against it.

Every check returns what it found wrong, as sentences; none found means none.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import NotRequired, TypedDict, cast

import yaml

from curtilage.wire.cursor import Cursor
from curtilage.wire.encapsulation import HEADER_BYTES
from curtilage.wire.errors import WireError
from curtilage.wire.frames import FrameCheck, answer_bytes
from curtilage.wire.hpke.suite import TAG_BYTES, Suite
from curtilage.wire.keyconfig import parse_key_configs
from curtilage.wire.node_list import parse_node_list
from curtilage.wire.padding import SIZE_CLASSES
from curtilage.wire.shaping import TransportParameters
from curtilage.wire.varint import read_varint
from support.http_stream import HttpMessage

FILE = Path(__file__).resolve().parents[2] / "docs" / "metadata.yaml"
FULL_CHUNK = (4, 2**14 + TAG_BYTES)
TIME = re.compile(r"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT")
SAMPLE = re.compile(r'(\w+)(?:\{(\w+)="([^"]*)"\})? ([0-9]+)')
RELAY_KEY = re.compile(r"Bearer [A-Za-z0-9_-]+\.[A-Za-z0-9_-]{43}")


class FieldRow(TypedDict):
    """One field as the file has it."""

    name: str
    value: NotRequired[str | list[str]]
    form: NotRequired[str]
    optional: NotRequired[bool]
    why: str


class MessageRow(TypedDict):
    """One message as the file has it."""

    message: str
    answers: NotRequired[list[str]]
    line: str | list[str]
    fields: list[FieldRow]
    content: str


class HopRow(TypedDict):
    """One hop as the file has it."""

    hop: str
    seen_by: list[str]
    messages: list[MessageRow]


class FactRow(TypedDict):
    """One fact as the file has it."""

    what: str
    hops: list[str]
    seen_by: list[str]
    value: str
    checked_by: str


class FigureRow(TypedDict):
    """One figure of the counters as the file has it."""

    name: str
    labels: NotRequired[dict[str, list[str]]]
    step: int
    why: str


class Ledger(TypedDict):
    """The file."""

    version: int
    parties: dict[str, str]
    fields: list[FieldRow]
    hops: list[HopRow]
    figures: list[FigureRow]
    facts: list[FactRow]


def read_ledger() -> Ledger:
    return cast("Ledger", yaml.safe_load(FILE.read_text("utf-8")))


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What a deployment puts in the place of the ledger's words.

    Attributes:
        words: ``authority``, ``gateway`` and so on.
        parameters: the release's.
        keys: the key lists that were published, one after the other.
        copies: bodies that the enclave gave for everybody.
        constants: sentences of relay and enclave.
    """

    words: Mapping[str, str]
    parameters: TransportParameters
    keys: tuple[bytes, ...] = field(repr=False)
    copies: frozenset[bytes] = field(repr=False)
    constants: frozenset[bytes] = field(repr=False)


def messages_of(ledger: Ledger, hop: str) -> list[MessageRow]:
    (found,) = [row for row in ledger["hops"] if row["hop"] == hop]
    return found["messages"]


def check_request(
    rows: Sequence[MessageRow], message: HttpMessage, where: Surroundings
) -> tuple[str, list[str]]:
    """Return which message a request is, and what is wrong with it."""
    return _best(rows, message, None, where)


def check_response(
    rows: Sequence[MessageRow],
    asked: Sequence[str],
    message: HttpMessage,
    request: HttpMessage,
    where: Surroundings,
) -> tuple[str, list[str]]:
    """Return which message a response is, and what is wrong with it.

    Args:
        rows: of the hop.
        asked: which messages it may answer.
        message: the response.
        request: that it answers; its header contains the suite.
        where: the deployment.
    """
    fitting = [row for row in rows if set(row.get("answers", ())) & set(asked)]
    return _best(fitting, message, request, where)


def _best(
    rows: Sequence[MessageRow],
    message: HttpMessage,
    request: HttpMessage | None,
    where: Surroundings,
) -> tuple[str, list[str]]:
    tried = [
        (row["message"], list(_problems(row, message, request, where)))
        for row in rows
        if message.start in _filled(row["line"], where)
    ]
    unknown = ("", [f"no such line: {message.start}"])
    return min(tried, key=lambda one: len(one[1]), default=unknown)


def _problems(
    row: MessageRow,
    message: HttpMessage,
    request: HttpMessage | None,
    where: Surroundings,
) -> Iterator[str]:
    yield from _field_problems(row["fields"], message, where)
    try:
        yield from CONTENTS[row["content"]](message, request or message, where)
    except WireError as error:
        yield f"content: {error}"


def _field_problems(
    rows: Sequence[FieldRow], message: HttpMessage, where: Surroundings
) -> Iterator[str]:
    left = list(message.fields)
    for row in rows:
        if not left or left[0][0] != row["name"]:
            if not row.get("optional", False):
                yield f"{row['name']} is missing, or not in its place"
            continue
        name, value = left.pop(0)
        if not _allows(row, value, message, where):
            yield f"{name}: {value}"
    for name, value in left:
        yield f"not listed: {name}: {value}"


def _allows(
    row: FieldRow, value: str, message: HttpMessage, where: Surroundings
) -> bool:
    if "value" in row:
        return value in _filled(row["value"], where)
    return FORMS[row.get("form", "")](value, message)


def _filled(value: str | list[str], where: Surroundings) -> list[str]:
    values = [value] if isinstance(value, str) else value
    return [one.format_map(where.words) for one in values]


def _is_time(value: str, _: HttpMessage) -> bool:
    if not TIME.fullmatch(value):
        return False
    try:
        moment = datetime.strptime(value, "%a, %d %b %Y %H:%M:%S GMT").replace(
            tzinfo=UTC
        )
    except ValueError:
        return False
    return abs((datetime.now(UTC) - moment).total_seconds()) < 600


FORMS: Mapping[str, Callable[[str, HttpMessage], bool]] = {
    "time": _is_time,
    "length": lambda value, message: value == str(len(message.body)),
    "request class": lambda value, _: value in map(str, SIZE_CLASSES),
    "relay key": lambda value, _: RELAY_KEY.fullmatch(value) is not None,
}


def _nothing(
    message: HttpMessage, _: HttpMessage, where: Surroundings
) -> Iterator[str]:
    del where
    if message.body:
        yield f"{len(message.body)} octets of content"


def _sealed(message: HttpMessage, _: HttpMessage, where: Surroundings) -> Iterator[str]:
    suite = _suite_of(message.body, where)
    if suite is None:
        yield "the header is not of the published list"
        return
    if suite not in {next(iter(_headers(keys).values())) for keys in where.keys}:
        yield "not the first suite of the published list"
    if len(message.body) not in SIZE_CLASSES:
        yield f"a request of {len(message.body)} octets"
    *others, last = _chunks(message.body, HEADER_BYTES + suite.nenc)
    if set(others) - {FULL_CHUNK}:
        yield "a chunk of its own length"
    if last[0] != 1:
        yield "the final chunk is marked in another way"


def _foreign(
    message: HttpMessage, _: HttpMessage, where: Surroundings
) -> Iterator[str]:
    del message, where
    yield from ()


def _frames(
    message: HttpMessage, request: HttpMessage, where: Surroundings
) -> Iterator[str]:
    suite = _suite_of(request.body, where)
    if suite is None:
        yield "an answer to a request without suite"
        return
    *others, last = _chunks(message.body, max(suite.nn, suite.nk))
    check = FrameCheck(where.parameters)
    for width, length in others:
        check.chunk(length - TAG_BYTES)
        if width != 2:
            yield "a frame whose length is written in another way"
    check.finish(last[1] - TAG_BYTES)


def _single_frames(
    message: HttpMessage, request: HttpMessage, where: Surroundings
) -> Iterator[str]:
    yield from _frames(message, request, where)
    *others, last = [len(piece) for piece in message.pieces]
    frame = where.parameters.frame_bytes + TAG_BYTES
    if last != frame + 1 or set(others[1:]) != {frame + 2}:
        yield "transfer chunks that are not single frames"


def _padded(
    message: HttpMessage, request: HttpMessage, where: Surroundings
) -> Iterator[str]:
    suite = _suite_of(request.body, where)
    parameters = where.parameters
    if suite is None or len(message.body) not in {
        answer_bytes(parameters, suite, bucket) for bucket in range(parameters.buckets)
    }:
        yield f"a plain answer of {len(message.body)} octets"


def _copy(message: HttpMessage, _: HttpMessage, where: Surroundings) -> Iterator[str]:
    if message.body not in where.copies:
        yield "a copy that not everybody gets"


def _copies(message: HttpMessage, _: HttpMessage, where: Surroundings) -> Iterator[str]:
    if {*parse_node_list(message.body).values()} - {*where.copies, b""}:
        yield "a copy that not everybody gets"


def _constant(
    message: HttpMessage, _: HttpMessage, where: Surroundings
) -> Iterator[str]:
    if message.body not in where.constants:
        yield "a sentence that is none of the program's"


def figures_problems(rows: Sequence[FigureRow], text: str) -> list[str]:
    """Return which samples are not listed, missing, or finer than their step."""
    steps = {
        (row["name"], label, value): row["step"]
        for row in rows
        for label, values in row.get("labels", {"": [""]}).items()
        for value in values
    }
    found: list[str] = []
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        match = SAMPLE.fullmatch(line)
        if match is None:
            found.append(f"not listed: {line}")
            continue
        name, label, value, amount = match.groups("")
        step = steps.pop((name, label, value), None)
        if step is None:
            found.append(f"not listed: {line}")
        elif int(amount) % step:
            found.append(f"finer than {step}: {line}")
    return [*found, *(f"missing: {each}" for each in steps)]


def _figures(
    message: HttpMessage, _: HttpMessage, where: Surroundings
) -> Iterator[str]:
    del where
    yield from figures_problems(read_ledger()["figures"], message.body.decode())


CheckContent = Callable[[HttpMessage, HttpMessage, Surroundings], Iterator[str]]
CONTENTS: Mapping[str, CheckContent] = {
    "nothing": _nothing,
    "sealed": _sealed,
    "foreign": _foreign,
    "frames": _frames,
    "single frames": _single_frames,
    "padded": _padded,
    "copy": _copy,
    "copies": _copies,
    "constant": _constant,
    "figures": _figures,
}


def _header(key_id: int, suite: Suite) -> bytes:
    numbers = (suite.kem_id, suite.kdf_id, suite.aead_id)
    return bytes([key_id]) + b"".join(n.to_bytes(2, "big") for n in numbers)


def _headers(keys: bytes) -> dict[bytes, Suite]:
    """Return every header that a request may have, in the list's order."""
    return {
        _header(config.key_id, suite): suite
        for config in parse_key_configs(keys)
        for suite in config.suites()
    }


def _suite_of(body: bytes, where: Surroundings) -> Suite | None:
    header = body[:HEADER_BYTES]
    found = [_headers(keys).get(header) for keys in where.keys]
    return next((suite for suite in found if suite is not None), None)


def _chunks(body: bytes, start: int) -> list[tuple[int, int]]:
    """Return the width of each length and the length, as anybody can read them."""
    cursor = Cursor(body)
    cursor.take(start)
    chunks: list[tuple[int, int]] = []
    while True:
        before = cursor.remaining
        length = read_varint(cursor)
        width = before - cursor.remaining
        if not length:
            return [*chunks, (width, cursor.remaining)]
        cursor.take(length)
        chunks.append((width, length))
