"""Rules in executable form: parsed once at load, applied to findings.

A rule sees classes, scores and places. It adds a candidate route and cannot
remove one; ``decide`` picks the most private. A decision reads nothing of a policy
but its ``Rulebook``.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, Literal, TypeAlias

from curtilage.policy.decision.classes import CLASSES, is_uncertain
from curtilage.policy.decision.conditions import MAX_SCORE, Condition, Scores, joins
from curtilage.policy.decision.findings import Approved, Finding
from curtilage.policy.decision.routes import Route
from curtilage.policy.decision.tiers import Tiering

ANY_UNCERTAIN: Final = "any-uncertain"
ANY_UNCERTAIN_WHEN: Final = "uncertain.*"
DEFAULT: Final = "default"
FLOOR: Final = "floor"
STICKY: Final = "sticky"
STRICT_TOPICS: Final = "strict-topics"
TIERS: Final = "tiers"
# Ids of hits that come from no rule of a file. A policy must not use them: a rule
# called ``default`` would look in the audit trail as if nothing had been found.
RESERVED_IDS: Final = frozenset({DEFAULT, FLOOR, STICKY, STRICT_TOPICS, TIERS})

Sticky: TypeAlias = Literal["conversation", "content", "validated"]
"""Local queries that keep their conversation local (``decide.pins``)."""

# Roles whose texts an application writes once, rather than the person who asks.
APPROVABLE_ROLES: Final = frozenset({"system", "developer"})
# Uncertain findings that a person who read the text can settle: that a number is not
# personal, which language it is, that a word is not a name. The others mean that
# detectors failed, or that something, such as a key, may be hidden in the text.
_READ_BY_A_PERSON: Final = frozenset(
    {"uncertain.number_run", "uncertain.language", "uncertain.name"}
)

PERSON: Final = "identifier.direct.person"
FIGURE: Final = "identifier.public.figure"
# Findings that make a public figure count as a person where a policy permits figures:
# any other personal data, and anything sensitive. A place, a nationality, a trade or
# "I" next to the name do not: people write about Mozart that way.
FIGURE_IS_SOMEBODY: Final = (
    "identifier.direct.* | identifier.quasi.{date,dob,age,age90,zip,employer} | "
    "financial.* | health.* | special.* | secret.* | legal.* | export.* | org.* | "
    "topic.* | marker.case | uncertain.*"
)

# Macie looks 30 to 50 characters around a match, Purview 300; one clause of
# English is about 60.
WINDOW_CHARS: Final = 60


class Within(StrEnum):
    """Distance within which the findings that fulfil one rule must be."""

    SPAN = "span"
    WINDOW = "window"
    MESSAGE = "message"
    CONVERSATION = "conversation"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule of a policy.

    Attributes:
        id: unique in its policy.
        when: the expression as it was written.
        condition: the expression, parsed.
        within: how near the findings must be.
        distinct: how many different classes must match, at least 1.
        route: where the query goes when the rule fires.
        reason: why, in the author's words; may be empty.
        pack: the pack that the rule comes from; empty: the policy's own file.
    """

    id: str
    when: str
    condition: Condition = field(repr=False)
    within: Within
    distinct: int
    route: Route
    reason: str
    pack: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exclusion:
    """Findings that do not count.

    Attributes:
        pattern: the classes as they were written.
        classes: the same classes; none of ``secret.*`` or ``uncertain.*``.
        unless: a condition that lets them count after all, or None.
        unless_text: the same as it was written; empty for none.
        reason: why, in the author's words.
        listed: the list in which the found text must stand; empty: in any.
    """

    pattern: str
    classes: frozenset[str] = field(repr=False)
    unless: Condition | None = field(repr=False)
    unless_text: str
    reason: str
    listed: str = ""

    def removes(self, finding: Finding) -> bool:
        """Return whether a finding is one of those meant; ``unless`` aside."""
        # A valid checksum overrides every exclusion: "all card numbers in this folder
        # are examples" is how a real one would be sent.
        if finding.validated or finding.data_class not in self.classes:
            return False
        # The detector compared the text with the list; the text itself is not available
        # here.
        return not self.listed or self.listed in finding.listed


@dataclass(frozen=True, slots=True, kw_only=True)
class Rulebook:
    """The part of a policy that a decision reads.

    Attributes:
        digest: the policy's, ``sha256:`` and 64 hexadecimal digits.
        default: the route of a query for which no rule asks for more.
        rules: in the policy's order; ``any-uncertain`` is among them.
        exclusions: in the policy's order.
        classes: the tree, and what the policy's own detectors find.
        strict_topics: every topic that is sure enough keeps a query home.
        topic_threshold: how sure, 0 to 100.
        sticky: what keeps the rest of a conversation home.
        figures: what makes a public figure count as a person; None: always.
        approved: role and SHA-256 of each text whose findings do not decide.
        tiering: where an answer may be made.
    """

    digest: str
    default: Route
    rules: tuple[Rule, ...] = field(repr=False)
    exclusions: tuple[Exclusion, ...] = field(default=(), repr=False)
    classes: frozenset[str] = field(default=CLASSES, repr=False)
    strict_topics: bool
    topic_threshold: int
    sticky: Sticky
    figures: Condition | None = field(default=None, repr=False)
    approved: frozenset[tuple[str, str]] = field(default=frozenset(), repr=False)
    tiering: Tiering = field(default_factory=Tiering, repr=False)

    def __post_init__(self) -> None:
        """Refuse to exist without the rule that keeps uncertain queries local."""
        # The loader checks it too, with a line number. This check covers rulebooks that
        # are built by other means: without the rule, a detector that failed would count
        # as "nothing found".
        if not any(
            rule.id == ANY_UNCERTAIN
            and rule.when == ANY_UNCERTAIN_WHEN
            and rule.distinct == 1
            and rule.route in {Route.BLOCK, Route.LOCAL}
            for rule in self.rules
        ):
            raise ValueError(f"a policy without the rule {ANY_UNCERTAIN!r}")


