"""``curtilage policy test``: whether each case takes its expected route."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from curtilage.cli.declared import Arguments
from curtilage.cli.examine import inspect_all, start_detectors
from curtilage.cli.start import config_from
from curtilage.cli.terminal import DONE, REFUSED, out, out_json
from curtilage.client.chat.query import Message, Query
from curtilage.client.config import SHIPPED_PROFILE, ClientConfig
from curtilage.client.errors import UsageError
from curtilage.client.system.files import read_text
from curtilage.policy.cases import (
    Case,
    Failure,
    judge,
    parse_case_lines,
    parse_cases,
    shipped_cases,
)
from curtilage.policy.decision.decide import Assessment, assess
from curtilage.policy.document.load import PROFILES

MAX_CASES_BYTES: Final = 16 * 1024 * 1024


def run(arguments: Arguments) -> int:
    """Test; exit 1 if a case fails."""
    config = config_from(arguments)
    policy = config.policy
    name = policy_name(arguments.policy)
    if arguments.file is not None:
        text = read_text(Path(arguments.file), MAX_CASES_BYTES)
        lines = arguments.file.endswith(".jsonl")
        parse = parse_case_lines if lines else parse_cases
        cases = parse(text, source=arguments.file).under(name)
    elif name in PROFILES:
        cases = shipped_cases(name).under(name)
    else:
        raise UsageError(f"no cases are shipped for {name!r}: give a file")
    # A test of no case would pass.
    if not cases.cases:
        raise UsageError(f"no case is for a policy named {name!r}")
    # Known misses run as well: only then is it noticed that one was repaired.
    known = {each.id for each in cases.known_misses}
    failed = [
        failure
        for case, decision in decided(config, [*cases.cases, *cases.known_misses])
        if (failure := judge(case, name, decision)) is not None
    ]
    failures = [each for each in failed if each.id not in known]
    missed = known & {each.id for each in failed}
    mended = [each.id for each in cases.known_misses if each.id not in missed]
    if arguments.json:
        out_json(
            {
                "policy": {"source": policy.source, "digest": policy.digest},
                "cases": len(cases.cases),
                "failures": [asdict(each) for each in failures],
                "known_misses": sorted(missed),
                "mended": mended,
            }
        )
    else:
        for failure in failures:
            out(in_words(failure))
        for each in mended:
            out(f"{each}: a known miss that now passes: move it to the cases")
        more = f", {len(missed)} known misses" if missed else ""
        counts = f"{len(cases.cases)} cases, {len(failures)} failed{more}"
        out(f"{counts}: {policy.source}")
    # A known miss that now passes fails the test as well: otherwise it could be lost
    # again without notice.
    return REFUSED if failures or missed < known else DONE


def decided(
    config: ClientConfig, cases: Sequence[Case]
) -> Iterator[tuple[Case, Assessment]]:
    """Yield every case with its decision."""
    inspector = start_detectors(config.policy, config.currency)
    try:
        queries = [query_of(each) for each in cases]
        for case, inspection in zip(
            cases, inspect_all(inspector, queries), strict=True
        ):
            yield case, assess(config.policy.rulebook, inspection)
    finally:
        inspector.close()


def policy_name(given: str | None) -> str:
    """Return a policy's name in cases: its file's name without the suffix."""
    return Path(given or os.environ.get("CURTILAGE_POLICY") or SHIPPED_PROFILE).stem


def query_of(case: Case) -> Query:
    """Return a case as a query."""
    return Query(
        messages=tuple(
            Message(role=turn.role, content=turn.content, name=turn.name)
            for turn in case.turns
        )
    )


def in_words(failure: Failure) -> str:
    """Return a failure as lines, without the text."""
    lines = [f"{failure.id}: expected {failure.expected}, got {failure.got}"]
    lines.append(f"  decided by {failure.rule!r}: {' '.join(failure.reason.split())}")
    if failure.missing_rules:
        lines.append(f"  should have fired: {', '.join(failure.missing_rules)}")
    if failure.missing_classes:
        lines.append(f"  should have been found: {', '.join(failure.missing_classes)}")
    lines.append(f"  fired: {', '.join(failure.fired) or 'no rule'}")
    return "\n".join(lines)
