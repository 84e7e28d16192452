"""The only import of ``dcap_qvl``: a second verification of a TDX quote.

Imported on first use, so that verifying other evidence does not need the library;
where it is missing, no quote is accepted. Always called with a policy: without one
it accepts platforms that are out of date. Its errors are texts, and texts are not an
interface: everything that it refuses is refused with the code that the caller
names. It fetches nothing here, since that would reveal which platform is being
verified.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol, cast

from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.steps import panicked
from curtilage.attest.tdx.collateral import Collateral, TcbStatus

# The library lets a platform that is out of date pass for a time after its
# level's date. Where the policy accepts such platforms, this is that time.
_ALWAYS_S: Final = 100 * 365 * 86400
_OUT_OF_DATE: Final = frozenset(
    {TcbStatus.OUT_OF_DATE, TcbStatus.OUT_OF_DATE_CONFIGURATION_NEEDED}
)


class _Policy(Protocol):
    """The part of the library's policy that is used; each call returns a new one."""

    def allow_dynamic_platform(self, value: bool, /) -> "_Policy": ...
    def allow_cached_keys(self, value: bool, /) -> "_Policy": ...
    def allow_smt(self, value: bool, /) -> "_Policy": ...
    def allow_status(self, status: str, /) -> "_Policy": ...
    def min_tcb_eval_data_number(self, value: int, /) -> "_Policy": ...
    def reject_advisories(self, ids: list[str], /) -> "_Policy": ...
    def platform_grace_period(self, secs: int, /) -> "_Policy": ...
    def qe_grace_period(self, secs: int, /) -> "_Policy": ...


class _Policies(Protocol):
    def strict(self, now_secs: int, /) -> _Policy: ...


class _Verifier(Protocol):
    def verify_with_policy(
        self, raw_quote: bytes, collateral: object, now_secs: int, policy: _Policy, /
    ) -> object: ...


class _Library(Protocol):
    """The part of the package that is used; the package has no types."""

    QuotePolicy: _Policies

    def QuoteVerifier(self, root_ca_der: bytes, /) -> _Verifier: ...  # noqa: N802
    def QuoteCollateralV3(self, **fields: str | bytes) -> object: ...  # noqa: N802


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryRules:
    """The rules that the library applies to a quote.

    Attributes:
        root: the pinned root, DER.
        statuses: the accepted statuses.
        min_evaluation_number: how recent Intel's judgement must be.
        rejected_advisories: advisories that may not be open.
    """

    root: bytes
    statuses: frozenset[TcbStatus]
    min_evaluation_number: int
    rejected_advisories: Iterable[str]


def ask_library(
    quote: bytes,
    collateral: Collateral,
    rules: LibraryRules,
    *,
    now: datetime,
    code: RefusalCode,
) -> None:
    """Refuse what the library refuses.

    Args:
        quote: exact; the library checks neither its length nor trailing bytes.
        collateral: what was stapled.
        rules: what to hold them against.
        now: aware; the library knows no clock of its own.
        code: for whatever it refuses.

    Raises:
        RefusedError: with ``code``, or ``verifier_unavailable`` where the
            library is missing or broke down.
    """
    try:
        import dcap_qvl  # type: ignore[import-untyped] # noqa: PLC0415 - see above
    except ImportError:
        raise RefusedError(
            RefusalCode.VERIFIER_UNAVAILABLE, "dcap-qvl is not installed"
        ) from None
    library = cast("_Library", dcap_qvl)
    # The clock is an argument here too, else the verdict on one quote could change
    # between two runs of one test.
    seconds = int(now.timestamp())
    try:
        library.QuoteVerifier(rules.root).verify_with_policy(
            quote,
            library.QuoteCollateralV3(
                pck_crl_issuer_chain=collateral.pck_crl_chain,
                root_ca_crl=collateral.root_ca_crl,
                pck_crl=collateral.pck_crl,
                tcb_info_issuer_chain=collateral.tcb_info_chain,
                tcb_info=collateral.tcb_info,
                tcb_info_signature=collateral.tcb_info_signature,
                qe_identity_issuer_chain=collateral.qe_identity_chain,
                qe_identity=collateral.qe_identity,
                qe_identity_signature=collateral.qe_identity_signature,
            ),
            seconds,
            _policy(library, rules, seconds),
        )
    # Expected: this is how the library refuses.
    except ValueError:
        raise RefusedError(code, "dcap-qvl refuses it") from None
    # A panic in Rust is no ``Exception``. It is an answer all the same, and the answer
    # is no; keyboard interrupts and the like go on upwards.
    except BaseException as error:
        if not panicked(error):
            raise
        raise RefusedError(
            RefusalCode.VERIFIER_UNAVAILABLE, "dcap-qvl broke down"
        ) from None


def _policy(library: _Library, rules: LibraryRules, seconds: int) -> _Policy:
    """Build the strictest policy that ordinary servers pass.

    Servers with several sockets are dynamic platforms with cached keys, and run
    with hyperthreading; refusing those would refuse nearly all.
    """
    policy = (
        # Begins with "nothing is allowed"; every line below allows one thing by name.
        library.QuotePolicy.strict(seconds)
        .allow_dynamic_platform(True)
        .allow_cached_keys(True)
        .allow_smt(True)
        .min_tcb_eval_data_number(rules.min_evaluation_number)
        .reject_advisories(sorted(rules.rejected_advisories))
    )
    # The policy's own words, as in our own step: the two opinions must be about one
    # question.
    for status in sorted(rules.statuses):
        policy = policy.allow_status(status.value)
    if rules.statuses & _OUT_OF_DATE:
        policy = policy.platform_grace_period(_ALWAYS_S).qe_grace_period(_ALWAYS_S)
    return policy
