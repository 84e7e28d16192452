"""Hints which file to add when a refusal is caused by a missing one.

Pure. Extends a refusal's detail; code, step and verdict are unchanged. Knows the
options of ``curtilage attest verify-evidence``, and verifies nothing.
"""

from typing import Final

from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.evidence import (
    AzureEvidence,
    CpuEvidence,
    GpuEvidence,
    SnpEvidence,
    TdxEvidence,
    TpmEvidence,
)

_NO_LEAF: Final = "add the chip's certificate (VCEK or VLEK) with --vek or --certs"
_NO_CHAIN: Final = "add the chip's ASK or ASVK, and ARK, with --chain or --certs"
_NO_COLLATERAL: Final = "add Intel's collateral with --collateral"
_NO_CERTIFICATES: Final = "add the GPU's five certificates with --certs"
_NO_QUOTE: Final = (
    "add the TPM's quote with --quote-message, --quote-signature and --pcrs"
)
_CHAIN_CODES: Final = frozenset({RefusalCode.CHAIN_INVALID, RefusalCode.UNTRUSTED_ROOT})


def with_hint(
    refusal: RefusedError, evidence: CpuEvidence | GpuEvidence
) -> RefusedError:
    """Return the refusal with a hint which file is missing.

    Args:
        refusal: the refusal of this evidence.
        evidence: the assembled evidence.
    """
    hint = _hint(refusal, evidence)
    if hint is None:
        return refusal
    return RefusedError(
        refusal.code,
        f"{refusal.detail}; {hint}",
        step=refusal.step,
        steps=refusal.steps,
    )


def _hint(refusal: RefusedError, evidence: CpuEvidence | GpuEvidence) -> str | None:
    code = refusal.code
    if isinstance(evidence, AzureEvidence | TpmEvidence) and not evidence.quote.message:
        # A step before the quote may have failed for another reason.
        unread = code is RefusalCode.MALFORMED and refusal.detail.startswith("quote")
        return _NO_QUOTE if unread else None
    if isinstance(evidence, AzureEvidence):
        return _hint(refusal, evidence.hardware)
    if isinstance(evidence, SnpEvidence):
        rootless = code is RefusalCode.UNTRUSTED_ROOT and not evidence.ark
        chain = _NO_CHAIN if rootless or not evidence.ask else None
        # For other refusals a missing file is not the cause, and a hint would mislead.
        hint = chain if evidence.vek else _NO_LEAF
        return hint if code in _CHAIN_CODES else None
    if isinstance(evidence, TdxEvidence):
        missing = code is RefusalCode.COLLATERAL_INVALID and not evidence.collateral
        return _NO_COLLATERAL if missing else None
    missing = isinstance(evidence, GpuEvidence) and not evidence.chain
    return _NO_CERTIFICATES if missing and code in _CHAIN_CODES else None
