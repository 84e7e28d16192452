"""Explains an estimate in lines for people, without any word of the text.

Also what the operator's aim means for the local model, before any question was asked.
"""

from dataclasses import dataclass
from typing import Final

from curtilage.client.chat.query import single_query
from curtilage.client.routing.estimate import (
    HEAD_CHARS,
    KNOWN,
    TAIL_CHARS,
    Estimator,
    signs_of,
)
from curtilage.client.routing.router import Router
from curtilage.policy.decision.tiers import Permitted, TierKind

_LEAST_SHARE = 0.05
_ANY: Final = single_query("?")
"""A question for reading the aim's threshold, as the first of a conversation."""


def explain_text(
    estimator: Estimator, text: str, max_tokens: int = 512
) -> tuple[str, ...]:
    """Return the estimate for a text, and the signs it is based on."""
    expected = estimator.estimate(text, max_tokens)
    seen = signs_of(text)
    cues = [
        # Counts and shares, never the words: the output may get into a log or a bug
        # report.
        f"{intent} {share:.2f}"
        for intent, share in zip(KNOWN, seen.shares, strict=True)
        if share >= _LEAST_SHARE
    ]
    signs = ["code"] * seen.in_code + ["several steps"] * seen.in_steps
    signs += [f"hard-task words: {seen.hard_words}"] * (seen.hard_words > 0)
    read = "all of it"
    if len(text) > HEAD_CHARS + TAIL_CHARS:
        read = f"{HEAD_CHARS} characters and the last {TAIL_CHARS}, of {len(text)}"
    low, high = expected.gain_low, expected.gain_high
    asked, answered = expected.prompt_tokens, expected.answer_tokens
    return (
        f"intent   {expected.intent} (confidence {expected.intent_confidence:.2f})",
        f"gain     {expected.gain:+.2f}, between {low:+.2f} and {high:+.2f}",
        f"source   {expected.source}",
        f"tokens   about {asked} asked, about {answered} answered",
        f"cues     {', '.join(cues) or 'none'}",
        f"signs    {', '.join(signs) or 'none'}",
        f"read     {read}",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """Meaning of the operator's aim for the local model.

    Attributes:
        solved: share of ordinary questions that the model solves, 0 to 1.
        local: share of ordinary questions that may be sent and are answered locally.
    """

    solved: float
    local: float


def reach(router: Router, permitted: Permitted) -> Reach | None:
    """Return what the aim means for the local model.

    None: there is no aim, an enclave or the local model is not permitted, or another
    local tier is better than the model.

    Args:
        router: of the policy.
        permitted: for a question that may be sent as it is.
    """
    if router.plan.observe or not router.chooses(permitted):
        return None
    standing = router.route(permitted, _ANY, conversation=b"").standing
    if standing is None or standing.line is None:
        return None
    views = router.views()
    best = max(
        (
            views[tier.id]
            for tier in permitted.tiers
            if tier.id in views and not tier.kind.outside
        ),
        key=lambda view: view.quality_permille,
    )
    if best.kind is not TierKind.IN_PROCESS:
        return None
    return Reach(solved=best.quality_permille / 1000, local=standing.line)
