"""Every change of a log is detected, and the record named."""

import dataclasses
from collections.abc import Container, Iterable, Iterator
from datetime import timedelta

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from curtilage.attest.log.note import NoteKey
from curtilage.client.audit.checkpoint import (
    CHECKPOINT_LINES,
    CHECKPOINT_S,
    encode_key,
    log_id,
    parse_key,
    sign_head,
    verify_head,
)
from curtilage.client.audit.record import (
    MAX_LINE_BYTES,
    AuditRecord,
    Line,
    SegmentStart,
    encode_line,
    parse_line,
)
from curtilage.client.audit.tail import Tail
from curtilage.client.audit.verify import Segment, lines_of, verify_log
from curtilage.policy.errors import AuditRefusedError, AuditStep
from support.audit_logs import (
    ENTRY,
    KEY,
    NOW,
    ORGANISATION,
    SIGNING,
    MemoryLog,
    entry,
    make_log,
)

LOG = make_log(map(entry, range(20)))
SIZE = len(LOG.lines)
any_line = st.integers(0, SIZE - 1)


def refusal_of(log: MemoryLog) -> AuditRefusedError:
    with pytest.raises(AuditRefusedError) as refused:
        log.verify()
    return refused.value


def test_a_log_verifies_and_shows_its_content() -> None:
    seen: list[bytes] = []
    log = LOG.verify(lambda _, data: seen.append(data + b"\n"))
    assert seen == LOG.lines
    assert (log.records, log.segments, log.size, log.signed) == (20, 3, SIZE, SIZE)
    assert log.checkpoints == len(LOG.notes)
    assert log.checkpoint == LOG.notes[-1]
    assert log.steps_back == 0


@given(any_line, st.data())
def test_any_byte_that_is_changed_is_found(at: int, data: st.DataObject) -> None:
    lines = LOG.lines
    byte = data.draw(st.integers(0, len(lines[at]) - 1))
    changed = bytearray(lines[at])
    changed[byte] ^= data.draw(st.integers(1, 255))
    lines[at] = bytes(changed)
    refusal = refusal_of(LOG.with_lines(lines))
    assert refusal.record is not None
    assert refusal.record <= at


@given(any_line)
def test_any_line_that_is_dropped_is_found(at: int) -> None:
    lines = LOG.lines
    del lines[at]
    assert refusal_of(LOG.with_lines(lines)).record == at


@given(any_line, any_line)
def test_any_two_lines_that_are_swapped_are_found(one: int, other: int) -> None:
    lines = LOG.lines
    lines[one], lines[other] = lines[other], lines[one]
    if one != other:
        assert refusal_of(LOG.with_lines(lines)).record == min(one, other)


@given(any_line, any_line)
def test_any_line_that_is_repeated_is_found(at: int, copied: int) -> None:
    lines = LOG.lines
    lines.insert(at, lines[copied])
    assert refusal_of(LOG.with_lines(lines)).record in {at, at + 1}


@given(any_line, any_line)
def test_any_line_that_is_moved_is_found(one: int, to: int) -> None:
    lines = LOG.lines
    lines.insert(to, lines.pop(one))
    if one != to:
        assert refusal_of(LOG.with_lines(lines)).record == min(one, to)


OTHER = make_log(map(entry, range(100, 120)))


@given(st.integers(2, SIZE - 1), st.integers(1, SIZE))
def test_any_part_of_another_log_is_found(start: int, length: int) -> None:
    """Of the same key and beginning, and each line in its place."""
    theirs = OTHER.lines[start : start + length]
    lines = [*LOG.lines[:start], *theirs, *LOG.lines[start + length :]]
    assert refusal_of(LOG.with_lines(lines)).record == start - 1


@given(any_line, st.binary(max_size=300).filter(lambda data: b"\n" not in data))
def test_any_garbage_is_found(at: int, garbage: bytes) -> None:
    lines = LOG.lines
    lines.insert(at, garbage + b"\n")
    assert refusal_of(LOG.with_lines(lines)).record == at


@given(any_line)
def test_any_cut_of_whole_lines_is_found(size: int) -> None:
    refusal = refusal_of(LOG.with_lines(LOG.lines[:size]))
    if size % 8:  # at a file's edge, the file that follows is empty
        assert (refusal.step, refusal.record) in {
            (AuditStep.END, size),
            (AuditStep.SEGMENTS, size),
        }


@given(st.data())
def test_any_cut_inside_a_line_is_found(data: st.DataObject) -> None:
    at = data.draw(any_line)
    line = LOG.lines[at]
    cut = line[: data.draw(st.integers(1, len(line) - 1))]
    refusal = refusal_of(LOG.with_lines([*LOG.lines[:at], cut]))
    assert refusal.record == at


