"""``curtilage policy diff``: which queries another policy would route differently."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from curtilage.cli.decide_lines import problem_of, read_lines
from curtilage.cli.declared import Arguments
from curtilage.cli.examine import inspect_all, start_detectors
from curtilage.cli.json_lines import LineId
from curtilage.cli.options import file_errors
from curtilage.cli.terminal import COULD_NOT, DONE, err, out, out_json
from curtilage.client.chat.query import Query
from curtilage.client.config import ClientConfig, Flags, read_config
from curtilage.policy.decision.decide import Inspection, assess
from curtilage.policy.document.model import Policy, full_scan
from curtilage.policy.explain.diff import Compared, Difference, difference
from curtilage.policy.explain.routing import routing_in_words

MAX_SHOWN: Final = 200


def run(arguments: Arguments) -> int:
    """Compare two policies."""
    old, new = (
        # Both with the same key: comparing a signed policy with one that needs no
        # signature would mix two questions.
        read_config(Flags(policy=path, policy_key=arguments.policy_key), os.environ)
        for path in (arguments.old, arguments.new)
    )
    corpus = Path(arguments.corpus)
    with file_errors(corpus), corpus.open("rb") as file:
        data = file.readlines()
    lines = list(read_lines(data))
    unread = [
        number for number, (_, query) in enumerate(lines, start=1) if query is None
    ]
    for number in unread[:MAX_SHOWN]:
        problem = problem_of(data[number - 1])
        err(f"{corpus}: line {number}: {problem}; it was not compared")
    found = difference(compared(old, new, lines))
    if arguments.json:
        out_json(
            {
                "old": _policy_fields(old.policy, new.policy),
                "new": _policy_fields(new.policy, old.policy),
                "queries": found.queries,
                "unreadable": found.unreadable,
                "moves": [
                    {
                        "id": each.id,
                        "line": each.line,
                        "before": each.before,
                        "after": each.after,
                        "rule_before": each.rule_before,
                        "rule_after": each.rule_after,
                        "approved": list(each.approved),
                    }
                    for each in found.moves
                ],
                "totals": [
                    {"before": before, "after": after, "queries": count}
                    for (before, after), count in found.totals().items()
                ],
                "rules": dict(found.rules()),
            }
        )
    else:
        for line in _words(old.policy, new.policy, found):
            out(line)
    # The comparison is shown, but it does not cover the whole corpus.
    return COULD_NOT if unread else DONE


def compared(
    old: ClientConfig,
    new: ClientConfig,
    lines: Sequence[tuple[LineId | None, Query | None]],
) -> Iterator[Compared]:
    """Yield every line under both policies.

    The detectors run once, unless the policies need different detectors or must be
    signed.
    """
    queries = [query for _, query in lines if query is not None]
    before = _inspected(old, queries)
    # Detecting takes nearly all of the time, and its result is the same for equal
    # detectors; but a policy that is not in force adds a finding to every text, an
    # approved text is inspected separately, and a limit may add a finding.
    one, other = full_scan(old.policy), full_scan(new.policy)
    alike = (
        old.currency == new.currency
        and old.policy.rulebook.approved == new.policy.rulebook.approved
        and one.plan == other.plan
        and one.limits == other.limits
    )
    after = before if alike else _inspected(new, queries)
    pairs = iter(zip(before, after, strict=True))
    for number, (line_id, query) in enumerate(lines, start=1):
        if query is None:
            yield Compared(id=line_id, line=number, old=None, new=None)
            continue
        seen_before, seen_after = next(pairs)
        approved = (*seen_before.approved, *seen_after.approved)
        yield Compared(
            id=line_id,
            line=number,
            old=assess(old.policy.rulebook, seen_before),
            new=assess(new.policy.rulebook, seen_after),
            approved=tuple(sorted({each.sha256 for each in approved})),
        )


def _inspected(config: ClientConfig, queries: Sequence[Query]) -> list[Inspection]:
    inspector = start_detectors(config.policy, config.currency)
    try:
        # A list: the detectors are closed when this returns.
        return list(inspect_all(inspector, queries))
    finally:
        inspector.close()


def _words(old: Policy, new: Policy, found: Difference) -> Iterator[str]:
    yield f"old: {old.source}, {old.digest}"
    yield f"new: {new.source}, {new.digest}"
    # Also what no query of the corpus shows: a policy may approve a text or name a tier
    # that none of them concerns.
    yield from _other_differences(old, new)
    for move in found.moves[:MAX_SHOWN]:
        name = f"line {move.line}" if move.id is None else f"{move.id}"
        # The id is untrusted: in ASCII it cannot end the line or control a terminal.
        yield (
            f"  {ascii(name)[1:-1]}: {move.before} ({move.rule_before}) -> "
            f"{move.after} ({move.rule_after})"
            + (", with an approved text" if move.approved else "")
        )
    if len(found.moves) > MAX_SHOWN:
        yield f"  and {len(found.moves) - MAX_SHOWN} more (--json has all)"
    unreadable = f" ({found.unreadable} unreadable)" if found.unreadable else ""
    yield f"{len(found.moves)} of {found.queries} queries change route{unreadable}"
    for (before, after), count in found.totals().items():
        yield f"  {count:>6}  {before} -> {after}"
    for rule, count in found.rules().items():
        yield f"  {count:>6}  by {rule}"


def _other_differences(old: Policy, new: Policy) -> Iterator[str]:
    pairs = (("old", old, new), ("new", new, old))
    for only, one, other in pairs:
        for role, digest in _approved_only(one, other):
            yield f"  approved only by the {only} one: {role} sha256:{digest}"
    for only, one, other in pairs:
        for label, said in _said_only(one, other):
            yield f"  only in the {only} one: {label} {said}"


def _approved_only(one: Policy, other: Policy) -> list[tuple[str, str]]:
    """Return role and SHA-256 of the texts that only one of the policies approves."""
    return sorted(one.rulebook.approved - other.rulebook.approved)


def _said_only(one: Policy, other: Policy) -> list[tuple[str, str]]:
    """Return the routing statements of `policy check` that only one policy has."""
    known = list(routing_in_words(other))
    return [
        each
        for each in routing_in_words(one)
        if each[0] != "found" and each not in known
    ]


def _policy_fields(one: Policy, other: Policy) -> dict[str, object]:
    return {
        "source": one.source,
        "digest": one.digest,
        "approved_only": [
            {"role": role, "sha256": digest}
            for role, digest in _approved_only(one, other)
        ],
        "said_only": [
            {"of": label, "says": said} for label, said in _said_only(one, other)
        ],
    }
