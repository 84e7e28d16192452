"""Where a query goes next: the cascade as a pure function of what happened.

Regulated goes to the local model. The rest goes to the enclave, without the
names where the policy asks for that, and home again when the enclave cannot be
asked or believed. Nothing ever moves the other way: no step leads from the
local model outward.
"""

from dataclasses import dataclass

from curtilage.client.answer import Obstacle
from curtilage.client.pseudonyms.rewrite import Deidentified
from curtilage.policy.decision.decide import Allowed, Decision
from curtilage.policy.decision.routes import Route


@dataclass(frozen=True, slots=True)
class AskEnclave:
    """Ask the enclave; carries the proof that a query may leave.

    Attributes:
        allowed: the proof.
        rewritten: the query that it is about, if it is not the one asked.
        classes: what was found in what leaves.
    """

    allowed: Allowed
    rewritten: Deidentified | None = None
    classes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Replace what was found, inspect the result and decide again."""


@dataclass(frozen=True, slots=True)
class AskLocal:
    """Ask the local model.

    Attributes:
        obstacle: why what was found could not be replaced, if that was tried.
    """

    obstacle: Obstacle | None = None


@dataclass(frozen=True, slots=True)
class Refuse:
    """Answer not at all."""


Step = AskEnclave | Rewrite | AskLocal | Refuse


def first_step(decision: Decision) -> Step:
    """Return what the decision asks for.

    Without an ``Allowed`` there is no way to the enclave, whatever the route is
    called.
    """
    if decision.route is Route.BLOCK:
        return Refuse()
    if decision.route is Route.DEIDENTIFY:
        return Rewrite()
    # Both: the route is a word, the ``Allowed`` is what the seal door asks to see.
    if decision.route is Route.ENCLAVE and decision.allowed is not None:
        return AskEnclave(decision.allowed, classes=decision.classes)
    return AskLocal()


def after_rewriting(rewritten: Deidentified, decision: Decision) -> Step:
    """Return what follows when the rewritten query was inspected and decided.

    Args:
        rewritten: the query without what was found in it.
        decision: about its own payload; anything but ``enclave`` keeps the
            query home, also a second ``deidentify``.
    """
    if decision.route is Route.ENCLAVE and decision.allowed is not None:
        return AskEnclave(decision.allowed, rewritten, decision.classes)
    return AskLocal(Obstacle.STILL_FOUND)


def after_enclave_failure(*, shown: bool) -> Step:
    """Return what follows when the enclave failed.

    Args:
        shown: whether a part of its answer was already given to the caller;
            then starting again elsewhere would mix two answers.
    """
    return Refuse() if shown else AskLocal()