def rechained(log: MemoryLog, at: int) -> MemoryLog:
    """Change one record, and every line after it so that the chain holds."""
    tail = Tail(KEY.name)
    lines: list[bytes] = []
    for number, line in enumerate(log.lines):
        parsed = parse_line(line[:-1])
        if isinstance(parsed, AuditRecord):
            record = parse_line(
                tail.next_record(ENTRY, now=parsed.time, key=ORGANISATION)[:-1]
            )
            assert isinstance(record, AuditRecord)
            messages = 9 if number == at else parsed.messages
            fields = dataclasses.replace(parsed, prev=record.prev, messages=messages)
            lines.append(encode_line(fields) + b"\n")
        else:
            lines.append(tail.next_segment(parsed.time))
        tail.take(lines[-1])
    return log.with_lines(lines)


@given(any_line)
def test_a_rebuilt_chain_does_not_match_the_signature(at: int) -> None:
    forged = rechained(LOG, at)
    if forged.lines == LOG.lines:
        return  # a file's first line
    refusal = refusal_of(forged)
    assert refusal.step is AuditStep.CHECKPOINTS
    assert refusal.record is not None
    assert refusal.record <= at < refusal.record + 5


def test_a_new_chain_with_its_own_signatures_is_of_another_key() -> None:
    foreign = Ed25519PrivateKey.from_private_bytes(bytes([8]) * 32)
    log = rechained(LOG, 3)
    tail = Tail(KEY.name)
    for line in log.lines:
        tail.take(line)
    log.notes = [sign_head(tail.head(NOW), KEY, foreign.sign)]
    refusal = refusal_of(log)
    assert refusal.step is AuditStep.CHECKPOINTS
    assert "checkpoint 1" in refusal.detail


def test_another_log_with_the_same_key_is_another_log() -> None:
    other = dataclasses.replace(KEY, name=log_id(bytes([1]) * 8))
    log = MemoryLog(segments=LOG.segments, notes=LOG.notes, key=other)
    assert refusal_of(log).step is AuditStep.CHECKPOINTS


def test_a_log_without_a_checkpoint_is_refused() -> None:
    log = MemoryLog(segments=LOG.segments, notes=[])
    assert "none" in refusal_of(log).detail


def test_checkpoints_out_of_order_are_refused() -> None:
    log = MemoryLog(segments=LOG.segments, notes=[*LOG.notes, LOG.notes[-2]])
    assert "out of order" in refusal_of(log).detail
    log = MemoryLog(segments=LOG.segments, notes=LOG.notes[::-1])
    assert refusal_of(log).step is AuditStep.CHECKPOINTS


def test_no_more_checkpoints_are_held_than_the_lines_have_reached() -> None:
    """A log of years has a million of either."""
    log = make_log(map(entry, range(50)), segment=1000, every=5)
    taken: list[str] = []

    def notes() -> Iterator[str]:
        for note in log.notes:
            taken.append(note)
            yield note

    def lines() -> Iterator[bytes]:
        for number, line in enumerate(log.lines):
            assert len(taken) <= number // 5 + 1
            yield line

    found = verify_log([Segment(number=1, lines=lines())], notes(), KEY)
    assert found.checkpoints == len(log.notes) == len(taken)


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_file_that_is_missing_is_named(missing: int) -> None:
    numbered = [(n, each) for n, each in enumerate(LOG.segments, 1) if n != missing + 1]
    segments = [Segment(number=number, lines=lines) for number, lines in numbered]
    with pytest.raises(AuditRefusedError) as refused:
        verify_log(segments, LOG.notes, KEY)
    assert refused.value.record == sum(map(len, LOG.segments[:missing]))
    step = AuditStep.END if missing == 2 else AuditStep.SEGMENTS
    assert refused.value.step is step


@pytest.mark.parametrize("at", [0, 1, 2])
def test_an_empty_file_is_refused(at: int) -> None:
    segments = [*LOG.segments[:at], [], *LOG.segments[at:]]
    log = MemoryLog(segments=segments, notes=LOG.notes)
    assert refusal_of(log).step in {AuditStep.SEGMENTS, AuditStep.BINDING}


def test_an_empty_file_at_the_end_is_refused() -> None:
    log = MemoryLog(segments=[*LOG.segments, []], notes=LOG.notes)
    assert refusal_of(log).step is AuditStep.SEGMENTS


@pytest.mark.parametrize("at", [1, 9])
def test_a_file_that_begins_in_the_wrong_place_is_refused(at: int) -> None:
    lines = LOG.lines
    moved = MemoryLog(segments=[lines[:at], lines[at:]], notes=LOG.notes)
    assert refusal_of(moved).step is AuditStep.BINDING


