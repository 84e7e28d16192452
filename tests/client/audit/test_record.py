import dataclasses
import hashlib
import hmac
import json
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.client.audit.record import (
    INVALID_FIELD,
    AuditEntry,
    AuditRecord,
    Outcome,
    SegmentStart,
    chain_hash,
    commit,
    encode_line,
    genesis_hash,
    histogram,
    parse_line,
    parse_time,
    record_of,
    time_text,
)
from curtilage.policy.decision.classes import CLASSES
from curtilage.policy.decision.decide import decide
from curtilage.policy.decision.routes import Route
from curtilage.policy.document.load import load_profile
from curtilage.policy.errors import AuditRefusedError, AuditStep
from support.audit_logs import ENTRY, NOW
from support.client_parts import finding
from support.inspections import inspection_of

RECORD = record_of(ENTRY, seq=3, prev="0a" * 32, now=NOW, key=bytes(32))
START = SegmentStart(
    seq=3,
    prev="0b" * 32,
    time=NOW,
    log="curtilage.audit/0000000000000000",
    segment=2,
    tree=("0c" * 32, "0d" * 32),
)
counts = st.integers(0, 2**53 - 1)
times = st.datetimes(
    min_value=datetime(1970, 1, 1),  # noqa: DTZ001 - hypothesis wants it so
    timezones=st.just(UTC),
)
words = st.from_regex(r"\A[a-z0-9][A-Za-z0-9._:/-]{0,30}\Z")
hashes = st.binary(min_size=32, max_size=32).map(bytes.hex)
records = st.builds(
    AuditRecord,
    seq=counts,
    prev=hashes,
    time=times,
    commitment=hashes,
    query=st.binary(min_size=8, max_size=8).map(bytes.hex),
    attempt=counts,
    policy=words,
    classes=st.dictionaries(st.sampled_from(sorted(CLASSES)), counts, max_size=5),
    route=st.sampled_from(Route),
    outcome=st.sampled_from(Outcome),
    rule=words,
    verdict=st.one_of(st.just(""), words),
    fallback=st.one_of(st.just(""), words),
    messages=counts,
)


@given(records)
def test_a_record_is_read_as_it_was_written(record: AuditRecord) -> None:
    line = encode_line(record)
    assert parse_line(line) == record
    assert b"\n" not in line
    assert line.isascii()


def test_a_segment_start_is_read_as_it_was_written() -> None:
    assert parse_line(encode_line(START)) == START


def test_the_encoding_is_sorted_and_has_no_spaces() -> None:
    text = encode_line(RECORD).decode()
    assert " " not in text
    assert list(json.loads(text)) == sorted(json.loads(text))


def rewritten(**changes: object) -> bytes:
    fields = {**json.loads(encode_line(RECORD)), **changes}
    kept = {name: value for name, value in fields.items() if value is not ...}
    return json.dumps(kept, sort_keys=True, separators=(",", ":")).encode()


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"null",
        b"[]",
        b'"kind"',
        b"{}",
        b"\xff",
        b"[" * 100_000,
        b" " + encode_line(RECORD),
        encode_line(RECORD) + b"\n",
        encode_line(RECORD).replace(b",", b", ", 1),
        encode_line(RECORD).replace(b"phi", b"\\u0070hi"),
        encode_line(RECORD).replace(b'"seq":3', b'"seq":3,"seq":3'),
        encode_line(RECORD).replace(b'"seq":3', b'"seq":3.0'),
        encode_line(RECORD).replace(b'"seq":3', b'"seq":true'),
        rewritten(seq=-1),
        rewritten(seq=2**53),
        rewritten(kind="other"),
        rewritten(v=2),
        rewritten(text="Maria Gonzalez"),
        rewritten(rule=...),
        rewritten(rule="my name is Maria"),
        rewritten(rule=""),
        rewritten(verdict="Maria Gonzalez"),
        rewritten(fallback="ÿ"),
        rewritten(policy="Maria Gonzalez"),
        rewritten(classes={"maria gonzalez": 1}),
        rewritten(classes={"Maria": 1}),
        rewritten(classes={"health.condition": "1"}),
        rewritten(classes=[]),
        rewritten(commitment="ab"),
        rewritten(commitment="AB" * 32),
        rewritten(prev="g" * 64),
        rewritten(query="00"),
        rewritten(route="relay"),
        rewritten(outcome="sent"),
        rewritten(time="2026-11-21T12:00:00Z"),
        rewritten(time="2026-13-21T12:00:00.000000Z"),
        rewritten(time=0),
        encode_line(START).replace(b'["0c', b'[1,"0c'),
        encode_line(START).replace(b"curtilage.audit", b"curtilage audit"),
    ],
)
def test_anything_else_is_refused_without_a_word_of_it(line: bytes) -> None:
    with pytest.raises(AuditRefusedError) as refused:
        parse_line(line)
    assert refused.value.step is AuditStep.FORM
    assert "Maria" not in str(refused.value)
    assert refused.value.__cause__ is None


def test_a_line_beyond_the_bound_is_refused() -> None:
    with pytest.raises(AuditRefusedError):
        parse_line(encode_line(RECORD) + b" " * 2**16)


