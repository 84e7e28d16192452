"""The names of the steps of a TDX verification, in order."""

from enum import StrEnum


class TdxCheck(StrEnum):
    """One step each, named as a person reads it."""

    # Shape and dates: what can be refused without anybody's key.
    QUOTE_LAYOUT = "quote layout"
    COLLATERAL_LAYOUT = "collateral layout"
    COLLATERAL_DATES = "collateral dates"
    # From the pinned root to the signed statements about the platform.
    CERTIFICATES = "certificates"
    PINNED_ROOT = "pinned root"
    CERTIFICATE_CHAINS = "certificate chains"
    CERTIFICATE_DATES = "certificate dates"
    COLLATERAL_SIGNATURES = "collateral signatures"
    COLLATERAL_PLATFORM = "collateral's platform"
    REVOCATION = "revocation lists"
    # From the platform's key to the quote.
    QUOTING_ENCLAVE = "quoting enclave"
    QUOTE_SIGNATURE = "quote signature"
    QE_IDENTITY = "quoting enclave's identity"
    # What the quote says, held against Intel's statements and the policy.
    DEBUGGING = "debugging"
    TDX_MODULE = "TDX module"
    TCB_LEVEL = "TCB level"
    EVALUATION_NUMBER = "TCB evaluation number"
    TCB_STATUS = "TCB status"
    TD_ATTRIBUTES = "trust domain's attributes"
    # After our own steps, so that each of them has been seen to refuse by itself.
    SECOND_OPINION = "second opinion"
    MEASUREMENT = "measurement"
