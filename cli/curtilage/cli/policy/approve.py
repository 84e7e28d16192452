"""``curtilage policy approve``: approve a system prompt after review."""

import asyncio
import hashlib
import json
import os
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from curtilage.cli.declared import Arguments
from curtilage.cli.examine import inspect_one
from curtilage.cli.policy.sign import replace_file
from curtilage.cli.start import config_from
from curtilage.cli.terminal import DONE, REFUSED, err, out, out_json
from curtilage.client.chat.query import Message, Query
from curtilage.client.config import MAX_POLICY_BYTES, read_listed
from curtilage.client.errors import ConfigError, UsageError
from curtilage.client.system.files import read_text
from curtilage.policy.decision.decide import assess
from curtilage.policy.decision.routes import Route
from curtilage.policy.document.load import load_policy
from curtilage.policy.document.model import Approval, Policy
from curtilage.policy.errors import PolicyError
from curtilage.policy.explain.decision import explain

MAX_PROMPT_BYTES: Final = 1024 * 1024
KEPT: Final = (
    "not approved: these findings count in spite of any approval (secrets, numbers "
    "with a valid check digit, what cannot be inspected, and what the policy blocks)"
)
PERSONAL: Final = (
    "not approved: it identifies a person (identifier.direct), and would be sent with "
    "every question; remove that, or pass --with-people if the enclave's operator may "
    "know of this person"
)
_KEY: Final = re.compile(r"^approved:[ \t]*(?:#.*)?\n", re.MULTILINE)
_INDENT: Final = re.compile(r"(?:[ \t]*(?:#.*)?\n)*( *)- ")


def run(arguments: Arguments) -> int:
    """Approve a text; exit 1 if its findings would keep it local nevertheless."""
    config = config_from(arguments)
    policy, path = config.policy, Path(config.policy_source)
    text = _text_of(Path(arguments.file), whole=not arguments.without_last_newline)
    entry = _entry_of(arguments, text)
    given = {(each.role, each.sha256) for each in policy.document.approved}
    known = (entry.role, entry.sha256) in given
    if not known:
        approved = (*policy.document.approved, entry)
        document = policy.document.model_copy(update={"approved": approved})
        policy = replace(policy, document=document)
    # Decided under the policy with the approval: findings that remain are those that no
    # approval sets aside.
    query = Query(messages=(Message(role=entry.role, content=text),))
    inspection = asyncio.run(inspect_one(query, policy))
    decision = assess(policy.rulebook, inspection)
    kept = any(hit.route in {Route.BLOCK, Route.LOCAL} for hit in decision.rules)
    # A system prompt is sent with every question, so a name in it would be disclosed
    # again and again.
    personal = not arguments.with_people and any(
        each.data_class.startswith(("identifier.direct.", "identifier.public."))
        for each in inspection.findings
    )
    refused = kept or personal
    # A shipped profile is read-only: the entry is printed.
    written = path.is_file() and not (refused or known or arguments.print)
    # A refusal is explained under the current policy: with the approval, the
    # explanation would begin with the statement that the text may be sent.
    policy = config.policy if refused else policy
    if written:
        policy = _write(path, config.policy, entry)
    decision = assess(policy.rulebook, inspection)
    if arguments.json:
        out_json(
            {
                "approved": not refused,
                "written": written,
                "entry": entry.model_dump(),
                "classes": list(decision.classes),
                "uncertain": list(decision.uncertain),
            }
        )
    else:
        out(explain(policy, decision, inspection))
        if not (refused or known or written):
            out(f"approved:\n{_line(entry)}", end="")
    if refused:
        err(KEPT if kept else PERSONAL)
        return REFUSED
    if known:
        err(f"{config.policy_source}: already approves this text")
    elif written:
        err(f"{path}: approves it now; if the policy must be signed, sign it again")
    return DONE


def _entry_of(arguments: Arguments, text: str) -> Approval:
    try:
        return Approval(
            # By its digest: any change of the text needs a new review.
            sha256=hashlib.sha256(text.encode()).hexdigest(),
            role=arguments.role,
            by=arguments.by or os.environ.get("USER", ""),
            date=datetime.now(UTC).date().isoformat(),
            note=arguments.note or "",
        )
    except ValueError:
        raise UsageError(
            "--by NAME (the reviewer) needs 1 to 200 characters; --note: at most 1000"
        ) from None


def _text_of(path: Path, *, whole: bool) -> str:
    text = read_text(path, MAX_PROMPT_BYTES)
    if not whole:
        text = text.removesuffix("\n")
    elif text.endswith("\n"):
        err(
            f"{path}: the approval includes its last line feed; if the application "
            "does not send it, pass --without-last-newline"
        )
    if not text.strip():
        raise ConfigError(f"{path}: contains no text")
    return text


def _line(entry: Approval, indent: str = "") -> str:
    """Return an entry as one line of YAML, with JSON's quoting, which is valid YAML."""
    fields = entry.model_dump()
    if not entry.note:
        del fields["note"]
    pairs = (
        # Quoted, so that a note with a colon or a line break cannot add a key to the
        # policy.
        f"{key}: {json.dumps(value, ensure_ascii=False)}"
        for key, value in fields.items()
    )
    return f"{indent}- {{{', '.join(pairs)}}}\n"


def _write(path: Path, policy: Policy, entry: Approval) -> Policy:
    """Add an entry to a policy's file, without other changes; return the new policy.

    Raises:
        ConfigError: the file has a form that does not allow it.
    """
    text = read_text(path, MAX_POLICY_BYTES)
    if (key := _KEY.search(text)) is None:
        new = (
            text + ("" if text.endswith("\n") else "\n") + "approved:\n" + _line(entry)
        )
    else:
        first = _INDENT.match(text, key.end())
        new = text[: key.end()] + _line(entry, first[1] if first else "")
        new += text[key.end() :]
    # The edit works on text, so the result is parsed again, and replaces the file only
    # if it equals the old policy plus the entry.
    by_hand = f"{path}: cannot be edited; add this line under approved:\n{_line(entry)}"
    try:
        read = load_policy(
            new, source=policy.source, files=lambda name: read_listed(path, name)
        )
    except PolicyError:
        raise ConfigError(by_hand) from None
    approved = read.document.approved
    before = policy.document.model_copy(update={"approved": approved})
    expected = (*policy.document.approved, entry)
    added = len(approved) == len(expected) and all(
        each in approved for each in expected
    )
    if read.document != before or not added:
        raise ConfigError(by_hand)
    replace_file(path, new.encode())
    return read
