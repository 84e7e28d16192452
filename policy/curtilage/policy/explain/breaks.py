"""The known breaks that a policy, or one piece of evidence, does not withstand."""

from collections.abc import Collection, Iterator
from typing import Final

from curtilage.attest.verified_key import VerifiedKey
from curtilage.policy.breaks import Break, Default, Needs, known_breaks
from curtilage.policy.document.attestation import Attestation
from curtilage.policy.document.model import Policy

_NEEDS: Final = {
    Needs.SOFTWARE: "by software on the machine",
    Needs.HANDS: "with hands on the machine",
}


def left_open(
    attestation: Attestation, kinds: Collection[str], products: Collection[str]
) -> tuple[Break, ...]:
    """Return what evidence of these kinds and products does not rule out.

    Args:
        attestation: the section of the policy that it is accepted by.
        kinds: kinds of CPU evidence and of devices.
        products: AMD's names; empty where there is no such processor.
    """
    production = attestation.environment == "production"
    return tuple(
        row
        for row in known_breaks().of(kinds, products)
        # Whatever such a policy accepts has the levels that fix it.
        if not (
            production
            and row.default is Default.RAISE
            and row.id not in attestation.accepted_breaks
        )
    )


def not_ruled_out(policy: Policy, key: VerifiedKey) -> tuple[Break, ...]:
    """Return the known breaks that a verified key's evidence does not rule out."""
    if policy.attestation is None:
        return ()
    kinds = {key.tee, *(device.kind.value for device in key.devices)}
    product = str(key.claims.details.get("product", ""))
    return left_open(policy.attestation, kinds, (product,))


def break_in_words(row: Break) -> str:
    """Say what a break is, who can use it, and where that was published."""
    who = _NEEDS[row.needs]
    return f"{row.name} ({row.published}, {who}): {row.effect} [{row.source}]"


def breaks_in_words(attestation: Attestation) -> Iterator[str]:
    """Yield what a policy does not withstand today, one sentence for each break."""
    kinds = {*attestation.required_cpu_tees, *attestation.required_devices}
    products = {
        each.product or "" for each in attestation.trust_anchors if each.kind == "amd"
    }
    accepted = attestation.accepted_breaks
    for row in left_open(attestation, kinds, products):
        sentence = break_in_words(row)
        if row.id in accepted:
            sentence += f"; accepted: {accepted[row.id]}"
        yield sentence


def raised_in_words(attestation: Attestation, product: str) -> str:
    """Name the breaks whose fixes a policy demands of AMD's product, or of Intel's.

    Args:
        attestation: the section.
        product: AMD's name; "" for Intel's evaluation.
    """
    if attestation.environment != "production":
        return ""
    names = [
        row.name
        for row in known_breaks().rows
        if row.default is Default.RAISE
        and row.id not in attestation.accepted_breaks
        and (product in row.levels if product else row.evaluation)
    ]
    return f" (with the fixes of {', '.join(names)})" if names else ""
