"""Verification of a TPM quote alone, under an attestation key that the policy pins.

It shows which software was started on a machine with that TPM. It does not show
that memory is encrypted, that the operator is kept out, or that there is a
machine at all: a software TPM quotes just as well, and its operator owns the
key. So no such evidence is accepted in production, and the claims say so.
"""

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_der_public_key

from curtilage.attest.claims import CpuClaims, Link, Measurement
from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.evidence import TpmEvidence
from curtilage.attest.expectations import TrustAnchor
from curtilage.attest.steps import StepLog
from curtilage.attest.tpm.quote import (
    QuoteCheck,
    VerifiedQuote,
    check_registers,
    require_quote_key,
    verify_quote,
)

# A quote has no expiry; the caller decides how old it may be.
NO_END: Final = datetime.max.replace(tzinfo=UTC)
MEANING: Final = "shows what was started, not isolation"


@dataclass(frozen=True, slots=True, kw_only=True)
class TpmRules:
    """The expectations of one TPM's evidence.

    Attributes:
        anchors: the pinned attestation keys.
        measurements: the accepted sets of registers.
    """

    anchors: tuple[TrustAnchor, ...]
    measurements: tuple[Measurement, ...]


def verify_tpm(evidence: TpmEvidence, rules: TpmRules, *, log: StepLog) -> CpuClaims:
    """Verify a quote under a pinned key, except its qualifying data.

    No time is asked for: nothing in a quote ends.

    Args:
        evidence: unverified bytes.
        rules: what to hold them against.
        log: where each step is noted as it passes.

    Raises:
        RefusedError: the first step that does not hold.
    """
    # The key first: without a chain, the pin is all that makes this anybody's word.
    log.begin(QuoteCheck.ATTESTATION_KEY)
    fingerprint = hashlib.sha256(evidence.ak).hexdigest()
    # By digest of the whole SubjectPublicKeyInfo: a key with other parameters is
    # another key.
    if fingerprint not in {anchor.fingerprint for anchor in rules.anchors}:
        raise RefusedError(
            RefusalCode.UNTRUSTED_ROOT, "the attestation key is not pinned"
        )
    try:
        # After the pin: the library never parses a key that the policy does not know.
        key = load_der_public_key(evidence.ak)
    except (ValueError, UnsupportedAlgorithm):
        raise RefusedError(
            RefusalCode.CHAIN_INVALID, "the attestation key is invalid"
        ) from None
    usable = require_quote_key(key)
    log.passed(f"pinned, sha256 {fingerprint[:16]}")
    quote = verify_quote(evidence.quote, usable, log=log)
    registers = quote.registers()
    check_registers(registers, rules.measurements, evidence.tee, log=log)
    return CpuClaims(
        tee=evidence.tee,
        registers=registers,
        bound=quote.extra_data,
        # The evidence age of the policy and the key's window end it all the same.
        expires_at=NO_END,
        details={"isolates": False, "meaning": MEANING, **quote.details()},
        links=(
            Link(
                subject="attestation key",
                issuer="the policy",
                role="a TPM's key, pinned; no maker vouches for it here",
                fingerprint=fingerprint,
                not_after=None,
            ),
            quote_link(evidence.quote.message, quote),
        ),
    )


def quote_link(message: bytes, quote: VerifiedQuote) -> Link:
    """Return the claims of a quote."""
    return Link(
        subject="TPM quote",
        issuer="attestation key",
        role=f"what was started: {len(quote.pcrs)} registers",
        fingerprint=hashlib.sha256(message).hexdigest(),
        not_after=None,
    )
