"""``curtilage audit``: make an audit log, verify it, prove and export from it."""

import json
import os
import secrets
import sys
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import cast

from curtilage.cli.audit import receipt as audit_receipt
from curtilage.cli.declared import Arguments
from curtilage.cli.terminal import DONE, REFUSED, err, err_again, out, out_json
from curtilage.client.audit.checkpoint import CHECKPOINT_S, encode_key
from curtilage.client.audit.directory import AuditDirectory, parse_organisation_key
from curtilage.client.audit.export import (
    COLUMNS,
    Exporter,
    as_csv,
    as_it_is,
    csv_line,
    new_file,
)
from curtilage.client.audit.proof import Claim, encode_proof, when_of_classes
from curtilage.client.audit.reader import LogToRead
from curtilage.client.audit.record import Outcome, time_text
from curtilage.client.audit.span import Span
from curtilage.client.audit.usage import Usage
from curtilage.client.audit.verify import VerifiedLog
from curtilage.client.audit.writer import AuditLog
from curtilage.client.errors import ConfigError, UsageError
from curtilage.client.system.files import read_text, state_folder
from curtilage.policy.errors import AuditRefusedError, AuditStep

SHOWN_AFTER_S = 2.0
MAX_SHOWN = 20
MAX_TEXT_BYTES = 64 * 1024
MAX_PROOF_BYTES = 64 * 1024 * 1024

NO_GATEWAY = "-"
BY_POSITION = """\
only by position: the clock went back, so their times do not show
  whether they were written in this period"""
STEPS_BACK = (
    "the clock went back {} times: a period of time is counted by position, and may "
    "include too many records"
)
ABOUT_SOMEBODY = "of these, with an identifier or in the first person: {}"
AHEAD = """\
the log ends in the future: a clock is wrong; until the log's clock is corrected,
a period of time may miss records that were written in it"""
NOT_SIGNED = """\
in no checkpoint yet; anyone who can
  write to the log's folder could have made or changed them"""
LEFT_UNSIGNED = """\
  a client signs within a minute and when it exits, but the last of them is older.
  So the client was killed, or it did not write them: find out before you start a
  client, which would sign them"""
NOT_COMPARED = """\
not compared with a checkpoint kept elsewhere (--checkpoint FILE): without one, a
log that was cut back to an earlier checkpoint, with a minute of forged records
after it, also verifies"""


def run_init(arguments: Arguments) -> int:
    """Create a log."""
    path = _directory(arguments)
    directory = AuditDirectory(path)
    # A second log in the same folder would have new keys, and the old one could no
    # longer be verified.
    if directory.made:
        raise ConfigError(f"{path}: there already is an audit log")
    organisation = None
    if arguments.organisation_key is not None:
        text = read_text(Path(arguments.organisation_key), MAX_TEXT_BYTES)
        organisation = parse_organisation_key(text)
    directory.make(
        random=secrets.token_bytes, now=datetime.now(UTC), organisation=organisation
    )
    # With its first checkpoint: a log without any is later refused as one that lost it
    # (docs/decisions/0012).
    AuditLog(path).prepare()
    out(encode_key(directory.public_key()))
    err(f"created {path}; give the line above, its public key, to the auditor")
    return DONE


def run_verify(arguments: Arguments) -> int:
    """Verify; exit 1 at the first problem."""
    try:
        reading = _reading(arguments, kept=arguments.checkpoint)
        if arguments.proof is None:
            log = reading.verify()
        else:
            proof = read_text(Path(arguments.proof), MAX_PROOF_BYTES)
            log = reading.check_proof(proof.encode())
    except AuditRefusedError as refusal:
        return _refused(refusal, as_json=arguments.json)
    if arguments.json:
        out_json(
            {
                "ok": True,
                "log": log.log,
                "lines": log.size,
                "decisions": log.records,
                "decisions_signed": log.signed_records,
                "receipts": log.receipts,
                "files": log.segments,
                "checkpoints": log.checkpoints,
                "signed": log.signed,
                "signed_at": time_text(log.signed_at),
                "left_unsigned": _left_unsigned(log, datetime.now(UTC)),
                "head": log.head,
                "begins": time_text(log.first),
                "ends": time_text(log.last),
                "clock_steps_back": log.steps_back,
                "checkpoint": log.checkpoint,
            }
        )
    else:
        for line in _steps(log, datetime.now(UTC), given=arguments.key is not None):
            out(line)
        # Shown after a success, too: "verified" alone would promise more than a log can
        # show.
        if not arguments.checkpoint:
            out(NOT_COMPARED)
        if arguments.proof is not None:
            out(f"{arguments.proof}: the log has the same counts")
    return DONE


