"""Requirements of some data on a verified key, beyond those of every query.

Above ``verify``, which accepts or refuses a key whatever is to be sealed to it. Here
an accepted key is compared with the requirements of one query's classes.
"""

from dataclasses import dataclass
from datetime import datetime

from curtilage.attest.claims import Claim
from curtilage.attest.verified_key import VerifiedKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """Requirements on a verified key before some data may be sealed to it.

    Attributes:
        claims: what the evidence must show.
        cpu_tees: the accepted kinds; None: whatever the policy accepts.
        max_evidence_age_s: how old the evidence may be; None: as the policy says.
        challenge_age_s: the enclave must have answered a challenge, and how long
            ago at most; None: it need not.
        operators: who may run it, as its release states; None: anybody.
        countries: where it may stand, likewise; ISO 3166-1 alpha-2.
        regions: where it may stand, likewise, as operators call it.
    """

    claims: frozenset[Claim] = frozenset()
    cpu_tees: frozenset[str] | None = None
    max_evidence_age_s: int | None = None
    challenge_age_s: int | None = None
    operators: frozenset[str] | None = None
    countries: frozenset[str] | None = None
    regions: frozenset[str] | None = None


def unmet(
    key: VerifiedKey, requirement: Requirement, *, now: datetime, challenged: bool
) -> tuple[str, ...]:
    """Return the requirements for some data that a verified key does not meet.

    Args:
        key: the verified key.
        requirement: what the data's classes demand.
        now: the time, aware.
        challenged: whether the enclave has answered a challenge recently enough.

    Returns:
        Stable words: the claims' names, ``cpu_tee``, ``evidence_age``,
        ``challenge``, ``residency``.
    """
    # Each by itself and all of them named, so that a person sees everything that is
    # missing at once.
    lacking = [
        claim.value for claim in Claim if claim in requirement.claims - key.shows
    ]
    if requirement.cpu_tees is not None and key.tee not in requirement.cpu_tees:
        lacking.append("cpu_tee")
    age = requirement.max_evidence_age_s
    # The anchor's time is the earliest at which the evidence can have been made, so
    # this age is never too small.
    if age is not None and (now - key.anchor_time).total_seconds() >= age:
        lacking.append("evidence_age")
    if requirement.challenge_age_s is not None and not challenged:
        lacking.append("challenge")
    # A release that does not say where it runs is in none of the places: "" is no
    # operator, country or region that a policy can name.
    stated = key.residency
    for wanted, said in (
        (requirement.operators, stated.operator),
        (requirement.countries, stated.country),
        (requirement.regions, stated.region),
    ):
        if wanted is not None and said not in wanted:
            lacking.append("residency")
            break
    return tuple(lacking)
