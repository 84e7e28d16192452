"""Flags and help of ``curtilage audit``."""

import argparse
from datetime import UTC, datetime
from typing import Final

from curtilage.cli.options import new_name
from curtilage.cli.terminal import Commands, add_command

# Copied from ``curtilage.client.audit.record.Outcome``, whose import takes ten times
# as long as showing the help; a test compares.
OUTCOMES: Final = (
    *("local", "on_premises", "enclave", "blocked", "cut", "cover", "challenge"),
    *("queued", "escalated", "replaced", "degraded"),
)

ABOUT = """\
Work with the audit trail. Every query (ask, serve, the library) is recorded before
anything is sent: time, policy digest, data classes as counts, route, rule, verdict
id, and a commitment under the organisation's key; never the query's text. A query
that cannot be recorded is not sent. Decisions without a query (decide, explain,
policy test) are not recorded.

The records are a hash chain, signed at short intervals. An edit, a gap, a changed
order or a loss is detected, and the record named. A log alone cannot show that it was
replaced as a whole, or cut back with its checkpoints to an earlier state while no
client ran. So keep the public key (show-key) and from time to time the last
checkpoint (checkpoint) elsewhere, and compare with `verify --checkpoint`."""


def add(commands: "Commands[argparse.ArgumentParser]") -> None:
    """Add the command and its subcommands."""
    parser = add_command(
        commands,
        "audit",
        summary="verify what was decided; prove what was not sent",
        text=ABOUT,
        example="curtilage audit verify\n"
        "curtilage audit prove --class health --route enclave --from 2026-07-01",
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")

    init = add_command(
        actions,
        "init",
        summary="create an audit log and its keys",
        text="Create a directory with a log and its keys (0600): organisation.key keys "
        "the\ncommitments, signing.key signs, log.vkey is public. Without a folder, "
        "the user's own\nlog is created, as on its first use.",
        example="curtilage audit init /var/lib/curtilage/audit\n"
        "curtilage serve --audit /var/lib/curtilage/audit",
    )
    _add_directory(init)
    init.add_argument(
        "--organisation-key",
        metavar="FILE",
        help="use this key (64 hex digits) instead of a new one, so that several "
        "machines share it for their commitments",
    )
    # ``--help`` lists the commands in this order.
    _add_verify(actions)
    _add_prove(actions)
    _add_export(actions)
    _add_receipt(actions)

    key = add_command(
        actions,
        "show-key",
        summary="print the public key; give it to the auditor",
        text="Print the public key of a log, a C2SP verifier key of one line.",
        example="curtilage audit show-key > log.vkey",
    )
    _add_directory(key)

    note = add_command(
        actions,
        "checkpoint",
        summary="print the last checkpoint; keep it elsewhere",
        text="Verify the log and print its last checkpoint, a signed note. A log that "
        "is cut back\nor replaced later is inconsistent with it.",
        example="curtilage audit checkpoint > march.note",
    )
    _add_directory(note)
    _add_key(note)


def _add_verify(actions: "Commands[argparse.ArgumentParser]") -> None:
    parser = add_command(
        actions,
        "verify",
        summary="verify a log, a kept checkpoint, or a proof",
        text="Verify every record, file and checkpoint of a log, and print the steps.\n"
        "Exit 1 at the first record that was changed; it is named.",
        example="curtilage audit verify --key log.vkey --checkpoint march.note\n"
        "curtilage audit verify --proof q3.json",
    )
    _add_directory(parser)
    _add_key(parser)
    parser.add_argument(
        "--checkpoint",
        metavar="FILE",
        action="append",
        default=[],
        help="a checkpoint kept elsewhere; the log must be consistent with it",
    )
    parser.add_argument(
        "--proof", metavar="FILE", help="recount the claim of this proof by `prove`"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")


def _add_prove(actions: "Commands[argparse.ArgumentParser]") -> None:
    parser = add_command(
        actions,
        "prove",
        summary="count what was found and where it went, with a proof",
        text="Verify the log and count the records with these classes and this route. "
        "Exit 0 if\nthere are none; 1 if there are some, which are listed; 2 if the "
        "log has no data about\nthe claim. Every finding counts, whatever its score: "
        "a question about diabetes has a\nhealth class and may be sent; use --when for "
        "a person's health data. A claim covers\nrecords: queries that went through "
        "this log.",
        example="curtilage audit prove --class health --route enclave --out q3.json\n"
        "curtilage audit prove --route enclave \\\n"
        '    --when "(health.* | topic.health) & identifier.direct.*"',
    )
    _add_directory(parser)
    _add_key(parser)
    parser.add_argument(
        "--class",
        dest="classes",
        metavar="NAME",
        action="append",
        default=[],
        help="class, pattern (financial.*) or branch (health: health.* and "
        "topic.health); several: any of them",
    )
    parser.add_argument(
        "--when", metavar="EXPR", help="a condition as in a policy, instead of --class"
    )
    parser.add_argument(
        "--route",
        required=True,
        choices=OUTCOMES,
        type=new_name,
        help="where it was answered; enclave: it was sealed and may have been sent; "
        "the last four are additional: it was queued here; a local draft was "
        "rejected; shown text was retracted; the answer is less than what was chosen",
    )
    _add_span(parser)
    parser.add_argument(
        "--allow-unseen",
        action="store_true",
        help="count even if a named class of the organisation is in no record, or the "
        "period has no decision; the proof notes it",
    )
    parser.add_argument(
        "--out", metavar="FILE", help="write the proof to this file (JSON)"
    )
    parser.add_argument("--json", action="store_true", help="print the proof")


def _add_export(actions: "Commands[argparse.ArgumentParser]") -> None:
    parser = add_command(
        actions,
        "export",
        summary="write the records of a verified log to a file",
        text="Verify the whole log and write its records of a period of time. A log "
        "that does\nnot verify is not exported.",
        example="curtilage audit export --format csv --out decisions.csv",
    )
    _add_directory(parser)
    _add_key(parser)
    parser.add_argument("--format", choices=["jsonl", "csv"], default="jsonl")
    parser.add_argument("--out", metavar="FILE", required=True, help="a new file")
    _add_span(parser)


def _add_receipt(actions: "Commands[argparse.ArgumentParser]") -> None:
    parser = add_command(
        actions,
        "receipt",
        summary="show an enclave's receipts for a query",
        text="Verify the log and show the enclave's receipts for one query: when, and "
        "by which\nrelease and model it was answered. With the question or the answer, "
        "also check that\nthe receipt is for exactly this one, which needs the "
        "organisation's key next to the log.\nExit 1 if it is for another one, or if "
        "the log has not signed it yet.",
        example="curtilage audit receipt --query 9f86d081884c7d65 "
        "--question request.json",
    )
    parser.add_argument(
        "--query",
        required=True,
        metavar="ID",
        help="the query's id in the log, 16 digits",
    )
    parser.add_argument(
        "--question",
        metavar="FILE",
        help="the chat request (JSON), as the client got it or as it was sent",
    )
    parser.add_argument(
        "--answer",
        metavar="FILE",
        help="the answer's content as received inside the seal, padding included",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")
    _add_directory(parser)
    _add_key(parser)


def _add_directory(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder",
        nargs="?",
        help="the log's folder (default: $CURTILAGE_AUDIT, else your own in "
        "$XDG_STATE_HOME/curtilage/audit)",
    )
    parser.add_argument(
        "--dir",
        "--audit",
        metavar="DIR",
        help="the same; ask and serve call it --audit",
    )


def _add_key(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--key",
        metavar="KEY|FILE",
        help="the public key as printed by `show-key`; without it, the key next to the "
        "log is trusted",
    )


def _add_span(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--from",
        dest="since",
        metavar="TIME",
        type=_time,
        help="RFC 3339 (2026-07-01T00:00:00Z), or a date, which means midnight UTC",
    )
    parser.add_argument(
        "--to", dest="until", metavar="TIME", type=_time, help="exclusive end"
    )


def _time(text: str) -> datetime:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time") from None
    if time.tzinfo is not None:
        return time
    if "T" in text or " " in text:
        raise argparse.ArgumentTypeError(f"{text!r} has no time zone; end it with Z")
    return time.replace(tzinfo=UTC)
