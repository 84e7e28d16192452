"""The decision: findings and a rulebook in, a route and its reasons out.

One pure function. It reads no text, no clock and no model's opinion, and one
finding more never makes its answer less private. It is also the only maker of
``Allowed``, which opens the seal door for one payload.

Who audits the promise reads three lines here: ``_decisive``, which takes the most
private route that anybody asked for; the one ``if`` of ``decide`` that makes an
``Allowed``; and ``require_allowed``, which the seal door asks.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NoReturn, final

from typing_extensions import override

from curtilage.policy.decision.classes import UNCERTAIN_ERROR, is_uncertain
from curtilage.policy.decision.conditions import MAX_SCORE, Scores
from curtilage.policy.decision.findings import Approved, Finding
from curtilage.policy.decision.routes import Route
from curtilage.policy.decision.rules import (
    ANY_UNCERTAIN,
    DEFAULT,
    STICKY,
    STRICT_TOPICS,
    Rulebook,
    counting,
    fires,
    scores_of,
    unapproved,
    with_figures_as_persons,
)

DIGEST_BYTES: Final = 32
DEFAULT_REASON: Final = "no rule asks for more privacy than the default"
STICKY_REASON: Final = "an earlier query of this conversation stayed home"
STRICT_TOPICS_REASON: Final = "the policy keeps this topic home (strict_topics)"
# Made when the process starts and never handed out: whoever holds an ``Allowed`` with
# this mark got it from ``decide``. It guards against mistakes of ours, such as a path
# that builds its own permission; code that means harm in our own process can reach
# anything, and no value could stop it.
_BRAND: Final = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """What the detectors report about one exact payload.

    Attributes:
        findings: everything found; what could not be known is among it, as
            ``uncertain.*``.
        payload_digest: SHA-256 of the payload, 32 bytes; never to be published.
        messages: how many messages were inspected.
        pinned: an earlier query of the same conversation pinned it (``pins``).
        approved: the texts that a policy approves, word for word.
    """

    findings: tuple[Finding, ...]
    payload_digest: bytes
    messages: int
    pinned: bool = False
    approved: tuple[Approved, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a digest of the wrong size: it would name no payload."""
        # An empty digest would be equal to another empty digest at the seal door, and
        # so let a payload pass that was never inspected.
        if len(self.payload_digest) != DIGEST_BYTES:
            raise ValueError(
                f"a payload digest has {DIGEST_BYTES} bytes, "
                f"not {len(self.payload_digest)}"
            )


@final
class Allowed:
    """The permission to seal one payload, under one policy.

    Only ``decide`` builds it; it cannot be changed, copied or pickled.

    Attributes:
        policy_digest: the policy that permits it.
        payload_digest: SHA-256 of the payload that may leave.
    """

    __slots__ = ("_brand", "payload_digest", "policy_digest")
    _brand: object
    payload_digest: bytes
    policy_digest: str

    def __init__(
        self, brand: object, *, policy_digest: str, payload_digest: bytes
    ) -> None:
        if brand is not _BRAND:
            raise TypeError("only decide() builds an Allowed")
        # Past our own __setattr__, which refuses: no other line may write here.
        object.__setattr__(self, "_brand", brand)
        object.__setattr__(self, "policy_digest", policy_digest)
        object.__setattr__(self, "payload_digest", payload_digest)

    @override
    def __init_subclass__(cls) -> NoReturn:
        """Refuse to be a base: a subclass could be built by others."""
        raise TypeError("Allowed has no subclasses")

    @override
    def __setattr__(self, name: str, value: object) -> NoReturn:
        """Refuse to be changed."""
        raise AttributeError("an Allowed cannot be changed")

    @override
    def __delattr__(self, name: str) -> NoReturn:
        """Refuse to be changed."""
        raise AttributeError("an Allowed cannot be changed")

    @override
    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """Refuse to be copied or pickled."""
        # copy.copy and pickle both ask here. One decision lets one payload leave, in
        # this process; a permission in a file could be used again tomorrow, when the
        # policy is another.
        raise TypeError("an Allowed cannot be copied")

    @override
    def __eq__(self, other: object) -> bool:
        """Compare what is permitted."""
        if not isinstance(other, Allowed):
            return NotImplemented
        return (self.policy_digest, self.payload_digest) == (
            other.policy_digest,
            other.payload_digest,
        )

    @override
    def __hash__(self) -> int:
        """Hash what is permitted."""
        return hash((self.policy_digest, self.payload_digest))

    @override
    def __repr__(self) -> str:
        """Name the policy; the payload's digest could confirm a guess of it."""
        return f"Allowed(policy_digest={self.policy_digest!r})"