def run_prove(arguments: Arguments) -> int:
    """Prove; exit 1 if there are matching records."""
    # Exactly one of them: a proof is about one expression.
    if arguments.classes and arguments.when:
        raise UsageError("--class and --when exclude each other")
    if not (arguments.classes or arguments.when):
        raise UsageError("nothing to count: give --class NAME, or --when EXPR")
    try:
        claim = Claim(
            when=arguments.when or when_of_classes(arguments.classes),
            outcome=Outcome(arguments.route),
            since=arguments.since,
            until=arguments.until,
        )
    except ValueError as error:
        raise UsageError(str(error)) from None
    try:
        document, log = _reading(arguments).prove(
            claim, allow_unseen=arguments.allow_unseen
        )
    except AuditRefusedError as refusal:
        return _refused(refusal, as_json=arguments.json)
    if arguments.out is not None:
        # A new file only: a proof that was handed over must not be replaced by a later
        # one.
        with new_file(Path(arguments.out)) as file:
            file.write(encode_proof(document))
    if arguments.json:
        out(encode_proof(document).decode(), end="")
    else:
        _print_proof(claim, document, log)
        if log.last > datetime.now(UTC):
            out(AHEAD)
    return REFUSED if document["matching"] else DONE


def run_export(arguments: Arguments) -> int:
    """Export; exit 1 if the log does not verify."""
    table = arguments.format == "csv"
    try:
        # Written while the log is verified, in one pass; the file appears only after
        # all of the log has verified.
        with new_file(Path(arguments.out)) as file:
            if table:
                file.write(csv_line(COLUMNS))
            span = Span(since=arguments.since, until=arguments.until)
            exporter = Exporter(file, as_csv if table else as_it_is, span)
            log = _reading(arguments).verify(exporter.see)
            exporter.end()
    except AuditRefusedError as refusal:
        return _refused(refusal, as_json=False)
    err(f"{exporter.written} records")
    if exporter.by_position:
        err(f"  {exporter.by_position} of them {BY_POSITION}")
    if log.signed < log.size:
        err(f"  lines {log.signed} to {log.size - 1} of the log are {NOT_SIGNED}")
    return DONE


def run_usage(arguments: Arguments) -> int:
    """Count by application; exit 1 if the log does not verify."""
    usage = Usage(Span(since=arguments.since, until=arguments.until))
    try:
        log = _reading(arguments).verify(usage.see)
    except AuditRefusedError as refusal:
        return _refused(refusal, as_json=arguments.json)
    counted = usage.counted()
    if arguments.json:
        # The empty name: without a gateway.
        out_json({name: {"questions": n, **by} for name, (n, by) in counted.items()})
    elif not counted:
        err("no question was recorded in this period")
    else:
        for name, (questions, outcomes) in counted.items():
            by = ", ".join(f"{count} {each}" for each, count in outcomes.items())
            out(f"{name or NO_GATEWAY:<32}  {questions:>8} questions: {by}")
    if log.signed < log.size:
        err(f"  lines {log.signed} to {log.size - 1} of the log are {NOT_SIGNED}")
    return DONE


def run_receipt(arguments: Arguments) -> int:
    """Show receipts; exit 1 if one does not match."""
    try:
        return audit_receipt.run(arguments, _reading(arguments))
    except AuditRefusedError as refusal:
        return _refused(refusal, as_json=arguments.json)


def run_show_key(arguments: Arguments) -> int:
    """Print the public key."""
    out(encode_key(AuditDirectory(_directory(arguments)).public_key()))
    return DONE


def run_checkpoint(arguments: Arguments) -> int:
    """Print the last checkpoint of a log that verifies."""
    try:
        # Verified first: a checkpoint of a log that was tampered with would later vouch
        # for it.
        log = _reading(arguments).verify()
    except AuditRefusedError as refusal:
        return _refused(refusal, as_json=False)
    out(log.checkpoint, end="")
    return DONE


def _directory(arguments: Arguments) -> Path:
    if arguments.folder and arguments.dir:
        raise UsageError("FOLDER and --dir (--audit) exclude each other")
    given = arguments.folder or arguments.dir
    named = given or os.environ.get("CURTILAGE_AUDIT")
    return Path(named) if named else state_folder() / "audit"


