"""Consent: what would be sent is shown, and it is sent only if the user agrees."""

from collections.abc import Awaitable

from curtilage.attest.verified_key import VerifiedKey
from curtilage.client.answering.attempt import release_of
from curtilage.client.consent import Consents, Outbound
from curtilage.client.errors import EnclaveError
from curtilage.client.query import Query
from curtilage.client.remote.reasons import Unmet
from curtilage.client.route import AskEnclave
from curtilage.policy.decision.tiers import Tier


def outbound(
    key: VerifiedKey, way: AskEnclave, sent: Query, *, tier: Tier, token: str | None
) -> Outbound:
    """Return what would be sealed, and its recipient."""
    return Outbound(
        payload=sent.payload().content,
        payload_digest=way.allowed.payload_digest,
        routing_class=way.allowed.routing_class,
        tier=tier.id,
        release=release_of(key),
        verdict_id=key.verdict_id,
        evidence=key.tee,
        deidentified=() if way.rewritten is None else way.rewritten.counts,
        boundary=way.boundary,
        token=token,
    )


async def agreed_release(consents: Consents, shown: Outbound) -> str:
    """Return the release that consent was given for.

    Raises:
        EnclaveError: it was not given.
    """
    answer = consents(shown)
    if (await answer if isinstance(answer, Awaitable) else answer) is True:
        return shown.release
    raise EnclaveError(Unmet.CONSENT)