@pytest.mark.parametrize(
    "change",
    [
        {"rule": "said that Maria has diabetes"},
        {"classes": {"Maria Gonzalez": 1}},
        {"classes": {"health.condition": -1}},
        {"verdict": "Maria Gonzalez"},
        {"fallback": "because of Maria"},
        {"policy": ""},
        {"messages": 2**60},
        {"application": "Maria Gonzalez"},
    ],
)
def test_possible_content_is_not_written(change: dict[str, object]) -> None:
    entry = dataclasses.replace(ENTRY, **change)  # type: ignore[arg-type]
    record = record_of(entry, seq=0, prev="00" * 32, now=NOW, key=bytes(32))
    with pytest.raises(ValueError, match=INVALID_FIELD) as refused:
        encode_line(record)
    assert "Maria" not in str(refused.value)


def test_the_commitment_is_the_hmac_that_the_document_says() -> None:
    key, digest = bytes(range(32)), hashlib.sha256(b"payload").digest()
    message = b"curtilage/audit/payload/v1\n" + digest
    expected = hmac.new(key, message, hashlib.sha256).hexdigest()
    assert commit(key, digest) == expected
    assert commit(bytes(32), digest) != expected


@pytest.mark.parametrize(("key", "digest"), [(31, 32), (32, 31)])
def test_a_commitment_needs_whole_inputs(key: int, digest: int) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        commit(bytes(key), bytes(digest))


def test_hashes_of_different_kinds_differ() -> None:
    assert (
        chain_hash(b"x") == hashlib.sha256(b"curtilage/audit/chain/v1\nx").hexdigest()
    )
    assert chain_hash(b"x") != genesis_hash("x")


def test_the_digest_is_in_no_repr_and_in_no_record() -> None:
    digest = hashlib.sha256(b"short").digest()
    entry = dataclasses.replace(ENTRY, payload_digest=digest)
    record = record_of(entry, seq=0, prev="00" * 32, now=NOW, key=bytes(32))
    shown = repr(entry) + repr(record) + encode_line(record).decode()
    assert digest.hex() not in shown
    assert repr(digest) not in shown


def test_times_are_written_in_utc() -> None:
    east = NOW.astimezone(timezone(timedelta(hours=5)))
    assert time_text(east) == "2026-11-21T12:00:00.000000Z"
    assert parse_time(time_text(east)) == NOW


def test_histogram_counts_every_finding_and_names_no_stranger() -> None:
    policy = load_profile("default")
    findings = (
        finding("financial.pan"),
        finding("financial.pan"),
        finding("maria gonzalez"),
        finding("org.dictionary.maria"),
    )
    inspection = inspection_of(findings=findings, payload_digest=bytes(32), messages=1)
    decision = decide(policy.rulebook, inspection)
    counted = histogram(findings, decision, policy.classes)
    assert counted == {"financial.pan": 2, "uncertain.error": 2}
    assert list(counted) == sorted(counted)


def test_histogram_counts_a_finding_of_no_sense_as_uncertain_too() -> None:
    policy = load_profile("default")
    findings = (finding("financial.pan", score=900),)
    inspection = inspection_of(findings=findings, payload_digest=bytes(32), messages=1)
    counted = histogram(findings, decide(policy.rulebook, inspection), policy.classes)
    assert counted == {"financial.pan": 1, "uncertain.error": 1}


def test_an_entry_has_no_field_for_text() -> None:
    names = {each.name for each in dataclasses.fields(AuditEntry)}
    assert names == {
        *("query", "attempt", "policy", "classes", "route", "outcome", "rule"),
        *("verdict", "fallback", "messages", "payload_digest", "approved"),
        "application",
    }


def test_a_record_names_approved_texts_by_digest_where_there_are_any() -> None:
    plain = encode_line(RECORD)
    assert b"approved" not in plain
    used = dataclasses.replace(RECORD, approved=("ab" * 32, "cd" * 32))
    line = encode_line(used)
    assert parse_line(line) == used
    assert json.loads(line)["approved"] == ["ab" * 32, "cd" * 32]


@pytest.mark.parametrize("value", [[], ["short"], ["Be polite."], "ab", [1], None])
def test_an_invalid_digest_of_an_approved_text_is_refused(value: object) -> None:
    fields = json.loads(encode_line(RECORD)) | {"approved": value}
    line = json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()
    with pytest.raises(AuditRefusedError):
        parse_line(line)


def test_the_format_keeps_its_word_for_an_on_premises_server() -> None:
    """Records are signed, so the word cannot change with the code."""
    assert Outcome.ON_PREMISES.value == "house"
    assert Outcome("on_premises") is Outcome.ON_PREMISES


def test_a_record_names_the_application_where_a_gateway_served_it() -> None:
    assert b"application" not in encode_line(RECORD)
    used = dataclasses.replace(RECORD, application="letters-2")
    line = encode_line(used)
    assert parse_line(line) == used
    assert json.loads(line)["application"] == "letters-2"


@pytest.mark.parametrize("value", ["", "Letters", "-a", "a" * 33, 7, None])
def test_an_invalid_name_of_an_application_is_refused(value: object) -> None:
    fields = json.loads(encode_line(RECORD)) | {"application": value}
    line = json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()
    with pytest.raises(AuditRefusedError):
        parse_line(line)
