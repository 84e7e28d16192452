"""Conversations: when they are kept local, and in which form turns may be sent."""

from enum import StrEnum, unique

from curtilage.policy.decision.decide import Assessment, Inspection
from curtilage.policy.decision.routes import Route
from curtilage.policy.decision.rules import Rulebook
from curtilage.policy.decision.tiers import RoutingClass


@unique
class History(StrEnum):
    """Part of the earlier turns of one routing class that may be sent as well.

    ``NEVER``: nothing. ``REDACTED_EXTRACT``: common words, the others masked.
    ``SAFE_SUMMARY``: the same, and they may enter a summary that the local
    model writes. There is no value for sending the turns as they are.
    """

    NEVER = "never"
    REDACTED_EXTRACT = "redacted_extract"
    SAFE_SUMMARY = "safe_summary"


def pins(rulebook: Rulebook, inspection: Inspection, decision: Assessment) -> bool:
    """Return whether this query keeps the rest of its conversation local.

    History is sent again with every turn, so a conversation that was kept local once
    is kept local from then on: after any such query (``sticky: conversation``, and
    ``content``, under which less counts as the same conversation), or after one with a
    valid checksum or a sender's declaration (``sticky: validated``). A query that was
    sent without its names does not count: the names are replaced again in every turn.
    """
    if decision.route in {Route.ENCLAVE, Route.DEIDENTIFY}:
        return False
    # A pinned conversation stays pinned under either choice; otherwise the next
    # harmless turn ("thanks, and shorter?") would send the whole history out.
    if rulebook.sticky != "validated" or inspection.pinned:
        return True
    # The sender's declaration is as certain as a checksum, and covers a secret that no
    # detector would find in later turns.
    return inspection.floor is RoutingClass.RESTRICTED or any(
        finding.validated for finding in inspection.findings
    )
