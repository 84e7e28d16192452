"""Signatures of certificates, lists and answers, verified once in a process.

A client verifies a bundle for each rotation of an enclave's keys, and an enclave its
own before it serves it: the chain above the report is nearly always the last one's.
A verification is a function of a key, signed bytes and a signature, and these are
compared whole; so keeping its result changes no verdict, and dates, names and
revocation are checked each time. Reports and quotes are never the same twice: their
signatures are not kept.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes

from curtilage.attest.x509.certificates import Certificate, read_certificate

# A machine with eight GPUs has fewer; each takes 1 to 3 KB, a list at most 24.
MAX_KEPT: Final = 256

Verify = Callable[[CertificatePublicKeyTypes, bytes, bytes], bool]
"""Takes a key, the signed part and the signature; the rules of one vendor."""


@dataclass(frozen=True, slots=True)
class _Signer:
    """A key, compared by its whole encoding."""

    encoded: bytes
    key: CertificatePublicKeyTypes = field(compare=False)


def certified(
    verify: Verify, issuer: Certificate, signed_part: bytes, signature: bytes
) -> bool:
    """Return whether an issuer signed something, by the rules of ``verify``."""
    signer = _Signer(issuer.key_info, issuer.public_key)
    return _holds(verify, signer, signed_part, signature)


@lru_cache(MAX_KEPT)
def _holds(
    verify: Verify, signer: _Signer, signed_part: bytes, signature: bytes
) -> bool:
    return verify(signer.key, signed_part, signature)


def forget() -> None:
    """Forget everything that was read and verified; for measurements."""
    _holds.cache_clear()
    read_certificate.cache_clear()
