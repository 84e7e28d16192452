"""Policy report: one HTML page on who receives what, why, and how well it works.

The page (``templates/policy_report.html``) has no scripts and no external resources.
It is rendered from the policy and optionally an evaluation; every text is escaped.
Statements about a class come from ``decide``, not from the policy's prose.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from curtilage.cli.report.class_names import FAMILIES, class_in_words, in_words
from curtilage.cli.report.evaluation_json import Measured
from curtilage.cli.report.figures import measurements
from curtilage.cli.report.html import rendered
from curtilage.policy.decision.classes import expand
from curtilage.policy.decision.conditions import Term
from curtilage.policy.decision.routes import Route
from curtilage.policy.decision.rules import Rule, Within
from curtilage.policy.decision.tiers import TierKind
from curtilage.policy.document.load import load_pack
from curtilage.policy.document.model import Policy
from curtilage.policy.document.packs import Cover
from curtilage.policy.explain.attestation import attestation_in_words
from curtilage.policy.explain.routing import decided_alone, fates, routing_in_words
from curtilage.policy.explain.transport import transport_in_words

ROUTE_WORDS: Final = {
    Route.BLOCK: "is not answered",
    Route.LOCAL: "is kept local",
    Route.DEIDENTIFY: "is sent without the names",
    Route.ENCLAVE: "may be sent",
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
        "reads it, and answers with the local model",
        "nothing",
        "nothing",
    ),
    (
        Route.DEIDENTIFY,
        "reads it, keeps the names, and restores them in the answer",
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
    "none": "No model looks for names. A possible name counts as uncertain, and is "
    "kept local.",
    "embedded": "The model that comes with the program looks for names.",
    "spacy": "A spaCy model of the operator looks for names.",
    "transformers": "A transformers model of the operator looks for names.",
}
_FIGURES: Final = {
    "stay": "A person of history or of fiction counts as a person.",
    "leave": "A person of history or of fiction may be named, if nothing else refers "
    "to a person, or to health, special categories, money, law or work.",
}
_TRANSPORT: Final = {
    "answers": "Shape of answers",
    "cover": "Cover traffic",
    "cost": "Its cost",
    "mirror": "Second source of keys",
    "gateway": "Whose enclave",
}
_ROUTING: Final = {
    "tiers": "Place",
    "tier": "Place",
    "class": "By class",
    "place": "Demand",
    "intent": "Preference",
    "observes": "Observing",
    "consent": "Consent",
    "history": "Earlier turns",
    "drafts": "Drafts",
    "hardness": "How hard it is",
    "breaker": "After failures",
    "queue": "Queued questions",
    "model": "Which local model",
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
    "custody": "Custody",
    "evidence": "Evidence",
    "demand": "More for some data",
    "weak": "Weaker than possible",
    "broken": "Not withstood today",
}
_FAMILIES: Final = {
    "secret.*": "keys and passwords",
    "financial.pan": "card numbers",
    "identifier.direct.gov_id.*": "national numbers",
    "identifier.direct.person": "names",
    "identifier.direct.*": "anything that identifies one person",
    "health.*": "health details",
    "special.*": "special categories",
    "financial.*": "payment and financial details",
    "legal.*": "marks of legal privilege",
    "export.*": "marks of export control",
    "org.confidential": "what is marked confidential",
    "topic.*": "sensitive topics without a person",
    "uncertain.*": "what could not be examined",
}
_PACKS: Final = ("secrets", "pci", "hipaa", "gdpr", "glba", "legal_export")


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Inputs of a report.

    Attributes:
        policy: the policy.
        name: the policy's name in the title.
        made: time of creation, with a time zone.
        measured: an evaluation, or None.
        signature: sentence about the policy's signature.
        approved: who approved it, in a few words.
        until: until when, in a few words.
    """

    policy: Policy
    name: str
    made: datetime
    measured: Measured | None
    signature: str
    approved: str = "not checked"
    until: str = "not known"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Outcome of several classes that are decided alike if found alone.

    Attributes:
        words: the classes in words.
        route: the route of a question with one of them.
        kept_by: ids of the rules that keep it local together with other data; None
            if it may not be sent alone.
    """

    words: str
    route: Route
    kept_by: tuple[str, ...] | None


def render(report: Report) -> str:
    """Return the HTML page."""
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
            (_sentence(group[0]), group, _decided_before(policy, group[0]))
            for group in _alike(policy.rules)
        ],
        coverage=[
            (pack, [(cover, _outcomes(policy, cover)) for cover in pack.covers])
            for pack in map(load_pack, names)
        ],
        # What the policy leaves out is listed as well: a reader cannot miss what is not
        # mentioned.
        absent=[f"{load_pack(n).title} ({n})" for n in _PACKS if n not in names],
        tiers=[each.id for each in policy.tiering.tiers],
        on_premises=[
            each.id
            for each in policy.tiering.tiers
            if each.kind is TierKind.ON_PREMISES
        ],
        places=[
            (_heading(_ROUTING, label), f"{sentence[0].upper()}{sentence[1:]}.")
            for label, sentence in routing_in_words(policy)
            if label != "found"
        ],
        fates=() if policy.routing is None else fates(policy),
        settings=list(_setting_words(policy)),
        measured=measured,
        **({} if measured is None else measurements(measured)),
    )


def _heading(headings: Mapping[str, str], label: str) -> str:
    """Return the heading for a label of ``policy check``."""
    # An unknown label gets a plain heading: omitting it would hide a part of the
    # policy, and an error would prevent the page.
    return headings.get(label, f"{label[0].upper()}{label[1:]}")


def _tiles(report: Report) -> list[tuple[str, str]]:
    policy = report.policy
    kept, leaves = list[str](), list[str]()
    # By deciding each class and not by reading the rules: rules overlap, and a stricter
    # one may apply first.
    for family, words in _FAMILIES.items():
        routes = {_route_alone(policy, name) for name in expand(family)}
        # Only if all classes of a family are kept: "never sent" is a promise.
        if Route.ENCLAVE not in routes and Route.DEIDENTIFY not in routes:
            kept.append(words)
        # A family with different routes is in neither tile; the table shows its
        # classes.
        elif routes == {Route.ENCLAVE}:
            leaves.append(words)
    tiles = [("Never sent", "; ".join(kept) or "nothing by itself")]
    # Rules may permit the enclave, but without attestation there is none to send to.
    if policy.attestation is None:
        tiles.append(("May be sent", "nothing: no enclave is named"))
    else:
        # What no rule names takes the default route, and belongs into this tile as
        # well.
        unnamed = policy.document.default.decision is Route.ENCLAVE
        other = ["what no rule names"] if unnamed else []
        tiles.append(("May be sent, alone", "; ".join([*leaves, *other]) or "nothing"))
    tiles += [("Approved by", report.approved), ("Valid until", report.until)]
    measured = report.measured
    # Figures of another policy would look like a promise about this one.
    if measured is not None and measured.policy_digest == policy.digest:
        judged = [each for each in measured.figures if each.met is not None]
        met = sum(bool(each.met) for each in judged)
        tiles.append(("Measured targets met", f"{met} of {len(judged)}"))
    return tiles


def _alike(rules: Sequence[Rule]) -> list[list[Rule]]:
    """Return rules grouped by equal conditions; the most private first."""
    groups: list[list[Rule]] = []
    # The sort is stable, so that rules of one route keep the policy's order.
    for rule in sorted(rules, key=lambda rule: -rule.route.privacy):
        for group in groups:
            one = group[0]
            # Packs repeat each other's rules; one row with several ids is easier to
            # review than many equal ones.
            if (one.condition, one.within, one.distinct) == (
                rule.condition,
                rule.within,
                rule.distinct,
            ):
                group.append(rule)
                break
        else:
            groups.append([rule])
    return groups


def _decided_before(policy: Policy, rule: Rule) -> str:
    """Return the classes of a rule that stricter rules already keep, in words."""
    # For other conditions the answer depends on what else is found, so nothing is
    # claimed.
    if not isinstance(rule.condition, Term) or rule.distinct > 1:
        return ""
    return ", ".join(
        class_in_words(name)
        for name in sorted(rule.condition.classes)
        if _route_alone(policy, name).privacy > rule.route.privacy
    )


def _sentence(rule: Rule) -> str:
    words = in_words(rule.condition)
    if rule.distinct > 1:
        words = f"at least {rule.distinct} distinct of: {words}"
    near = len(rule.condition.classes) > 1 and rule.within is not Within.CONVERSATION
    return words + (f", {_WITHIN[rule.within]}" if near else "")


def _outcomes(policy: Policy, cover: Cover) -> list[Outcome]:
    """Return the outcomes of an item's classes, grouped if they are decided alike.

    A family that is decided alike is one line with one name.
    """
    fates: dict[tuple[Route, tuple[str, ...] | None], list[str]] = {}
    for pattern in cover.classes:
        names = sorted(expand(pattern, own=policy.classes))
        outcomes: dict[str, tuple[Route, tuple[str, ...] | None]] = {}
        for name in names:
            kept_by, route = None, _route_alone(policy, name)
            # Only for a class that may be sent alone: for another, the rule that keeps
            # it is in the table already.
            if route is Route.ENCLAVE:
                kept_by = tuple(
                    rule.id
                    for rule in policy.rules
                    if rule.route is not Route.ENCLAVE
                    and name in rule.condition.classes
                )
            outcomes[name] = route, kept_by
        if pattern in FAMILIES and len(set(outcomes.values())) == 1:
            fates.setdefault(outcomes[names[0]], []).append(FAMILIES[pattern])
            continue
        for name, fate in outcomes.items():
            fates.setdefault(fate, []).append(class_in_words(name))
    return [
        Outcome(words=", ".join(dict.fromkeys(words)), route=route, kept_by=kept_by)
        for (route, kept_by), words in sorted(
            fates.items(), key=lambda each: -each[0][0].privacy
        )
    ]


def _route_alone(policy: Policy, name: str) -> Route:
    return decided_alone(policy, name).route


def _setting_words(policy: Policy) -> Iterator[tuple[str, str]]:
    document, limits = policy.document, policy.limits
    yield "Names", _NER[document.ner.engine]
    yield (
        "Size and time",
        (
            f"Up to {limits.max_chars:,} characters are examined, for "
            f"{limits.deadline_ms} ms of processor time, plus "
            f"{limits.deadline_ms_per_1000_chars} ms for each 1,000 characters, and at "
            f"most {limits.deadline_wall_ms / 1000:g} s of elapsed time. Anything that "
            "is longer or takes longer is kept local."
        ),
    )
    yield "Languages", f"{', '.join(policy.languages)}; any other is kept local."
    kept = "any question was kept local"
    if document.sticky == "validated":
        kept = "a question with a valid check digit was kept local"
    words = f"Once {kept}, the rest of the conversation is too"
    if document.sticky == "content":
        words += (
            ", unless a later question is sent without the kept turns, repeats nothing "
            "from them and does not refer to them"
        )
    yield "Conversations", f"{words}."
    yield "Public figures", _FIGURES[document.public_figures]
    thresholds = document.thresholds
    yield (
        "Thresholds",
        (
            f"A finding counts from a score of {thresholds.direct} (what identifies "
            f"a person), {thresholds.quasi} (other attributes), "
            f"{thresholds.topic} (topics), of 100; all else counts at any score."
        ),
    )
    yield "Topics", _topics(policy)
    if policy.wall_required:
        yield "Isolation", "Without the kernel's isolation, no detector starts."
    for each in policy.detectors:
        finds = class_in_words(each.data_class)
        yield f"Detector {each.id}", f"A {each.kind} of the organisation: {finds}."
    yield from _exclusions(policy)
    for entry in document.approved:
        note = f" {entry.note}" if entry.note else ""
        yield (
            "Approved text",
            (
                f"Findings in one {entry.role} message do not decide, if it is exactly "
                f"the text that {entry.by} approved on {entry.date} (SHA-256 "
                f"{entry.sha256}).{note}"
            ),
        )
    yield from _enclaves(policy)
    for label, sentence in transport_in_words(policy.transport):
        yield _heading(_TRANSPORT, label), f"{sentence[0].upper()}{sentence[1:]}."


def _topics(policy: Policy) -> str:
    """Return the outcome of a topic that is found alone, according to the rules."""
    by_route: dict[Route, list[str]] = {}
    for name in sorted(expand("topic.*")):
        words = class_in_words(name).removeprefix("talk of ")
        by_route.setdefault(_route_alone(policy, name), []).append(words)
    if len(by_route) == 1:
        (route,) = by_route
        return f"Talk of a sensitive topic without a person {ROUTE_WORDS[route]}."
    sentences = [
        f"talk of {', '.join(words)} {ROUTE_WORDS[route]}"
        for route, words in sorted(by_route.items(), key=lambda each: -each[0].privacy)
    ]
    return f"Without a person, {'; '.join(sentences)}."


def _exclusions(policy: Policy) -> Iterator[tuple[str, str]]:
    if not policy.exclusions:
        yield "Exclusions", "None."
    for each in policy.exclusions:
        words = f"Ignored: {each.pattern}"
        words += f" in the list {each.listed!r}" if each.listed else ""
        words += f", unless {each.unless_text}" if each.unless_text else ""
        reason = f" {each.reason}" if each.reason else ""
        yield "Exclusion", f"{words}.{reason}"


def _enclaves(policy: Policy) -> Iterator[tuple[str, str]]:
    if policy.attestation is None:
        yield "Enclaves", "None is named, so nothing is sent to an enclave."
        return
    for label, sentence in attestation_in_words(policy):
        # The name of a release keeps its spelling.
        first = sentence.partition(" ")[0].rstrip(",;")
        named = label in {"releases", "pinned"} or "-" in first
        begun = sentence if named else f"{sentence[0].upper()}{sentence[1:]}"
        yield _heading(_ATTESTATION, label), f"{begun}."
