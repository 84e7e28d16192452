"""Checks of expectations: they must permit something, and not too much.

Looks at the expectations alone, never at evidence.
"""

import re
from collections.abc import Collection
from typing import Final

from curtilage.attest.claims import measurement_problem
from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.evidence import MAX_DEVICES, DeviceKind, Tee
from curtilage.attest.expectations import (
    EMULATED_PRODUCTS,
    SNP_TEES,
    TDX_TEES,
    VENDOR_ROOT_FINGERPRINTS,
    AnchorKind,
    Environment,
    Expectations,
    TrustAnchor,
)
from curtilage.attest.log.note import ML_DSA_44_KEY_BYTES, PUBLIC_KEY_BYTES

# Witnesses may cosign with ML-DSA-44 (FIPS 204) as well.
WITNESS_KEY_BYTES: Final = frozenset({PUBLIC_KEY_BYTES, ML_DSA_44_KEY_BYTES})
# Report version 2 is the oldest that exists. It does not name its product, so
# that only the certificate says what the report's patch levels mean.
OLDEST_REPORT_VERSION: Final = 2
OLDEST_IN_PRODUCTION: Final = 3
_FINGERPRINT: Final = re.compile(r"[0-9a-f]{64}")


def validate_expectations(expectations: Expectations) -> None:
    """Refuse expectations that permit nothing, or too much.

    Raises:
        RefusedError: ``emulated_refused`` for anything in production that is
            emulated or a TPM by itself, ``policy_invalid`` for the rest.
    """
    # Words first, so that everything below may take them for kinds that exist.
    _refuse_unknown(expectations)
    _refuse_unisolated_in_production(expectations)
    log, freshness = expectations.log, expectations.freshness
    _refuse_empty(
        {
            **_sets_of_evidence(expectations),
            "release names": expectations.release_names,
            "log witnesses": log.witnesses,
            "transport parameters": expectations.transport,
        }
    )
    _validate_evidence(expectations)
    keys = [log.public_key, *log.witnesses.values()]
    if len(log.public_key) != PUBLIC_KEY_BYTES:
        raise _invalid(f"the log's key is not {PUBLIC_KEY_BYTES} bytes")
    if any(len(key) not in WITNESS_KEY_BYTES for key in log.witnesses.values()):
        raise _invalid("a witness's key is neither Ed25519 nor ML-DSA-44")
    # Under two names one witness would count twice, and a log that is its own
    # witness vouches for nothing.
    if len(set(keys)) != len(keys):
        raise _invalid("a log key is named twice")
    # Zero would be a log without witnesses, which can show each client a tree of its
    # own.
    if not 1 <= log.quorum <= len(log.witnesses):
        raise _invalid("the quorum is not between 1 and the number of witnesses")
    _require_positive(
        freshness.max_key_lifetime_s,
        freshness.max_evidence_age_s,
        log.max_checkpoint_age_s,
    )


def validate_evidence_expectations(expectations: Expectations) -> None:
    """Refuse expectations of evidence that permit nothing, or too much.

    For one piece of evidence by itself: what concerns a bundle alone (the log,
    releases, the key's window, transport) is not checked.

    Raises:
        RefusedError: as ``validate_expectations``.
    """
    _refuse_unknown(expectations)
    _refuse_unisolated_in_production(expectations)
    _refuse_empty(_sets_of_evidence(expectations))
    _validate_evidence(expectations)


def _refuse_unknown(expectations: Expectations) -> None:
    tees = {*expectations.required_cpu_tees, *expectations.measurements}
    if not tees <= {tee.value for tee in Tee}:
        raise _invalid("a kind of CPU evidence is unknown")
    if not set(expectations.required_devices) <= {kind.value for kind in DeviceKind}:
        raise _invalid("a kind of device is unknown")


def _refuse_unisolated_in_production(expectations: Expectations) -> None:
    # The one difference between the two environments, in one place.
    if expectations.environment is Environment.DEVELOPMENT:
        return
    # By roots and by kinds, each sufficient by itself: an unused emulated root in a
    # production policy is one typing error away from being used.
    unfit = {AnchorKind.EMULATED, AnchorKind.TPM}
    if any(root.kind in unfit for root in expectations.roots):
        raise _refused_in_production()
    tees = {*expectations.required_cpu_tees, *expectations.measurements}
    if not all(Tee(tee).isolates for tee in tees):
        raise _refused_in_production()
    if any(DeviceKind(kind).emulated for kind in expectations.required_devices):
        raise _refused_in_production()
    if expectations.snp.min_version < OLDEST_IN_PRODUCTION:
        raise _invalid("production accepts reports that do not name their product")


