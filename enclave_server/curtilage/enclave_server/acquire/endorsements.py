"""The vendors' endorsements of the machine, as files that the stapler writes.

Each file is optional and read again for every piece of evidence, so that a file that
the stapler renames into place is used at once. Nothing is trusted or checked here: the
evidence carries it, and the verifier of the evidence verifies it.

The directory may belong to another user, and its content is published: a link would
publish a file of ours, and a pipe would block the device. Neither is read.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from curtilage.attest.evidence import (
    MAX_CERTIFICATE_BYTES,
    MAX_COLLATERAL_BYTES,
    MAX_CRL_BYTES,
    MAX_OCSP_BYTES,
    MAX_QUOTE_BYTES,
)
from curtilage.enclave_server.errors import AcquisitionError
from curtilage.enclave_server.files import read_ordinary

VEK_FILE: Final = "vek.der"
ASK_FILE: Final = "ask.der"
ARK_FILE: Final = "ark.der"
CRL_FILE: Final = "crl.der"
COLLATERAL_FILE: Final = "collateral.json"
QUOTE_FILE: Final = "td-quote.bin"
NAMED: Final = re.compile(r"(?:nitro-crl|gpu-ocsp)-([0-9a-f]{64})\.der")
"""Files of which there is one for each certificate, named by its SHA-256."""
MAX_NAMED: Final = 128
"""Those of 16 GPUs and of an enclave's authorities are fewer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endorsements:
    """The data that is stapled to a report or a quote; empty if a file is missing.

    Attributes:
        vek: VCEK or VLEK certificate, DER.
        ask: ASK or ASVK certificate, DER.
        ark: root certificate, DER.
        crl: the root's revocation list, DER.
        collateral: for TDX, the JSON text of ``QuoteCollateralV3``.
        quote: for TDX below Azure's paravisor, the quote over its report.
        named: revocation lists and OCSP answers, DER, by file name.
    """

    vek: bytes = field(default=b"", repr=False)
    ask: bytes = field(default=b"", repr=False)
    ark: bytes = field(default=b"", repr=False)
    crl: bytes = field(default=b"", repr=False)
    collateral: bytes = field(default=b"", repr=False)
    quote: bytes = field(default=b"", repr=False)
    named: Mapping[str, bytes] = field(default_factory=dict[str, bytes], repr=False)

    def lists(self, authorities: Iterable[bytes]) -> tuple[bytes, ...]:
        """Return the revocation lists of these authorities (DER), where there are."""
        return self._found(list_file(each) for each in authorities)

    def answers(self, certificates: Iterable[bytes]) -> tuple[bytes, ...]:
        """Return the OCSP answers about these certificates (DER), where there are."""
        return self._found(answer_file(each) for each in certificates)

    def _found(self, names: Iterable[str]) -> tuple[bytes, ...]:
        return tuple(self.named[name] for name in names if name in self.named)


def list_file(authority: bytes) -> str:
    """Return the name of the file with an authority's revocation list."""
    return f"nitro-crl-{hashlib.sha256(authority).hexdigest()}.der"


def answer_file(certificate: bytes) -> str:
    """Return the name of the file with the OCSP answer about a GPU's certificate."""
    return f"gpu-ocsp-{hashlib.sha256(certificate).hexdigest()}.der"


def read_endorsements(directory: Path) -> Endorsements:
    """Read the files that exist.

    Raises:
        AcquisitionError: a file is longer than evidence may carry, not a regular
            file, or not readable.
    """
    return Endorsements(
        vek=_read(directory / VEK_FILE, MAX_CERTIFICATE_BYTES),
        ask=_read(directory / ASK_FILE, MAX_CERTIFICATE_BYTES),
        ark=_read(directory / ARK_FILE, MAX_CERTIFICATE_BYTES),
        crl=_read(directory / CRL_FILE, MAX_CRL_BYTES),
        collateral=_read(directory / COLLATERAL_FILE, MAX_COLLATERAL_BYTES),
        quote=_read(directory / QUOTE_FILE, MAX_QUOTE_BYTES),
        named=_read_named(directory),
    )


def _read_named(directory: Path) -> dict[str, bytes]:
    try:
        names = sorted(
            each.name for each in directory.iterdir() if NAMED.fullmatch(each.name)
        )
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise AcquisitionError(f"endorsements: {type(error).__name__}") from None
    if len(names) > MAX_NAMED:
        raise AcquisitionError(f"endorsements: more than {MAX_NAMED} of a kind")
    limits = {"nitro": MAX_CRL_BYTES, "gpu": MAX_OCSP_BYTES}
    return {
        name: _read(directory / name, limits[name.partition("-")[0]]) for name in names
    }


def _read(path: Path, limit: int) -> bytes:
    try:
        data = read_ordinary(path, limit + 1, links=False)
    except FileNotFoundError:
        # Which files exist depends on the machine's vendor and its provider.
        return b""
    except OSError as error:
        raise AcquisitionError(f"{path.name}: {type(error).__name__}") from None
    if len(data) > limit:
        raise AcquisitionError(f"{path.name}: more than {limit} bytes")
    return data
