"""How it is told where an answer comes from: in a line for people, as an object."""

from curtilage.client.answer import Answer, Answerer, Provenance
from curtilage.client.boundary.ladder import BOUNDARY
from curtilage.client.errors import EXPLAINED, FailureReason
from curtilage.client.pseudonyms.obstacles import WHY_NOT_REPLACED
from curtilage.client.routing.router import CHOSEN
from curtilage.client.routing.utility import Reason


def provenance_line(provenance: Provenance) -> str:
    """Say in one line who answers and why."""
    found = ", ".join(provenance.classes + provenance.uncertain) or "nothing"
    why = f"rule {provenance.rule}: {provenance.reason.rstrip('.')}"
    if provenance.why:
        why += f"; {provenance.tier} was chosen: {CHOSEN[Reason(provenance.why)]}"
    if provenance.fallback is not None:
        why += f"; {_might(provenance.fallback)}, but {EXPLAINED[provenance.fallback]}"
    if provenance.deidentified:
        many = sum(count for _, count in provenance.deidentified)
        why += f"; {many} left as pseudonyms only"
    if provenance.obstacle is not None:
        why += f"; it did not leave: {WHY_NOT_REPLACED[provenance.obstacle]}"
    if provenance.boundary:
        why += f"; {BOUNDARY[provenance.boundary]}"
    if provenance.left_out:
        why += (
            f"; the text is too long for the local model, and {provenance.left_out:,} "
            "characters of it were NOT read"
        )
    if not provenance.recorded:
        why += "; NOT in the audit trail, which cannot be written"
    return f"[{_who(provenance)}; found: {found}; {why}]"


def _might(reason: FailureReason) -> str:
    """Say where it would have been answered, had that one not failed."""
    if reason.value.startswith("local_"):
        return "it might have been answered here"
    if reason.value.startswith("house_"):
        return "it might have been answered in the house"
    return "it might have left"


def _who(provenance: Provenance) -> str:
    also = ", and another was asked as well" if provenance.beside else ""
    if provenance.route is Answerer.LOCAL:
        return f"answered here, by the local model{also}"
    if provenance.route is Answerer.HOUSE:
        return f"answered in the house, by {provenance.tier} ({provenance.model}){also}"
    if (provenance.evidence or "").startswith("emulated-"):
        return "answered by an enclave whose evidence is EMULATED and proves nothing"
    return "answered by the attested enclave"


def placeholders_line(count: int) -> str:
    """Say that placeholders are left in an answer, in brackets, for people."""
    stand = "placeholder stands" if count == 1 else "placeholders stand"
    return (
        f"[{count} {stand} in the answer in the place of a value: not sent, or a part "
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
        "receipt": answer.finished.receipted,
        "finish_reason": answer.finished.finish_reason,
        "usage": {
            "prompt_tokens": answer.finished.prompt_tokens,
            "completion_tokens": answer.finished.completion_tokens,
        },
    }
