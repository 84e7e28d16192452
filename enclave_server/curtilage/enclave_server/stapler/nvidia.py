"""NVIDIA's endorsements of GPUs: whether their certificates are revoked.

Asks NVIDIA's OCSP responder about each certificate between a GPU's own key and the
root, without a nonce: the answers are stapled for everybody. Verifies nothing; a
response of another kind than requested is not stored.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from itertools import pairwise
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import ocsp

from curtilage.attest.errors import RefusedError
from curtilage.attest.evidence import MAX_OCSP_BYTES
from curtilage.attest.x509.certificates import LIBRARY_ERRORS, read_certificate
from curtilage.attest.x509.revocation import parse_answer
from curtilage.enclave_server.acquire.endorsements import answer_file
from curtilage.enclave_server.stapler.errors import FetchError
from curtilage.enclave_server.stapler.fetch import Fetches

OCSP_REQUEST: Final = "application/ocsp-request"


async def fetch_nvidia(
    fetcher: Fetches, base: str, chains: Iterable[tuple[bytes, ...]]
) -> Mapping[str, bytes]:
    """Fetch the answers about GPUs' certificates, by file name.

    Args:
        fetcher: the network access.
        base: the responder's address.
        chains: of each GPU, DER, leaf first and the root last.

    Raises:
        FetchError: one of them was not available, or not what was requested.
    """
    files: dict[str, bytes] = {}
    for chain in chains:
        # The leaf is the GPU's own work, which NVIDIA does not know.
        for encoded, issuer in pairwise(chain[1:]):
            # GPUs of one machine have their upper certificates in common.
            if answer_file(encoded) not in files:
                files[answer_file(encoded)] = await _asked(
                    fetcher, base, encoded, issuer
                )
    return files


async def _asked(fetcher: Fetches, base: str, encoded: bytes, issuer: bytes) -> bytes:
    try:
        request = ocsp.OCSPRequestBuilder().add_certificate(
            x509.load_der_x509_certificate(encoded),
            x509.load_der_x509_certificate(issuer),
            SHA256(),
        )
        body = request.build().public_bytes(Encoding.DER)
        asked_about = read_certificate(encoded), read_certificate(issuer)
    except LIBRARY_ERRORS:
        raise FetchError("NVIDIA: a GPU's certificates are not readable") from None
    fetched = await fetcher.post(
        base, body, content_type=OCSP_REQUEST, limit=MAX_OCSP_BYTES
    )
    try:
        answer = parse_answer(fetched.body, "answer")
        about = answer.is_about(*asked_about)
    except RefusedError as error:
        raise FetchError(f"NVIDIA: {error.detail}") from None
    if not about:
        raise FetchError("NVIDIA: an answer about another certificate")
    return fetched.body


def nvidia_expires(files: Mapping[str, bytes]) -> datetime | None:
    """Return when the first of the stored answers expires; None: unreadable."""
    try:
        ends = [parse_answer(data, name).next_update for name, data in files.items()]
    except RefusedError:
        return None
    known = [end for end in ends if end is not None]
    return min(known, default=None) if len(known) == len(ends) else None
