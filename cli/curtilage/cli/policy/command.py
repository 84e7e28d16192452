"""``curtilage policy``: check, explain, test, compare, report and sign policies."""

import json
from collections.abc import Iterator

from curtilage.cli.declared import Arguments
from curtilage.cli.terminal import DONE, WRONG_USE, err, out, out_json, plural
from curtilage.client.config import patterns_under_deadline, read_usable_policy
from curtilage.client.errors import UsageError
from curtilage.policy.document.exact_list import ExactList
from curtilage.policy.document.load import (
    PROFILES,
    load_pack,
    load_profile,
    profile_text,
)
from curtilage.policy.document.model import Policy
from curtilage.policy.errors import PolicyError
from curtilage.policy.explain.attestation import attestation_in_words
from curtilage.policy.explain.routing import routing_in_words
from curtilage.policy.explain.transport import transport_in_words

NER = {
    "none": "no model; a suspected name is kept local as uncertain.name",
    "embedded": "the embedded model",
    "spacy": "a spaCy pipeline of yours",
    "transformers": "a transformers model of yours",
}
_SCAN = {
    "early_exit": "ends once a validated finding keeps the query local",
    "full": "all detectors run",
}


def run_check(arguments: Arguments) -> int:
    """Check a policy; exit 2 if it is invalid."""
    named = arguments.policy if arguments.file is None else arguments.file
    try:
        policy, source = read_usable_policy(named)
    # All problems at once: an operator who repairs one at a time needs as many runs.
    except PolicyError as error:
        if arguments.json:
            problems = [
                {"line": each.line, "path": each.path, "message": each.message}
                for each in error.problems
            ]
            out_json({"ok": False, "digest": None, "problems": problems})
            return WRONG_USE
        for problem in error.problems:
            err(f"{error.source}: {problem}")
        count = len(error.problems)
        err(f"{count} {plural(count, 'problem')}; the policy is not usable")
        return WRONG_USE
    if arguments.json:
        said: dict[str, object] = {"ok": True, "digest": policy.digest, "problems": []}
        out_json({**said, "notices": policy.notices} if policy.notices else said)
    else:
        for line in summary(policy, source):
            out(line)
        # To standard error, so that the summary stays the same for equal policies.
        for notice in policy.notices:
            err(notice)
    return DONE


def run_list(arguments: Arguments) -> int:
    """List the profiles, or print one."""
    if arguments.name is not None:
        if arguments.name not in PROFILES:
            raise UsageError(f"no such profile; the profiles are {', '.join(PROFILES)}")
        out(profile_text(arguments.name), end="")
        return DONE
    profiles = {name: load_profile(name) for name in PROFILES}
    if arguments.json:
        out_json(
            [
                {"name": name, "packs": policy.document.packs, "digest": policy.digest}
                for name, policy in profiles.items()
            ]
        )
        return DONE
    for name, policy in profiles.items():
        out(f"{name:<14}  {', '.join(policy.document.packs) or 'no packs'}")
    return DONE


def summary(policy: Policy, source: str) -> Iterator[str]:
    """Yield a short description of a policy, line by line."""
    document = policy.document
    yield f"{source}: no problem found"
    yield f"  digest    {policy.digest}"
    yield f"  rules     {len(policy.rules)}, {len(document.rules)} of them its own"
    for name in document.packs:
        pack = load_pack(name)
        count = f"{len(pack.rules)} {plural(len(pack.rules), 'rule')}"
        yield f"  pack      {name}: {pack.title} ({count})"
    yield f"  default   {document.default.decision}, where no rule is more private"
    yield f"  languages {', '.join(policy.languages)}; any other is kept local"
    yield f"  names     {NER[document.ner.engine]}"
    yield f"  scan      {_SCAN[document.scan]}"
    limits = policy.limits
    yield (
        f"  time      {limits.deadline_ms} ms, and {limits.deadline_ms_per_1000_chars} "
        "ms for 1,000 characters, of a processor; "
        f"{limits.deadline_wall_ms / 1000:g} s by the clock"
    )
    if policy.wall_required:
        yield "  wall      required: without the kernel's isolation, no detector starts"
    for each in policy.detectors:
        yield f"  detector  {each.id}: {each.kind}, finds {each.data_class}"
        if each.table:
            # Counts only: the values are not in the policy, and cannot be shown.
            exact = ExactList.parse(each.table, salt=bytes.fromhex(each.salt))
            counts = "; ".join(f"{count:,} {name}" for name, count in exact.counts)
            yield f"  list      {each.id}: {counts}, known only by keyed digests"
    yield from _recognizers(policy)
    # Every exclusion is shown: each is a finding that will not count.
    for exclusion in policy.exclusions:
        listed = f" listed in {exclusion.listed}" if exclusion.listed else ""
        yield f"  excluded  {exclusion.pattern}{listed}"
    for entry in document.approved:
        # On one line, so that a note cannot imitate other output lines.
        note = f": {' '.join(entry.note.split())}" if entry.note else ""
        yield (
            f"  approved  {entry.role} sha256:{entry.sha256}, by {entry.by} on "
            f"{entry.date}{note}"
        )
    for label, sentence in (
        *attestation_in_words(policy),
        *routing_in_words(policy),
        *transport_in_words(policy.transport),
    ):
        yield f"  {label:<8}  {sentence}"


def _recognizers(policy: Policy) -> Iterator[str]:
    section, classes = policy.document.detectors.presidio, dict(policy.presidio.classes)
    for recognizer in policy.presidio.recognizers:
        each, slow = json.loads(recognizer), patterns_under_deadline(recognizer)
        entity = each["entity"]
        file = "" if section is None else section.file
        found = f"finds {entity} as {classes[entity]}"
        yield f"  presidio  {each['name']}: {found}, of {file}"
        if slow:
            names = ", ".join(slow)
            yield f"            not linear in time, limited by the deadline: {names}"
    for name, package, version in policy.presidio.entry_points:
        yield f"  presidio  {name}: in Python, of {package} {version}, isolated"
        for entity, data_class in policy.presidio.classes:
            yield f"            may find {entity} as {data_class}"
