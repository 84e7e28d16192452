"""A policy as one page for people: who receives what, why, and how well.

The page (``templates/policy_report.html``) is HTML without scripts and without
anything outside of itself. It is made from the policy and, if there is one, an
evaluation; every text is escaped.
What the page says of a class is asked of ``decide``, not of the policy's prose.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from curtilage.cli.report.class_names import class_in_words, in_words
from curtilage.cli.report.evaluation_json import Measured
from curtilage.cli.report.figures import measurements
from curtilage.cli.report.html import rendered
from curtilage.policy.decision.classes import expand
from curtilage.policy.decision.decide import DIGEST_BYTES, Inspection, decide
from curtilage.policy.decision.findings import Finding, Normalization, Where
from curtilage.policy.decision.routes import Route
from curtilage.policy.decision.rules import Rule, Within
from curtilage.policy.document.load import load_pack
from curtilage.policy.document.model import Policy
from curtilage.policy.document.packs import Cover
from curtilage.policy.explain.attestation import attestation_in_words
from curtilage.policy.explain.transport import transport_in_words

ROUTE_WORDS: Final = {
    Route.BLOCK: "answered by nobody",
    Route.LOCAL: "stays here",
    Route.DEIDENTIFY: "leaves without the names",
    Route.ENCLAVE: "may leave",
}
_RECEIVES: Final = (
    (
        Route.BLOCK,
        "reads it, and refuses to answer",
        "nothing",
        "nothing",
    ),
    (
        Route.LOCAL,
        "reads it, and answers with a model of its own",
        "nothing",
        "nothing",
    ),
    (
        Route.DEIDENTIFY,
        "reads it, keeps the names, and puts them back into the answer",
        "who asks, when, and roughly how much; the text only sealed",
        "the text with a placeholder for each name; not who asks",
    ),
    (
        Route.ENCLAVE,
        "reads it, and seals it",
        "who asks, when, and roughly how much; the text only sealed",
        "the text; not who asks",
    ),
)
_WITHIN: Final = {
    Within.SPAN: "at the same place",
    Within.WINDOW: "within 60 characters of each other",
    Within.MESSAGE: "in one message",
    Within.CONVERSATION: "anywhere in the conversation",
}
_NER: Final = {
    "none": "No model looks for names. What may be a name counts as unknown, and "
    "stays here.",
    "embedded": "The model that comes with the program looks for names.",
    "spacy": "A spaCy model of the operator looks for names.",
    "transformers": "A transformers model of the operator looks for names.",
}
_TRANSPORT: Final = {
    "answers": "Shape of answers",
    "cover": "Cover traffic",
    "mirror": "Second source of keys",
    "gateway": "Whose enclave",
}
_ATTESTATION: Final = {
    "enclaves": "Enclaves",
    "hardware": "Hardware",
    "devices": "Devices",
    "roots": "Roots of trust",
    "releases": "Software",
    "pinned": "Pinned measurements",
    "sandbox": "Sandbox",
    "firmware": "Firmware",
    "SEV-SNP": "AMD SEV-SNP",
    "TDX": "Intel TDX",
    "GPUs": "GPUs",
    "machines": "Machines",
    "evidence": "Evidence",
    "demand": "More for some data",
    "weak": "Asks for less than it could",
}
_PACKS: Final = ("secrets", "pci", "hipaa", "gdpr", "glba", "legal_export")


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a page is made of.

    Attributes:
        policy: the policy.
        name: what to call it in the title.
        made: when the page is made, with a time zone.
        measured: an evaluation, or None.
        signature: what is known of the policy's signature, in a sentence.
    """

    policy: Policy
    name: str
    made: datetime
    measured: Measured | None
    signature: str


def render(report: Report) -> str:
    """Return the page."""
    policy, measured = report.policy, report.measured
    names = policy.document.packs
    return rendered(
        "policy_report.html",
        report=report,
        policy=policy,
        words=ROUTE_WORDS,
        packs=[load_pack(name) for name in names],
        tiles=_tiles(report),
        receives=_RECEIVES,
        rules=[
            (rule, _sentence(rule))
            for rule in sorted(policy.rules, key=lambda rule: -rule.route.privacy)
        ],
        coverage=[
            (pack, [(cover, *_becomes(policy, cover)) for cover in pack.covers])
            for pack in map(load_pack, names)
        ],
        absent=[f"{load_pack(n).title} ({n})" for n in _PACKS if n not in names],
        settings=list(_setting_words(policy)),
        measured=measured,
        **({} if measured is None else measurements(measured)),
    )


