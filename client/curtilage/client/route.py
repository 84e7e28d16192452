"""Where a query goes next: the cascade as a pure function of what happened.

Regulated goes to the local model. The rest goes to the enclave, and home again
when the enclave cannot be asked or believed. Nothing ever moves the other way:
no step leads from the local model outward.
"""

from dataclasses import dataclass

from curtilage.policy.decide import Allowed, Decision
from curtilage.policy.routes import Route


@dataclass(frozen=True, slots=True)
class AskEnclave:
    """Ask the enclave; carries the proof that the query may leave."""

    allowed: Allowed


@dataclass(frozen=True, slots=True)
class AskLocal:
    """Ask the local model."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """Nobody may answer."""


Step = AskEnclave | AskLocal | Refuse


def first_step(decision: Decision) -> Step:
    """Return what the decision asks for.

    ``deidentify`` is permitted but not carried out in this release, so it is
    answered at home. Without an ``Allowed`` there is no way to the enclave,
    whatever the route is called.
    """
    if decision.route is Route.BLOCK:
        return Refuse()
    if decision.route is Route.ENCLAVE and decision.allowed is not None:
        return AskEnclave(decision.allowed)
    return AskLocal()


def after_enclave_failure(*, shown: bool) -> Step:
    """Return what follows when the enclave failed.

    Args:
        shown: whether a part of its answer was already given to the caller;
            then starting again elsewhere would mix two answers.
    """
    return Refuse() if shown else AskLocal()
