"""The endorsement chain of a SEV-SNP report: ARK, ASK, VEK and their list.

ARK is AMD's root for one product, ASK (ASVK for VLEKs) its intermediate, VEK
the key that signs reports: a chip's own (VCEK), or one that a cloud provider
loaded (VLEK). The root comes from the policy; a served one is only ever used
in its place if it is the same, byte for byte.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from cryptography.x509.oid import SignatureAlgorithmOID

from curtilage.attest.amd_tcb import TCB_BYTES, Product, product_named
from curtilage.attest.claims import Link
from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.evidence import SnpEvidence
from curtilage.attest.expectations import TrustAnchor
from curtilage.attest.sev_snp.certificates import (
    AMD_ARC,
    parse_certificate,
    verify_rsa_pss,
)
from curtilage.attest.sev_snp.report import SigningKey, SnpReport
from curtilage.attest.x509.certificates import (
    Certificate,
    current_until,
    parse_revocation_list,
)
from curtilage.attest.x509.kept import certified

# AMD's extensions (1.3.6.1.4.1.3704.1.*).
_PRODUCT_NAME: Final = "2"
_HARDWARE_ID: Final = "4"
_CSP_ID: Final = "5"
_DER_INTEGER: Final = 0x02
_DER_OCTET_STRING: Final = 0x04
_DER_IA5_STRING: Final = 0x16
# Which byte of a TCB version each patch level extension speaks of; the
# reserved ones (.3.4 to .3.7) speak of bytes that must be zero.
_LEVELS_MILAN_GENOA: Final = {
    "3.1": 0,
    "3.2": 1,
    "3.4": 2,
    "3.5": 3,
    "3.6": 4,
    "3.7": 5,
    "3.3": 6,
    "3.8": 7,
}
_LEVELS_TURIN: Final = {
    "3.9": 0,
    "3.1": 1,
    "3.2": 2,
    "3.3": 3,
    "3.5": 4,
    "3.6": 5,
    "3.7": 6,
    "3.8": 7,
}
# The levels that a certificate may leave out: reserved bytes, always zero.
_OPTIONAL_LEVELS: Final = frozenset({"3.4", "3.5", "3.6", "3.7"})


@dataclass(frozen=True, slots=True, kw_only=True)
class VekChain:
    """The three certificates of one report, root first.

    Attributes:
        product: the processor line whose root it is.
        vlek: whether the key is a provider's, not a chip's own.
        provider: whom a VLEK was made for, or "".
        ark: the pinned root.
        ask: the intermediate as it was served.
        vek: the key that signed the report, as it was served.
    """

    product: Product
    vlek: bool
    provider: str
    ark: Certificate
    ask: Certificate
    vek: Certificate

    @property
    def first_end(self) -> datetime:
        """Expiry of the first of the three certificates."""
        return min(each.not_after for each in (self.ark, self.ask, self.vek))

    def endorsed_tcb(self) -> bytes:
        """Return the patch levels that the key was derived for, 8 bytes.

        Raises:
            RefusedError: ``chain_invalid``: the certificate does not say them.
        """
        turin = self.product is Product.TURIN
        levels = _LEVELS_TURIN if turin else _LEVELS_MILAN_GENOA
        named = _amd(self.vek)
        endorsed = bytearray(TCB_BYTES)
        for name, index in levels.items():
            # A level that is missing must not count as 0: equal to a report that says
            # 0, and so "endorsed". Only bytes that are reserved may be left out.
            if name in named or name not in _OPTIONAL_LEVELS:
                endorsed[index] = _level(named.get(name, b""))
        return bytes(endorsed)

    def hardware_id(self, length: int) -> bytes:
        """Return the chip's id: raw bytes, or in newer keys an OCTET STRING.

        Raises:
            RefusedError: ``chain_invalid``: the certificate does not say it.
        """
        # Which of both it is cannot be mistaken: an OCTET STRING's header would make
        # the raw form two bytes longer.
        raw = _amd(self.vek).get(_HARDWARE_ID, b"")
        return raw if len(raw) == length else _der_value(raw, _DER_OCTET_STRING)


def build_chain(
    evidence: SnpEvidence,
    report: SnpReport,
    vek: Certificate,
    anchors: tuple[TrustAnchor, ...],
) -> VekChain:
    """Find the pinned root of the key's product; nothing is verified yet.

    Args:
        evidence: what was served; root and intermediate in either order.
        report: names the kind of key, and from version 3 on the product.
        vek: the key's certificate.
        anchors: the pinned roots of the evidence's kind.

    Raises:
        RefusedError: ``untrusted_root``, ``endorsement_mismatch``,
            ``unsupported_product`` or ``chain_invalid``.
    """
    # The certificate names the product, the root of that product must have issued it,
    # and from version 3 on the report names its processor: three statements that must
    # agree, for the product decides how patch levels are read.
    product = product_named(_text(vek, _PRODUCT_NAME))
    if report.product not in {None, product}:
        raise RefusedError(
            RefusalCode.ENDORSEMENT_MISMATCH, "report and key name two products"
        )
    root, ask = _pinned_root(evidence, product, anchors)
    return VekChain(
        product=product,
        vlek=report.signing_key is SigningKey.VLEK,
        provider=_text(vek, _CSP_ID) if _CSP_ID in _amd(vek) else "",
        # ``root`` equals the pinned bytes, wherever it came from.
        ark=parse_certificate(root, "ARK"),
        ask=parse_certificate(ask, "ASK"),
        vek=vek,
    )


def _pinned_root(
    evidence: SnpEvidence, product: Product, anchors: tuple[TrustAnchor, ...]
) -> tuple[bytes, bytes]:
    """Return the root and the other certificate that was served."""
    # Of this product alone: Milan's root does not vouch for Genoa, though AMD made
    # both.
    pinned = [anchor for anchor in anchors if anchor.product == product.value]
    pairs = [pair for anchor in pinned if (pair := _pair(evidence, anchor)) is not None]
    if not pairs:
        # Three sentences for three situations that call for three different deeds of
        # an operator.
        why = f"the root that came is not the one pinned for {product}"
        if not pinned:
            why = f"no {evidence.tee} root is pinned for {product}"
        elif not evidence.ark:
            why = f"the root pinned for {product} did not come with the evidence"
        raise RefusedError(RefusalCode.UNTRUSTED_ROOT, why)
    # Of several roots of one product, the one that issued the intermediate.
    # Whichever it is, it is a pinned one, and ``check_issued`` follows.
    if len(pairs) == 1:
        return pairs[0]
    return next((pair for pair in pairs if _issued(*pair)), pairs[0])


def _pair(evidence: SnpEvidence, anchor: TrustAnchor) -> tuple[bytes, bytes] | None:
    # AMD's service hands both out in one file, and tools differ in which comes first.
    served = (evidence.ark, evidence.ask)
    for first, second in (served, served[::-1]):
        root = anchor.root(first)
        # A root in the evidence must be the pinned one, even if the policy has it:
        # accepted evidence contains nothing that was not checked.
        if root is not None and (not evidence.ark or root in served):
            return root, first if second == root else second
    return None


def _issued(root: bytes, ask: bytes) -> bool:
    try:
        issuer, child = parse_certificate(root, "ARK"), parse_certificate(ask, "ASK")
    except RefusedError:
        return False
    return certified(verify_rsa_pss, issuer, child.signed_part, child.signature)


def check_issued(chain: VekChain) -> None:
    """Check names, key usage and the three RSA-4096 PSS signatures.

    Raises:
        RefusedError: ``chain_invalid``.
    """
    vlek = "VLEK-" if chain.vlek else ""
    # By exact name: AMD's one root issues an ASK for chips' keys and an ASVK for
    # providers' keys, and a provider's must not pass for a chip's.
    if chain.ark.common_name != f"ARK-{chain.product}":
        raise RefusedError(RefusalCode.CHAIN_INVALID, "ARK: unexpected name")
    if chain.ask.common_name != f"SEV-{vlek}{chain.product}":
        raise RefusedError(RefusalCode.CHAIN_INVALID, "ASK: unexpected name")
    # A leaf whose key AMD certified is no authority, though its signature over another
    # certificate would verify (the old mistake of basicConstraints ignored).
    for name, authority in (("ARK", chain.ark), ("ASK", chain.ask)):
        if not (authority.is_ca and authority.signs_certificates):
            raise RefusedError(RefusalCode.CHAIN_INVALID, f"{name}: no authority")
    # And the other way round: an authority's key signs certificates, never reports.
    if chain.vek.is_ca:
        raise RefusedError(RefusalCode.CHAIN_INVALID, "VEK: is an authority")
    # The root's own signature too. It is pinned, so this proves nothing new; but a root
    # that cannot sign itself would be no root of AMD's, and the pin a mistake.
    _verify_issued("ARK", chain.ark, chain.ark)
    _verify_issued("ASK", chain.ask, chain.ark)
    _verify_issued("VEK", chain.vek, chain.ask)


def _verify_issued(name: str, child: Certificate, issuer: Certificate) -> None:
    # Names as well as signatures (RFC 5280, section 6.1.3): a list of revoked
    # certificates is found by the issuer's name.
    if child.issuer != issuer.subject:
        raise RefusedError(RefusalCode.CHAIN_INVALID, f"{name}: issuer's name")
    if child.algorithm != SignatureAlgorithmOID.RSASSA_PSS:
        raise RefusedError(RefusalCode.CHAIN_INVALID, f"{name}: not RSASSA-PSS")
    if not certified(verify_rsa_pss, issuer, child.signed_part, child.signature):
        raise RefusedError(RefusalCode.CHAIN_INVALID, f"{name}: signature")


def check_dates(chain: VekChain, *, now: datetime) -> None:
    """Check that all three certificates are valid now.

    Raises:
        RefusedError: ``not_yet_valid`` or ``expired_endorsement``.
    """
    # No allowance for clocks, either way: these certificates live for years.
    for name, certificate in (
        ("ARK", chain.ark),
        ("ASK", chain.ask),
        ("VEK", chain.vek),
    ):
        if now < certificate.not_before:
            raise RefusedError(RefusalCode.NOT_YET_VALID, f"{name} is not valid yet")
        if now > certificate.not_after:
            raise RefusedError(RefusalCode.EXPIRED_ENDORSEMENT, f"{name} has expired")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedList:
    """A current revocation list that does not name the chain.

    Attributes:
        end: until when it may be used.
        revoked: how many certificates it revokes.
        fingerprint: SHA-256 of what the root signed, lower-case hex.
    """

    end: datetime
    revoked: int
    fingerprint: str


def check_revocation(
    served: bytes,
    chain: VekChain,
    *,
    max_age_s: int,
    clock_skew_s: int,
    now: datetime,
) -> CheckedList:
    """Check a current list of the root's.

    It speaks of intermediates, for AMD revokes no single chip's key: the
    minimum TCB does that work.

    Raises:
        RefusedError: ``crl_missing``, ``crl_invalid``, ``not_yet_valid``,
            ``crl_expired`` or ``revoked``.
    """
    if not served:
        raise RefusedError(RefusalCode.CRL_MISSING, "no revocation list was served")
    crl = parse_revocation_list(served, "CRL")
    # Signed by the root and of the root: a list that another key signed could be an
    # empty one.
    if crl.issuer != chain.ark.subject:
        raise RefusedError(RefusalCode.CRL_INVALID, "issued by someone else")
    if not certified(verify_rsa_pss, chain.ark, crl.signed_part, crl.signature):
        raise RefusedError(RefusalCode.CRL_INVALID, "signature")
    end = current_until(
        crl.issued,
        crl.next_update,
        "the list",
        max_age_s=max_age_s,
        clock_skew_s=clock_skew_s,
        now=now,
    )
    if {chain.ark.serial, chain.ask.serial} & crl.revoked:
        raise RefusedError(RefusalCode.REVOKED, "a certificate of the chain is revoked")
    return CheckedList(
        end=end,
        revoked=len(crl.revoked),
        fingerprint=hashlib.sha256(crl.signed_part).hexdigest(),
    )


def chain_links(
    chain: VekChain, revocation: CheckedList, *, emulated: bool
) -> tuple[Link, ...]:
    """Return the chain of trust, root first."""
    ark, ask, vek = chain.ark, chain.ask, chain.vek
    maker = "the emulator's" if emulated else "AMD's"
    key = "a provider's key" if chain.vlek else "a chip's key"
    return (
        _link(ark, ark, f"{maker} root key for {chain.product}"),
        Link(
            subject="revocation list",
            issuer=ark.common_name,
            role=f"which of {maker} keys no longer count",
            fingerprint=revocation.fingerprint,
            not_after=revocation.end,
        ),
        _link(ask, ark, f"{maker} key that vouches for keys of {chain.product}"),
        _link(vek, ask, f"{key}, which signs reports"),
    )


def _link(certificate: Certificate, issuer: Certificate, role: str) -> Link:
    return Link(
        subject=certificate.common_name,
        issuer=issuer.common_name,
        role=role,
        fingerprint=certificate.fingerprint,
        not_after=certificate.not_after,
    )


def _amd(vek: Certificate) -> Mapping[str, bytes]:
    """Return AMD's own extensions, raw, by the last parts of their OIDs."""
    return {
        oid.removeprefix(AMD_ARC): value
        for oid, value in vek.unrecognised.items()
        if oid.startswith(AMD_ARC)
    }