def _tiles(report: Report) -> list[tuple[str, str]]:
    counted = dict.fromkeys(Route, 0)
    for rule in report.policy.rules:
        counted[rule.route] += 1
    tiles = [
        (str(counted[route]), f"rules: {ROUTE_WORDS[route]}")
        for route in (Route.BLOCK, Route.LOCAL, Route.DEIDENTIFY)
        if counted[route]
    ]
    if report.measured is not None:
        judged = [each for each in report.measured.figures if each.met is not None]
        met = sum(bool(each.met) for each in judged)
        tiles.append((f"{met} of {len(judged)}", "measured targets met"))
    return tiles


def _sentence(rule: Rule) -> str:
    words = in_words(rule.condition)
    if rule.distinct > 1:
        words = f"{rule.distinct} different ones of: {words}"
    near = len(rule.condition.classes) > 1 and rule.within is not Within.CONVERSATION
    return words + (f", {_WITHIN[rule.within]}" if near else "")


def _becomes(policy: Policy, cover: Cover) -> tuple[list[Route], list[str] | None]:
    """Return the routes of what is found alone, and the rules that keep it with more.

    The rules are None where nothing of it may leave alone.
    """
    own = policy.classes
    classes = {name for each in cover.classes for name in expand(each, own=own)}
    alone = {name: _route_alone(policy, name) for name in classes}
    routes = [route for route in Route if route in alone.values()]
    if Route.ENCLAVE not in routes:
        return routes, None
    free = {name for name, route in alone.items() if route is Route.ENCLAVE}
    return routes, [
        rule.id
        for rule in policy.rules
        if rule.route is not Route.ENCLAVE and free & rule.condition.classes
    ]


def _route_alone(policy: Policy, name: str) -> Route:
    finding = Finding(
        data_class=name,
        detector="report",
        start=0,
        end=1,
        score=100,
        validated=False,
        normalization=Normalization.RAW,
        where=Where(message=0, role="user", json_path="content"),
    )
    alone = Inspection(
        findings=(finding,), payload_digest=bytes(DIGEST_BYTES), messages=1
    )
    return decide(policy.rulebook, alone).route


def _setting_words(policy: Policy) -> Iterator[tuple[str, str]]:
    document, limits = policy.document, policy.limits
    yield "Names", _NER[document.ner.engine]
    yield (
        "Size and time",
        (
            f"Up to {limits.max_chars:,} characters are examined, for "
            f"{limits.deadline_ms} ms, and {limits.deadline_ms_per_1000_chars} ms more "
            "for each 1,000 characters. What is longer, or takes longer, stays here."
        ),
    )
    yield "Languages", f"{', '.join(policy.languages)}; any other stays here."
    kept = "any question stayed here"
    if document.sticky == "validated":
        kept = "a question stayed here in which a check digit held"
    words = f"Once {kept}, the rest of the conversation does too"
    if document.sticky == "content":
        words += (
            ", unless a later question is sent without what stayed, repeats nothing of "
            "it and refers to nothing"
        )
    yield "Conversations", f"{words}."
    thresholds = document.thresholds
    yield (
        "Thresholds",
        (
            f"A finding counts from a score of {thresholds.direct} (what names or "
            f"reaches a person), {thresholds.quasi} (other attributes), "
            f"{thresholds.topic} (topics), of 100; all else counts at any score."
        ),
    )
    topics = "stays here" if document.strict_topics else "may leave"
    yield "Topics", f"Talk of a sensitive topic that concerns nobody {topics}."
    if policy.wall_required:
        yield "Wall", "Without the kernel's wall round them, no detector starts."
    for each in policy.detectors:
        finds = class_in_words(each.data_class)
        yield f"Detector {each.id}", f"A {each.kind} of the organisation: {finds}."
    yield from _exclusions(policy)
    for entry in document.approved:
        note = f" {entry.note}" if entry.note else ""
        yield (
            "Approved text",
            (
                f"What is found in one {entry.role} message does not decide, word for "
                f"word as {entry.by} approved it on {entry.date} (SHA-256 "
                f"{entry.sha256}).{note}"
            ),
        )
    yield from _enclaves(policy)
    for label, sentence in transport_in_words(policy.transport):
        yield _TRANSPORT[label], f"{sentence[0].upper()}{sentence[1:]}."


def _exclusions(policy: Policy) -> Iterator[tuple[str, str]]:
    if not policy.exclusions:
        yield "Exclusions", "Nothing is left out of account."
    for each in policy.exclusions:
        words = f"Left out of account: {each.pattern}"
        words += f" that stands in the list {each.listed!r}" if each.listed else ""
        words += f", unless {each.unless_text}" if each.unless_text else ""
        reason = f" {each.reason}" if each.reason else ""
        yield "Exclusion", f"{words}.{reason}"


def _enclaves(policy: Policy) -> Iterator[tuple[str, str]]:
    if policy.attestation is None:
        yield "Enclaves", "None is named, so nothing leaves this device."
        return
    for label, sentence in attestation_in_words(policy):
        yield _ATTESTATION[label], f"{sentence[0].upper()}{sentence[1:]}."
