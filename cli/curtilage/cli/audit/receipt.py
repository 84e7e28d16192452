"""``curtilage audit receipt``: what an enclave signed of a question and its answer."""

import argparse
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from curtilage.attest.errors import RefusedError
from curtilage.attest.receipt import NO_MODEL, Receipt, open_receipt
from curtilage.cli.terminal import (
    DONE,
    REFUSED,
    err,
    out,
    out_json,
    unix_text,
)
from curtilage.client.audit.reader import LogToRead
from curtilage.client.audit.record import (
    AuditRecord,
    Line,
    Outcome,
    ReceiptLine,
    receipt_secret,
)
from curtilage.client.errors import UsageError
from curtilage.client.files import read_start
from curtilage.client.openai_chat import parse_completion_request
from curtilage.client.remote.receipts import proves_answer, proves_question

_MAX_CONTENT: Final = 16 * 1024 * 1024
"""Of a question or an answer, in bytes."""
_ANSWER: Final = {
    True: "yes, this very one",
    False: "NO, another one",
    None: "not asked",
}
_QUESTION: Final = {
    **_ANSWER,
    False: "NO, another one; or it left with names or a seed replaced: give it as it\n"
    "              left (`curtilage ask --keep` writes that)",
}


_SIGNED: Final = {
    True: "signed",
    False: "NOT SIGNED YET: whoever may write there can have made it. The\n"
    "              client signs a minute later, if it writes on, or when it ends",
}
_NEVER_LEFT: Final = "NONE: no signed record says that this query left"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """One receipt of the log, verified.

    Attributes:
        line: where it stands.
        signed: whether a checkpoint covers it; else whoever may write to the log
            can have made it.
        record: the signed record that its query left, or None: then nothing says
            that anybody ever believed the key that signed.
        receipt: what the enclave says.
        question: whether it is about the question that was given, if one was.
        answer: likewise.
    """

    line: ReceiptLine
    signed: bool
    record: AuditRecord | None
    receipt: Receipt
    question: bool | None
    answer: bool | None

    @property
    def holds(self) -> bool:
        """Whether it proves all that was asked of it."""
        belongs = self.signed and self.record is not None
        return belongs and False not in {self.question, self.answer}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """What receipts are held against.

    Attributes:
        organisation: the organisation's key.
        question: a question's bytes, or None: not asked.
        answer: an answer's bytes, or None: not asked.
    """

    organisation: bytes = field(repr=False)
    question: bytes | None = field(repr=False)
    answer: bytes | None = field(repr=False)


def run(arguments: argparse.Namespace, reading: LogToRead) -> int:
    """Tell what the receipts of a query prove; exit 1 where one does not hold.

    Raises:
        AuditRefusedError: the log is not right.
        UsageError: it holds no receipt of this query.
    """
    found = _found(arguments, reading)
    if arguments.json:
        out_json(
            {"query": arguments.query, "receipts": [_object(each) for each in found]}
        )
    else:
        for each in found:
            out(_text(each))
    if all(each.holds for each in found):
        return DONE
    err("a receipt does not prove what was asked; see above")
    return REFUSED


def _found(arguments: argparse.Namespace, reading: LogToRead) -> list[_Found]:
    receipts: list[ReceiptLine] = []
    records: list[AuditRecord] = []

    def see(line: Line, data: bytes) -> None:
        del data
        if isinstance(line, ReceiptLine) and line.query == arguments.query:
            receipts.append(line)
        elif isinstance(line, AuditRecord) and line.query == arguments.query:
            records.append(line)

    # The whole log is verified, and not the lines of this query alone.
    signed = reading.verify(see).signed
    if not receipts:
        raise UsageError("the log holds no receipt of such a query")
    # A record that no checkpoint covers can be made by whoever writes to the folder,
    # and a receipt under a key of their own with it.
    left = {
        record.attempt: record
        for record in records
        if record.seq < signed and record.outcome is Outcome.ENCLAVE
    }
    asked = _Asked(
        organisation=reading.directory.keys().organisation,
        question=_given(arguments.question),
        answer=_given(arguments.answer),
    )
    return [
        _verified(line, asked, record=left.get(line.attempt), signed=line.seq < signed)
        for line in receipts
    ]


def _given(path: str | None) -> bytes | None:
    return None if path is None else read_start(Path(path), _MAX_CONTENT)


def _verified(
    line: ReceiptLine, asked: _Asked, *, record: AuditRecord | None, signed: bool
) -> _Found:
    secret = receipt_secret(asked.organisation, bytes.fromhex(line.receipt_id))
    question, answer = asked.question, asked.answer
    try:
        receipt = open_receipt(
            bytes.fromhex(line.receipt), public_key=bytes.fromhex(line.public_key)
        )
    except RefusedError as refusal:
        raise UsageError(f"record {line.seq}: {refusal.detail}") from None
    return _Found(
        line=line,
        signed=signed,
        record=record,
        receipt=receipt,
        question=None if question is None else _asked(receipt, secret, question),
        answer=None if answer is None else proves_answer(receipt, secret, answer),
    )


def _asked(receipt: Receipt, secret: bytes, file: bytes) -> bool:
    """Compare a question as it left, or as the client was given it."""
    # What left is compared byte for byte; what the client was given, as it would have
    # been written then.
    if proves_question(receipt, secret, file):
        return True
    try:
        payload = parse_completion_request(file).query.payload().content
    except UsageError:
        return False
    return proves_question(receipt, secret, payload)


def _object(found: _Found) -> dict[str, object]:
    receipt, line, record = found.receipt, found.line, found.record
    return {
        "record": line.seq,
        "signed": found.signed,
        "attempt": line.attempt,
        "decision": None if record is None else record.seq,
        "verdict": None if record is None else record.verdict,
        "status": receipt.status,
        "served_at": unix_text(receipt.served_at),
        "key_configs": receipt.key_configs_digest.hex(),
        "release": receipt.release_digest.hex(),
        "model": None
        if receipt.model_digest == NO_MODEL
        else receipt.model_digest.hex(),
        "receipt_key": line.public_key,
        "question": found.question,
        "answer": found.answer,
    }


def _text(found: _Found) -> str:
    told = _object(found)
    return "\n".join(
        [
            f"record {told['record']}: a receipt",
            f"  in the log  {_SIGNED[found.signed]}",
            f"  verdict     {told['verdict'] or _NEVER_LEFT}",
            f"  served at   {told['served_at']}, status {told['status']}",
            f"  release     {told['release']}",
            f"  model       {told['model'] or 'none ran'}",
            f"  key list    {told['key_configs']}",
            f"  receipt key {told['receipt_key']}",
            f"  question    {_QUESTION[found.question]}",
            f"  answer      {_ANSWER[found.answer]}",
        ]
    )
