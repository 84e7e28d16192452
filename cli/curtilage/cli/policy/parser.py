"""Flags and help of ``curtilage policy``."""

from typing import TYPE_CHECKING, Final

from curtilage.cli.options import add_explain, add_policy_flag
from curtilage.cli.terminal import Commands, add_command

if TYPE_CHECKING:
    import argparse

VALID_DAYS: Final = 90
MAX_DAYS: Final = 3660
# Copied from ``exact_list`` to keep the help fast; tests compare.
DEFAULT_NEAR: Final = 200
LIST_MAKE: Final = """\
Make an exact list (a detector of kind edm) from a table: keyed digests of its values,
8 bytes each, from which the values cannot be read. HOW defines when two values are
equal: text (letters and digits, ignoring case), digits (ignoring leading zeros and
separators) or date (the same day in any notation).

Omitted and counted: values that are empty or too short (under 4 characters, under 6
digits), a single ordinary word or given name, invalid dates or digits, and values of
more than 8 words. The table is read row by row and may be larger than the memory."""
TEST = """\
Decide every case of a file, and compare with its expected route. A failed case is
reported by its id, never by its text.

A file is YAML:

  version: 1
  cases:
  - {id: card, text: "Pay with 4111 1111 1111 1111", route: local}
  - id: two-turns
    messages: [{role: user, content: "What is HIV?"}]
    route: {clinic: local, else: enclave}   # by the name of the policy
    rules: [phi]                            # optional: these must fire
    classes: [topic.health]                 # optional: these must be found
  known_misses: []                          # cases that are known to fail

or, if its name ends in .jsonl, one JSON object per line with the same keys.
Without a file, the cases of the shipped profiles are used. Exits with 1 if a case
fails, or if a known miss passes."""