def require_allowed(value: object) -> Allowed:
    """Return ``value`` if ``decide`` built it; the seal door asks this.

    Raises:
        TypeError: it is anything else, an unfinished ``Allowed`` included.
    """
    # ``type`` and not ``isinstance``: a class may lie about itself in ``__class__``.
    # ``Allowed.__new__(Allowed)`` has the right type but no brand, hence the default.
    if type(value) is not Allowed or getattr(value, "_brand", None) is not _BRAND:
        raise TypeError("only an Allowed that decide() built opens the seal door")
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleHit:
    """A rule that fired.

    Attributes:
        id: the rule's id.
        route: what it asks for.
        reason: why, in the words of the policy.
    """

    id: str
    route: Route
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Where one query may be answered, and why; it holds no content.

    Attributes:
        route: the most private of what the default and the rules ask for.
        classes: the data classes that were found, sorted; without uncertainty.
        rules: every rule that fired, in the policy's order.
        rule: the id of the one that decided, or ``default``.
        reason: that rule's reason.
        uncertain: what could not be known, sorted.
        policy_digest: the policy that was applied.
        allowed: the permission to seal; there exactly if the route is
            ``ENCLAVE``.
    """

    route: Route
    classes: tuple[str, ...]
    rules: tuple[RuleHit, ...]
    rule: str
    reason: str
    uncertain: tuple[str, ...]
    policy_digest: str
    allowed: Allowed | None


def decide(rulebook: Rulebook, inspection: Inspection) -> Decision:
    """Decide where a query may be answered.

    Trusts the inspection to be complete: what a detector could not do must be
    in it as ``uncertain.*``. A finding that makes no sense counts as
    ``uncertain.error``.
    """
    # First of all: a class that no rule can name would match no rule, so that a
    # detector's typing error would let what it found leave. Such a finding is not
    # dropped but becomes one that every policy keeps home.
    sensible = [
        each
        if each.data_class in rulebook.classes and 0 <= each.score <= MAX_SCORE
        else replace(each, data_class=UNCERTAIN_ERROR)
        for each in inspection.findings
    ]
    # Approvals before all else: what an approver has read takes part in nothing, in no
    # combination and in no exception either.
    judged = unapproved(rulebook, sensible, inspection.approved)
    # A public figure is a person to every rule and exclusion, unless it may leave.
    judged = with_figures_as_persons(rulebook, judged)
    # Exclusions before rules: what does not count must not fire a rule. They see the
    # scores of all findings, the excluded ones too (``counting`` says why).
    scores = scores_of(judged)
    findings = counting(judged, rulebook.exclusions, scores)
    if findings is not judged:
        scores = scores_of(findings)
    hits = _hits(rulebook, inspection, findings, scores)
    decisive = _decisive(rulebook, hits)
    allowed = None
    # The line that stops a regulated query. Any other route has no ``Allowed``, and
    # without one the seal door refuses: there is nothing that could be sent.
    # ``DEIDENTIFY`` has none either: the rewritten text is inspected and decided anew,
    # with a digest of its own.
    if decisive.route is Route.ENCLAVE:
        allowed = Allowed(
            _BRAND,
            policy_digest=rulebook.digest,
            payload_digest=inspection.payload_digest,
        )
    return Decision(
        route=decisive.route,
        classes=tuple(sorted(name for name in scores if not is_uncertain(name))),
        rules=hits,
        rule=decisive.id,
        reason=decisive.reason,
        uncertain=tuple(sorted(name for name in scores if is_uncertain(name))),
        policy_digest=rulebook.digest,
        allowed=allowed,
    )


def pins(rulebook: Rulebook, inspection: Inspection, decision: Decision) -> bool:
    """Tell whether this query keeps the rest of its conversation home.

    History is sent again with every turn, so a conversation that stayed home
    once stays there: after any such query (``sticky: conversation``, and
    ``content``, under which less counts as the same conversation), or after one in
    which a checksum held (``sticky: validated``). A query that left without its
    names did not stay: with every turn they are replaced again.
    """
    if decision.route in {Route.ENCLAVE, Route.DEIDENTIFY}:
        return False
    # A pinned conversation stays pinned under either choice, else the next harmless
    # turn ("thanks, and shorter?") would carry the whole history out.
    if rulebook.sticky != "validated" or inspection.pinned:
        return True
    return any(finding.validated for finding in inspection.findings)


def _hits(
    rulebook: Rulebook,
    inspection: Inspection,
    findings: Sequence[Finding],
    scores: Scores,
) -> tuple[RuleHit, ...]:
    """Return every rule that fires, in the policy's order, then our own two."""
    # All of them and not only until the first: a reader of the audit trail sees
    # each reason, and the order of the file cannot hide a stricter rule below.
    hits = [
        RuleHit(id=rule.id, route=rule.route, reason=rule.reason)
        for rule in rulebook.rules
        if fires(rule, findings, scores)
    ]
    # Topics have scores of a model, not of a checksum: below the threshold they say
    # nothing, whatever ``strict_topics`` wishes.
    if rulebook.strict_topics and any(
        name.startswith("topic.") and score >= rulebook.topic_threshold
        for name, score in scores.items()
    ):
        hits.append(
            RuleHit(id=STRICT_TOPICS, route=Route.LOCAL, reason=STRICT_TOPICS_REASON)
        )
    # A hit like any other: a rule that blocks still outranks it.
    if inspection.pinned:
        hits.append(RuleHit(id=STICKY, route=Route.LOCAL, reason=STICKY_REASON))
    return tuple(hits)


def _decisive(rulebook: Rulebook, hits: Sequence[RuleHit]) -> RuleHit:
    """Return the first of the most private; the default takes part, last.

    Of two equally private ones, a rule about what was found says more to a
    person than one about what could not be known.
    """
    # The default is one candidate among the hits, not what is left when there are
    # none: a rule may make it stricter and can never make it laxer.
    fallback = RuleHit(id=DEFAULT, route=rulebook.default, reason=DEFAULT_REASON)
    telling = {DEFAULT: 0, ANY_UNCERTAIN: 1}
    # ``max`` keeps the first of equals, so the policy's order breaks a tie. The second
    # part of the key chooses among equal routes only: it changes the reason that is
    # shown and never the route.
    return max(
        (*hits, fallback),
        key=lambda hit: (hit.route.privacy, telling.get(hit.id, len(telling))),
    )
