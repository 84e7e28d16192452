"""Revocation on a chain of P-384 keys: lists, and answers about one certificate.

Lists are those of RFC 5280, which AWS publishes; answers are those of OCSP (RFC 6960),
which NVIDIA gives. A server staples both to its evidence; nothing is fetched here.
Whether they must be there is the policy's choice; what is there must hold.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509 import ocsp
from cryptography.x509.oid import SignatureAlgorithmOID

from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.expectations import Revocation
from curtilage.attest.x509.certificates import (
    LIBRARY_ERRORS,
    Certificate,
    RevocationList,
    current_until,
    on_curve,
    parse_revocation_list,
    verify_p384,
)
from curtilage.attest.x509.kept import certified
from curtilage.attest.x509.p384_chain import place_of, read_p384

SHORT_LIFE: Final = timedelta(days=2)
"""A certificate that lives no longer needs no list: AWS publishes none about those
of an instance (one day) and of an enclave (three hours)."""
MAX_LIST_AGE_S: Final = 30 * 86400
"""AWS renews its lists within days, whatever date they bear."""
MAX_ANSWER_AGE_S: Final = 7 * 86400
"""NVIDIA's answers are good for a day."""
MAX_SIGNERS: Final = 2
"""Certificates in one answer: the signer's, and at most one more."""
# The CA chooses what is hashed, yet SHA-1 is not needed: who asks chooses the hash.
_HASHES: Final = frozenset({"sha256", "sha384"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RevocationRules:
    """The rules about revocation.

    Attributes:
        rule: whether lists or answers must have come.
        max_age_s: how long ago a list or an answer may have been issued.
        clock_skew_s: how far ahead the issuers' clocks may run.
        now: aware UTC.
    """

    rule: Revocation
    max_age_s: int
    clock_skew_s: int
    now: datetime

    def require(self, detail: str) -> None:
        """Refuse that nothing is known, where the policy demands it.

        Raises:
            RefusedError: ``crl_missing``.
        """
        if self.rule is Revocation.REQUIRED:
            raise RefusedError(RefusalCode.CRL_MISSING, detail)


@dataclass(frozen=True, slots=True, kw_only=True)
class NotRevoked:
    """What a chain's issuers state, and until when it holds.

    Attributes:
        ends: of each list or answer that was checked.
    """

    ends: tuple[datetime, ...]

    def until(self, end: datetime) -> datetime:
        """Return the first end, be it one of these or the given one."""
        return min((end, *self.ends))

    @property
    def words(self) -> str:
        """What was seen, for people."""
        if not self.ends:
            return "nothing is stapled, and the policy accepts that"
        first = min(self.ends)
        return f"{len(self.ends)} not revoked, known until {first:%Y-%m-%d %H:%M} UTC"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An OCSP answer's values; unverified.

    Attributes:
        serial: of the certificate that it is about.
        issuer_name: hash of that certificate's issuer's name.
        issuer_key: hash of that certificate's issuer's key.
        hash_name: of both: ``sha256`` or ``sha384``.
        status: what it says.
        issued: when that was known to be so.
        next_update: until when it is current, or None if it does not say.
        algorithm: how it says it is signed.
        signed_part: the bytes that the signature covers.
        signature: the signer's.
        signers: certificates that came with it, DER, the signer's first.
    """

    serial: int
    issuer_name: bytes
    issuer_key: bytes
    hash_name: str
    status: ocsp.OCSPCertStatus
    issued: datetime
    next_update: datetime | None
    algorithm: x509.ObjectIdentifier
    signed_part: bytes = field(repr=False)
    signature: bytes = field(repr=False)
    signers: tuple[bytes, ...] = field(repr=False)

    def is_about(self, certificate: Certificate, issuer: Certificate) -> bool:
        """Return whether it names this certificate (RFC 6960, section 4.1.1)."""
        if self.serial != certificate.serial:
            return False
        # By name and by key: two authorities may give one serial number.
        return (self.issuer_name, self.issuer_key) == (
            hashlib.new(self.hash_name, issuer.subject).digest(),
            hashlib.new(self.hash_name, _point(issuer)).digest(),
        )


def check_lists(
    chain: Sequence[Certificate], served: Sequence[bytes], rules: RevocationRules
) -> NotRevoked:
    """Check the authorities' lists, which name none of the chain's certificates.

    Args:
        chain: verified, root first, the leaf last.
        served: DER lists of the chain's authorities, in any order.
        rules: what is demanded, ages and the time.

    Raises:
        RefusedError: ``crl_missing``, ``crl_invalid``, ``not_yet_valid``,
            ``crl_expired`` or ``revoked``.
    """
    lists = [
        parse_revocation_list(each, f"list {number}", scoped=True)
        for number, each in enumerate(served)
    ]
    authorities = {each.subject for each in chain[:-1]}
    # Evidence contains nothing that is not checked.
    if any(each.issuer not in authorities for each in lists):
        raise _invalid("a list of no authority of the chain")
    ends: list[datetime] = []
    for number in range(1, len(chain)):
        place = place_of(number, len(chain))
        certificate, issuer = chain[number], chain[number - 1]
        listed = _list_about(certificate, issuer, lists)
        if listed is not None:
            ends.append(_check_list(listed, certificate, issuer, place, rules))
        elif certificate.not_after - certificate.not_before > SHORT_LIFE:
            rules.require(f"{place}: no list of its issuer's was served")
    return NotRevoked(ends=tuple(ends))


def _list_about(
    certificate: Certificate, issuer: Certificate, lists: Sequence[RevocationList]
) -> RevocationList | None:
    for each in lists:
        # RFC 5280, section 6.3.3 (b) (2): a list may be a part, and says which. A part
        # that is silent about a certificate would look like one that clears it.
        part = each.scope and not each.scope & certificate.list_addresses
        if each.issuer == issuer.subject and not part:
            return each
    return None


def _check_list(
    listed: RevocationList,
    certificate: Certificate,
    issuer: Certificate,
    place: str,
    rules: RevocationRules,
) -> datetime:
    # RFC 5280, section 6.3.3 (f).
    if not issuer.signs_lists:
        raise _invalid(f"{place}: its issuer may not sign lists")
    if listed.algorithm != SignatureAlgorithmOID.ECDSA_WITH_SHA384 or not certified(
        verify_p384, issuer, listed.signed_part, listed.signature
    ):
        raise _invalid(f"{place}: its list's signature")
    end = current_until(
        listed.issued,
        listed.next_update,
        "its list",
        max_age_s=rules.max_age_s,
        clock_skew_s=rules.clock_skew_s,
        now=rules.now,
    )
    if certificate.serial in listed.revoked:
        raise RefusedError(RefusalCode.REVOKED, f"{place} is revoked")
    return end


def check_answers(
    chain: Sequence[Certificate], served: Sequence[bytes], rules: RevocationRules
) -> NotRevoked:
    """Check the answer about each certificate between root and leaf.

    The leaf is the device's own work and no responder knows it: its status is that of
    the certificate above.

    Args:
        chain: verified, root first, the leaf last.
        served: DER answers about these certificates, in any order.
        rules: what is demanded, ages and the time.

    Raises:
        RefusedError: ``crl_missing``, ``crl_invalid``, ``not_yet_valid``,
            ``crl_expired`` or ``revoked``.
    """
    answers = [
        parse_answer(each, f"answer {number}") for number, each in enumerate(served)
    ]
    ends: list[datetime] = []
    for number in range(1, len(chain) - 1):
        place = place_of(number, len(chain))
        certificate, issuer = chain[number], chain[number - 1]
        about = [each for each in answers if each.is_about(certificate, issuer)]
        if not about:
            rules.require(f"{place}: no answer about it was served")
            continue
        # Of two, the one that says "good" would be chosen.
        if len(about) > 1:
            raise _invalid(f"{place}: two answers")
        ends.append(_check_answer(about[0], issuer, place, rules))
    # One each was found at most, so any other is about no certificate of the chain.
    if len(answers) > len(ends):
        raise _invalid("an answer about no certificate of the chain")
    return NotRevoked(ends=tuple(ends))


def _check_answer(
    answer: Answer, issuer: Certificate, place: str, rules: RevocationRules
) -> datetime:
    signer = _signer(answer, issuer, place, rules.now)
    if answer.algorithm != SignatureAlgorithmOID.ECDSA_WITH_SHA384 or not certified(
        verify_p384, signer, answer.signed_part, answer.signature
    ):
        raise _invalid(f"{place}: its answer's signature")
    end = current_until(
        answer.issued,
        answer.next_update,
        "its answer",
        max_age_s=rules.max_age_s,
        clock_skew_s=rules.clock_skew_s,
        now=rules.now,
    )
    # "Unknown" is not "good" (RFC 6960, section 2.2).
    if answer.status is ocsp.OCSPCertStatus.UNKNOWN:
        raise RefusedError(
            RefusalCode.CRL_MISSING, f"{place}: its issuer does not know it"
        )
    if answer.status is not ocsp.OCSPCertStatus.GOOD:
        raise RefusedError(RefusalCode.REVOKED, f"{place} is revoked")
    return min(end, signer.not_after)


def _signer(
    answer: Answer, issuer: Certificate, place: str, now: datetime
) -> Certificate:
    """Return who may sign: the issuer itself, or whom it appointed."""
    if not answer.signers:
        return issuer
    try:
        signer = read_p384(answer.signers[0], "signer")
    except RefusedError as error:
        raise _invalid(f"{place}: its answer's {error.detail}") from None
    # RFC 6960, section 4.2.2.2: issued by the very authority whose certificate is asked
    # about, for this purpose alone. Otherwise any device below that authority could
    # clear itself.
    if signer.issuer != issuer.subject or not certified(
        verify_p384, issuer, signer.signed_part, signer.signature
    ):
        raise _invalid(f"{place}: its answer's signer is not its issuer's")
    if signer.is_ca or not signer.signs_answers:
        raise _invalid(f"{place}: its answer's signer may not sign answers")
    if not signer.not_before <= now <= signer.not_after:
        raise RefusedError(
            RefusalCode.CRL_EXPIRED, f"{place}: its answer's signer is not valid now"
        )
    return signer


def parse_answer(encoded: bytes, name: str) -> Answer:
    """Read a DER OCSP answer; ``name`` says which one in a refusal.

    Raises:
        RefusedError: ``crl_invalid``.
    """
    try:
        parsed = ocsp.load_der_ocsp_response(encoded)
        if parsed.response_status is not ocsp.OCSPResponseStatus.SUCCESSFUL:
            raise _invalid(f"{name}: {parsed.response_status.name.lower()}")
        # An error, where one response is about several certificates.
        values = Answer(
            serial=parsed.serial_number,
            issuer_name=parsed.issuer_name_hash,
            issuer_key=parsed.issuer_key_hash,
            hash_name=parsed.hash_algorithm.name,
            status=parsed.certificate_status,
            issued=parsed.this_update_utc,
            next_update=parsed.next_update_utc,
            algorithm=parsed.signature_algorithm_oid,
            signed_part=parsed.tbs_response_bytes,
            signature=parsed.signature,
            signers=tuple(
                each.public_bytes(Encoding.DER) for each in parsed.certificates
            ),
        )
        # As in a list: what is critical and not understood changes its meaning.
        critical = any(
            extension.critical
            for extensions in (parsed.extensions, parsed.single_extensions)
            for extension in extensions
        )
    except LIBRARY_ERRORS:
        raise _invalid(f"{name}: not an OCSP answer") from None
    if critical:
        raise _invalid(f"{name}: critical extension")
    if len(values.signers) > MAX_SIGNERS:
        raise _invalid(f"{name}: {len(values.signers)} certificates")
    if values.hash_name not in _HASHES:
        raise _invalid(f"{name}: names the certificate by {values.hash_name}")
    return values


def _point(issuer: Certificate) -> bytes:
    """Return a key as RFC 6960 hashes it: the BIT STRING's bytes."""
    key = on_curve(issuer.public_key, ec.SECP384R1)
    if key is None:
        raise _invalid("the issuer's key is not on P-384")
    return key.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)


def _invalid(detail: str) -> RefusedError:
    return RefusedError(RefusalCode.CRL_INVALID, detail)
