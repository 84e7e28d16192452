"""The source of an answer: as a line for people and as a JSON object."""

from collections.abc import Iterator, Mapping
from typing import Final, cast

from curtilage.client.chat.answer import Answer, Answerer, Provenance
from curtilage.client.conversation.excerpt import BOUNDARY
from curtilage.client.endpoint.openai_answers import choices_object
from curtilage.client.failure_texts import FAILURE_TEXTS
from curtilage.client.on_premises.reasons import OnPremisesFailure
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

OFTEN_WRONG: Final = "[the local model is OFTEN WRONG on questions like this]"


def demonstration_words(policy: Policy, router: Router | None) -> Iterator[str]:
    """Warn that the embedded model answers locally, with the effect of the aim.

    Args:
        policy: the policy that sets the aim.
        router: its router; None if there is no choice of tier.
    """
    yield DEMONSTRATION
    # For a query without findings, which all tiers may answer: the aim is about these.
    ordinary = policy.tiering.permitted(Route.ENCLAVE, frozenset())
    found = None if router is None else reach(router, ordinary)
    if found is not None:
        yield (
            f"it solves {100 * found.solved:.0f} of 100 ordinary questions; under the "
            f"policy's aim about {100 * found.local:.0f} of 100 questions that may be "
            "sent are answered locally, the others by the enclave"
        )


def was_cut(answer: Answer, max_tokens: int) -> bool:
    """Return whether an answer ends at its token limit."""
    finished = answer.finished
    if finished.finish_reason != "length":
        return False
    # An answer to a truncated text has this reason whatever its own length.
    part = answer.provenance.left_out > 0
    return not part or finished.completion_tokens >= max_tokens


def provenance_line(provenance: Provenance) -> str:
    """Return one line: the source of the answer and the reason."""
    # Classes and never the text that was found.
    found = ", ".join(provenance.classes + provenance.uncertain) or "nothing"
    why = "; ".join(_why(provenance))
    return f"[{_who(provenance)}; found: {found}; {why}]"


def _why(provenance: Provenance) -> Iterator[str]:
    # A rule may have no reason.
    reason = provenance.reason.strip().rstrip(".")
    yield f"rule {provenance.rule}{f': {reason}' if reason else ''}"
    # Otherwise the rule alone would be shown, and the operator would look for the cause
    # in the policy.
    if STALE_POLICY in provenance.uncertain:
        yield NOT_IN_FORCE
    if provenance.why:
        why = Reason(provenance.why)
        # The failure may be temporary (a relay) or permanent (a policy without an
        # enclave).
        failed = why is Reason.UNAVAILABLE and provenance.fallback is not None
        chosen = "another tier cannot answer" if failed else CHOSEN[why]
        yield f"{provenance.tier} was chosen: {chosen}"
    if (failure := provenance.fallback) is not None:
        where = "sent"
        if failure.value.startswith("local_"):
            where = "answered locally"
        elif isinstance(failure, OnPremisesFailure):
            where = "answered on premises"
        yield f"it might have been {where}, but {FAILURE_TEXTS[failure]}"
    yield from _about_the_text(provenance)
    if not provenance.recorded:
        # In capitals: the answer was given nevertheless, and an operator must notice it
        # (docs/decisions/0012).
        yield "NOT recorded: the audit trail cannot be written"


def _about_the_text(provenance: Provenance) -> Iterator[str]:
    if provenance.deidentified:
        many = sum(count for _, count in provenance.deidentified)
        yield f"{many} sent only as pseudonyms"
    if provenance.obstacle is not None:
        yield f"it was not sent: {WHY_NOT_REPLACED[provenance.obstacle]}"
    if provenance.boundary:
        yield BOUNDARY[provenance.boundary]
    if provenance.left_out:
        yield (
            f"the text is too long for the local model: {provenance.left_out:,} "
            "characters were NOT read"
        )


def _who(provenance: Provenance) -> str:
    also = ", and another tier was asked as well" if provenance.in_parallel else ""
    if provenance.demonstration:
        return f"answered locally, by {DEMONSTRATION}{also}"
    if provenance.route is Answerer.LOCAL:
        return f"answered locally, by the local model{also}"
    if provenance.route is Answerer.ON_PREMISES:
        return f"answered on premises, by {provenance.tier} ({provenance.model}){also}"
    # In capitals: emulated evidence is for tests, and anyone can make it.
    if (provenance.evidence or "").startswith("emulated-"):
        return "answered by an enclave whose evidence is EMULATED and proves nothing"
    return "answered by the attested enclave"


def warnings_of(answer: Answer) -> Iterator[str]:
    """Yield warnings about a complete answer, in brackets, for people."""
    if unrestored := answer.finished.unrestored:
        yield placeholders_line(unrestored)
    if answer.finished.doubtful:
        yield OFTEN_WRONG


def placeholders_line(count: int) -> str:
    """Warn, in brackets, that placeholders are left in an answer."""
    placeholders = "placeholder is" if count == 1 else "placeholders are"
    return (
        f"[{count} {placeholders} left in the answer instead of a value: it was not "
        "sent, or is part of another word or of an address]"
    )


def answer_object(answer: Answer) -> dict[str, object]:
    """Build the JSON object of an answer.

    What was requested beside a text (calls of tools, log-probabilities, several
    answers) has the form and the name that it has in OpenAI's API.
    """
    provenance = answer.provenance
    fallback, obstacle = provenance.fallback, provenance.obstacle
    return {
        "text": answer.text,
        **dict(_beside_the_text(answer)),
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
        "beside": provenance.in_parallel,
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


def _beside_the_text(answer: Answer) -> Iterator[tuple[str, object]]:
    choices = choices_object(answer, answer_id=answer.id)
    message = cast("Mapping[str, object]", choices[0]["message"])
    if answer.calls:
        yield "tool_calls", message["tool_calls"]
    if answer.logprobs:
        yield "logprobs", choices[0]["logprobs"]
    if answer.others:
        yield "choices", choices
