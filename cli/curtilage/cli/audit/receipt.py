"""``curtilage audit receipt``: an enclave's receipts for a query."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from curtilage.attest.errors import RefusedError
from curtilage.attest.receipt import NO_MODEL, Receipt, open_receipt
from curtilage.cli.declared import Arguments
from curtilage.cli.terminal import DONE, REFUSED, err, out, out_json, unix_text
from curtilage.client.audit.reader import LogToRead
from curtilage.client.audit.record import (
    AuditRecord,
    Line,
    Outcome,
    ReceiptLine,
    receipt_secret,
)
from curtilage.client.chat.model_names import ANY, ModelNames
from curtilage.client.chat.openai_chat import parse_completion_request
from curtilage.client.chat.openai_fields import MODEL_ID
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
# An application's name for the model is not part of what is sent.
ANY_NAME: Final = ModelNames(aliases={ANY: MODEL_ID})
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
        """The result: true if it proves everything that was checked."""
        belongs = self.signed and self.record is not None
        # ``False`` and not "falsy": None means that nothing was given to compare with.
        return belongs and False not in {self.question, self.answer}


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
            fields = _object(each)
            out(
                f"record {fields['record']}: a receipt\n"
                f"  in the log  {_SIGNED[each.signed]}\n"
                f"  verdict     {fields['verdict'] or NEVER_SENT}\n"
                f"  served at   {fields['served_at']}, status {fields['status']}\n"
                f"  release     {fields['release']}\n"
                f"  model       {fields['model'] or 'none ran'}\n"
                f"  key list    {fields['key_configs']}\n"
                f"  receipt key {fields['receipt_key']}\n"
                f"  question    {_QUESTION[each.question]}\n"
                f"  answer      {_ANSWER[each.answer]}"
            )
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
    organisation = reading.directory.keys().organisation
    question, answer = _given(arguments.question), _given(arguments.answer)
    found: list[_Found] = []
    for line in receipts:
        # The receipt has no digest of the question itself, which could be guessed. Only
        # the organisation's key leads to the secret that it was made with.
        secret = receipt_secret(organisation, bytes.fromhex(line.receipt_id))
        try:
            receipt = open_receipt(
                bytes.fromhex(line.receipt), public_key=bytes.fromhex(line.public_key)
            )
        except RefusedError as refusal:
            raise UsageError(f"record {line.seq}: {refusal.detail}") from None
        found.append(
            _Found(
                line=line,
                signed=line.seq < signed,
                record=left.get(line.attempt),
                receipt=receipt,
                question=None
                if question is None
                else _is_question(receipt, secret, question),
                answer=None
                if answer is None
                else proves_answer(receipt, secret, answer),
            )
        )
    return found


def _given(path: str | None) -> bytes | None:
    return None if path is None else read_start(Path(path), _MAX_CONTENT)


def _is_question(receipt: Receipt, secret: bytes, file: bytes) -> bool:
    """Compare a question as it was sent, or as the client got it."""
    # The sent form is compared byte for byte; the client's input is first serialised as
    # the client would have done.
    if proves_question(receipt, secret, file):
        return True
    try:
        payload = parse_completion_request(file, ANY_NAME).query.payload().content
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
