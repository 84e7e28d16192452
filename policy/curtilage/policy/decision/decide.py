"""The decision: takes findings and a rulebook, returns a route and its reasons.

Pure functions. They read no text, no clock and no model's output, and an additional
finding never makes the route less private. ``assess`` finds the route of an
``Inspection`` or a ``WhatIf``. ``decide`` takes only an ``Inspection``, and is the
only maker of ``Allowed``, from which the permits to seal one payload are minted.

An auditor of the promise reads four places here: ``require_inspected``, which refuses
an inspection that no detector made; ``_decisive``, which takes the most private route
that any rule asks for; the one ``if`` of ``decide`` that makes an ``Allowed``; and
``require_allowed``, which is called where a permit is minted.
"""

from collections.abc import Sequence
from dataclasses import InitVar, dataclass, field, replace
from typing import Final, NoReturn, final

from typing_extensions import override

from curtilage.policy.decision.classes import UNCERTAIN_ERROR, is_uncertain
from curtilage.policy.decision.conditions import MAX_SCORE, Scores
from curtilage.policy.decision.findings import Approved, Finding
from curtilage.policy.decision.routes import Route
from curtilage.policy.decision.rules import (
    ANY_UNCERTAIN,
    DEFAULT,
    FLOOR,
    STICKY,
    STRICT_TOPICS,
    TIERS,
    Rulebook,
    counting,
    fires,
    scores_of,
    unapproved,
    with_figures_as_persons,
)
from curtilage.policy.decision.tiers import Permitted, RoutingClass, TierKind

DIGEST_BYTES: Final = 32
DEFAULT_REASON: Final = "no rule asks for more privacy than the default"
STICKY_REASON: Final = "an earlier query of this conversation was kept local"
FLOOR_REASON: Final = "the sender wants it answered locally"
TIERS_REASON: Final = "the policy permits no enclave to answer such data (routing)"
STRICT_TOPICS_REASON: Final = "the policy keeps this topic local (strict_topics)"
# Created when the process starts and never passed out: an ``Allowed`` with this mark
# comes from ``decide``. It guards against our own mistakes, such as a code path that
# builds its own permission. Malicious code in our own process can reach anything, and
# no value could stop it.
_BRAND: Final = object()


