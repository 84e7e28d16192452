"""Errors: why evidence was refused, and at which step.

AttestError
└── RefusedError   one check did not hold: a code, the step, a public detail

There is one error because there is one outcome: nothing is sent. A caller
branches on ``code``; ``detail`` holds field names, lengths, versions and public
measurements, never evidence bytes.
"""

from dataclasses import dataclass
from enum import StrEnum


class AttestError(Exception):
    """Root of every error that this part raises on purpose."""


class RefusalCode(StrEnum):
    """Every reason to refuse; the names are public and stable."""

    # The bytes: not what they should be, or not what this release knows.
    MALFORMED = "malformed"
    TOO_LARGE = "too_large"
    UNSUPPORTED_VERSION = "unsupported_version"
    UNSUPPORTED_ALGORITHM = "unsupported_algorithm"
    UNSUPPORTED_PRODUCT = "unsupported_product"
    # It is not signed by a trusted party, or that cannot be determined here.
    UNSIGNED = "unsigned"
    VERIFIER_UNAVAILABLE = "verifier_unavailable"
    # Who vouches: roots, certificates, lists and the vendors' statements.
    UNTRUSTED_ROOT = "untrusted_root"
    CHAIN_INVALID = "chain_invalid"
    EXPIRED_ENDORSEMENT = "expired_endorsement"
    NOT_YET_VALID = "not_yet_valid"
    REVOKED = "revoked"
    CRL_MISSING = "crl_missing"
    CRL_INVALID = "crl_invalid"
    CRL_EXPIRED = "crl_expired"
    COLLATERAL_EXPIRED = "collateral_expired"
    COLLATERAL_INVALID = "collateral_invalid"
    # A signature does not hold, or holds for something else than is claimed.
    BAD_SIGNATURE = "bad_signature"
    ENDORSEMENT_MISMATCH = "endorsement_mismatch"
    # True evidence of a machine in a state that will not do.
    DEBUG_ENABLED = "debug_enabled"
    MIGRATION_AGENT_ALLOWED = "migration_agent_allowed"
    VMPL = "vmpl"
    TCB_TOO_LOW = "tcb_too_low"
    TCB_STATUS = "tcb_status"
    MEASUREMENT_NOT_ALLOWED = "measurement_not_allowed"
    PLATFORM_DENIED = "platform_denied"
    # What runs is not published, or not where everybody can see it.
    RELEASE_NOT_LOGGED = "release_not_logged"
    RELEASE_DENIED = "release_denied"
    PROOF_INVALID = "proof_invalid"
    QUORUM_NOT_MET = "quorum_not_met"
    CHECKPOINT_STALE = "checkpoint_stale"
    # True evidence, made for other keys, other devices or another question.
    BINDING_MISMATCH = "binding_mismatch"
    SANDBOX_OPEN = "sandbox_open"
    TRANSPORT_NOT_ACCEPTED = "transport_not_accepted"
    DEVICE_MISSING = "device_missing"
    DEVICE_MISMATCH = "device_mismatch"
    # True once, and too old by now.
    STALE = "stale"
    EMULATED_REFUSED = "emulated_refused"
    # Found by the client, not in a bundle: another client sees other keys, a receipt is
    # not valid, a policy cannot be used.
    KEY_INCONSISTENT = "key_inconsistent"
    RECEIPT_INVALID = "receipt_invalid"
    POLICY_INVALID = "policy_invalid"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step that ran.

    Attributes:
        number: its place among the steps that ran, from 1.
        name: what was checked, in a few words.
        passed: False for the one step that refused.
        detail: what was seen; public.
    """

    number: int
    name: str
    passed: bool
    detail: str


class RefusedError(AttestError):
    """A check failed, so nothing may be sent.

    Attributes:
        code: why, in one word for programs.
        detail: why, in a few words for people; public.
        step: the name of the step that refused, or "" outside of ``verify``.
        steps: every step up to and including the one that refused.
    """

    def __init__(
        self,
        code: RefusalCode,
        detail: str,
        *,
        step: str = "",
        steps: tuple[Step, ...] = (),
    ) -> None:
        # The code first: readers of a log search for it.
        place = f" at step '{step}'" if step else ""
        super().__init__(f"{code}{place}: {detail}")
        self.code = code
        self.detail = detail
        self.step = step
        self.steps = steps