def _text(vek: Certificate, name: str) -> str:
    # A text that is missing is refused like a malformed one: a key without a product is
    # of none.
    raw = _der_value(_amd(vek).get(name, b""), _DER_IA5_STRING)
    # Bytes that are no ASCII come out as U+FFFD, which no product name holds.
    return raw.decode("ascii", errors="replace")


def _level(der: bytes) -> int:
    """Read a patch level: a DER INTEGER from 0 to 255, shortest form."""
    value = _der_value(der, _DER_INTEGER)
    number = int.from_bytes(value, "big", signed=True)
    # DER has one spelling of each number (X.690, section 8.3.2); a second would be a
    # second certificate of the same meaning.
    shortest = 1 if number < 0x80 else 2  # noqa: PLR2004 - the sign bit
    if not 0 <= number <= 0xFF or len(value) != shortest:  # noqa: PLR2004 - one byte
        raise RefusedError(RefusalCode.CHAIN_INVALID, "VEK: patch level")
    return number


def _der_value(der: bytes, tag: int) -> bytes:
    """Return the content of one short DER value that fills the extension."""
    # A short length only: none of AMD's values is longer than 127 bytes.
    if len(der) < 2 or der[0] != tag or der[1] != len(der) - 2:  # noqa: PLR2004
        raise RefusedError(RefusalCode.CHAIN_INVALID, "VEK: malformed extension")
    return der[2:]