def test_a_file_that_begins_too_early_is_refused() -> None:
    log = make_log(map(entry, range(10)))
    lines = log.lines
    moved = MemoryLog(segments=[lines[:7], lines[7:]], notes=log.notes)
    assert (refusal_of(moved).step, refusal_of(moved).record) == (AuditStep.BINDING, 7)


def test_a_file_with_a_wrong_history_is_refused() -> None:
    segments = [list(each) for each in LOG.segments]
    start = parse_line(segments[1][0][:-1])
    assert isinstance(start, SegmentStart)
    forged = dataclasses.replace(start, tree=("00" * 32,))
    segments[1][0] = encode_line(forged) + b"\n"
    assert refusal_of(MemoryLog(segments=segments, notes=LOG.notes)).step is (
        AuditStep.BINDING
    )


def test_lines_after_the_last_checkpoint_are_reported() -> None:
    log = MemoryLog(segments=LOG.segments, notes=LOG.notes[:5]).verify()
    assert (log.signed, log.size) == (16, SIZE)
    assert (log.signed_records, log.records) == (14, 20)


def test_a_changed_record_is_named_where_nothing_is_signed_yet() -> None:
    lines = LOG.lines
    lines[15] = lines[15].replace(b'"messages":1', b'"messages":2')
    log = LOG.with_lines(lines)
    log.notes = LOG.notes[:2]
    assert (refusal_of(log).step, refusal_of(log).record) == (AuditStep.CHAIN, 15)


def written(*seconds: float, signed: Container[int]) -> MemoryLog:
    """Make a log of lines of these times, signed at these sizes."""
    tail = Tail(KEY.name)
    log = MemoryLog(segments=[[]], notes=[])
    for number, second in enumerate(seconds):
        now = NOW + timedelta(seconds=second)
        record = tail.next_record(ENTRY, now=now, key=ORGANISATION)
        line = record if number else tail.next_segment(now)
        log.segments[0].append(line)
        tail.take(line)
        if tail.size in signed:
            log.notes.append(sign_head(tail.head(now), KEY, SIGNING.sign))
    return log


def test_as_many_unsigned_lines_as_a_writer_leaves_are_reported() -> None:
    log = written(*[0] * (1 + CHECKPOINT_LINES), signed={1}).verify()
    assert log.size - log.signed == CHECKPOINT_LINES
    assert (log.records, log.signed_records) == (CHECKPOINT_LINES, 0)


def test_more_unsigned_lines_than_a_writer_leaves_are_refused() -> None:
    refusal = refusal_of(written(*[0] * (2 + CHECKPOINT_LINES), signed={1}))
    assert (refusal.step, refusal.record) == (AuditStep.END, 1 + CHECKPOINT_LINES)
    assert "checkpoints were removed" in refusal.detail


@pytest.mark.parametrize("first", [1, 7, CHECKPOINT_LINES])
def test_checkpoints_as_far_apart_as_a_writer_leaves_them_verify(first: int) -> None:
    size = first + CHECKPOINT_LINES
    assert written(*[0] * size, signed={first, size}).verify().signed == size


@pytest.mark.parametrize("first", [1, 7])
def test_checkpoints_further_apart_are_refused(first: int) -> None:
    size = first + CHECKPOINT_LINES + 1
    refusal = refusal_of(written(*[0] * size, signed={first, size}))
    assert (refusal.step, refusal.record) == (AuditStep.CHECKPOINTS, size - 1)
    assert "checkpoints were removed" in refusal.detail


def test_a_first_checkpoint_that_is_too_late_is_refused() -> None:
    size = CHECKPOINT_LINES + 1
    assert refusal_of(written(*[0] * size, signed={size})).step is AuditStep.CHECKPOINTS


@pytest.mark.parametrize("signed", [{1}, {1, 4}], ids=["unsigned", "signed later"])
def test_a_line_that_should_have_waited_for_a_signature_is_refused(
    signed: set[int],
) -> None:
    """Directly after a checkpoint any time is allowed, then a minute."""
    late = CHECKPOINT_S - 0.000001
    assert written(0, 9999, late, 0, signed=signed).verify().size == 4
    refusal = refusal_of(written(0, 9999, CHECKPOINT_S, 0, signed=signed))
    assert (refusal.step, refusal.record) == (AuditStep.CHECKPOINTS, 2)
    assert "a writer signs first" in refusal.detail


def test_a_writer_may_go_by_its_own_checkpoint_and_not_by_the_last() -> None:
    """One signs at noon; the clock goes back; another signs; the first goes on."""
    times = (-3600, 0, -3600, -3590)
    assert written(*times, CHECKPOINT_S - 1, signed={1, 2, 3}).verify().size == 5
    assert refusal_of(written(*times, CHECKPOINT_S, signed={1, 2, 3})).record == 4


