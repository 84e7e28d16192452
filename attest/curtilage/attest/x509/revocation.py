"""What is stapled about the revocation of certificates, and what a policy demands."""

from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.expectations import Revocation


def check_stapled(stapled: tuple[bytes, ...], rule: Revocation) -> str:
    """Return in a few words what the issuers say; refuse what is demanded and absent.

    Args:
        stapled: revocation lists or OCSP answers, DER.
        rule: what the policy demands.

    Raises:
        RefusedError: ``crl_missing``; ``verifier_unavailable``: there is something,
            which this release cannot judge.
    """
    if stapled:
        # Unread, it could say that a certificate is revoked.
        raise RefusedError(
            RefusalCode.VERIFIER_UNAVAILABLE,
            "this release cannot judge what is stapled about revocation",
        )
    if rule is Revocation.REQUIRED:
        raise RefusedError(
            RefusalCode.CRL_MISSING, "the policy requires it, and nothing is stapled"
        )
    return "nothing is stapled, and the policy accepts that"