def _refused_in_production() -> RefusedError:
    return RefusedError(
        RefusalCode.EMULATED_REFUSED,
        "production names something emulated, or a TPM by itself",
    )


def _refuse_empty(sets: dict[str, Collection[object]]) -> None:
    # An empty set would refuse everything anyway, later and with a word that sends an
    # operator to the wrong place.
    empty = [name for name, values in sets.items() if not values]
    if empty:
        raise _invalid(f"permits nothing: no {', no '.join(empty)}")


def _sets_of_evidence(expectations: Expectations) -> dict[str, Collection[object]]:
    tees = frozenset(Tee(tee) for tee in expectations.required_cpu_tees)
    sets: dict[str, Collection[object]] = {
        "trust anchors": expectations.roots,
        "required CPU TEEs": expectations.required_cpu_tees,
    }
    # Only of the kinds that are named: who accepts no TDX need not say which status of
    # it would do.
    if tees & SNP_TEES:
        sets |= {
            "privilege levels": expectations.snp.vmpl,
            "minimum TCBs": expectations.snp.min_tcb,
            "host data": expectations.snp.host_data,
        }
    if tees & TDX_TEES:
        sets["TCB statuses"] = expectations.tdx.statuses
    if expectations.required_devices:
        sets |= {
            "GPU drivers": expectations.gpu.drivers,
            "GPU VBIOS versions": expectations.gpu.vbioses,
            "GPU measurements": expectations.gpu.golden,
        }
    return sets


def _validate_evidence(expectations: Expectations) -> None:
    for anchor in expectations.roots:
        _validate_anchor(anchor)
    _require_positive(expectations.snp.max_crl_age_s)
    # A negative allowance would refuse clocks that are right.
    if expectations.freshness.clock_skew_s < 0:
        raise _invalid("the clock skew is negative")
    if expectations.snp.min_version < OLDEST_REPORT_VERSION:
        raise _invalid("the minimum report version does not exist")
    if expectations.tdx.min_tcb_evaluation_number < 0:
        raise _invalid("the minimum TCB evaluation number is negative")
    counts = expectations.required_devices.values()
    if not all(1 <= count <= MAX_DEVICES for count in counts):
        raise _invalid(f"a number of devices is not between 1 and {MAX_DEVICES}")
    _validate_measurements(expectations)


def _validate_anchor(anchor: TrustAnchor) -> None:
    if _FINGERPRINT.fullmatch(anchor.fingerprint) is None:
        raise _invalid("a trust anchor's fingerprint is not a SHA-256 in hex")
    # Given twice, so both must agree: the fingerprint is what people compare, the
    # certificate what is used.
    if anchor.certificate_der and anchor.root() is None:
        raise _invalid("a trust anchor's certificate has another fingerprint")
    if anchor.kind is AnchorKind.EMULATED:
        if anchor.product not in EMULATED_PRODUCTS:
            raise _invalid("an emulated trust anchor is the root of nothing known")
        return
    if anchor.kind is AnchorKind.TPM:
        return
    # A policy cannot supply its own root for a vendor: otherwise anyone who may edit
    # one file could impersonate AMD.
    pinned = VENDOR_ROOT_FINGERPRINTS[anchor.kind].get(anchor.product)
    if pinned != anchor.fingerprint:
        raise _invalid(
            f"a trust anchor of kind {anchor.kind} is not that vendor's root"
        )


def _require_positive(*numbers: int) -> None:
    if any(number <= 0 for number in numbers):
        raise _invalid("an age or lifetime is not positive")


def _validate_measurements(expectations: Expectations) -> None:
    for tee, accepted in expectations.measurements.items():
        for measurement in accepted:
            # A measurement that no evidence could ever show is a mistake to report
            # now, not an enclave that is never accepted.
            problem = measurement_problem(measurement, Tee(tee))
            if problem is not None:
                raise _invalid(f"a measurement of {tee} {problem}")


def _invalid(detail: str) -> RefusedError:
    return RefusedError(RefusalCode.POLICY_INVALID, detail)
