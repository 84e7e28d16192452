"""Verification of Nitro evidence: a signed document, its chain, their contents.

    1. document layout: at most 32 KiB, an untagged COSE_Sign1 with ES384 alone
    2. document fields: each field's type and size, no other field
    3. document root: the first certificate is the pinned one
    4. document chain: P-384 and SHA-384 throughout; names, authority, path length
    5. document certificate dates: all valid now
    6. document revocation: stapled lists hold; there are some if the policy asks
    7. document signature: ECDSA P-384 by the leaf over the bytes as they came
    8. document time: neither of the future nor older than a leaf lives
    9. debug mode: registers 0 to 2 were measured
    10. document measurement: an accepted set of registers

One path for genuine and for emulated evidence; only the pinned root differs.
Not signed, and therefore fixed: tag and unprotected header. Inherent in ECDSA:
for a signature (r, s) also (r, n - s) holds, so a document has two spellings,
and nothing may be keyed by its digest.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

from curtilage.attest.claims import CpuClaims, Measurement, require_measurement
from curtilage.attest.encoding.cose import parse_cose_sign1
from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.evidence import MAX_DOCUMENT_BYTES, NitroEvidence
from curtilage.attest.expectations import Revocation, TrustAnchor
from curtilage.attest.nitro.document import NitroDocument, parse_nitro_document
from curtilage.attest.steps import StepLog
from curtilage.attest.x509.certificates import Certificate, verify_p384
from curtilage.attest.x509.p384_chain import (
    chain_links,
    check_chain,
    check_dates,
    check_pinned_root,
    parse_chain,
)
from curtilage.attest.x509.revocation import (
    MAX_LIST_AGE_S,
    RevocationRules,
    check_lists,
)

# As long as the leaf that AWS issues to an enclave lives.
MAX_DOCUMENT_AGE_S: Final = 3 * 3600
# Image, kernel and application; zeros where the enclave was started for
# debugging, whose console the host can read.
MEASURED_AT_START: Final = (0, 1, 2)


class NitroCheck(StrEnum):
    """The steps of a Nitro document, as a person reads them."""

    LAYOUT = "document layout"
    FIELDS = "document fields"
    ROOT = "document root"
    CHAIN = "document chain"
    DATES = "document certificate dates"
    REVOCATION = "document revocation"
    SIGNATURE = "document signature"
    TIME = "document time"
    DEBUG = "debug mode"
    MEASUREMENT = "document measurement"


@dataclass(frozen=True, slots=True, kw_only=True)
class NitroRules:
    """The expectations of one document.

    Attributes:
        anchors: the pinned roots of the evidence's kind.
        clock_skew_s: how far ahead the platform's clock may run.
        max_age_s: how old a document may be; never more than a leaf's life counts.
        measurements: the accepted sets of registers.
        revocation: whether revocation lists must be stapled.
    """

    anchors: tuple[TrustAnchor, ...]
    clock_skew_s: int
    max_age_s: int
    measurements: tuple[Measurement, ...]
    revocation: Revocation = Revocation.IF_STAPLED


def verify_nitro(
    evidence: NitroEvidence, rules: NitroRules, *, now: datetime, log: StepLog
) -> CpuClaims:
    """Verify a document, its chain and its claims, except what it binds.

    Args:
        evidence: unverified bytes.
        rules: what to hold them against.
        now: aware UTC.
        log: where each step is noted as it passes.

    Returns:
        Claims whose ``bound`` is the document's user data, as long as it is,
        and empty where it has none.

    Raises:
        RefusedError: the first step that does not hold.
    """
    # The chain is read, pinned and verified; only then is the payload authentic. The
    # chain is inside the payload that it must vouch for, so until step 7 it is a claim
    # like the rest.
    # 1. No tag and no unprotected header: neither is signed, so each would be a place
    # for a carrier to write into.
    log.begin(NitroCheck.LAYOUT)
    signed = parse_cose_sign1(
        evidence.document, where="document", limit_bytes=MAX_DOCUMENT_BYTES
    )
    log.passed(f"COSE_Sign1, ES384, {len(evidence.document)} bytes")
    # 2. Shape only. Nothing of its text is repeated before the signature holds.
    log.begin(NitroCheck.FIELDS)
    document = parse_nitro_document(signed.payload)
    log.passed(f"{len(document.pcrs)} registers")
    # 3. The root is served, and trusted because the policy pins its digest. AWS's root
    # is in no browser's store, and a store that the machine's owner can change is not
    # trustworthy.
    log.begin(NitroCheck.ROOT)
    fingerprint = check_pinned_root(document.cabundle[0], rules.anchors)
    log.passed(f"sha256 {fingerprint[:16]}")
    # 4. Root first in the bundle, the enclave's own certificate in a field by itself:
    # put together in the order in which each issues the next.
    log.begin(NitroCheck.CHAIN)
    chain = parse_chain((*document.cabundle, document.certificate))
    check_chain(chain)
    log.passed(f"{len(chain)} certificates on P-384")
    # 5. The leaf ends first: it lives three hours.
    log.begin(NitroCheck.DATES)
    expires_at = check_dates(chain, now=now, clock_skew_s=rules.clock_skew_s)
    log.passed(f"valid until {expires_at:%Y-%m-%d %H:%M:%S} UTC")
    # 6. AWS lists what it has revoked, one list for each authority.
    log.begin(NitroCheck.REVOCATION)
    asked = RevocationRules(
        rule=rules.revocation,
        max_age_s=MAX_LIST_AGE_S,
        clock_skew_s=rules.clock_skew_s,
        now=now,
    )
    listed = check_lists(chain, evidence.crls, asked)
    expires_at = listed.until(expires_at)
    log.passed(listed.words)
    # 7. The hypervisor's key for this enclave signed the payload.
    log.begin(NitroCheck.SIGNATURE)
    leaf = chain[-1]
    if not verify_p384(leaf.public_key, signed.signed_part, signed.der_signature):
        raise RefusedError(RefusalCode.BAD_SIGNATURE, "document signature")
    log.passed(f"ECDSA P-384 over {len(signed.payload)} bytes of payload")
    # 8. The signed time, compared with the clock.
    log.begin(NitroCheck.TIME)
    made = _made(document)
    max_age_s = min(rules.max_age_s, MAX_DOCUMENT_AGE_S)
    # A document of the future would be fresh for longer than any other.
    if made > now + timedelta(seconds=rules.clock_skew_s):
        raise RefusedError(RefusalCode.NOT_YET_VALID, "a document of the future")
    old_at = made + timedelta(seconds=max_age_s)
    # Older than the leaf lives is not possible; older than the policy likes is a
    # machine that may have changed hands.
    if now > old_at:
        raise RefusedError(RefusalCode.STALE, f"older than {max_age_s} s")
    log.passed(f"made {made:%Y-%m-%d %H:%M:%S} UTC")
    # 9. An enclave in debug mode reports zeros in place of its measurements. Its chain
    # and its signature are genuine, so only this reveals it; a register that is missing
    # counts as zeros.
    log.begin(NitroCheck.DEBUG)
    measured = (document.pcrs.get(index, b"") for index in MEASURED_AT_START)
    if not any(any(register) for register in measured):
        raise RefusedError(
            RefusalCode.DEBUG_ENABLED, "registers 0 to 2 are zero: debug mode"
        )
    log.passed("registers 0 to 2 were measured")
    claims = _claims(evidence, document, chain, min(expires_at, old_at))
    # 10. What was launched is accepted.
    log.begin(NitroCheck.MEASUREMENT)
    require_measurement(claims.registers, rules.measurements, claims.tee)
    log.passed(f"pcr0 {claims.registers['pcr0'][:16]}…")
    return claims


def _claims(
    evidence: NitroEvidence,
    document: NitroDocument,
    chain: tuple[Certificate, ...],
    expires_at: datetime,
) -> CpuClaims:
    return CpuClaims(
        tee=evidence.tee,
        registers={f"pcr{n}": value.hex() for n, value in document.pcrs.items()},
        # Not the nonce and not the public key, though an enclave may set both: what is
        # bound has one place.
        bound=document.user_data or b"",
        expires_at=expires_at,
        details={
            "module_id": document.module_id,
            "made": f"{_made(document):%Y-%m-%dT%H:%M:%SZ}",
            "nonce": (document.nonce or b"").hex(),
            "public_key": (document.public_key or b"").hex(),
        },
        links=chain_links(
            chain, root="root of Nitro Enclaves", leaf="this enclave's certificate"
        ),
        platform=document.module_id,
    )


def _made(document: NitroDocument) -> datetime:
    seconds, milliseconds = divmod(document.timestamp_ms, 1000)
    whole = datetime.fromtimestamp(seconds, tz=UTC)
    return whole + timedelta(milliseconds=milliseconds)
