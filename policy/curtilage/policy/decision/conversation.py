"""What becomes of a conversation: when it is kept, and in which form turns leave."""

from enum import StrEnum, unique

from curtilage.policy.decision.decide import Assessment, Inspection
from curtilage.policy.decision.routes import Route
from curtilage.policy.decision.rules import Rulebook
from curtilage.policy.decision.tiers import RoutingClass


@unique
class History(StrEnum):
    """What may leave of earlier turns of one routing class, besides the question.

    ``NEVER``: nothing. ``REDACTED_EXTRACT``: words that are everybody's, the others
    masked. ``SAFE_SUMMARY``: the same, and they may enter a summary that the local
    model makes. There is no word for the turns as they are.
    """

    NEVER = "never"
    REDACTED_EXTRACT = "redacted_extract"
    SAFE_SUMMARY = "safe_summary"


def pins(rulebook: Rulebook, inspection: Inspection, decision: Assessment) -> bool:
    """Return whether this query keeps the rest of its conversation home.

    History is sent again with every turn, so a conversation that stayed home
    once stays there: after any such query (``sticky: conversation``, and
    ``content``, under which less counts as the same conversation), or after one in
    which a checksum held, or that its sender declared (``sticky: validated``). A query
    that left without its names did not stay: with every turn they are replaced again.
    """
    if decision.route in {Route.ENCLAVE, Route.DEIDENTIFY}:
        return False
    # A pinned conversation stays pinned under either choice, else the next harmless
    # turn ("thanks, and shorter?") would carry the whole history out.
    if rulebook.sticky != "validated" or inspection.pinned:
        return True
    # The sender's declaration is as sure as a checksum is, and covers a secret that no
    # detector would find in the turns that follow.
    return inspection.floor is RoutingClass.RESTRICTED or any(
        finding.validated for finding in inspection.findings
    )
