"""``curtilage policy approve``: a system prompt that somebody has read."""

import argparse
import asyncio
import hashlib
import json
import os
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from curtilage.cli.examine import start_detectors
from curtilage.cli.policy.sign import replace_file
from curtilage.cli.start import config_from
from curtilage.cli.terminal import DONE, REFUSED, err, out, out_json
from curtilage.client.config import (
    MAX_POLICY_BYTES,
    read_beside,
)
from curtilage.client.errors import ConfigError, UsageError
from curtilage.client.files import read_text
from curtilage.client.query import Message, Query
from curtilage.policy.decision.decide import Inspection, assess
from curtilage.policy.decision.routes import Route
from curtilage.policy.document.load import load_policy
from curtilage.policy.document.model import Approval, Policy
from curtilage.policy.errors import PolicyError
from curtilage.policy.explain.decision import explain

MAX_PROMPT_BYTES: Final = 1024 * 1024
KEPT: Final = (
    "not approved: what is found here counts in spite of any approval (secrets, what a "
    "check digit proves, what cannot be looked at, and what the policy blocks)"
)
PERSONAL: Final = (
    "not approved: somebody is named in it or can be told (identifier.direct), and it "
    "would leave with every question; take that out, or say --with-people if whoever "
    "runs the enclave may know of them"
)
_KEY: Final = re.compile(r"^approved:[ \t]*(?:#.*)?\n", re.MULTILINE)
_INDENT: Final = re.compile(r"(?:[ \t]*(?:#.*)?\n)*( *)- ")


def run(arguments: argparse.Namespace) -> int:
    """Approve a text; exit 1 where what it holds would keep it home all the same."""
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
    # Judged under the policy as it would be: what is left then, no approval sets aside.
    query = Query(messages=(Message(role=entry.role, content=text),))
    inspection = asyncio.run(_inspect(policy, query))
    decision = assess(policy.rulebook, inspection)
    kept = any(hit.route in {Route.BLOCK, Route.LOCAL} for hit in decision.rules)
    personal = not arguments.with_people and any(
        each.data_class.startswith(("identifier.direct.", "identifier.public."))
        for each in inspection.findings
    )
    refused = kept or personal
    # A shipped profile is nobody's to write to: its entry is printed.
    written = path.is_file() and not (refused or known or arguments.print)
    # Where it is refused, explained as it is: with the approval that it does not get,
    # the first thing said would be that the text may leave.
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
        err(f"{config.policy_source}: approves this text already")
    elif written:
        err(f"{path}: approves it now; sign it again where it must be signed")
    return DONE


def _entry_of(arguments: argparse.Namespace, text: str) -> Approval:
    try:
        return Approval(
            sha256=hashlib.sha256(text.encode()).hexdigest(),
            role=arguments.role,
            by=arguments.by or os.environ.get("USER", ""),
            date=datetime.now(UTC).date().isoformat(),
            note=arguments.note,
        )
    except ValueError:
        raise UsageError(
            "say who has read it: --by NAME, 1 to 200 characters; --note: at most 1000"
        ) from None


async def _inspect(policy: Policy, query: Query) -> Inspection:
    inspector = await asyncio.to_thread(start_detectors, policy)
    try:
        return await inspector.ainspect(query)
    finally:
        inspector.close()


def _text_of(path: Path, *, whole: bool) -> str:
    text = read_text(path, MAX_PROMPT_BYTES)
    if not whole:
        text = text.removesuffix("\n")
    elif text.endswith("\n"):
        err(
            f"{path}: its last line feed is a part of what is approved; if the "
            "application sends none, give --without-last-newline"
        )
    if not text.strip():
        raise ConfigError(f"{path}: holds no text")
    return text


def _line(entry: Approval, indent: str = "") -> str:
    """Return an entry as one line of YAML: in JSON's quotes, which YAML has too."""
    fields = entry.model_dump()
    if not entry.note:
        del fields["note"]
    pairs = (
        f"{key}: {json.dumps(value, ensure_ascii=False)}"
        for key, value in fields.items()
    )
    return f"{indent}- {{{', '.join(pairs)}}}\n"


def _write(path: Path, policy: Policy, entry: Approval) -> Policy:
    """Put an entry into a policy's file, and nothing else; return what it says then.

    Raises:
        ConfigError: the file is written in a way that this cannot add to.
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
    # The text is edited blindly; so it is read again, and put in place only if it says
    # what the policy said before and the one thing more.
    by_hand = (
        f"{path}: cannot be added to; under approved: put the line\n{_line(entry)}"
    )
    try:
        read = load_policy(
            new, source=policy.source, files=lambda name: read_beside(path, name)
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
