"""How it is told where an answer comes from: in a line for people, as an object."""

from collections.abc import Iterator
from typing import Final

from curtilage.client.answer import Answer, Answerer, Provenance
from curtilage.client.conversation.excerpt import BOUNDARY
from curtilage.client.errors import EXPLAINED, FailureReason
from curtilage.client.pseudonyms.obstacles import WHY_NOT_REPLACED
from curtilage.client.routing.explain import reach
from curtilage.client.routing.router import CHOSEN, Router
from curtilage.client.routing.utility import Reason
from curtilage.policy.decision.classes import STALE_POLICY
from curtilage.policy.decision.routes import Route
from curtilage.policy.document.model import Policy
from curtilage.policy.explain.decision import NOT_IN_FORCE

DEMONSTRATION: Final = (
    "the embedded DEMONSTRATION model, whose answers are often wrong (`curtilage "
    "models recommend` names better ones)"
)


def demonstration_words(policy: Policy, router: Router | None) -> Iterator[str]:
    """Say that the embedded model answers locally, and what the aim makes of that.

    Args:
        policy: whose aim it is.
        router: of the policy; None: nothing is chosen, or nothing can be sent.
    """
    yield DEMONSTRATION
    ordinary = policy.tiering.permitted(Route.ENCLAVE, frozenset())
    found = None if router is None else reach(router, ordinary)
    if found is not None:
        yield (
            f"it solves {100 * found.solved:.0f} of 100 ordinary questions; by the "
            f"policy's aim about {100 * found.local:.0f} of 100 questions that may be "
            "sent are answered locally, the others by the enclave"
        )


def was_cut(answer: Answer, max_tokens: int) -> bool:
    """Return whether an answer ends where its limit of tokens was reached."""
    finished = answer.finished
    if finished.finish_reason != "length":
        return False
    # Of an answer to a part of a text this is the reason whatever its length.
    part = answer.provenance.left_out > 0
    return not part or finished.completion_tokens >= max_tokens


def provenance_line(provenance: Provenance) -> str:
    """Say in one line who answers and why."""
    found = ", ".join(provenance.classes + provenance.uncertain) or "nothing"
    why = "; ".join(_why(provenance))
    return f"[{_who(provenance)}; found: {found}; {why}]"


def _why(provenance: Provenance) -> Iterator[str]:
    # A policy may give no reason of a rule.
    reason = provenance.reason.strip().rstrip(".")
    yield f"rule {provenance.rule}{f': {reason}' if reason else ''}"
    if STALE_POLICY in provenance.uncertain:
        yield NOT_IN_FORCE
    if provenance.why:
        yield f"{provenance.tier} was chosen: {_chosen(provenance)}"
    if provenance.fallback is not None:
        yield f"{_might(provenance.fallback)}, but {EXPLAINED[provenance.fallback]}"
    yield from _of_its_text(provenance)
    if not provenance.recorded:
        yield "NOT in the audit trail, which cannot be written"


def _chosen(provenance: Provenance) -> str:
    why = Reason(provenance.why)
    # The failure that follows may pass, as a relay's, or last, as a policy's that names
    # no enclave.
    if why is Reason.UNAVAILABLE and provenance.fallback is not None:
        return "another cannot answer"
    return CHOSEN[why]


def _of_its_text(provenance: Provenance) -> Iterator[str]:
    if provenance.deidentified:
        many = sum(count for _, count in provenance.deidentified)
        yield f"{many} left as pseudonyms only"
    if provenance.obstacle is not None:
        yield f"it did not leave: {WHY_NOT_REPLACED[provenance.obstacle]}"
    if provenance.boundary:
        yield BOUNDARY[provenance.boundary]
    if provenance.left_out:
        yield (
            f"the text is too long for the local model, and {provenance.left_out:,} "
            "characters of it were NOT read"
        )


def _might(reason: FailureReason) -> str:
    """Say where it would have been answered, had that one not failed."""
    if reason.value.startswith("local_"):
        return "it might have been answered here"
    if reason.value.startswith("on_premises_"):
        return "it might have been answered on premises"
    return "it might have left"


def _who(provenance: Provenance) -> str:
    also = ", and another was asked as well" if provenance.beside else ""
    if provenance.demonstration:
        return f"answered here, by {DEMONSTRATION}{also}"
    if provenance.route is Answerer.LOCAL:
        return f"answered here, by the local model{also}"
    if provenance.route is Answerer.ON_PREMISES:
        return f"answered on premises, by {provenance.tier} ({provenance.model}){also}"
    if (provenance.evidence or "").startswith("emulated-"):
        return "answered by an enclave whose evidence is EMULATED and proves nothing"
    return "answered by the attested enclave"


def warnings_of(answer: Answer) -> Iterator[str]:
    """Say what is wrong with a whole answer, in brackets, for people."""
    if unrestored := answer.finished.unrestored:
        yield placeholders_line(unrestored)
    if answer.finished.doubtful:
        yield "[the local model is OFTEN WRONG on questions like this]"


def placeholders_line(count: int) -> str:
    """Say that placeholders are left in an answer, in brackets, for people."""
    stand = "placeholder is" if count == 1 else "placeholders are"
    return (
        f"[{count} {stand} left in the answer instead of a value: not sent, or a part "
        "of another word or of an address]"
    )


def answer_object(answer: Answer) -> dict[str, object]:
    """Build the JSON object of an answer."""
    provenance = answer.provenance
    fallback, obstacle = provenance.fallback, provenance.obstacle
    return {
        "text": answer.text,
        "route": provenance.route.value,
        "tier": provenance.tier,
        "why": provenance.why or None,
        "model": provenance.model,
        "demonstration": provenance.demonstration,
        "classes": list(provenance.classes),
        "uncertain": list(provenance.uncertain),
        "rule": provenance.rule,
        "reason": provenance.reason,
        "policy": provenance.policy_digest,
        "verdict": provenance.verdict_id,
        "evidence": provenance.evidence,
        "fallback": None if fallback is None else fallback.value,
        "recorded": provenance.recorded,
        "deidentified": dict(provenance.deidentified),
        "boundary": provenance.boundary or None,
        "obstacle": None if obstacle is None else obstacle.value,
        "left_out": provenance.left_out,
        "beside": provenance.beside,
        "floor": provenance.floor or None,
        "unrestored": answer.finished.unrestored,
        "doubtful": answer.finished.doubtful,
        "receipt": answer.finished.receipted,
        "finish_reason": answer.finished.finish_reason,
        "usage": {
            "prompt_tokens": answer.finished.prompt_tokens,
            "completion_tokens": answer.finished.completion_tokens,
        },
    }