def _reading(arguments: Arguments, kept: list[str] | None = None) -> LogToRead:
    key: str | None = arguments.key
    # A key in the form of a note contains a plus sign; anything else is a file.
    if key is not None and "+" not in key:
        key = read_text(Path(key), MAX_TEXT_BYTES)
    notes = [read_text(Path(name), MAX_TEXT_BYTES) for name in kept or ()]
    started = monotonic()

    def show(lines: int) -> None:
        """Show progress after a while."""
        if sys.stderr.isatty() and monotonic() - started > SHOWN_AFTER_S:
            err_again(f"{lines} records …", end="\r")

    return LogToRead.open(_directory(arguments), key=key, kept=notes, progress=show)


def _print_proof(claim: Claim, document: dict[str, object], log: VerifiedLog) -> None:
    counted = json.loads(json.dumps(document["counted"]))
    matching = json.loads(json.dumps(document["matching"]))
    outcome = claim.outcome.name.lower()
    out(f"{counted['matching']} records match {claim.when} and went: {outcome}")
    span = f"{claim.since or 'the beginning'} to {claim.until or 'the end'}"
    out(f"  decisions from {span}: {counted['records']}")
    if "clock" in document:
        clock = cast("dict[str, int]", document["clock"])
        out(f"  of these, {clock['records_by_position']} {BY_POSITION}")
    out(f"  with such a class: {counted['with_class']}")
    out(f"  that went {outcome}: {counted['with_outcome']}")
    # A count of zero may come from a mistyped class: the proof says which ones occur
    # nowhere.
    for each in cast("list[str]", document["unseen"]):
        out(f"  note: {each}")
    if matching:
        numbers = [str(each["seq"]) for each in matching[:MAX_SHOWN]]
        more = " …" if len(matching) > MAX_SHOWN else ""
        out(f"  records: {', '.join(numbers)}{more}")
        about = counted["matching_about_somebody"]
        out(f"  {ABOUT_SOMEBODY.format(about)}")
    out(
        f"over {log.signed} signed lines of {log.log}, head {log.head[:16]}…, "
        f"{time_text(log.first)} to {time_text(log.last)}"
    )
    if log.signed < log.size:
        out(f"  not covered: {log.size - log.signed} lines that are not signed yet")


def _steps(log: VerifiedLog, now: datetime, *, given: bool) -> list[str]:
    source = "as given" if given else "next to the log; compare it with --key"
    details = {
        AuditStep.KEY: f"{log.log} ({source})",
        AuditStep.SEGMENTS: f"{log.segments} files",
        AuditStep.FORM: f"{log.size} lines, {log.records} of them decisions"
        f"{f', {log.receipts} receipts' if log.receipts else ''}",
        AuditStep.NUMBERS: f"0 to {log.size - 1}, none missing",
        AuditStep.CHAIN: f"head {log.head}",
        AuditStep.BINDING: "each file continues the one before",
        AuditStep.CHECKPOINTS: f"{log.checkpoints} signatures, the last one over "
        f"{log.signed} lines, at {time_text(log.signed_at)}",
        AuditStep.END: f"{log.size - log.signed} lines after the last signature",
    }
    lines = [
        f"{step.number} {step.title:<12} ok  {details[step]}" for step in AuditStep
    ]
    times = f"{time_text(log.first)} to {time_text(log.signed_at)}"
    lines.append(f"verified: {log.signed_records} decisions, {times}")
    if log.signed < log.size:
        # Counted apart and never called verified: anyone who can write to the folder
        # could have made them.
        unsigned = log.records - log.signed_records
        lines.append(f"not verified: {unsigned} decisions, to {time_text(log.last)}")
        lines.append(f"  {NOT_SIGNED}")
    if _left_unsigned(log, now):
        lines.append(LEFT_UNSIGNED)
    if log.steps_back:
        lines.append(STEPS_BACK.format(log.steps_back))
    return [*lines, AHEAD] if log.last > now else lines


def _left_unsigned(log: VerifiedLog, now: datetime) -> bool:
    """Return whether a client should have signed the end by now."""
    # Twice the interval, since a client checks once in each.
    late = (now - log.last).total_seconds() >= 2 * CHECKPOINT_S
    return log.signed < log.size and late


def _refused(refusal: AuditRefusedError, *, as_json: bool) -> int:
    if as_json:
        out_json(
            {
                "ok": False,
                "step": refusal.step.number,
                "title": refusal.step.title,
                "record": refusal.record,
                "detail": refusal.detail,
            }
        )
    else:
        err(f"FAILED at {refusal}")
    return REFUSED
