"""The auditor's proof that a question and an answer are the ones of a receipt."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from curtilage.attest.receipt import (
    NO_MODEL,
    Receipt,
    ReceiptKey,
    answer_mac,
    request_mac,
    sign_receipt,
)
from curtilage.cli.audit.receipt import NEVER_SENT
from curtilage.cli.main import main
from curtilage.client.audit.reader import LogToRead
from curtilage.client.audit.record import (
    AuditEntry,
    AuditRecord,
    Line,
    Outcome,
    ReceiptEntry,
    ReceiptLine,
    chain_hash,
    encode_line,
    parse_line,
    receipt_secret,
)
from curtilage.client.audit.writer import AuditLog
from curtilage.client.chat.query import Message, Query
from curtilage.policy.decision.routes import Route
from curtilage.policy.errors import AuditRefusedError
from support.audit_logs import entry

QUERY = Query(messages=(Message(role="user", content="canary-7c1e"),), stream=True)
ANSWER = b"data: [DONE]\n\n:   \n\n"
KEY = ReceiptKey(bytes(32))
RECEIPT_ID = bytes(range(16))
NAME = "ab" * 8


def left() -> AuditEntry:
    return AuditEntry(
        query=NAME,
        attempt=1,
        policy="sha256:" + "00" * 32,
        classes={},
        route=Route.ENCLAVE,
        outcome=Outcome.ENCLAVE,
        rule="default",
        verdict="a7aa7881891197ae",
        messages=1,
        payload_digest=QUERY.payload_digest(),
    )


def receipted(secret: bytes, *, by: ReceiptKey = KEY) -> ReceiptEntry:
    mac = answer_mac(secret)
    mac.update(ANSWER)
    receipt = Receipt(
        status=200,
        served_at=1790000000,
        key_configs_digest=bytes(32),
        release_digest=bytes(32),
        model_digest=NO_MODEL,
        request_mac=request_mac(secret, QUERY.payload().content),
        answer_mac=mac.digest(),
    )
    return ReceiptEntry(
        query=NAME,
        attempt=1,
        receipt_id=RECEIPT_ID,
        public_key=KEY.public_key,
        receipt=sign_receipt(receipt, by),
    )


class Bench:
    """A log with one query that was sent, and its receipt."""

    def __init__(self, folder: Path, *, by: ReceiptKey = KEY) -> None:
        self.folder = folder
        log = AuditLog(folder / "audit", make=True)
        log.append(entry(0))
        log.append(left())
        secret = log.receipt_secret(RECEIPT_ID)
        log.append_receipt(receipted(secret, by=by))
        log.append(entry(1))
        log.close()

    def write(self, name: str, data: bytes) -> str:
        path = self.folder / name
        path.write_bytes(data)
        return str(path)

    def run(self, *more: str) -> int:
        directory = str(self.folder / "audit")
        return main(["audit", "receipt", "--dir", directory, "--query", NAME, *more])


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def receipt_shown(capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    printed: dict[str, list[dict[str, object]]] = json.loads(capsys.readouterr().out)
    (found,) = printed["receipts"]
    return found


def test_a_receipt_is_shown_with_its_verdict(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench.run("--json") == 0
    found = receipt_shown(capsys)
    assert found["verdict"] == "a7aa7881891197ae"
    assert found["served_at"] == "2026-09-21T14:13:20Z"
    assert (found["question"], found["answer"], found["model"]) == (None, None, None)
    assert bench.run() == 0
    assert "not checked" in capsys.readouterr().out


def test_the_very_question_and_answer_are_proved(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    question = bench.write("question", QUERY.payload().content)
    answer = bench.write("answer", ANSWER)
    assert bench.run("--question", question, "--answer", answer, "--json") == 0
    found = receipt_shown(capsys)
    assert (found["question"], found["answer"]) == (True, True)


def test_a_question_as_the_application_wrote_it_is_the_same_one(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    written = {
        "model": "curtilage",
        "stream": True,
        "messages": [{"role": "user", "content": "canary-7c1e"}],
        "max_tokens": 512,
        "temperature": 0.7,
        "top_p": 0.95,
    }
    question = bench.write("question", json.dumps(written, indent=2).encode())
    assert bench.run("--question", question, "--json") == 0
    assert receipt_shown(capsys)["question"] is True


@pytest.mark.parametrize("option", ["--question", "--answer"])
@pytest.mark.parametrize("data", [b"", b"canary-7c1e", ANSWER + b" "], ids=repr)
def test_another_question_or_answer_is_not(
    bench: Bench, option: str, data: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    path = bench.write("other", data)
    assert bench.run(option, path, "--json") == 1
    assert receipt_shown(capsys)[option.removeprefix("--")] is False


def test_a_question_whose_names_were_replaced_may_be_the_same_one(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench.run("--question", bench.write("asked", b"canary-7c1e")) == 1
    result = capsys.readouterr().out
    assert "`curtilage ask --keep`" in result


def test_another_organisations_key_proves_nothing(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    key = bench.folder / "audit" / "organisation.key"
    key.write_text("cd" * 32 + "\n", "ascii")
    question = bench.write("question", QUERY.payload().content)
    assert bench.run("--question", question, "--json") == 1
    assert receipt_shown(capsys)["question"] is False


def test_a_receipt_by_another_key_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert Bench(tmp_path, by=ReceiptKey.generate()).run() == 2
    assert "signature" in capsys.readouterr().err


def forged(bench: Bench, *, attempt: int, record: bool) -> None:
    """Append lines after the last checkpoint, which needs no key."""
    path = bench.folder / "audit" / "000001.jsonl"
    written = path.read_bytes().split(b"\n")[:-1]
    mine = ReceiptKey(b"\7" * 32)
    others = {line.seq: line for line in lines(bench.folder / "audit")}
    departure, theirs = others[2], others[3]
    assert isinstance(departure, AuditRecord)
    assert isinstance(theirs, ReceiptLine)
    copy = receipted(bytes(32), by=mine)
    fake: list[AuditRecord | ReceiptLine] = [
        replace(
            theirs,
            attempt=attempt,
            public_key=mine.public_key.hex(),
            receipt=copy.receipt.hex(),
        )
    ]
    if record:
        fake.insert(0, replace(departure, attempt=attempt, verdict="ff" * 8))
    for line in fake:
        last = parse_line(written[-1])
        follows = replace(line, seq=last.seq + 1, prev=chain_hash(written[-1]))
        written.append(encode_line(follows))
    path.write_bytes(b"\n".join([*written, b""]))


@pytest.mark.parametrize("record", [False, True], ids=["alone", "with a record"])
@pytest.mark.parametrize("attempt", [1, 9])
def test_a_receipt_that_no_checkpoint_covers_proves_nothing(
    bench: Bench, attempt: int, record: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    forged(bench, attempt=attempt, record=record)
    assert bench.run() == 1
    assert "NOT SIGNED YET" in capsys.readouterr().out
    assert bench.run("--json") == 1
    first, second = json.loads(capsys.readouterr().out)["receipts"]
    assert (first["signed"], first["verdict"]) == (True, "a7aa7881891197ae")
    assert second["signed"] is False
    assert second["verdict"] in {None, "a7aa7881891197ae"}


def test_a_receipt_for_an_unsent_query_proves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = AuditLog(tmp_path / "audit", make=True)
    log.append(replace(left(), outcome=Outcome.LOCAL, verdict=""))
    log.append_receipt(receipted(log.receipt_secret(RECEIPT_ID)))
    log.close()
    command = ["audit", "receipt", "--dir", str(tmp_path / "audit")]
    assert main([*command, "--query", NAME]) == 1
    assert NEVER_SENT in capsys.readouterr().out


def test_a_query_without_a_receipt_is_an_error(bench: Bench) -> None:
    directory = str(bench.folder / "audit")
    other = ["audit", "receipt", "--dir", directory, "--query", "00" * 8]
    assert main(other) == 2


def test_a_log_with_receipts_verifies_and_counts_decisions_only(bench: Bench) -> None:
    log = LogToRead.open(bench.folder / "audit").verify()
    assert (log.records, log.receipts, log.size) == (3, 1, 5)


def test_a_changed_receipt_is_found(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    path = bench.folder / "audit" / "000001.jsonl"
    data = path.read_bytes()
    place = data.index(b'"receipt":"') + 20
    changed = b"0" if data[place : place + 1] != b"0" else b"1"
    path.write_bytes(data[:place] + changed + data[place + 1 :])
    assert bench.run() == 1
    assert "FAILED at" in capsys.readouterr().err


def test_another_writer_continues_after_a_receipt(bench: Bench) -> None:
    log = AuditLog(bench.folder / "audit")
    log.append(entry(2))
    log.close()
    assert LogToRead.open(bench.folder / "audit").verify().size == 6


def lines(folder: Path) -> list[Line]:
    found: list[Line] = []
    LogToRead.open(folder).verify(lambda line, _: found.append(line))
    return found


def test_a_receipt_line_is_read_as_it_was_written(bench: Bench) -> None:
    (line,) = [
        each for each in lines(bench.folder / "audit") if isinstance(each, ReceiptLine)
    ]
    assert parse_line(encode_line(line)) == line
    assert "canary" not in encode_line(line).decode()
    for old, new in (
        (b'"kind":"receipt"', b'"kind":"receipts"'),
        (b'"attempt":1', b'"attempt":1.0'),
        (b'"id":"', b'"id":"00'),
        (b'"receipt":"', b'"extra":1,"receipt":"'),
        (b'"receipt":"01', b'"receipt":"'),
        (b'"receipt":"01', b'"receipt":"no'),
        (b'"key":"', b'"key":"00'),
    ):
        with pytest.raises(AuditRefusedError):
            parse_line(encode_line(line).replace(old, new))


@pytest.mark.parametrize("key", [0, 31, 33], ids=str)
def test_a_receipts_secret_needs_a_whole_key(key: int) -> None:
    with pytest.raises(ValueError, match="32"):
        receipt_secret(bytes(key), bytes(16))
    with pytest.raises(ValueError, match="16"):
        receipt_secret(bytes(32), bytes(key))
