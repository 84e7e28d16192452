"""Lines of ``route explain --jsonl``: in order, as they come, never shown."""

import io
import json
import os
import threading
from collections.abc import Iterator, Sequence

import pytest

from curtilage.cli.route import explain_lines
from curtilage.cli.route.explain_lines import Inspected, Unread, inspected
from curtilage.client.chat.query import Query
from curtilage.policy.decision.decide import INSPECTION_DOOR, Inspection

CANARY = "canary-8d31"


class Seen:
    """An inspector that finds nothing."""

    def inspect_many(self, queries: Sequence[Query]) -> Iterator[Inspection]:
        for query in queries:
            yield Inspection(
                door=INSPECTION_DOOR,
                findings=(),
                payload_digest=query.payload_digest(),
                messages=len(query.messages),
            )


def line(line_id: object, text: object = "hello") -> bytes:
    return json.dumps({"id": line_id, "text": text}).encode() + b"\n"


def read(data: bytes) -> list[Inspected | Unread]:
    return list(inspected(io.BytesIO(data), Seen()))


def test_every_line_has_its_own_inspection() -> None:
    texts = [f"question {number}" for number in range(9)]
    lines = b"".join(line(at, text) for at, text in enumerate(texts))
    for at, each in enumerate(read(lines)):
        assert isinstance(each, Inspected)
        assert (each.id, each.query.messages[0].content) == (at, texts[at])
        assert each.inspection.payload_digest == each.query.payload_digest()


def test_conversations_are_read() -> None:
    turns = [{"role": "system", "content": "be brief"}, {"role": "user", "content": ""}]
    (each,) = read(json.dumps({"id": "a", "messages": turns}).encode())
    assert isinstance(each, Inspected)
    assert len(each.query.messages) == 2


@pytest.mark.parametrize(
    ("bad", "line_id"),
    [
        (f"no json {CANARY}\n".encode(), None),
        (b'{"id": 1, "id": 2, "text": "x"}\n', None),
        (line("b", [CANARY]), "b"),
        (json.dumps({"id": "b", "text": "x", CANARY: 1}).encode() + b"\n", "b"),
        (line([CANARY], 7), None),
        (b'{"id": "b", "text": "\xff"}\n', None),
    ],
)
def test_a_bad_line_keeps_its_place_and_is_not_repeated(
    bad: bytes, line_id: object
) -> None:
    first, wrong, last = read(line(1) + bad + line(3))
    assert isinstance(wrong, Unread)
    assert wrong.id == line_id
    assert wrong.problem
    assert CANARY not in repr(wrong)
    assert isinstance(first, Inspected)
    assert isinstance(last, Inspected)
    assert (first.id, last.id) == (1, 3)
    assert "hello" not in repr(first)


def test_blank_lines_are_skipped_and_the_last_may_lack_its_end() -> None:
    found = read(b"\n  \r\n" + line(1) + b"\n" + line(2).rstrip(b"\n"))
    assert [each.id for each in found] == [1, 2]


def test_a_line_is_cut_at_any_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = b"".join(line(at, "é" * at) for at in range(8))
    for size in range(1, 40):
        monkeypatch.setattr(explain_lines, "CHUNK_BYTES", size)
        assert [each.id for each in read(lines)] == list(range(8))


def test_a_line_that_is_too_long_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explain_lines, "CHUNK_BYTES", 8)
    monkeypatch.setattr(explain_lines, "MAX_LINE_BYTES", 64)
    monkeypatch.setattr("curtilage.cli.decide_lines.MAX_LINE_BYTES", 64)
    first, wrong, last = read(line(1) + line(2, CANARY * 40) + line(3))
    assert isinstance(wrong, Unread)
    assert "64 bytes" in wrong.problem
    assert (first.id, last.id) == (1, 3)


def test_a_line_without_an_end_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explain_lines, "CHUNK_BYTES", 8)
    monkeypatch.setattr(explain_lines, "MAX_LINE_BYTES", 64)
    monkeypatch.setattr("curtilage.cli.decide_lines.MAX_LINE_BYTES", 64)
    source = io.BytesIO(b"x" * 10_000)
    first = next(inspected(source, Seen()))
    assert isinstance(first, Unread)
    assert source.tell() <= 80


def test_a_line_is_answered_before_the_next_one_is_written() -> None:
    """A program may write one line and wait for its result: a deadlock otherwise."""
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as source, os.fdopen(writing, "wb") as sink:
        # If it waits for more, it gets the end of the file, and the test sees that.
        late = threading.Timer(20, sink.close)
        late.start()
        sink.write(line(1))
        sink.flush()
        each = next(inspected(source, Seen()))
        waited = sink.closed
        late.cancel()
    assert each.id == 1
    assert not waited
