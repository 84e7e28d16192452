"""Consent: what would be sent is shown, and it is sent only if the user agrees."""

from collections.abc import Awaitable, Callable

from curtilage.attest.verified_key import VerifiedKey
from curtilage.client.chat.query import Query
from curtilage.client.consent import Consents, Outbound
from curtilage.client.errors import EnclaveError
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
        release=key.release,
        verdict_id=key.verdict_id,
        evidence=key.tee,
        deidentified=() if way.rewritten is None else way.rewritten.counts,
        boundary=way.boundary,
        token=token,
    )


async def agreed_release(
    consents: Consents | None,
    verified_key: Callable[[], Awaitable[VerifiedKey]],
    way: AskEnclave,
    sent: Query,
    *,
    tier: Tier,
    token: str | None,
) -> str:
    """Return the release that consent was given for.

    Args:
        consents: asks the user; None: no user can be asked.
        verified_key: returns the enclave's key in force.
        way: how the tier would be asked.
        sent: the query to be sent.
        tier: the tier.
        token: of an earlier consent to the same.

    Raises:
        EnclaveError: it was not given, or there is no key; nothing is sealed.
    """
    if consents is not None:
        # The key is verified before the question is shown: consent to an unknown
        # recipient would mean nothing.
        shown = outbound(await verified_key(), way, sent, tier=tier, token=token)
        answer = consents(shown)
        # Exactly True: any other value of an application's callback, such as a text or
        # an object, is truthy in Python and is no consent.
        if (await answer if isinstance(answer, Awaitable) else answer) is True:
            # The release, not only a yes: if another one answers when the query is
            # sealed, the attempt is refused (``ChatRequest.agreed``).
            return shown.release
    raise EnclaveError(Unmet.CONSENT)
