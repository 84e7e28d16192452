"""Endorsements of a TDX quote: Intel's root, its authorities, its collateral.

From the pinned root down to the platform's key and to the signed statements
about it: steps 3 to 10 of a TDX quote. Nothing here looks into the quote's report.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from cryptography.hazmat.primitives.asymmetric import ec

from curtilage.attest.claims import Link
from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.expectations import TrustAnchor
from curtilage.attest.steps import StepLog, TdxCheck
from curtilage.attest.tdx.certificates import (
    ECDSA_SHA256,
    PckPlatform,
    parse_pem_chain,
    parse_platform,
    platform_extension,
    verify_raw_p256,
)
from curtilage.attest.tdx.collateral import QE_ID, TDX_ID, Collateral
from curtilage.attest.x509.certificates import (
    Certificate,
    RevocationList,
    on_curve,
    parse_revocation_list,
    verify_p256,
)
from curtilage.attest.x509.kept import certified

ROOT_NAME: Final = "Intel SGX Root CA"
PCK_AUTHORITY_NAMES: Final = frozenset(
    {"Intel SGX PCK Platform CA", "Intel SGX PCK Processor CA"}
)
PCK_NAME: Final = "Intel SGX PCK Certificate"
SIGNER_NAME: Final = "Intel SGX TCB Signing"
# The root issues one authority, which issues only leaves.
_ROOT_PATH_LENGTH: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Chains:
    """Every certificate that came with the evidence.

    Attributes:
        root: the root; the pinned one, once the step of that name has passed.
        authority: who issued the PCK certificate.
        pck: the platform's certificate.
        list_authority: the PCK authority as the collateral has it.
        tcb_signer: who signed the TCB info.
        qe_signer: who signed the QE identity.
        served_roots: the roots that the collateral's chains end in.
    """

    root: Certificate
    authority: Certificate
    pck: Certificate
    list_authority: Certificate
    tcb_signer: Certificate
    qe_signer: Certificate
    served_roots: tuple[Certificate, ...]

    @property
    def named(self) -> tuple[tuple[str, Certificate], ...]:
        """Each certificate with a name for people, root first."""
        return (
            ("root", self.root),
            ("PCK authority", self.authority),
            ("PCK", self.pck),
            ("CRL issuer", self.list_authority),
            ("TCB info signer", self.tcb_signer),
            ("QE identity signer", self.qe_signer),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Endorsements:
    """A platform's verified endorsements.

    Attributes:
        chains: the certificates.
        platform: what the PCK certificate says.
        collateral: what Intel says.
        lists: both revocation lists.
    """

    chains: Chains
    platform: PckPlatform
    collateral: Collateral
    lists: tuple[RevocationList, ...]

    @property
    def expires_at(self) -> datetime:
        """Expiry of the first certificate, list or statement."""
        ends = [certificate.not_after for _, certificate in self.chains.named]
        ends += [each.next_update for each in self.lists if each.next_update]
        return min(
            *ends, self.collateral.tcb.next_update, self.collateral.qe.next_update
        )

    @property
    def latest_issue(self) -> datetime:
        """Date of the youngest list or statement."""
        issued = [each.issued for each in self.lists]
        return max(*issued, self.collateral.tcb.issued, self.collateral.qe.issued)


def check_collateral_dates(
    collateral: Collateral, now: datetime, skew: timedelta, log: StepLog
) -> None:
    """Refuse statements that are not current: step 3."""
    log.begin(TdxCheck.COLLATERAL_DATES)
    # First of all, and unsigned yet: a date can only refuse here. Stale collateral is
    # an operator's everyday mistake and deserves its own word, before certificates are
    # read.
    for name, made in (("TCB info", collateral.tcb), ("QE identity", collateral.qe)):
        if made.issued > now + skew:
            raise RefusedError(RefusalCode.NOT_YET_VALID, f"{name} is not valid yet")
        if now >= made.next_update:
            raise RefusedError(
                RefusalCode.COLLATERAL_EXPIRED,
                f"{name} was current until {made.next_update:%Y-%m-%d}",
            )
    end = min(collateral.tcb.next_update, collateral.qe.next_update)
    log.passed(f"current until {end:%Y-%m-%d}")


def check_endorsements(
    pck_chain: bytes,
    collateral: Collateral,
    anchors: Iterable[TrustAnchor],
    *,
    now: datetime,
    skew: timedelta,
    log: StepLog,
) -> Endorsements:
    """Verify everything between the pinned root and the quote.

    Args:
        pck_chain: the quote's own chain, PEM.
        collateral: parsed; its dates have been checked.
        anchors: the pinned roots of the evidence's kind.
        now: aware UTC.
        skew: how far ahead Intel's clocks may run.
        log: where each step is noted as it passes.

    Raises:
        RefusedError: the first step that does not hold.
    """
    # From the root downwards, and each statement only after its signer: what is read
    # before its signature holds decides nothing.
    # 4. Four chains of certificates, in the quote and in the collateral.
    log.begin(TdxCheck.CERTIFICATES)
    chains = _read_chains(pck_chain, collateral)
    log.passed("four chains")
    # 5. All four chains end in one root, and that is the pinned one, byte for byte.
    log.begin(TdxCheck.PINNED_ROOT)
    # A root with the same name and another key is the first thing that a forger makes.
    served = chains.root.encoded
    anchor = next((each for each in anchors if each.root(served) == served), None)
    if anchor is None:
        raise RefusedError(RefusalCode.UNTRUSTED_ROOT, "the root is not a pinned one")
    # The collateral's chains come from the party that stapled them. If one could end in
    # another, properly self-signed root, a stranger could decide which platforms are up
    # to date.
    if any(root.encoded != served for root in chains.served_roots):
        raise RefusedError(
            RefusalCode.UNTRUSTED_ROOT, "the collateral has another root"
        )
    log.passed(f"{chains.root.common_name}, sha256 {anchor.fingerprint[:16]}")
    # 6. Names, key usage and signatures, down to every leaf.
    _check_chains(chains, log)
    # 7. Every certificate is valid now.
    log.begin(TdxCheck.CERTIFICATE_DATES)
    # Every one, the list's issuer too: a statement is as current as its signer's
    # certificate.
    for name, certificate in chains.named:
        if now < certificate.not_before:
            raise RefusedError(RefusalCode.NOT_YET_VALID, f"{name} is not valid yet")
        if now > certificate.not_after:
            raise RefusedError(RefusalCode.EXPIRED_ENDORSEMENT, f"{name} has expired")
    end = min(certificate.not_after for _, certificate in chains.named)
    log.passed(f"valid until {end:%Y-%m-%d}")
    # 8 and 9. Intel signed both statements, and they are about this platform.
    platform = _check_statements(chains, collateral, log)
    # 10. Current lists of the root and of the PCK authority revoke none of these.
    lists = _check_lists(chains, collateral, now, skew, log)
    return Endorsements(
        chains=chains, platform=platform, collateral=collateral, lists=lists
    )


def _read_chains(pck_chain: bytes, collateral: Collateral) -> Chains:
    # Leaf, authority and root in the quote; signer and root in the collateral.
    known: dict[bytes, Certificate] = {}
    # Intel's quoting service leaves the NUL of a C string behind the last one.
    pck, authority, root = parse_pem_chain(
        pck_chain.removesuffix(b"\0"), "PCK chain", count=3, known=known
    )
    served = {
        "CRL chain": collateral.pck_crl_chain,
        "TCB info chain": collateral.tcb_info_chain,
        "QE identity chain": collateral.qe_identity_chain,
    }
    lists, tcb, qe = (
        parse_pem_chain(text.encode("utf-8"), name, count=2, known=known)
        for name, text in served.items()
    )
    return Chains(
        root=root,
        authority=authority,
        pck=pck,
        list_authority=lists[0],
        tcb_signer=tcb[0],
        qe_signer=qe[0],
        served_roots=(lists[1], tcb[1], qe[1]),
    )


def _check_chains(chains: Chains, log: StepLog) -> None:
    log.begin(TdxCheck.CERTIFICATE_CHAINS)
    root, authority = chains.root, chains.authority
    # Intel signs many things with keys below this root; the names say for which of them
    # a key is meant.
    _require_name("root", root, frozenset({ROOT_NAME}))
    _require_authority("root", root)
    # RFC 5280, section 4.2.1.9; Intel's own root says 1.
    if root.path_length is not None and root.path_length < _ROOT_PATH_LENGTH:
        raise _chain_invalid("root", "may not stand above an authority")
    _verify_issued("root", root, root)
    for name, each in (
        ("PCK authority", authority),
        ("CRL issuer", chains.list_authority),
    ):
        _require_name(name, each, PCK_AUTHORITY_NAMES)
        _require_authority(name, each)
        _verify_issued(name, each, root)
    # A TCB signer's key must sign no platform, a platform's key no statement: each leaf
    # has one name and one issuer.
    _check_leaf("PCK", chains.pck, PCK_NAME, authority)
    _check_leaf("TCB info signer", chains.tcb_signer, SIGNER_NAME, root)
    _check_leaf("QE identity signer", chains.qe_signer, SIGNER_NAME, root)
    log.passed(f"{PCK_NAME}, {authority.common_name}, {SIGNER_NAME}")


def _require_name(name: str, each: Certificate, wanted: frozenset[str]) -> None:
    if each.common_name not in wanted:
        raise _chain_invalid(name, "unexpected name")


def _require_authority(name: str, each: Certificate) -> None:
    if not (each.is_ca and each.signs_certificates and each.signs_lists):
        raise _chain_invalid(name, "no authority")


def _check_leaf(name: str, leaf: Certificate, wanted: str, issuer: Certificate) -> None:
    _require_name(name, leaf, frozenset({wanted}))
    # A leaf that may issue certificates would lengthen the path below what was checked.
    if leaf.is_ca:
        raise _chain_invalid(name, "is an authority")
    _verify_issued(name, leaf, issuer)


def _verify_issued(name: str, child: Certificate, issuer: Certificate) -> None:
    if child.issuer != issuer.subject:
        raise _chain_invalid(name, "issuer's name")
    if (
        on_curve(child.public_key, ec.SECP256R1) is None
        or child.algorithm != ECDSA_SHA256
    ):
        raise _chain_invalid(name, "not ECDSA P-256 with SHA-256")
    if not certified(verify_p256, issuer, child.signed_part, child.signature):
        raise _chain_invalid(name, "signature")


def _chain_invalid(name: str, detail: str) -> RefusedError:
    return RefusedError(RefusalCode.CHAIN_INVALID, f"{name}: {detail}")


def _check_statements(
    chains: Chains, collateral: Collateral, log: StepLog
) -> PckPlatform:
    # 8. Intel signed both statements, exactly as they stand.
    log.begin(TdxCheck.COLLATERAL_SIGNATURES)
    for name, signer, text, signature in (
        (
            "TCB info",
            chains.tcb_signer,
            collateral.tcb_info,
            collateral.tcb_info_signature,
        ),
        (
            "QE identity",
            chains.qe_signer,
            collateral.qe_identity,
            collateral.qe_identity_signature,
        ),
    ):
        # Over the text as it came. Intel signs the inner object's bytes; read and
        # written again they would be others.
        if not verify_raw_p256(signer.public_key, text.encode("utf-8"), signature):
            raise RefusedError(RefusalCode.COLLATERAL_INVALID, f"{name}: signature")
    log.passed("TCB info and QE identity: two signatures")
    # 9. The statements are about TDX, and about this very kind of platform.
    log.begin(TdxCheck.COLLATERAL_PLATFORM)
    # Intel signs the same kind of statement for SGX, with other levels, by the same
    # key. True, and about something else.
    if collateral.tcb.name != TDX_ID or collateral.qe.name != QE_ID:
        raise RefusedError(
            RefusalCode.ENDORSEMENT_MISMATCH, "the collateral is not about TDX"
        )
    platform = parse_platform(platform_extension(chains.pck))
    # Another model's levels: a true statement, properly signed, under which an outdated
    # platform looks current.
    if platform.fmspc != collateral.tcb.fmspc:
        raise RefusedError(
            RefusalCode.ENDORSEMENT_MISMATCH, "TCB info of another FMSPC"
        )
    if platform.pce_id != collateral.tcb.pce_id:
        raise RefusedError(RefusalCode.ENDORSEMENT_MISMATCH, "TCB info of another PCE")
    log.passed(f"FMSPC {platform.fmspc.hex()}, PCE {platform.pce_id.hex()}")
    return platform


def _check_lists(
    chains: Chains,
    collateral: Collateral,
    now: datetime,
    skew: timedelta,
    log: StepLog,
) -> tuple[RevocationList, ...]:
    log.begin(TdxCheck.REVOCATION)
    by_root = _verified_list("root CRL", collateral.root_ca_crl, chains.root)
    # The list's issuer came with the collateral, the platform's with the quote: by name
    # and key they must be one authority, or the list would be that of the sibling
    # (there are two: processor and platform), which never lists this platform.
    listed = chains.list_authority
    if (listed.subject, listed.key_info) != (
        chains.authority.subject,
        chains.authority.key_info,
    ):
        raise RefusedError(RefusalCode.CRL_INVALID, "PCK CRL: of another PCK authority")
    by_authority = _verified_list("PCK CRL", collateral.pck_crl, chains.authority)
    for name, each in (("root CRL", by_root), ("PCK CRL", by_authority)):
        # RFC 5280, section 5.1.2.5, demands the date. Without one a list would be
        # current for ever.
        if each.next_update is None:
            raise RefusedError(
                RefusalCode.CRL_INVALID, f"{name}: the list has no expiry date"
            )
        if each.issued > now + skew:
            raise RefusedError(RefusalCode.NOT_YET_VALID, f"{name} is not valid yet")
        if now >= each.next_update:
            raise RefusedError(
                RefusalCode.CRL_EXPIRED,
                f"{name} was current until {each.next_update:%Y-%m-%d}",
            )
    # Also the root itself, and both signers: Intel can revoke the key that signs
    # statements as well as an authority.
    below_root = (
        chains.authority,
        listed,
        chains.tcb_signer,
        chains.qe_signer,
        chains.root,
    )
    if {each.serial for each in below_root} & by_root.revoked:
        raise RefusedError(RefusalCode.REVOKED, "an authority or signer is revoked")
    if chains.pck.serial in by_authority.revoked:
        raise RefusedError(RefusalCode.REVOKED, "the PCK certificate is revoked")
    count = len(by_root.revoked) + len(by_authority.revoked)
    log.passed(f"two lists, {count} revoked, none of these")
    return by_root, by_authority


def _verified_list(name: str, der: bytes, issuer: Certificate) -> RevocationList:
    # Not to have a list is not to have been revoked: an attacker's easiest way is to
    # withhold it.
    if not der:
        raise RefusedError(RefusalCode.CRL_MISSING, f"{name}: none was served")
    parsed = parse_revocation_list(der, name)
    if parsed.issuer != issuer.subject:
        raise RefusedError(RefusalCode.CRL_INVALID, f"{name}: issued by someone else")
    # The algorithm is the profile's, not what the list names: a weaker hash would make
    # lists forgeable.
    if parsed.algorithm != ECDSA_SHA256 or not certified(
        verify_p256, issuer, parsed.signed_part, parsed.signature
    ):
        raise RefusedError(RefusalCode.CRL_INVALID, f"{name}: signature")
    return parsed


def endorsement_links(endorsements: Endorsements) -> tuple[Link, ...]:
    """Return the chain of trust, from the root to the platform's key."""
    chains = endorsements.chains
    return (
        _link(chains.root, "the policy", "pinned root"),
        _link(chains.tcb_signer, ROOT_NAME, "signs statements about platforms"),
        _link(chains.authority, ROOT_NAME, "issues platforms' keys"),
        _link(chains.pck, chains.authority.common_name, "this platform's key"),
    )


def _link(certificate: Certificate, issuer: str, role: str) -> Link:
    return Link(
        subject=certificate.common_name,
        issuer=issuer,
        role=role,
        fingerprint=certificate.fingerprint,
        not_after=certificate.not_after,
    )
