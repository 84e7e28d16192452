"""AMD's endorsements of a chip: its certificate, the chain above it, revocations.

Fetches and splits; verifies nothing. A response of another kind than requested is not
stored, so that an error page never replaces a good file.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from curtilage.attest.errors import RefusedError
from curtilage.attest.evidence import MAX_CERTIFICATE_BYTES, MAX_CRL_BYTES
from curtilage.attest.sev_snp.certificates import parse_certificate
from curtilage.attest.x509.certificates import LIBRARY_ERRORS, parse_revocation_list
from curtilage.enclave_server.acquire.endorsements import (
    ARK_FILE,
    ASK_FILE,
    CRL_FILE,
    VEK_FILE,
)
from curtilage.enclave_server.stapler.addresses import (
    amd_chain_url,
    amd_crl_url,
    vcek_url,
)
from curtilage.enclave_server.stapler.errors import FetchError
from curtilage.enclave_server.stapler.fetch import Fetches
from curtilage.enclave_server.stapler.identity import SnpIdentity

MAX_CHAIN_BYTES: Final = 16 * 1024


async def fetch_amd(
    fetcher: Fetches, base: str, identity: SnpIdentity
) -> Mapping[str, bytes]:
    """Fetch a machine's files, by name.

    Raises:
        FetchError: one of them was not available.
    """
    files: dict[str, bytes] = {}
    if identity.has_vcek:
        url = vcek_url(base, identity.product, identity.chip_id, identity.tcb)
        vcek = await fetcher.get(url, limit=MAX_CERTIFICATE_BYTES)
        try:
            parse_certificate(vcek.body, VEK_FILE)
        except RefusedError:
            raise FetchError("AMD: not a certificate") from None
        files[VEK_FILE] = vcek.body
    chain = await fetcher.get(
        amd_chain_url(base, identity.product, vlek=identity.vlek),
        limit=MAX_CHAIN_BYTES,
    )
    files[ASK_FILE], files[ARK_FILE] = _split_chain(chain.body)
    crl = await fetcher.get(
        amd_crl_url(base, identity.product, vlek=identity.vlek), limit=MAX_CRL_BYTES
    )
    try:
        parse_revocation_list(crl.body, CRL_FILE)
    except RefusedError:
        raise FetchError("AMD: not a revocation list") from None
    files[CRL_FILE] = crl.body
    return files


def amd_expires(files: Mapping[str, bytes]) -> datetime | None:
    """Return when the first of the stored files expires; None: unreadable."""
    names = (VEK_FILE, ASK_FILE, ARK_FILE)
    present = {name: data for name in names if (data := files.get(name))}
    try:
        ends = [
            parse_certificate(data, name).not_after for name, data in present.items()
        ]
        next_update = parse_revocation_list(files[CRL_FILE], CRL_FILE).next_update
    except (KeyError, RefusedError):
        return None
    if next_update is None or not ends:
        return None
    return min(*ends, next_update)


def _split_chain(pem: bytes) -> tuple[bytes, bytes]:
    """Return the intermediate and the root, distinguished by their issuers."""
    # Not by their places: AMD puts the intermediate first, a mirror may not.
    try:
        loaded = x509.load_pem_x509_certificates(pem)
        ders = [each.public_bytes(Encoding.DER) for each in loaded]
        chain = {der: parse_certificate(der, "chain") for der in ders}
    except (*LIBRARY_ERRORS, RefusedError):
        raise FetchError("AMD: not a chain of certificates") from None
    roots = [der for der, each in chain.items() if each.issuer == each.subject]
    others = [der for der in chain if der not in roots]
    if len(roots) != 1 or len(others) != 1:
        raise FetchError("AMD: not one intermediate and one root")
    return others[0], roots[0]