def test_a_file_that_begins_behind_unsigned_lines_is_refused() -> None:
    notes = [note for note in LOG.notes if int(note.splitlines()[1]) != 16]
    refusal = refusal_of(MemoryLog(segments=LOG.segments, notes=notes))
    assert (refusal.step, refusal.record) == (AuditStep.CHECKPOINTS, 16)


def chained(lines: Iterable[Line]) -> list[bytes]:
    """Number and chain lines again, which takes no key."""
    tail = Tail(KEY.name)
    made: list[bytes] = []
    for line in lines:
        placed = dataclasses.replace(line, seq=tail.size, prev=tail.last_hash)
        made.append(encode_line(placed) + b"\n")
        tail.take(made[-1])
    return made


ONE_FILE = make_log(map(entry, range(59)), segment=1000, every=7)


@given(st.data())
def test_signed_lines_are_the_written_lines(data: st.DataObject) -> None:
    """With any edit that takes no key, and any checkpoints removed."""
    numbers = st.integers(0, len(ONE_FILE.notes) - 1)
    kept = sorted(data.draw(st.lists(numbers, min_size=1)))
    first = data.draw(st.integers(0, len(ONE_FILE.lines)))
    lines = [parse_line(line[:-1]) for line in ONE_FILE.lines]
    dropped = data.draw(st.sets(st.integers(first, len(lines)), min_size=1))
    left = [line for number, line in enumerate(lines) if number not in dropped]
    notes = [ONE_FILE.notes[number] for number in kept]
    log = MemoryLog(segments=[chained(left)], notes=notes)
    try:
        found = log.verify()
    except AuditRefusedError:
        return
    assert log.lines[: found.signed] == ONE_FILE.lines[: found.signed]
    assert found.signed_records == found.signed - 1
    assert found.size - found.signed <= CHECKPOINT_LINES


def test_a_clock_that_went_back_is_counted() -> None:
    tail = Tail(KEY.name)
    log = MemoryLog(segments=[[tail.next_segment(NOW)]], notes=[])
    tail.take(log.lines[0])
    for back in (1, 0, 2):
        now = NOW - timedelta(days=back)
        line = tail.next_record(ENTRY, now=now, key=ORGANISATION)
        log.segments[0].append(line)
        tail.take(line)
    log.notes.append(sign_head(tail.head(NOW), KEY, SIGNING.sign))
    assert log.verify().steps_back == 2


@given(st.lists(st.binary(max_size=9), max_size=6), st.integers(1, 7))
def test_lines_do_not_depend_on_the_pieces(parts: list[bytes], size: int) -> None:
    data = b"\n".join(parts)
    pieces = [data[start : start + size] for start in range(0, len(data), size)]
    assert list(lines_of(pieces)) == list(lines_of([data]))
    assert b"".join(lines_of([data])) == data


def test_a_line_without_end_is_not_gathered() -> None:
    pieces = iter([b"x" * MAX_LINE_BYTES, b"y", b"z" * 100])
    assert [len(line) for line in lines_of(pieces)] == [MAX_LINE_BYTES + 1]
    assert next(pieces) == b"z" * 100


def test_a_key_is_read_as_it_was_written() -> None:
    assert parse_key(encode_key(KEY) + "\n") == KEY


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "x+y+z",
        encode_key(KEY)[:-4],
        encode_key(KEY).replace("curtilage.audit", "curtilage.other"),
        encode_key(KEY).replace("/0000", "/0001"),
        encode_key(NoteKey(name=KEY.name, public_key=bytes(31))),
    ],
)
def test_another_text_is_not_a_key(text: str) -> None:
    with pytest.raises(AuditRefusedError):
        parse_key(text)


@given(st.integers(0, 400), st.integers(1, 255))
def test_any_byte_of_a_checkpoint_counts(at: int, flip: int) -> None:
    note = bytearray(LOG.notes[0].encode())
    note[at % len(note)] ^= flip
    text = bytes(note).decode("utf-8", "replace")
    with pytest.raises(AuditRefusedError):
        verify_head(text, KEY)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("head ", "tail "),
        ("time ", "date "),
        ("time 2026", "time 1x26"),
        ("\nhead ", "\nmore\nhead "),
        ("head ", "head x"),
    ],
)
def test_a_signed_note_without_a_head_is_refused(old: str, new: str) -> None:
    from curtilage.attest.log.note import ED25519  # noqa: PLC0415

    body = LOG.notes[0].partition("\n\n")[0] + "\n"
    body = body.replace(old, new, 1)
    import base64  # noqa: PLC0415

    signed = base64.b64encode(KEY.key_id(ED25519) + SIGNING.sign(body.encode()))
    text = f"{body}\n\u2014 {KEY.name} {signed.decode()}\n"
    with pytest.raises(AuditRefusedError):
        verify_head(text, KEY)
