"""``curtilage audit receipt``: an enclave's receipts for a query."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from curtilage.attest.errors import RefusedError
from curtilage.attest.receipt import NO_MODEL, Receipt, open_receipt
from curtilage.cli.declared import Arguments
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
from curtilage.client.chat.openai_chat import parse_completion_request
from curtilage.client.errors import UsageError
from curtilage.client.remote.receipts import proves_answer, proves_question
from curtilage.client.system.files import read_start

_MAX_CONTENT: Final = 16 * 1024 * 1024
"""Limit of a question or an answer, in bytes."""
_ANSWER: Final = {
    True: "yes, exactly this one",
    False: "NO, another one",
    None: "not checked",
}
_QUESTION: Final = {
    **_ANSWER,
    False: "NO, another one; or it was sent with names or a seed replaced: give it as\n"
    "              it was sent (`curtilage ask --keep` saves that)",
}


_SIGNED: Final = {
    True: "signed",
    False: "NOT SIGNED YET: anyone who can write there could have made it. The\n"
    "              client signs a minute later, if it still runs, or when it exits",
}
NEVER_SENT: Final = "NONE: no signed record shows that this query was sent"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """One verified receipt of the log.

    Attributes:
        line: its line in the log.
        signed: whether a checkpoint covers it; otherwise anyone who can write to the
            log could have made it.
        record: the signed record that its query was sent, or None: then nothing shows
            that the receipt's key was ever trusted.
        receipt: the receipt's content.
        question: whether it is for the given question, if one was given.
        answer: the same for the answer.
    """

    line: ReceiptLine
    signed: bool
    record: AuditRecord | None
    receipt: Receipt
    question: bool | None
    answer: bool | None

    @property
    def holds(self) -> bool:
        """Whether it proves everything that was checked."""
        belongs = self.signed and self.record is not None
        # ``False`` and not "falsy": None means that nothing was given to compare with.
        return belongs and False not in {self.question, self.answer}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """What to compare receipts with.

    Attributes:
        organisation: the organisation's key.
        question: a question's bytes, or None: not checked.
        answer: an answer's bytes, or None: not checked.
    """

    organisation: bytes = field(repr=False)
    question: bytes | None = field(repr=False)
    answer: bytes | None = field(repr=False)


def run(arguments: Arguments, reading: LogToRead) -> int:
    """Print what the receipts of a query prove; exit 1 if one does not hold.

    Raises:
        AuditRefusedError: the log does not verify.
        UsageError: it has no receipt for this query.
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
    err("a receipt does not match; see above")
    return REFUSED


def _found(arguments: Arguments, reading: LogToRead) -> list[_Found]:
    receipts: list[ReceiptLine] = []
    records: list[AuditRecord] = []

    def see(line: Line, data: bytes) -> None:
        del data
        if isinstance(line, ReceiptLine) and line.query == arguments.query:
            receipts.append(line)
        elif isinstance(line, AuditRecord) and line.query == arguments.query:
            records.append(line)

    # The whole log is verified, not only the lines of this query.
    signed = reading.verify(see).signed
    # Not an empty list with exit status 0: a mistyped query would look proven.
    if not receipts:
        raise UsageError("the log has no receipt for this query")
    # Anyone who can write to the folder could forge a record that no checkpoint covers,
    # together with a receipt under a key of their own.
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
    # The receipt has no digest of the question itself, which could be guessed. Only the
    # organisation's key leads to the secret that it was made with.
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
    """Compare a question as it was sent, or as the client got it."""
    # The sent form is compared byte for byte; the client's input is first serialised as
    # the client would have done.
    if proves_question(receipt, secret, file):
        return True
    try:
        payload = parse_completion_request(file).query.payload().content
    # A file that is no request can only be the sent form, which was compared already.
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
    fields = _object(found)
    return "\n".join(
        [
            f"record {fields['record']}: a receipt",
            f"  in the log  {_SIGNED[found.signed]}",
            f"  verdict     {fields['verdict'] or NEVER_SENT}",
            f"  served at   {fields['served_at']}, status {fields['status']}",
            f"  release     {fields['release']}",
            f"  model       {fields['model'] or 'none ran'}",
            f"  key list    {fields['key_configs']}",
            f"  receipt key {fields['receipt_key']}",
            f"  question    {_QUESTION[found.question]}",
            f"  answer      {_ANSWER[found.answer]}",
        ]
    )