INSPECTION_DOOR: Final = object()
"""Shows that the detectors' side builds. Only ``detection.inspection`` names it, and
``tests/test_doors.py`` looks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """Hypothetical findings. Any code may build it: it names no payload.

    ``policy explain`` uses it to ask what would follow if less was found, and
    evaluation to ask what would follow under another threshold.

    Attributes:
        findings: everything that was found; what could not be determined is included as
            ``uncertain.*``.
        messages: how many messages were inspected.
        pinned: an earlier query of the same conversation pinned it (``pins``).
        approved: the texts that a policy approves, word for word.
        floor: how little the query may risk, as its sender declared.
    """

    findings: tuple[Finding, ...]
    messages: int = 1
    pinned: bool = False
    approved: tuple[Approved, ...] = ()
    floor: RoutingClass = RoutingClass.PUBLIC


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection(WhatIf):
    """The detectors' report about one exact payload.

    Only ``client.detection.inspection`` builds it. Others can make it stricter, and
    ``Deidentified.inspected`` alone moves it to another payload.

    Attributes:
        door: shows who builds it; not kept.
        payload_digest: SHA-256 of the payload, 32 bytes; never to be published.
    """

    door: InitVar[object]
    payload_digest: bytes = field(repr=False)
    _brand: object = field(init=False, repr=False, compare=False)

    def __post_init__(self, door: object) -> None:
        """Refuse another builder, and a digest of the wrong size."""
        # An inspection without findings permits any text, so only the module that calls
        # the detectors makes one. ``dataclasses.replace`` must pass the door too.
        if door is not INSPECTION_DOOR:
            raise TypeError("only detection.inspection builds an Inspection")
        # An empty digest would be equal to another empty digest at the seal door, and
        # so let a payload pass that was never inspected.
        if len(self.payload_digest) != DIGEST_BYTES:
            raise ValueError(
                f"a payload digest has {DIGEST_BYTES} bytes, "
                f"not {len(self.payload_digest)}"
            )
        object.__setattr__(self, "_brand", _BRAND)

    def stricter(
        self,
        *,
        findings: Sequence[Finding] = (),
        pinned: bool = False,
        floor: RoutingClass = RoutingClass.PUBLIC,
    ) -> "Inspection":
        """Return the same with more demands for privacy; nothing is removed."""
        return replace(
            require_inspected(self),
            door=INSPECTION_DOOR,
            findings=(*self.findings, *findings),
            pinned=self.pinned or pinned,
            floor=max(self.floor, floor, key=lambda each: each.privacy),
        )

    def moved_to(self, payload_digest: bytes) -> "Inspection":
        """Return it for another payload; only ``Deidentified.inspected`` calls this."""
        own = require_inspected(self)
        return replace(own, door=INSPECTION_DOOR, payload_digest=payload_digest)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Permission:
    """A permission that only ``decide`` builds; it cannot be changed or copied."""

    policy_digest: str
    payload_digest: bytes = field(repr=False)
    routing_class: RoutingClass = field(repr=False)
    tiers: frozenset[str] = field(repr=False)
    brand: InitVar[object]
    _brand: object = field(init=False, repr=False, compare=False)

    def __post_init__(self, brand: object) -> None:
        """Refuse to exist unless ``decide`` made this."""
        if brand is not _BRAND:
            raise TypeError(f"only decide() builds an {type(self).__name__}")
        object.__setattr__(self, "_brand", _BRAND)

    @override
    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """Refuse to be copied or pickled."""
        # copy.copy and pickle both call this. One decision permits one payload, in this
        # process; a permission in a file could be used again tomorrow, under another
        # policy.
        raise TypeError(f"an {type(self).__name__} cannot be copied")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed(_Permission):
    """The permission to seal one payload, under one policy.

    Only ``decide`` builds it; it cannot be changed, copied or pickled.

    Attributes:
        policy_digest: the policy that permits it.
        payload_digest: SHA-256 of the payload that may leave.
        routing_class: how much the query may risk.
        tiers: ids of the attested tiers that may be asked.
    """

    @override
    def __init_subclass__(cls) -> NoReturn:
        """Refuse to be a base: a subclass could be built by others."""
        raise TypeError("Allowed has no subclasses")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AllowedOnPremises(_Permission):
    """The permission to send one payload to an on-premises server, under one policy.

    Built like ``Allowed``, but the two are not interchangeable: a payload for an
    on-premises server must not be sent to an enclave.

    Attributes:
        policy_digest: the policy that permits it.
        payload_digest: SHA-256 of the payload.
        routing_class: how much the query may risk.
        tiers: ids of the on-premises tiers that may be asked.
    """

    @override
    def __init_subclass__(cls) -> NoReturn:
        """Refuse to be a base: a subclass could be built by others."""
        raise TypeError("AllowedOnPremises has no subclasses")


def require_inspected(value: object) -> Inspection:
    """Return ``value`` if the detectors' side built it; ``decide`` calls this.

    Raises:
        TypeError: it is anything else, a ``WhatIf`` or an unfinished one included.
    """
    # ``type`` and not ``isinstance``: a class may lie about itself in ``__class__``.
    if type(value) is not Inspection or getattr(value, "_brand", None) is not _BRAND:
        raise TypeError("decide() takes an Inspection that detection.inspection built")
    return value


def require_allowed(value: object) -> Allowed:
    """Return ``value`` if ``decide`` built it; called before a permit is minted.

    Raises:
        TypeError: it is anything else, an unfinished ``Allowed`` included.
    """
    # ``type`` and not ``isinstance``: a class may lie about itself in ``__class__``.
    # ``Allowed.__new__(Allowed)`` has the right type but no brand, hence the default.
    if type(value) is not Allowed or getattr(value, "_brand", None) is not _BRAND:
        raise TypeError("only an Allowed that decide() built has a permit minted")
    return value


def require_allowed_on_premises(value: object) -> AllowedOnPremises:
    """Return ``value`` if ``decide`` built it; checked before on-premises requests.

    Raises:
        TypeError: it is anything else, an ``Allowed`` included.
    """
    branded = getattr(value, "_brand", None) is _BRAND
    if type(value) is not AllowedOnPremises or not branded:
        raise TypeError("only an AllowedOnPremises that decide() built opens this door")
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
class Assessment:
    """Route of one query, and the reason; holds no content and no permission.

    Attributes:
        route: the most private of what the default and the rules ask for.
        classes: the data classes that were found, sorted; without ``uncertain.*``.
        rules: every rule that fired, in the policy's order.
        rule: the id of the rule that decided, or ``default``.
        reason: that rule's reason.
        uncertain: what could not be determined, sorted.
        policy_digest: the policy that was applied.
        permitted: the tiers that may answer.
    """

    route: Route
    classes: tuple[str, ...]
    rules: tuple[RuleHit, ...]
    rule: str
    reason: str
    uncertain: tuple[str, ...]
    policy_digest: str
    permitted: Permitted


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision(Assessment):
    """An assessment of one exact payload, with the permissions that follow from it.

    Attributes:
        allowed: the permission to seal; present if and only if the route is
            ``ENCLAVE``.
        on_premises: the permission to send it to an on-premises server, if one of
            ``permitted`` is such a server.
    """

    allowed: Allowed | None
    on_premises: AllowedOnPremises | None = None


def decide(rulebook: Rulebook, inspection: Inspection) -> Decision:
    """Decide where a query may be answered; see ``assess``.

    The inspection must be complete: what a detector could not determine is in it as
    ``uncertain.*``.

    Raises:
        TypeError: the inspection was not built by the detectors' side.
    """
    # First: an inspection built elsewhere could claim of any payload that nothing was
    # found in it.
    inspection = require_inspected(inspection)
    decisive = assess(rulebook, inspection)
    permitted = decisive.permitted
    allowed = on_premises = None
    # The line that stops a regulated query. Any other route has no ``Allowed``, and
    # without one no permit is minted, so nothing can be sealed or sent. ``DEIDENTIFY``
    # has none either: the rewritten text is inspected and decided anew, with its own
    # digest. So is each part of a conversation that is kept local.
    if decisive.route is Route.ENCLAVE:
        allowed = Allowed(
            brand=_BRAND,
            policy_digest=rulebook.digest,
            payload_digest=inspection.payload_digest,
            routing_class=permitted.routing_class,
            tiers=permitted.of_kind(TierKind.ATTESTED),
        )
    # Data that the policy trusts an on-premises server with is not sent out;
    # ``permitted`` lists no such server for other data (``Tier.trusted``).
    servers = permitted.of_kind(TierKind.ON_PREMISES)
    if servers:
        on_premises = AllowedOnPremises(
            brand=_BRAND,
            policy_digest=rulebook.digest,
            payload_digest=inspection.payload_digest,
            routing_class=permitted.routing_class,
            tiers=servers,
        )
    return Decision(
        route=decisive.route,
        classes=decisive.classes,
        rules=decisive.rules,
        rule=decisive.rule,
        reason=decisive.reason,
        uncertain=decisive.uncertain,
        policy_digest=decisive.policy_digest,
        permitted=permitted,
        allowed=allowed,
        on_premises=on_premises,
    )


def assess(rulebook: Rulebook, reported: WhatIf) -> Assessment:
    """Return where a query with such findings may be answered; it permits nothing.

    A finding that makes no sense counts as ``uncertain.error``.
    """
    # First: a class that no rule can name would match no rule, so a detector's
    # misspelt class name would let the data be sent. Such a finding is not dropped but
    # becomes one that every policy keeps local.
    sensible = [
        each
        if each.data_class in rulebook.classes and 0 <= each.score <= MAX_SCORE
        else replace(each, data_class=UNCERTAIN_ERROR)
        for each in reported.findings
    ]
    # Approvals first: findings in an approved text are ignored, in combinations and in
    # exceptions too.
    judged = unapproved(rulebook, sensible, reported.approved)
    # A public figure is a person to every rule and exclusion, unless it may leave.
    judged = with_figures_as_persons(rulebook, judged)
    # Exclusions before rules: what does not count must not fire a rule. They see the
    # scores of all findings, the excluded ones too (``counting`` says why).
    scores = scores_of(judged)
    findings = counting(judged, rulebook.exclusions, scores)
    if findings is not judged:
        scores = scores_of(findings)
    hits = _hits(rulebook, reported, findings, scores)
    decisive = _decisive(rulebook, hits)
    permitted = rulebook.tiering.permitted(
        decisive.route,
        frozenset(scores),
        pinned=reported.pinned,
        floor=reported.floor,
    )
    enclaves = permitted.of_kind(TierKind.ATTESTED)
    if decisive.route is Route.ENCLAVE and not enclaves:
        # It may be sent, but no enclave is permitted to receive it: so it is kept
        # local, and its conversation with it.
        decisive = RuleHit(id=TIERS, route=Route.LOCAL, reason=TIERS_REASON)
        hits = (*hits, decisive)
    return Assessment(
        route=decisive.route,
        classes=tuple(sorted(name for name in scores if not is_uncertain(name))),
        rules=hits,
        rule=decisive.id,
        reason=decisive.reason,
        uncertain=tuple(sorted(name for name in scores if is_uncertain(name))),
        policy_digest=rulebook.digest,
        permitted=permitted,
    )


def _hits(
    rulebook: Rulebook,
    reported: WhatIf,
    findings: Sequence[Finding],
    scores: Scores,
) -> tuple[RuleHit, ...]:
    """Return every rule that fires, in the policy's order, then our own."""
    # All of them, not only the first: the audit trail shows each reason, and the
    # order of the file cannot hide a stricter rule.
    hits = [
        RuleHit(id=rule.id, route=rule.route, reason=rule.reason)
        for rule in rulebook.rules
        if fires(rule, findings, scores)
    ]
    # A topic's score comes from a model, not from a checksum: below the threshold it
    # means nothing, even under ``strict_topics``.
    if rulebook.strict_topics and any(
        name.startswith("topic.") and score >= rulebook.topic_threshold
        for name, score in scores.items()
    ):
        hits.append(
            RuleHit(id=STRICT_TOPICS, route=Route.LOCAL, reason=STRICT_TOPICS_REASON)
        )
    # A hit like any other: a rule that blocks still outranks it.
    if reported.pinned:
        hits.append(RuleHit(id=STICKY, route=Route.LOCAL, reason=STICKY_REASON))
    if reported.floor is RoutingClass.RESTRICTED:
        hits.append(RuleHit(id=FLOOR, route=Route.LOCAL, reason=FLOOR_REASON))
    return tuple(hits)


def _decisive(rulebook: Rulebook, hits: Sequence[RuleHit]) -> RuleHit:
    """Return the first of the most private; the default takes part, last.

    Of two equally private ones, a rule about what was found is more informative
    than one about what could not be determined.
    """
    # The default is one candidate among the hits, not a fallback for when there are
    # none: a rule can make it stricter and never laxer.
    fallback = RuleHit(id=DEFAULT, route=rulebook.default, reason=DEFAULT_REASON)
    ranks = {DEFAULT: 0, ANY_UNCERTAIN: 1}
    # ``max`` keeps the first of equals, so the policy's order breaks a tie. The second
    # part of the key chooses among equal routes only: it changes the reason that is
    # shown and never the route.
    return max(
        (*hits, fallback),
        key=lambda hit: (hit.route.privacy, ranks.get(hit.id, len(ranks))),
    )
