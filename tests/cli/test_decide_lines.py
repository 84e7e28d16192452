import json
from collections.abc import Iterator, Sequence
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.cli import decide_lines as bulk
from curtilage.cli.decide_lines import BATCH_LINES, decide_lines
from curtilage.client.chat.query import Query
from curtilage.client.detection.detectors.scanner import scan
from curtilage.client.detection.inspection import prepare
from curtilage.policy.decision.decide import Inspection
from curtilage.policy.document.load import load_profile
from support.equipment import own

POLICY = load_profile("default")
CANARY = "zq7canary4711"


class InProcess:
    """The detectors in this process."""

    def __init__(self) -> None:
        self.batches: list[int] = []

    def inspect_many(self, queries: Sequence[Query]) -> Iterator[Inspection]:
        self.batches.append(len(queries))
        for query in queries:
            prepared = prepare(query, POLICY.limits)
            found = scan(prepared.texts, own())
            pairs = zip(found, prepared.places, strict=True)
            findings = [span.at(place) for spans, place in pairs for span in spans]
            yield prepared.with_findings(findings)


def decided(*lines: object) -> list[dict[str, object]]:
    raw = [
        line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines
    ]
    return [json.loads(out) for out in decide_lines(raw, POLICY, InProcess())]


def test_a_line_has_exactly_these_fields() -> None:
    (line,) = decided({"id": "a", "text": "ssn 536-22-1234"})
    rules = line.pop("rules")
    assert line == {
        "id": "a",
        "route": "local",
        "classes": ["identifier.direct.gov_id.us_ssn"],
        "uncertain": ["uncertain.number_run"],
    }
    assert isinstance(rules, list)
    assert {"government-id", "any-uncertain"} <= set(cast("list[str]", rules))


def test_a_harmless_line_may_be_sent() -> None:
    (line,) = decided({"id": 7, "text": "How does compound interest work?"})
    assert line == {
        "id": 7,
        "route": "enclave",
        "classes": [],
        "rules": [],
        "uncertain": [],
    }


def test_order_is_kept_over_batches() -> None:
    count = 2 * BATCH_LINES + 3
    lines = [{"id": number, "text": "hello"} for number in range(count)]
    assert [line["id"] for line in decided(*lines)] == list(range(count))


def test_lines_are_read_in_batches() -> None:
    inspector = InProcess()
    lines = (b'{"id": 1, "text": "hello"}' for _ in range(BATCH_LINES + 1))
    assert len(list(decide_lines(lines, POLICY, inspector))) == BATCH_LINES + 1
    assert inspector.batches == [BATCH_LINES, 1]


def test_messages_are_inspected_with_their_names() -> None:
    messages = [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "hi", "name": "bob@corp.com"},
    ]
    (line,) = decided({"id": 1, "messages": messages})
    assert line["classes"] == ["identifier.direct.email"]


def test_a_line_of_ours_is_no_part_of_an_answer() -> None:
    """The decision is about the query that would be asked: see ``openai_chat``."""
    turn = {"role": "assistant", "content": "[read 2 of 9 tokens]\n\nYes."}
    line = json.dumps({"messages": [turn]}).encode()
    ((_, query),) = bulk.read_lines([line])
    assert query is not None
    assert query.messages[0].content == "Yes."


def test_parts_are_attachments() -> None:
    messages = [{"role": "user", "content": [{"type": "image_url"}]}]
    (line,) = decided({"id": 1, "messages": messages})
    assert line["uncertain"] == ["uncertain.attachment"]


BAD: list[tuple[object, object]] = [
    (b"no json " + CANARY.encode(), None),
    (b'{"id": "a", "text": "\xff"}', None),
    (b"[" * 100_000, None),
    ([], None),
    ("text", None),
    ({"id": "a"}, "a"),
    ({"id": "a", "text": 7}, "a"),
    ({"id": "a", "text": None}, "a"),
    ({"id": "a", "text": "x", "messages": []}, "a"),
    ({"id": "a", "text": "x", "image": CANARY}, "a"),
    ({"id": "a", "messages": []}, "a"),
    ({"id": "a", "messages": [7]}, "a"),
    ({"id": "a", "messages": [{"role": CANARY, "content": "x"}]}, "a"),
    ({"id": "a", "messages": [{"role": "user", "content": "x", "y": 1}]}, "a"),
    ({"id": "a", "messages": [{"role": "user", "content": "x", "name": 7}]}, "a"),
    ({"id": [CANARY], "text": 7}, None),
    ({"id": True, "text": 7}, None),
    ({"id": "x" * 257, "text": 7}, None),
]  # fmt: skip