def add(commands: "Commands[argparse.ArgumentParser]") -> None:
    """Add the command and its subcommands."""
    parser = add_command(
        commands,
        "policy",
        summary="check, explain, test, compare, report and sign policies",
        text="Work with policies: files, or shipped profiles by name.",
        example="curtilage policy list\ncurtilage policy check clinic.yaml\n"
        "curtilage policy explain - < letter.txt\n"
        "curtilage policy report --policy clinic --out clinic.html",
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")

    check = add_command(
        actions,
        "check",
        summary="find every problem of a policy, with its line",
        text="Load a policy, compile its patterns, look for the files and the model "
        "that it names,\nand print every problem with its line, or a summary.",
        example="curtilage policy check clinic.yaml\ncurtilage policy check",
    )
    which = check.add_mutually_exclusive_group()
    which.add_argument(
        "file",
        nargs="?",
        help="policy file, or a shipped profile (default: the default profile)",
    )
    which.add_argument("--policy", metavar="FILE", help="the same, as elsewhere")
    check.add_argument("--json", action="store_true", help="one JSON object")
    # ``--help`` lists the commands in this order.
    add_explain(actions, path="curtilage policy explain")
    _add_approve(actions)
    _add_comparisons(actions)
    _add_signing(actions)

    listing = add_command(
        actions,
        "list",
        summary="list the shipped profiles, or show one",
        text="List the shipped profiles and the packs that they combine, or print one "
        "as a start\nfor your own policy.",
        example="curtilage policy list\ncurtilage policy list clinic > mine.yaml",
    )
    listing.add_argument("name", nargs="?", help="a profile, to print it")
    listing.add_argument("--json", action="store_true", help="one JSON object")

    _add_list_make(actions)


def _add_list_make(actions: "Commands[argparse.ArgumentParser]") -> None:
    make = add_command(
        actions,
        "list-make",
        summary="make an exact list from a table",
        text=LIST_MAKE,
        example="curtilage policy list-make patients.csv --out patients.exact \\\n"
        "  --column mrn --together surname,birth_date:date",
    )
    make.add_argument("file", metavar="CSV", help="the table; - reads standard input")
    make.add_argument("--out", required=True, metavar="FILE", help="the list")
    make.add_argument(
        "--column",
        action="append",
        default=[],
        metavar="NAME[:HOW]",
        help="values of this column count by themselves; repeatable",
    )
    make.add_argument(
        "--together",
        action="append",
        default=[],
        metavar="NAME[:HOW],NAME[:HOW]",
        help="two or three columns; the values of one row count if they occur near "
        "each other; repeatable",
    )
    make.add_argument(
        "--near",
        type=int,
        default=DEFAULT_NEAR,
        metavar="N",
        help=f"maximum distance in characters (1 to 1000; default {DEFAULT_NEAR})",
    )
    make.add_argument(
        "--salt-file",
        metavar="FILE",
        help="file with the salt in hexadecimal, so that a rebuilt list fits the "
        "policy; created if missing (default: a new salt, which is printed)",
    )
    make.add_argument(
        "--delimiter", default=",", metavar="C", help="column separator (default ,)"
    )
    make.add_argument(
        "--encoding",
        default="utf-8",
        metavar="NAME",
        help="encoding of the table (default utf-8)",
    )
    make.add_argument(
        "--no-header",
        action="store_true",
        help="the first row is data; columns are 1, 2, 3 …",
    )
    make.add_argument("--json", action="store_true", help="one JSON object")


def _add_approve(actions: "Commands[argparse.ArgumentParser]") -> None:
    approve = add_command(
        actions,
        "approve",
        summary="approve a system prompt after review",
        text="Inspect a text, show the findings, and add its SHA-256 to the policy: "
        "findings in\nexactly this text, in this role, then no longer decide. It is "
        "still sealed and still\ninspected. Exits with 1, and changes nothing, for "
        "findings that no approval sets aside:\nsecrets, numbers with a valid check "
        "digit, what cannot be inspected, and what the\npolicy blocks.",
        example="curtilage policy approve prompt.txt --policy mine.yaml\n"
        "curtilage policy approve prompt.txt --policy mine.yaml --role developer "
        '--by "A. Weber" --note "no data of patients"',
    )
    approve.add_argument("file", metavar="FILE", help="the text, UTF-8, as it is sent")
    add_policy_flag(approve)
    approve.add_argument(
        "--role",
        choices=("system", "developer"),
        default="system",
        help="the role in which it is sent (default: system)",
    )
    approve.add_argument(
        "--by", metavar="NAME", help="who reviewed it (default: $USER)"
    )
    approve.add_argument(
        "--note", metavar="TEXT", default="", help="a note by the approver"
    )
    approve.add_argument(
        "--without-last-newline",
        action="store_true",
        help="omit the file's last line feed, which editors add and applications do "
        "not send",
    )
    approve.add_argument(
        "--with-people",
        action="store_true",
        help="approve it although it identifies a person",
    )
    approve.add_argument(
        "--print", action="store_true", help="print the entry, and change no file"
    )
    approve.add_argument("--json", action="store_true", help="one JSON object")


def _add_comparisons(actions: "Commands[argparse.ArgumentParser]") -> None:
    test = add_command(
        actions,
        "test",
        summary="decide cases, and compare with their expected routes",
        text=TEST,
        example="curtilage policy test mine.cases.yaml --policy mine.yaml\n"
        "curtilage policy test --policy clinic",
    )
    test.add_argument("file", nargs="?", help="cases (default: the shipped ones)")
    add_policy_flag(test)
    test.add_argument("--json", action="store_true", help="one JSON object")

    diff = add_command(
        actions,
        "diff",
        summary="show which queries another policy would route differently",
        text='Decide every line of a corpus ({"id", "text"} or {"id", "messages"}) '
        "under two\npolicies, and show which queries would take another route, by "
        "which rule, never their\ntexts. If a key is given, a policy without its "
        "signature (FILE.sig) keeps everything\nlocal, as in use.",
        example="curtilage policy diff default clinic --corpus queries.jsonl\n"
        "curtilage policy diff old.yaml new.yaml --corpus queries.jsonl --json",
    )
    diff.add_argument("old", help="policy file, or the name of a shipped profile")
    diff.add_argument("new", help="the policy to compare with it")
    diff.add_argument(
        "--corpus", required=True, metavar="FILE", help="JSON lines, one query each"
    )
    diff.add_argument(
        "--policy-key",
        metavar="FILE",
        help="public key (PEM) that must have signed both "
        "(default: $CURTILAGE_POLICY_KEY)",
    )
    diff.add_argument("--json", action="store_true", help="one JSON object")

    report = add_command(
        actions,
        "report",
        summary="write a policy as one page for people",
        text="Write one HTML page: the rules in words, who receives what, what laws "
        "and standards\nlist, and how well the policy works. The page needs no "
        "network, no script and no other\nfile.",
        example="curtilage policy report --policy clinic --out clinic.html\n"
        "curtilage evaluate --data data --policy clinic --json > figures.json\n"
        "curtilage policy report --policy clinic --evaluation figures.json "
        "--out clinic.html",
    )
    add_policy_flag(report)
    report.add_argument(
        "--evaluation", metavar="FILE", help="output of `curtilage evaluate --json`"
    )
    report.add_argument("--out", required=True, metavar="FILE", help="the HTML file")


def _add_signing(actions: "Commands[argparse.ArgumentParser]") -> None:
    keygen = add_command(
        actions,
        "keygen",
        summary="make a key that signs policies",
        text="Write a new Ed25519 private key to KEY.pem, and its public key to "
        "KEY.pub.pem.\nKeep the first where policies are approved; give the second to "
        "every client.\nNo file is overwritten.",
        example="curtilage policy keygen approvals.pem",
    )
    keygen.add_argument("file", metavar="KEY.pem", help="file for the private key")

    sign = add_command(
        actions,
        "sign",
        summary="sign a policy for a number of days",
        text="Check a policy, as `curtilage policy check` does on this machine, and "
        "write its\nsignature to FILE.sig. A client with the public key (--policy-key) "
        "sends nothing if the\nsignature is missing, for another policy or key, or "
        "expired.",
        example="curtilage policy sign --key approvals.pem clinic.yaml\n"
        "curtilage policy sign --key approvals.pem --valid-days 30 clinic.yaml",
    )
    sign.add_argument("file", help="policy file")
    sign.add_argument(
        "--key", required=True, metavar="KEY.pem", help="private key, Ed25519"
    )
    sign.add_argument(
        "--valid-days",
        type=int,
        default=VALID_DAYS,
        metavar="N",
        help=f"how long it is valid, from now (1 to {MAX_DAYS}; default {VALID_DAYS})",
    )

    verify = add_command(
        actions,
        "verify",
        summary="check that a policy is signed and current",
        text="Check a policy's signature (FILE.sig) against a public key and the "
        "clock. Exits with 1\nif a client that requires the signature would send "
        "nothing.",
        example="curtilage policy verify --key approvals.pub.pem clinic.yaml",
    )
    verify.add_argument("file", help="policy file")
    verify.add_argument(
        "--key", required=True, metavar="PUB.pem", help="public key, Ed25519"
    )
    verify.add_argument("--json", action="store_true", help="one JSON object")
