"""Declarations of ``curtilage audit``."""

from datetime import UTC, datetime
from typing import Final

from curtilage.cli.declared import Choice, Run, Types, Value, command, group
from curtilage.cli.options import JSON, renamed_value

# Copied from ``curtilage.client.audit.record.Outcome``, whose import takes ten times
# as long as showing the help; a test compares.
OUTCOMES: Final = (
    *("local", "on_premises", "enclave", "blocked", "cut", "cover", "challenge"),
    *("queued", "escalated", "replaced", "degraded"),
)
FOLDER: Final = """
Options:
    [FOLDER]: the log's folder (default: $CURTILAGE_AUDIT, else your own in
        $XDG_STATE_HOME/curtilage/audit)
    --dir --audit DIR: the same; ask and serve call it --audit"""
KEY: Final = """
Options:
    --key KEY|FILE: the public key as printed by `show-key`; without it, the key next to
        the log is trusted"""
SPAN: Final = """
Options:
    --from TIME as since: RFC 3339 (2026-07-01T00:00:00Z), or a date, which means
        midnight UTC
    --to TIME as until: exclusive end"""


def _time(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    if time.tzinfo is not None:
        return time
    if "T" in text or " " in text:
        raise ValueError
    return time.replace(tzinfo=UTC)


TIMES: Final[Types] = {"TIME": Value("a date, or a time that ends with Z", _time)}


@group("audit", offline=True)
def audit() -> None:
    """Verify what was decided; prove what was not sent.

    Work with the audit trail. Every query (ask, serve, the library) is recorded before
    anything is sent: time, policy digest, data classes as counts, route, rule, verdict
    id, and a commitment under the organisation's key; never the query's text. A query
    that cannot be recorded is not sent. Decisions without a query (decide, explain,
    policy test) are not recorded.

    The records are a hash chain, signed at short intervals. An edit, a gap, a changed
    order or a loss is detected, and the record named. A log alone cannot show that it
    was replaced as a whole, or cut back with its checkpoints to an earlier state while
    no client ran. So keep the public key (show-key) and from time to time the last
    checkpoint (checkpoint) elsewhere, and compare with `verify --checkpoint`.

    Example:
        curtilage audit verify
        curtilage audit prove --class health --route enclave --from 2026-07-01
    """


@command("init", audit, FOLDER)
def audit_init() -> Run:
    """Create an audit log and its keys.

    Create a directory with a log and its keys (0600): organisation.key keys the
    commitments, signing.key signs, log.vkey is public. Without a folder, the user's own
    log is created, as on its first use.

    Options:
        --organisation-key FILE: use this key (64 hex digits) instead of a new one, so
            that several machines share it for their commitments

    Example:
        curtilage audit init /var/lib/curtilage/audit
        curtilage serve --audit /var/lib/curtilage/audit
    """
    from curtilage.cli.audit.command import run_init

    return run_init


@command("verify", audit, FOLDER, KEY, JSON)
def audit_verify() -> Run:
    """Verify a log, a kept checkpoint, or a proof.

    Verify every record, file and checkpoint of a log, and print the steps. Exit 1 at
    the first record that was changed; it is named.

    Options:
        --checkpoint FILE...: a checkpoint kept elsewhere; the log must be consistent
            with it
        --proof FILE: recount the claim of this proof by `prove`

    Example:
        curtilage audit verify --key log.vkey --checkpoint march.note
        curtilage audit verify --proof q3.json
    """
    from curtilage.cli.audit.command import run_verify

    return run_verify


@command(
    "prove",
    audit,
    FOLDER,
    KEY,
    SPAN,
    types={**TIMES, "ROUTE": Choice(OUTCOMES, renamed_value)},
)
def audit_prove() -> Run:
    r"""Count what was found and where it went, with a proof.

    Verify the log and count the records with these classes and this route. Exit 0 if
    there are none; 1 if there are some, which are listed; 2 if the log has no data
    about the claim. Every finding counts, whatever its score: a question about diabetes
    has a health class and may be sent; use --when for a person's health data. A claim
    covers records: queries that went through this log.

    Options:
        --class NAME... as classes: class, pattern (financial.*) or branch (health:
            health.* and topic.health); several: any of them
        --when EXPR: a condition as in a policy, instead of --class
        --route ROUTE, required: where it was answered; enclave: it was sealed and may
            have been sent; queued, escalated, replaced and degraded are additional:
            it was queued here; a local draft was rejected; shown text was retracted;
            the answer is less than what was chosen
        --allow-unseen: count even if a named class of the organisation is in no record,
            or the period has no decision; the proof notes it
        --out FILE: write the proof to this file (JSON)
        --json: print the proof

    Example:
        curtilage audit prove --class health --route enclave --out q3.json
        curtilage audit prove --route enclave \
          --when "(health.* | topic.health) & identifier.direct.*"
    """
    from curtilage.cli.audit.command import run_prove

    return run_prove


@command("export", audit, FOLDER, KEY, SPAN, types=TIMES)
def audit_export() -> Run:
    """Write the records of a verified log to a file.

    Verify the whole log and write its records of a period of time. A log that does not
    verify is not exported.

    Options:
        --format jsonl|csv = jsonl
        --out FILE, required: a new file

    Example:
        curtilage audit export --format csv --out decisions.csv
    """
    from curtilage.cli.audit.command import run_export

    return run_export


@command("usage", audit, JSON, FOLDER, KEY, SPAN, types=TIMES)
def audit_usage() -> Run:
    """Count the questions of each of a gateway's applications.

    Verify the whole log, and print for each application of `curtilage serve --gateway`
    how many questions it asked, and how many records of each outcome these have. A key
    is in no record. Questions that no gateway served are counted under `-`.

    Example:
        curtilage audit usage --from 2026-11-01 --to 2026-12-01
    """
    from curtilage.cli.audit.command import run_usage

    return run_usage


@command("receipt", audit, JSON, FOLDER, KEY)
def audit_receipt() -> Run:
    """Show an enclave's receipts for a query.

    Verify the log and show the enclave's receipts for one query: when, and by which
    release and model it was answered. With the question or the answer, also check that
    the receipt is for exactly this one, which needs the organisation's key next to the
    log. Exit 1 if it is for another one, or if the log has not signed it yet.

    Options:
        --query ID, required: the query's id in the log, 16 digits
        --question FILE: the chat request (JSON), as the client got it or as it was sent
        --answer FILE: the answer's content as received inside the seal, padding
            included

    Example:
        curtilage audit receipt --query 9f86d081884c7d65 --question request.json
    """
    from curtilage.cli.audit.command import run_receipt

    return run_receipt


@command("show-key", audit, FOLDER)
def audit_show_key() -> Run:
    """Print the public key; give it to the auditor.

    It is a C2SP verifier key of one line.

    Example:
        curtilage audit show-key > log.vkey
    """
    from curtilage.cli.audit.command import run_show_key

    return run_show_key


@command("checkpoint", audit, FOLDER, KEY)
def audit_checkpoint() -> Run:
    """Print the last checkpoint; keep it elsewhere.

    The log is verified first. A log that is cut back or replaced later is inconsistent
    with its checkpoint, a signed note.

    Example:
        curtilage audit checkpoint > march.note
    """
    from curtilage.cli.audit.command import run_checkpoint

    return run_checkpoint