@pytest.mark.parametrize(("line", "line_id"), BAD)
def test_an_invalid_line_is_kept_local(line: object, line_id: object) -> None:
    assert decided(line) == [
        {
            "id": line_id,
            "route": "local",
            "classes": [],
            "rules": ["any-uncertain"],
            "uncertain": ["uncertain.undecodable"],
        }
    ]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"{", "it is not a JSON object in UTF-8, or repeats a key"),
        (b'{"id": 1, "id": 2, "text": "x"}', "or repeats a key"),
        ({"id": 1, "text": "x", CANARY: 1}, "unknown key; the keys ar"),
        ({"id": 1}, "it needs either 'text' or 'messages'"),
        ({"id": 1, "text": [CANARY]}, "'text' is not a string"),
        (
            {"id": 1, "messages": [{"role": CANARY, "content": "x"}]},
            "a known 'role'",
        ),
        (b"\n", "it is blank"),
    ],
)
def test_a_lines_problem_is_reported_with_its_number(line: object, said: str) -> None:
    raw = line if isinstance(line, bytes) else json.dumps(line).encode()
    good, result = b'{"id": 0, "text": "hello"}', list[tuple[int, str]]()

    def unread(number: int, problem: str) -> None:
        result.append((number, problem))

    lines = [good] * BATCH_LINES + [raw, good]
    list(decide_lines(lines, POLICY, InProcess(), unread=unread))
    ((number, problem),) = result
    assert number == BATCH_LINES + 1
    assert said in problem
    assert CANARY not in problem


@pytest.mark.parametrize(("line", "_id"), BAD)
def test_every_invalid_line_is_reported(line: object, _id: object) -> None:
    raw = line if isinstance(line, bytes) else json.dumps(line).encode()
    assert bulk.problem_of(raw)
    assert CANARY not in bulk.problem_of(raw)


@pytest.mark.parametrize("turn", [{}, {"content": None}], ids=["absent", "null"])
def test_an_assistants_turn_may_have_no_content(turn: dict[str, object]) -> None:
    messages = [
        {"role": "user", "content": "What is a tariff?"},
        {"role": "assistant", **turn},
        {"role": "user", "content": "And a quota?"},
    ]
    (line,) = decided({"id": 1, "messages": messages})
    assert (line["route"], line["uncertain"]) == ("enclave", [])


def test_a_message_without_text_is_no_message() -> None:
    (line,) = decided({"id": "a", "messages": [{"role": "user"}]})
    assert line["route"] == "local"


def test_a_line_too_long_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "MAX_LINE_BYTES", 10)
    (line,) = decided({"id": "a", "text": "hello"})
    assert line["uncertain"] == ["uncertain.undecodable"]
    assert "10 bytes" in bulk.problem_of(b'{"id": "a", "text": "x"}')


def test_bad_lines_do_not_shift_their_neighbours() -> None:
    lines = decided({"id": 1, "text": "hello"}, b"bad", {"id": 3, "text": "a@b.com"})
    assert [line["route"] for line in lines] == ["enclave", "local", "local"]
    assert [line["id"] for line in lines] == [1, None, 3]


def test_blank_lines_at_the_end_are_no_lines() -> None:
    assert decided(b"\n", b"  \r\n") == []


def test_a_lone_surrogate_is_undecodable() -> None:
    (line,) = decided(b'{"id": 1, "text": "\\ud800"}')
    assert line["uncertain"] == ["uncertain.undecodable"]


def test_no_line_out_repeats_a_text() -> None:
    out = decided(
        {"id": 1, "text": f"my password is {CANARY}"},
        {"id": 2, "text": CANARY, CANARY: 1},
        CANARY.encode(),
    )
    assert CANARY not in json.dumps(out)


@given(st.binary(max_size=200))
def test_any_bytes_give_a_line(data: bytes) -> None:
    line = data.replace(b"\n", b" ")
    out = list(decide_lines([line], POLICY, InProcess()))
    assert len(out) == (1 if line.strip() else 0)


@pytest.mark.parametrize(
    "line",
    [
        b'{"id": 1, "text": "my ssn is 536-22-1234", "text": "hi"}',
        b'{"messages": [{"role": "user", "content": "a@b.com", "content": "hi"}]}',
    ],
)
def test_a_key_given_twice_is_unreadable(line: bytes) -> None:
    (out,) = decided(line)
    assert out["route"] == "local"
    assert out["uncertain"] == ["uncertain.undecodable"]


def test_blank_lines_keep_step() -> None:
    hello = {"id": 1, "text": "hello"}
    lines = decided(b"\n", hello, b"  \r\n", b"\n", hello, b"\n")
    assert [line["id"] for line in lines] == [None, 1, None, None, 1]
    assert lines[0] == lines[2] == decided(b"bad")[0]
