"""Flags and help of ``curtilage policy``."""

from typing import TYPE_CHECKING, Final

from curtilage.cli.options import add_explain, add_policy_flag
from curtilage.cli.terminal import Commands, add_command

if TYPE_CHECKING:
    import argparse

VALID_DAYS: Final = 90
MAX_DAYS: Final = 3660
# ``exact_list`` says the same, and tests compare: help is to be said at once.
DEFAULT_NEAR: Final = 200
LIST_MAKE: Final = """\
Make an exact list (a detector of kind edm) of a table: keyed digests of its values, 8
bytes each, and nothing by which they could be read. HOW says what makes two values the
same: text (as it stands: letters and digits, case aside), digits (leading zeros and
what stands between aside) or date (one day, however it is written).

Left out, and counted: what is empty or too short (under 4 characters, under 6 digits),
an ordinary word or given name by itself, what is no day or no digits, and what has
more than 8 words. The table is read row by row and may be larger than the memory."""
TEST = """\
Decide every case of a file, and compare with the route that it asks for. A case
that fails is told by its id, never by its text.

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

or, if its name ends in .jsonl, one JSON object a line with the same keys.
Without a file the cases are used that are shipped with the shipped profiles.
Exits with 1 if a case fails, or a known miss no longer does."""


def add(commands: "Commands[argparse.ArgumentParser]") -> None:
    """Add the command and its subcommands."""
    parser = add_command(
        commands,
        "policy",
        summary="check, explain, test, compare, report and sign policies",
        text="Work with policies: files, or by their names the shipped profiles.",
        example="curtilage policy list\ncurtilage policy check clinic.yaml\n"
        "curtilage policy explain - < letter.txt\n"
        "curtilage policy report --policy clinic --out clinic.html",
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")

    check = add_command(
        actions,
        "check",
        summary="find every problem of a policy, with its line",
        text="Load a policy, compile its patterns, look for the files and the model it "
        "names,\nand print every problem with its line, or what it combines.",
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
    # ``--help`` lists the commands in the order in which they are added.
    add_explain(actions, path="curtilage policy explain")
    _add_approve(actions)
    _add_comparisons(actions)
    _add_signing(actions)

    listing = add_command(
        actions,
        "list",
        summary="list the shipped profiles, or show one",
        text="List the shipped profiles and the packs that they combine, or print one "
        "to start\na policy of your own from.",
        example="curtilage policy list\ncurtilage policy list clinic > mine.yaml",
    )
    listing.add_argument("name", nargs="?", help="a profile, to print it")
    listing.add_argument("--json", action="store_true", help="one JSON object")

    _add_list_make(actions)


def _add_list_make(actions: "Commands[argparse.ArgumentParser]") -> None:
    make = add_command(
        actions,
        "list-make",
        summary="make an exact list of a table, without its texts",
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
        help="values of this column count by themselves; may be given several times",
    )
    make.add_argument(
        "--together",
        action="append",
        default=[],
        metavar="NAME[:HOW],NAME[:HOW]",
        help="two or three columns of which the values of one row count where they "
        "stand near each other; may be given several times",
    )
    make.add_argument(
        "--near",
        type=int,
        default=DEFAULT_NEAR,
        metavar="N",
        help=f"how near that is, in characters (1 to 1000; default {DEFAULT_NEAR})",
    )
    make.add_argument(
        "--salt-file",
        metavar="FILE",
        help="the salt in hexadecimal, so that a list made again fits the policy; "
        "made if it is not there (default: a new salt, which is printed)",
    )
    make.add_argument(
        "--delimiter", default=",", metavar="C", help="between columns (default ,)"
    )
    make.add_argument(
        "--encoding", default="utf-8", metavar="NAME", help="of the table (utf-8)"
    )
    make.add_argument(
        "--no-header",
        action="store_true",
        help="the first row is no names; columns are 1, 2, 3 …",
    )
    make.add_argument("--json", action="store_true", help="one JSON object")


def _add_approve(actions: "Commands[argparse.ArgumentParser]") -> None:
    approve = add_command(
        actions,
        "approve",
        summary="approve a system prompt that somebody has read",
        text="Look at a text, say what is found in it, and add its SHA-256 to the "
        "policy: what is\nfound in exactly this text, in this role, then no longer "
        "decides. It is still sealed\nand still looked at. Exits with 1, and changes "
        "nothing, where it holds what no approval\nsets aside: secrets, what a check "
        "digit proves, what cannot be looked at, and what the\npolicy blocks.",
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
        "--by", metavar="NAME", help="who has read it (default: $USER)"
    )
    approve.add_argument(
        "--note", metavar="TEXT", default="", help="what the approver wants to say"
    )
    approve.add_argument(
        "--without-last-newline",
        action="store_true",
        help="leave out the file's last line feed, which editors add and "
        "applications do not send",
    )
    approve.add_argument(
        "--with-people",
        action="store_true",
        help="approve it though somebody is named in it, or can be told",
    )
    approve.add_argument(
        "--print", action="store_true", help="print the entry, and change no file"
    )
    approve.add_argument("--json", action="store_true", help="one JSON object")


def _add_comparisons(actions: "Commands[argparse.ArgumentParser]") -> None:
    test = add_command(
        actions,
        "test",
        summary="decide cases, and compare with the routes they ask for",
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
        summary="say which queries another policy would send elsewhere",
        text='Decide every line of a corpus ({"id", "text"} or {"id", "messages"}) '
        "under two\npolicies, and say which queries would take another route, by "
        "which rule. Never\nthe text. Where a key is given, a policy that it has not "
        "signed, as FILE.sig, keeps\neverything here, as it would in use.",
        example="curtilage policy diff default clinic --corpus queries.jsonl\n"
        "curtilage policy diff old.yaml new.yaml --corpus queries.jsonl --json",
    )
    diff.add_argument("old", help="policy file, or the name of a shipped profile")
    diff.add_argument("new", help="the policy to compare with it")
    diff.add_argument(
        "--corpus", required=True, metavar="FILE", help="lines of JSON, a query each"
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
        "and\nstandards list, and how well it works. It needs no network, no script "
        "and no other\nfile.",
        example="curtilage policy report --policy clinic --out clinic.html\n"
        "curtilage evaluate --data data --policy clinic --json > figures.json\n"
        "curtilage policy report --policy clinic --evaluation figures.json "
        "--out clinic.html",
    )
    add_policy_flag(report)
    report.add_argument(
        "--evaluation", metavar="FILE", help="what `curtilage evaluate --json` wrote"
    )
    report.add_argument("--out", required=True, metavar="FILE", help="the page")


def _add_signing(actions: "Commands[argparse.ArgumentParser]") -> None:
    keygen = add_command(
        actions,
        "keygen",
        summary="make a key that signs policies",
        text="Write a new Ed25519 private key to KEY.pem, and its public half to "
        "KEY.pub.pem.\nKeep the first where policies are approved; give the second "
        "to every client.\nNo file is overwritten.",
        example="curtilage policy keygen approvals.pem",
    )
    keygen.add_argument("file", metavar="KEY.pem", help="where the private key goes")

    sign = add_command(
        actions,
        "sign",
        summary="sign a policy for a number of days",
        text="Check a policy, as `curtilage policy check` does on this machine, and "
        "write its\nsignature beside it, to FILE.sig. A client that was given the "
        "public key\n(--policy-key) lets nothing leave once the signature is missing, "
        "of another policy or\nkey, or expired.",
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
        summary="check that a policy is signed, and still valid",
        text="Check the signature beside a policy (FILE.sig) against a public key and "
        "the clock.\nExits with 1 where a client that requires it would let nothing "
        "leave.",
        example="curtilage policy verify --key approvals.pub.pem clinic.yaml",
    )
    verify.add_argument("file", help="policy file")
    verify.add_argument(
        "--key", required=True, metavar="PUB.pem", help="public key, Ed25519"
    )
    verify.add_argument("--json", action="store_true", help="one JSON object")
