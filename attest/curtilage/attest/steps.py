"""The steps of a verification, in the order in which they run.

Knows the names of the steps of a bundle, of a SEV-SNP report and of a TDX quote,
as a person reads them, for these are checked in several modules; every other kind
of evidence names its steps where it checks them.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Final, TypeVar

from curtilage.attest.errors import RefusalCode, RefusedError, Step

# What a refusal says when the verifier failed in an unforeseen way.
UNFORESEEN: Final = "the verifier itself failed"
_ResultT = TypeVar("_ResultT")


class Check(StrEnum):
    """The steps of a bundle and of a SEV-SNP report."""

    EXPECTATIONS = "expectations"
    BUNDLE = "bundle"
    EVIDENCE_KIND = "kind of evidence"
    KEY_WINDOW = "key window"
    LOG_CHECKPOINT = "log checkpoint"
    RELEASE_PROOF = "release proof"
    LOG_CONSISTENCY = "log consistency"
    RELEASE_MANIFEST = "release manifest"
    FRESHNESS = "freshness"
    REPORT_LAYOUT = "report layout"
    SIGNING_KEY = "signing key"
    PINNED_ROOT = "pinned root"
    CERTIFICATE_CHAIN = "certificate chain"
    CERTIFICATE_DATES = "certificate dates"
    REVOCATION = "revocation list"
    REPORT_SIGNATURE = "report signature"
    CHIP_IDENTITY = "chip identity"
    TCB_ENDORSEMENT = "TCB endorsement"
    GUEST_POLICY = "guest policy"
    PRIVILEGE_LEVEL = "privilege level"
    MINIMUM_TCB = "minimum TCB"
    HOST_DATA = "host data"
    MEASUREMENT = "measurement"
    PINNED_MEASUREMENT = "pinned measurement"
    PLATFORM = "platform"
    REQUIRED_DEVICES = "required devices"
    DEVICE_NONCE = "device nonce"
    DISTINCT_DEVICES = "distinct devices"
    REPORT_DATA = "report data"
    SANDBOX = "sandbox"
    TRANSPORT = "transport parameters"
    CHALLENGE = "challenge"
    CHALLENGE_BINDING = "challenge binding"


class TdxCheck(StrEnum):
    """The steps of a TDX quote."""

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
    # The quote's contents, compared with Intel's statements and the policy.
    DEBUGGING = "debugging"
    TDX_MODULE = "TDX module"
    TCB_LEVEL = "TCB level"
    EVALUATION_NUMBER = "TCB evaluation number"
    TCB_STATUS = "TCB status"
    TD_ATTRIBUTES = "trust domain's attributes"
    # After our own steps, so that each of them has been seen to refuse by itself.
    SECOND_OPINION = "second opinion"
    MEASUREMENT = "measurement"


class StepLog:
    """Records and numbers the steps of one verification as they pass.

    A step that was begun but never passed is the one that refused, so a check
    that forgets to call ``passed`` cannot look as if it had held: the next step
    does not begin.
    """

    def __init__(self) -> None:
        self._steps: list[Step] = []
        self._current = str(Check.EXPECTATIONS)
        self._open = False

    def begin(self, name: str) -> None:
        """Begin a step; it gets the next number.

        Raises:
            RuntimeError: the step before neither passed nor refused.
        """
        # A mistake of ours, not of the evidence: a check that returned without a
        # verdict. As an error here it ends as a refusal.
        if self._open:
            raise RuntimeError("a step has neither passed nor refused")
        self._current = str(name)
        self._open = True

    def passed(self, detail: str) -> None:
        """Record that the current step passed.

        Raises:
            RuntimeError: no step has begun.
        """
        if not self._open:
            raise RuntimeError("no step has begun")
        self._steps.append(self._step(detail, passed=True))
        self._open = False

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps that passed so far."""
        return tuple(self._steps)

    def refusal(self, code: RefusalCode, detail: str) -> RefusedError:
        """Return the error that ends this verification at the current step."""
        failed = self._step(f"{code}: {detail}", passed=False)
        return RefusedError(
            code, detail, step=failed.name, steps=(*self._steps, failed)
        )

    def _step(self, detail: str, *, passed: bool) -> Step:
        return Step(
            number=len(self._steps) + 1,
            name=self._current,
            passed=passed,
            detail=detail,
        )


def refusing(log: StepLog, verification: Callable[[], _ResultT]) -> _ResultT:
    """Run a verification; every failure, foreseen or not, is a refusal.

    Raises:
        RefusedError: one step did not hold; ``steps`` ends with that one.
    """
    try:
        return verification()
    except RefusedError as refusal:
        # ``from None``: what led here may hold evidence bytes, and tracebacks are
        # printed.
        raise log.refusal(refusal.code, refusal.detail) from None
    # An outermost edge: whatever went wrong, the answer is no. The cause may
    # hold evidence bytes and is dropped.
    except BaseException as error:
        # Interrupts and exits are not verdicts.
        if not isinstance(error, Exception) and not panicked(error):
            raise
        raise log.refusal(RefusalCode.VERIFIER_UNAVAILABLE, UNFORESEEN) from None


def panicked(error: BaseException) -> bool:
    """Return whether a library written in Rust panicked.

    That is no ``Exception``, so nothing else would catch it, and its type has no
    public name.
    """
    # By name, for pyo3 exports no type. A class that only bears the name leads to a
    # refusal, which is never wrong.
    return type(error).__name__ == "PanicException"
