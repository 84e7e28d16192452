"""Flags and help of ``curtilage audit``."""

import argparse
from datetime import UTC, datetime
from typing import Final

from curtilage.cli.options import new_name
from curtilage.cli.terminal import Commands, add_command

# ``curtilage.client.audit.record.Outcome`` says the same, and a test compares: to
# import it takes ten times as long as to show how the command is used.
OUTCOMES: Final = (
    *("local", "on_premises", "enclave", "blocked", "cut", "cover", "challenge"),
    *("queued", "escalated", "replaced", "degraded"),
)

ABOUT = """\
Work with the audit trail. Every query that is asked (ask, serve, the library)
leaves a record before anything else does: time, policy digest, data classes as
counts, route, rule, verdict id, and a commitment under the organisation's key;
never a word of the query. What cannot be recorded does not leave. A decision
without a query (decide, explain, policy test) leaves no record.

The records are a hash chain, signed at short intervals. An edit, a gap, another
order or a loss is found, and the record named. What no log can show by itself is
that it was replaced as a whole, or cut back, together with its checkpoints, to an
earlier one while no client ran: so keep the public key (show-key) and now and then
the last checkpoint (checkpoint) elsewhere, and `verify --checkpoint` it."""


def add(commands: "Commands[argparse.ArgumentParser]") -> None:
    """Add the command and its subcommands."""
    parser = add_command(
        commands,
        "audit",
        summary="verify what was decided; prove what did not leave",
        text=ABOUT,
        example="curtilage audit verify\n"
        "curtilage audit prove --class health --route enclave --from 2026-07-01",
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")

    init = add_command(
        actions,
        "init",
        summary="make an audit log and its keys",
        text="Make a directory with a log and its keys (0600): organisation.key keys\n"
        "the commitments, signing.key signs, log.vkey is public. Without a folder the\n"
        "user's own log is made, which its first use would make too.",
        example="curtilage audit init /var/lib/curtilage/audit\n"
        "curtilage serve --audit /var/lib/curtilage/audit",
    )
    _add_directory(init)
    init.add_argument(
        "--organisation-key",
        metavar="FILE",
        help="take this key (64 hex digits) instead of a new one, so that several "
        "machines commit under one",
    )
    # ``--help`` lists the commands in the order in which they are added.
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
        text="Verify the log and print its last checkpoint, a signed note. A log that\n"
        "is cut or replaced later does not agree with it.",
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
        "Exit 1 at the first record that is not what was written; it is named.",
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
        help="a checkpoint that was kept elsewhere; the log must agree with it",
    )
    parser.add_argument(
        "--proof", metavar="FILE", help="count again what this proof of `prove` claims"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")


def _add_prove(actions: "Commands[argparse.ArgumentParser]") -> None:
    parser = add_command(
        actions,
        "prove",
        summary="count what was found and where it went, with a proof",
        text="Verify the log and count the records in which such classes were found "
        "and\nwhich took this route. Exit 0 if there is none; 1 if there are some, "
        "which are\nlisted; 2 if the log knows nothing of what was asked for. What "
        "was found counts,\nhowever unsure: a question about diabetes has a health "
        "class and may leave; ask\nwith --when for health data of somebody. A claim "
        "is about records: queries that\nwent through this log.",
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
        "the last four, beside that: it waits here; a local draft was not good "
        "enough; shown text was taken back; the answer is less than what was chosen",
    )
    _add_span(parser)
    parser.add_argument(
        "--allow-unseen",
        action="store_true",
        help="count also where a class of the organisation's own that is named is in "
        "no record, or the span has no decision; the proof says so",
    )
    parser.add_argument("--out", metavar="FILE", help="write the proof here (JSON)")
    parser.add_argument("--json", action="store_true", help="print the proof")


def _add_export(actions: "Commands[argparse.ArgumentParser]") -> None:
    parser = add_command(
        actions,
        "export",
        summary="write the records of a verified log to a file",
        text="Verify the whole log and write its records of a span of time. A log "
        "that\ndoes not verify is not exported.",
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
        summary="show what an enclave signed of a query",
        text="Verify the log and show the enclave's receipts of one query: when, by "
        "which\nrelease and model it was answered. With the question or the answer, "
        "say whether\nit was this very one: only the organisation's key, beside the "
        "log, can tell.\nExit 1 where it was another, or where the log has not "
        "signed it yet.",
        example="curtilage audit receipt --query 9f86d081884c7d65 "
        "--question request.json",
    )
    parser.add_argument(
        "--query", required=True, metavar="ID", help="the query's 16 digits in the log"
    )
    parser.add_argument(
        "--question",
        metavar="FILE",
        help="the chat request (JSON), as the client was given it or as it left",
    )
    parser.add_argument(
        "--answer",
        metavar="FILE",
        help="the answer's content as it came inside the seal, filler included",
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
        help="the public key as `show-key` printed it; without it, the key beside the "
        "log is believed",
    )


def _add_span(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--from",
        dest="since",
        metavar="TIME",
        type=_time,
        help="RFC 3339 (2026-07-01T00:00:00Z) or a date, which is midnight UTC",
    )
    parser.add_argument(
        "--to", dest="until", metavar="TIME", type=_time, help="not included"
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