def scores_of(findings: Iterable[Finding]) -> dict[str, int]:
    """Return the highest score of each class.

    A valid checksum is certain, and so is an ``uncertain.*`` finding: both count
    as the highest score, whatever the detector says.
    """
    scores: dict[str, int] = {}
    for finding in findings:
        name = finding.data_class
        certain = finding.validated or is_uncertain(name)
        score = MAX_SCORE if certain else finding.score
        # The highest and not a sum or a mean: one more finding must never make a
        # class less sure. -1, because a score of 0 is a finding too.
        if score > scores.get(name, -1):
            scores[name] = score
    return scores


def unapproved(
    rulebook: Rulebook, findings: Sequence[Finding], approved: Sequence[Approved]
) -> Sequence[Finding]:
    """Return the findings that no approval sets aside.

    An approval sets aside only what was found in the approved text: each finding is
    judged by its own place, so no other finding is affected. Always kept: secrets,
    findings that a check proves, text that could not be inspected, and every class
    that a blocking rule names.
    """
    # Checked against the rulebook again: an inspection that was made under another
    # policy may refer to approvals that this one does not give.
    places = {
        each.where
        for each in approved
        if each.where.role in APPROVABLE_ROLES
        and each.where.json_path == "content"
        and (each.where.role, each.sha256) in rulebook.approved
    }
    if not places:
        return findings
    # Named in any part of a blocking rule: such a rule sees the same findings with and
    # without the approval, and so blocks the same queries.
    blocked = frozenset[str]().union(
        *(
            rule.condition.classes
            for rule in rulebook.rules
            if rule.route is Route.BLOCK
        )
    )
    if PERSON in blocked:  # which a public figure counts as, unless it may leave
        blocked |= {FIGURE}
    return [
        each
        for each in findings
        if each.where not in places
        or each.validated
        or each.data_class.startswith("secret.")
        or each.data_class in blocked
        or (is_uncertain(each.data_class) and each.data_class not in _READ_BY_A_PERSON)
    ]


def with_figures_as_persons(
    rulebook: Rulebook, findings: Sequence[Finding]
) -> Sequence[Finding]:
    """Return the findings, and a person for each figure that must be kept local.

    A figure may be sent where the policy says so and no other finding makes it count as
    a person. The figure is kept next to the person, so this only adds findings.
    """
    scores = scores_of(findings)
    if FIGURE not in scores or (
        rulebook.figures is not None and not rulebook.figures.holds(scores)
    ):
        return findings
    persons = [
        replace(each, data_class=PERSON)
        for each in findings
        if each.data_class == FIGURE
    ]
    return [*findings, *persons]


def fires(rule: Rule, findings: Sequence[Finding], scores: Scores) -> bool:
    """Return whether a rule fires.

    Args:
        rule: the rule.
        findings: those that count.
        scores: ``scores_of(findings)``, made once for all rules.
    """
    condition = rule.condition
    # Cheap first: most rules name nothing that was found.
    if condition.classes.isdisjoint(scores) or not _fulfilled(rule, scores):
        return False
    # If one finding fulfils it alone, its distance from others does not matter.
    alone = rule.distinct == 1 and not joins(condition)
    if alone or rule.within is Within.CONVERSATION:
        return True
    # Only what the condition names can fulfil it, so only that is compared with
    # everything else: the groups grow with the square of their number.
    named = [each for each in findings if each.data_class in condition.classes]
    return any(
        _fulfilled(rule, scores_of(near)) for near in _groups(named, rule.within)
    )


def counting(
    findings: Sequence[Finding], exclusions: Sequence[Exclusion], scores: Scores
) -> Sequence[Finding]:
    """Return the findings that no exclusion removes.

    A validated finding is never removed. ``unless`` looks at all findings, the
    removed ones too, so that one more finding never removes another.
    """
    # If ``unless`` looked only at what is left, two exclusions could remove each
    # other's exception, and their order in the file would decide what is sent.
    active = [
        each
        for each in exclusions
        if not each.classes.isdisjoint(scores)
        and (each.unless is None or not each.unless.holds(scores))
    ]
    if not active:
        return findings
    return [
        each
        for each in findings
        if not any(exclusion.removes(each) for exclusion in active)
    ]


def _fulfilled(rule: Rule, scores: Scores) -> bool:
    if not rule.condition.holds(scores):
        return False
    # Classes are counted, not findings: one name written five times is one thing.
    return rule.distinct == 1 or len(rule.condition.matched(scores)) >= rule.distinct


def _groups(findings: Sequence[Finding], within: Within) -> Iterator[Sequence[Finding]]:
    if within is Within.MESSAGE:
        for message in {each.where.message for each in findings}:
            yield [each for each in findings if each.where.message == message]
        return
    # Around every finding, not in fixed steps through the text: a border would sooner
    # or later fall between a name and its diagnosis. A gap below zero is an overlap.
    most = WINDOW_CHARS if within is Within.WINDOW else -1
    for anchor in findings:
        yield [each for each in findings if _gap(anchor, each) <= most]


def _gap(one: Finding, other: Finding) -> int:
    """Return the number of characters between two findings.

    Offsets of different normalizations cannot be compared: such findings in one text
    count as overlapping, which can only make a rule fire more often.
    """
    # Two texts of one conversation have no distance: "near" never joins them.
    if one.where != other.where:
        return WINDOW_CHARS + 1
    if one is other or one.normalization is not other.normalization:
        return -1
    return max(one.start, other.start) - min(one.end, other.end)
