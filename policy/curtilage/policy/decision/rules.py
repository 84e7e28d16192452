"""Rules made ready to run: parsed once at load, applied to findings as numbers.

A rule sees classes, scores and places. It adds a route to the choice and can
take none away; ``decide`` picks the most private. ``Rulebook`` is all that a
decision reads of a policy.
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
# Ids of hits that no rule of a file makes. A policy may not use them: an author's rule
# called ``default`` would read in the audit trail as if nothing had been found.
RESERVED_IDS: Final = frozenset({DEFAULT, FLOOR, STICKY, STRICT_TOPICS, TIERS})

Sticky: TypeAlias = Literal["conversation", "content", "validated"]
"""Which query that stayed home keeps its conversation home (``decide.pins``)."""

# Whose texts an application writes once, and whoever asks does not.
APPROVABLE_ROLES: Final = frozenset({"system", "developer"})
# Of what could not be known, this may be settled by a person who read the text: that a
# number is none of somebody's, what language it is, that a name is none. The rest says
# that detectors failed, or that something may lie hidden in it, such as a key.
_READ_BY_A_PERSON: Final = frozenset(
    {"uncertain.number_run", "uncertain.language", "uncertain.name"}
)

PERSON: Final = "identifier.direct.person"
FIGURE: Final = "identifier.public.figure"
# What makes a person of a public figure where a policy lets figures leave: whatever
# else tells of somebody, and whatever would be told of him. A place, a nationality, a
# trade or "I" beside his name are how one speaks of Mozart.
FIGURE_IS_SOMEBODY: Final = (
    "identifier.direct.* | identifier.quasi.{date,dob,age,age90,zip,employer} | "
    "financial.* | health.* | special.* | secret.* | legal.* | export.* | org.* | "
    "topic.* | marker.case | uncertain.*"
)

# Macie looks 30 to 50 characters around a match, Purview 300; one clause of
# English is about 60.
WINDOW_CHARS: Final = 60


class Within(StrEnum):
    """How near each other the findings that fulfil one rule must be."""

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
        """Tell whether a finding is one of those meant; ``unless`` aside."""
        # A checksum that holds outlives every exclusion: "all card numbers in this
        # folder are examples" is how a real one leaves.
        if finding.validated or finding.data_class not in self.classes:
            return False
        # The detector compared the text with the list; no text comes as far as here.
        return not self.listed or self.listed in finding.listed


@dataclass(frozen=True, slots=True, kw_only=True)
class Rulebook:
    """What a decision reads of a policy, and nothing else of it.

    Attributes:
        digest: the policy's, ``sha256:`` and 64 hexadecimal digits.
        default: where a query goes of which no rule asks more.
        rules: in the policy's order; ``any-uncertain`` is among them.
        exclusions: in the policy's order.
        classes: the tree, and what the policy's own detectors find.
        strict_topics: every topic that is sure enough keeps a query home.
        topic_threshold: how sure, 0 to 100.
        sticky: what keeps the rest of a conversation home.
        figures: what makes a person of a public figure; None: he is always one.
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
        """Refuse to exist without the rule that keeps the unknown home."""
        # The loader says so too, with a line number. Here it holds for whoever builds
        # a rulebook by other means: a detector that failed is "nothing found" in any
        # set of rules that has no rule for it.
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

    A checksum that holds is certainty, and so is not to have understood: both
    count as the highest score, whatever the detector says.
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

    Set aside is what was found in an approved text, and nowhere else: each finding
    is judged by its own place, so that no other one comes or goes with it. What
    stays in any case: secrets, what a check proves, what could not be looked at,
    and every class that a rule names which blocks.
    """
    # Asked of the rulebook once more: an inspection that was made under another policy
    # may speak of approvals that this one does not give.
    places = {
        each.where
        for each in approved
        if each.where.role in APPROVABLE_ROLES
        and each.where.json_path == "content"
        and (each.where.role, each.sha256) in rulebook.approved
    }
    if not places:
        return findings
    # Named in any part of a blocking rule: such a rule then sees all that it would see
    # without the approval, and so blocks all that it would block.
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
    """Return the findings, and a person for each public figure that may not leave.

    It may where the policy says so and nothing that counts makes it somebody. A figure
    stays one beside the person: so one finding more takes nothing away.
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
    """Tell whether a rule fires.

    Args:
        rule: the rule.
        findings: those that count.
        scores: ``scores_of(findings)``, made once for all rules.
    """
    condition = rule.condition
    # Cheap first: most rules name nothing that was found.
    if condition.classes.isdisjoint(scores) or not _fulfilled(rule, scores):
        return False
    # What one finding fulfils by itself, it fulfils in any neighbourhood.
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
    # Were ``unless`` to look at what is left, two exclusions could take away one
    # another's exception, and their order in the file would decide what leaves.
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
    # Around every finding, not in fixed steps through the text: a step's border would
    # fall between a name and its diagnosis sooner or later. A gap below zero is an
    # overlap.
    most = WINDOW_CHARS if within is Within.WINDOW else -1
    for anchor in findings:
        yield [each for each in findings if _gap(anchor, each) <= most]


def _gap(one: Finding, other: Finding) -> int:
    """Return the number of characters between two findings.

    Offsets of different readings do not compare: such neighbours in one text
    count as overlapping, which can only make a rule fire more often.
    """
    # Two texts of one conversation have no distance: "near" never joins them.
    if one.where != other.where:
        return WINDOW_CHARS + 1
    if one is other or one.normalization is not other.normalization:
        return -1
    return max(one.start, other.start) - min(one.end, other.end)
