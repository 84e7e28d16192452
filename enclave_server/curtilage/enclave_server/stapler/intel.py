"""Intel's endorsements of a platform: the collateral of a TDX quote.

Fetches four responses and combines them into one file, in the format that ``dcap-qvl``
calls ``QuoteCollateralV3``. Intel signs two of them as the exact bytes of a JSON value
inside the response, so those are cut out and never encoded again. Verifies nothing; a
response of another kind than requested is not stored.
"""

import json
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Final
from urllib.parse import unquote

from curtilage.attest.errors import RefusedError
from curtilage.attest.evidence import MAX_COLLATERAL_BYTES, MAX_CRL_BYTES
from curtilage.attest.tdx.collateral import parse_collateral
from curtilage.attest.x509.certificates import parse_revocation_list
from curtilage.enclave_server.acquire.endorsements import COLLATERAL_FILE
from curtilage.enclave_server.stapler.addresses import (
    Addresses,
    intel_root_crl_url,
    pck_crl_url,
    qe_identity_url,
    tcb_info_url,
)
from curtilage.enclave_server.stapler.errors import FetchError
from curtilage.enclave_server.stapler.fetch import Fetched, Fetches
from curtilage.enclave_server.stapler.identity import TdxIdentity

MAX_SIGNED_BYTES: Final = 64 * 1024
TCB_INFO_CHAIN: Final = "tcb-info-issuer-chain"
QE_IDENTITY_CHAIN: Final = "sgx-enclave-identity-issuer-chain"
PCK_CRL_CHAIN: Final = "sgx-pck-crl-issuer-chain"
_SIGNATURE: Final = re.compile(r'\s*,\s*"signature"\s*:\s*"([0-9A-Fa-f]{128})"\s*}\s*')


async def fetch_intel(
    fetcher: Fetches, addresses: Addresses, identity: TdxIdentity
) -> Mapping[str, bytes]:
    """Fetch a platform's collateral, by file name.

    Raises:
        FetchError: some part was not available, or not what was requested.
    """
    pcs = addresses.intel_pcs
    tcb_info = await fetcher.get(
        tcb_info_url(pcs, identity.fmspc), limit=MAX_SIGNED_BYTES
    )
    qe_identity = await fetcher.get(qe_identity_url(pcs), limit=MAX_SIGNED_BYTES)
    pck_crl = await fetcher.get(
        pck_crl_url(pcs, identity.authority), limit=MAX_CRL_BYTES
    )
    root_crl = await fetcher.get(
        intel_root_crl_url(addresses.intel_certificates), limit=MAX_CRL_BYTES
    )
    info, info_signature = split_signed(tcb_info.body, "tcbInfo")
    enclave, enclave_signature = split_signed(qe_identity.body, "enclaveIdentity")
    collateral = json.dumps(
        {
            "pck_crl_issuer_chain": _chain(pck_crl, PCK_CRL_CHAIN),
            "root_ca_crl": root_crl.body.hex(),
            "pck_crl": pck_crl.body.hex(),
            "tcb_info_issuer_chain": _chain(tcb_info, TCB_INFO_CHAIN),
            "tcb_info": info,
            "tcb_info_signature": info_signature,
            "qe_identity_issuer_chain": _chain(qe_identity, QE_IDENTITY_CHAIN),
            "qe_identity": enclave,
            "qe_identity_signature": enclave_signature,
        }
    ).encode()
    # Parsed as a verifier would, so that no error page replaces a good file.
    if len(collateral) > MAX_COLLATERAL_BYTES:
        raise FetchError("Intel: the collateral is longer than evidence may carry")
    try:
        parsed = parse_collateral(collateral)
        parse_revocation_list(parsed.root_ca_crl, "root CRL")
        parse_revocation_list(parsed.pck_crl, "PCK CRL")
    except RefusedError as error:
        raise FetchError(f"Intel: {error}") from None
    return {COLLATERAL_FILE: collateral}


def intel_expires(files: Mapping[str, bytes]) -> datetime | None:
    """Return when the first part of the collateral expires; None: unreadable."""
    try:
        collateral = parse_collateral(files[COLLATERAL_FILE])
        lists = [
            parse_revocation_list(collateral.root_ca_crl, "root CRL").next_update,
            parse_revocation_list(collateral.pck_crl, "PCK CRL").next_update,
        ]
    except (KeyError, RefusedError):
        return None
    ends = [each for each in lists if each is not None]
    if len(ends) != len(lists):
        return None
    return min(*ends, collateral.tcb.next_update, collateral.qe.next_update)


def split_signed(body: bytes, name: str) -> tuple[str, str]:
    """Split ``{"<name>": {...}, "signature": "..."}`` in two, byte for byte.

    Raises:
        FetchError: it is not that.
    """
    try:
        # Located by a parser, but copied verbatim: encoded again, the same value may
        # become another text, and the signature is over the text.
        text = body.decode("utf-8")
        begin = re.match(rf'\s*{{\s*"{name}"\s*:\s*', text)
        if begin is None or text[begin.end()] != "{":
            raise FetchError(f"Intel: no {name}")
        _, end = json.JSONDecoder().raw_decode(text, begin.end())
    except (ValueError, IndexError, RecursionError):
        raise FetchError(f"Intel: no {name}") from None
    # To the very end: anything after it would not be signed.
    signature = _SIGNATURE.fullmatch(text, end)
    if signature is None:
        raise FetchError(f"Intel: {name} without its signature")
    return text[begin.end() : end], signature.group(1)


def _chain(fetched: Fetched, header: str) -> str:
    """Read a PEM chain from a header, where it is percent-encoded."""
    value = unquote(fetched.headers.get(header, ""))
    if "-----BEGIN CERTIFICATE-----" not in value:
        raise FetchError(f"Intel: no chain in {header}")
    return value
