"""The names of the steps of a TDX verification, in order."""

from enum import StrEnum


class TdxCheck(StrEnum):
    """One step each, named as a person reads it."""

    QUOTE_LAYOUT = "quote layout"
    COLLATERAL_LAYOUT = "collateral layout"
    COLLATERAL_DATES = "collateral dates"
    CERTIFICATES = "certificates"
    PINNED_ROOT = "pinned root"
    CERTIFICATE_CHAINS = "certificate chains"
    CERTIFICATE_DATES = "certificate dates"
    COLLATERAL_SIGNATURES = "collateral signatures"
    COLLATERAL_PLATFORM = "collateral's platform"
    REVOCATION = "revocation lists"
    QUOTING_ENCLAVE = "quoting enclave"
    QUOTE_SIGNATURE = "quote signature"
    QE_IDENTITY = "quoting enclave's identity"
    DEBUGGING = "debugging"
    TDX_MODULE = "TDX module"
    TCB_LEVEL = "TCB level"
    EVALUATION_NUMBER = "TCB evaluation number"
    TCB_STATUS = "TCB status"
    TD_ATTRIBUTES = "trust domain's attributes"
    SECOND_OPINION = "second opinion"
    MEASUREMENT = "measurement"
