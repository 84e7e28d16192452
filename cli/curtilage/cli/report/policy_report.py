"""A policy as one page for people: who receives what, why, and how well.

The page is HTML without scripts and without anything outside of itself. It is
made from the policy and, if there is one, an evaluation; every text is escaped.
What the page says of a class is asked of ``decide``, not of the policy's prose.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from html import escape
from typing import Final

from curtilage.cli.report.class_names import class_in_words, in_words
from curtilage.cli.report.evaluation_json import Measured
from curtilage.cli.report.figures import measurements
from curtilage.cli.report.html import STYLE, section, table
from curtilage.policy.decision.classes import expand
from curtilage.policy.decision.decide import DIGEST_BYTES, Inspection, decide
from curtilage.policy.decision.findings import Finding, View, Where
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
    title = escape(f"Policy report: {report.name}")
    sections = "".join(
        (
            _head(report),
            _receives(),
            _rules(report.policy),
            _coverage(report.policy),
            measurements(report.measured, report.policy.digest),
            _settings(report.policy),
            _limits_of_this_page(),
        )
    )
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{STYLE}</style></head>"
        f"<body><main>{sections}</main></body></html>\n"
    )


# --- what it is about ----------------------------------------------------------


def _head(report: Report) -> str:
    policy = report.policy
    packs = [load_pack(name) for name in policy.document.packs]
    facts = (
        ("Policy", f"{escape(policy.source)}<br><code>{escape(policy.digest)}</code>"),
        ("Signature", escape(report.signature)),
        ("Made", escape(report.made.strftime("%Y-%m-%d %H:%M UTC"))),
        ("Combines", "; ".join(escape(p.title) for p in packs) or "no packs"),
    )
    rows = "".join(f"<dt>{name}</dt><dd>{text}</dd>" for name, text in facts)
    return (
        '<header><p class="kicker">Curtilage policy report</p>'
        f"<h1>{escape(report.name)}</h1>"
        f'<p class="lead">{_lead(policy)}</p>{_tiles(report)}<dl>{rows}</dl></header>'
    )


def _lead(policy: Policy) -> str:
    default = ROUTE_WORDS[policy.document.default.decision]
    text = (
        "Every question is examined on the device before anything else happens. "
        f"{len(policy.rules)} rules say what has to stay. Where no rule applies, a "
        f"question {default}. Where several apply, the most private one decides, and "
        "what could not be examined counts as private."
    )
    if policy.attestation is None:
        text += " This policy names no enclave, so in fact nothing leaves the device."
    return escape(text)


def _tiles(report: Report) -> str:
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
    cells = "".join(
        f"<div><strong>{escape(value)}</strong><span>{escape(words)}</span></div>"
        for value, words in tiles
    )
    return f'<div class="tiles">{cells}</div>'


# --- who receives what ---------------------------------------------------------


def _receives() -> str:
    rows = [
        [_badge(route), escape(device), escape(relay), escape(enclave)]
        for route, device, relay, enclave in _RECEIVES
    ]
    return section(
        "Who receives what",
        "There are four routes, from the most private to the least. The relay passes "
        "sealed bytes on and cannot open them. The enclave is a machine that has to "
        "prove which software it runs before anything is sent.",
        table(["Route", "This device", "The relay", "The enclave"], rows),
    )


def _rules(policy: Policy) -> str:
    ordered = sorted(policy.rules, key=lambda rule: -rule.route.privacy)
    rows = [
        [
            _sentence(rule),
            _badge(rule.route),
            (
                f"{escape(rule.reason) or '<em>no reason is given</em>'}"
                f'<p class="small">Rule <code>{escape(rule.id)}</code>, '
                f"{_origin(rule)}: <code>{escape(rule.when)}</code></p>"
            ),
        ]
        for rule in ordered
    ]
    return section(
        "The rules, and why",
        "A rule applies when its data is found. One rule is enough to keep a question "
        "here; no rule can send one out that another keeps.",
        table(["If a conversation holds …", "then it …", "because"], rows, "rules"),
    )


def _sentence(rule: Rule) -> str:
    words = in_words(rule.condition)
    if rule.distinct > 1:
        words = f"{rule.distinct} different ones of: {words}"
    near = len(rule.condition.classes) > 1 and rule.within is not Within.CONVERSATION
    return escape(words + (f", {_WITHIN[rule.within]}" if near else ""))


def _origin(rule: Rule) -> str:
    if not rule.pack:
        return "of the policy itself"
    return f"of the pack <code>{escape(rule.pack)}</code>"


# --- what the laws list --------------------------------------------------------


def _coverage(policy: Policy) -> str:
    parts = [_pack(policy, name) for name in policy.document.packs]
    absent = [name for name in _PACKS if name not in policy.document.packs]
    if absent:
        titles = "; ".join(f"{load_pack(name).title} ({name})" for name in absent)
        parts.append(f'<p class="note">Not part of this policy: {escape(titles)}.</p>')
    return section(
        "What laws and standards list",
        "Item by item: how it is recognised, and what becomes of a question in which "
        "it is found with certainty and nothing else is. The last column is what this "
        "policy decides, computed when this page was made.",
        "".join(parts),
    )


def _pack(policy: Policy, name: str) -> str:
    pack = load_pack(name)
    rows = [
        [
            f"<strong>{escape(cover.item)}</strong>",
            escape(cover.text),
            escape(cover.how),
            _becomes(policy, cover),
        ]
        for cover in pack.covers
    ]
    head = ["Item", "What it says", "How it is recognised", "Found alone, it …"]
    return (
        f"<h3>{escape(pack.title)}</h3>"
        f'<p class="small">{escape(pack.source)}</p>{table(head, rows, "covers")}'
    )


def _becomes(policy: Policy, cover: Cover) -> str:
    own = policy.classes
    classes = sorted({name for each in cover.classes for name in expand(each, own=own)})
    routes = {name: _route_alone(policy, name) for name in classes}
    parts = [_badge(route) for route in Route if route in routes.values()]
    if Route.ENCLAVE in routes.values():
        free = {name for name, route in routes.items() if route is Route.ENCLAVE}
        rules = [
            rule.id
            for rule in policy.rules
            if rule.route is not Route.ENCLAVE and free & rule.condition.classes
        ]
        listed = ", ".join(f"<code>{escape(rule)}</code>" for rule in rules)
        more = f"with other data, kept by {listed}" if rules else "no rule names it"
        parts.append(f'<p class="small">{more}</p>')
    return " ".join(parts)


def _route_alone(policy: Policy, name: str) -> Route:
    finding = Finding(
        data_class=name,
        detector="report",
        start=0,
        end=1,
        score=100,
        validated=False,
        view=View.RAW,
        where=Where(message=0, role="user", json_path="content"),
    )
    alone = Inspection(
        findings=(finding,), payload_digest=bytes(DIGEST_BYTES), messages=1
    )
    return decide(policy.rulebook, alone).route


# --- the rest of the policy ----------------------------------------------------


def _settings(policy: Policy) -> str:
    items = "".join(
        f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>"
        for name, text in _setting_words(policy)
    )
    return section("Settings", "", f"<dl>{items}</dl>")


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
    yield "Conversations", f"Once {kept}, the rest of the conversation does too."
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


def _limits_of_this_page() -> str:
    items = (
        (
            "It says what the policy decides once something is found. What is not "
            "found is not kept; the measurements say how often that happens, on data "
            "of their kind."
        ),
        "Measurements are of the data named above. Other texts may fare otherwise.",
        "It is not legal advice, and no statement of a law is complete here.",
        (
            "It changes with the policy: compare the digest above with the one that "
            "`curtilage policy check` prints."
        ),
    )
    listed = "".join(f"<li>{escape(each)}</li>" for each in items)
    return section("What this page does not say", "", f"<ul>{listed}</ul>")


def _badge(route: Route) -> str:
    return f'<span class="route {route.value}">{ROUTE_WORDS[route]}</span>'
