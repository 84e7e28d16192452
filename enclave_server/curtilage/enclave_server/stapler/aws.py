"""AWS's endorsements of an enclave: its authorities' revocation lists.

Each certificate in an enclave's document says where its issuer's list is. The
certificates change within days, and the lists with them. Verifies nothing; a response
of another kind than requested is not stored.
"""

from collections.abc import Mapping
from datetime import datetime
from itertools import pairwise

from curtilage.attest.errors import RefusedError
from curtilage.attest.evidence import MAX_CRL_BYTES
from curtilage.attest.x509.certificates import parse_revocation_list, read_certificate
from curtilage.enclave_server.acquire.endorsements import list_file
from curtilage.enclave_server.stapler.addresses import aws_list_url
from curtilage.enclave_server.stapler.errors import FetchError
from curtilage.enclave_server.stapler.fetch import Fetches
from curtilage.enclave_server.stapler.identity import NitroIdentity


async def fetch_aws(
    fetcher: Fetches, mirror: str, identity: NitroIdentity
) -> Mapping[str, bytes]:
    """Fetch the lists of an enclave's authorities, by file name.

    Args:
        fetcher: the network access.
        mirror: base address in place of AWS's servers; empty for these.
        identity: the enclave's certificates.

    Raises:
        FetchError: one of them was not available, or not what was requested.
    """
    files: dict[str, bytes] = {}
    for issuer, encoded in pairwise(identity.chain):
        try:
            addresses = read_certificate(encoded).list_addresses
            subject = read_certificate(issuer).subject
        except ValueError:
            raise FetchError(
                "AWS: the enclave's certificates are not readable"
            ) from None
        if not addresses:
            continue
        fetched = await fetcher.get(
            aws_list_url(min(addresses), mirror), limit=MAX_CRL_BYTES
        )
        try:
            listed = parse_revocation_list(fetched.body, "AWS", scoped=True)
        except RefusedError:
            raise FetchError("AWS: not a revocation list") from None
        if listed.issuer != subject:
            raise FetchError("AWS: a revocation list of another authority")
        files[list_file(issuer)] = fetched.body
    return files


def aws_expires(files: Mapping[str, bytes]) -> datetime | None:
    """Return when the first of the stored lists expires; None: unreadable."""
    try:
        ends = [
            parse_revocation_list(data, name, scoped=True).next_update
            for name, data in files.items()
        ]
    except RefusedError:
        return None
    known = [end for end in ends if end is not None]
    return min(known, default=None) if len(known) == len(ends) else None
