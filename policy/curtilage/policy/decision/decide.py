"""The decision: findings and a policy in, a route and its reasons out.

One pure function. It reads no text, no clock and no model's opinion, and one
finding more never makes its answer less private. It is also the only maker of
``Allowed``, which opens the seal door for one payload.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, NoReturn, final

from typing_extensions import override

from curtilage.policy.decision.classes import UNCERTAIN_ERROR, is_uncertain
from curtilage.policy.decision.findings import Finding
from curtilage.policy.decision.routes import Route
from curtilage.policy.decision.rules import (
    ANY_UNCERTAIN,
    DEFAULT,
    STICKY,
    STRICT_TOPICS,
    Rule,
    counting,
    fires,
    scores_of,
)
from curtilage.policy.decision.when import MAX_SCORE, Scores
from curtilage.policy.document.model import Policy

DIGEST_BYTES: Final = 32
DEFAULT_REASON: Final = "no rule asks for more privacy than the default"
STICKY_REASON: Final = "an earlier query of this conversation stayed home"
STRICT_TOPICS_REASON: Final = "the policy keeps this topic home (strict_topics)"
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
    """

    findings: tuple[Finding, ...]
    payload_digest: bytes
    messages: int
    pinned: bool = False

    def __post_init__(self) -> None:
        """Refuse a digest of the wrong size: it would name no payload."""
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


def decide(policy: Policy, inspection: Inspection) -> Decision:
    """Decide where a query may be answered.

    Trusts the inspection to be complete: what a detector could not do must be
    in it as ``uncertain.*``. A finding that makes no sense counts as
    ``uncertain.error``.
    """
    sensible = [_sensible(policy, each) for each in inspection.findings]
    findings, scores = _counted(policy, sensible)
    hits = tuple(_hits(policy, inspection, findings, scores))
    decisive = _decisive(policy, hits)
    allowed = None
    if decisive.route is Route.ENCLAVE:
        allowed = Allowed(
            _BRAND,
            policy_digest=policy.digest,
            payload_digest=inspection.payload_digest,
        )
    return Decision(
        route=decisive.route,
        classes=tuple(sorted(name for name in scores if not is_uncertain(name))),
        rules=hits,
        rule=decisive.id,
        reason=decisive.reason,
        uncertain=tuple(sorted(name for name in scores if is_uncertain(name))),
        policy_digest=policy.digest,
        allowed=allowed,
    )


def pins(policy: Policy, inspection: Inspection, decision: Decision) -> bool:
    """Tell whether this query keeps the rest of its conversation home.

    History is sent again with every turn, so a conversation that stayed home
    once stays there: after any such query (``sticky: conversation``), or after
    one in which a checksum held (``sticky: validated``). A query that left
    without its names did not stay: with every turn they are replaced again.
    """
    if decision.route in {Route.ENCLAVE, Route.DEIDENTIFY}:
        return False
    if policy.document.sticky == "conversation" or inspection.pinned:
        return True
    return any(finding.validated for finding in inspection.findings)


def _sensible(policy: Policy, finding: Finding) -> Finding:
    if finding.data_class in policy.classes and 0 <= finding.score <= MAX_SCORE:
        return finding
    return replace(finding, data_class=UNCERTAIN_ERROR)


def _counted(
    policy: Policy, findings: Sequence[Finding]
) -> tuple[Sequence[Finding], Scores]:
    scores = scores_of(findings)
    counted = counting(findings, policy.exclusions, scores)
    return counted, scores if counted is findings else scores_of(counted)


def _hits(
    policy: Policy,
    inspection: Inspection,
    findings: Sequence[Finding],
    scores: Scores,
) -> Iterator[RuleHit]:
    for rule in policy.rules:
        if fires(rule, findings, scores):
            yield _hit(rule)
    if policy.document.strict_topics and _has_topic(policy, scores):
        yield RuleHit(id=STRICT_TOPICS, route=Route.LOCAL, reason=STRICT_TOPICS_REASON)
    if inspection.pinned:
        yield RuleHit(id=STICKY, route=Route.LOCAL, reason=STICKY_REASON)


def _hit(rule: Rule) -> RuleHit:
    return RuleHit(id=rule.id, route=rule.route, reason=rule.reason)


def _has_topic(policy: Policy, scores: Scores) -> bool:
    least = policy.document.thresholds.topic
    return any(
        name.startswith("topic.") and score >= least for name, score in scores.items()
    )


def _decisive(policy: Policy, hits: Sequence[RuleHit]) -> RuleHit:
    """Return the first of the most private; the default takes part, last.

    Of two equally private ones, a rule about what was found says more to a
    person than one about what could not be known.
    """
    fallback = RuleHit(
        id=DEFAULT, route=policy.document.default.decision, reason=DEFAULT_REASON
    )
    telling = {DEFAULT: 0, ANY_UNCERTAIN: 1}
    return max(
        (*hits, fallback),
        key=lambda hit: (hit.route.privacy, telling.get(hit.id, len(telling))),
    )
