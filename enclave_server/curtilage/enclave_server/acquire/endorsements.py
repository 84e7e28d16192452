"""The vendors' endorsements of the machine, as files that the stapler writes.

Each file is optional and read again for every piece of evidence, so that a file that
the stapler renames into place is used at once. Nothing is trusted or checked here: the
evidence carries it, and the verifier of the evidence verifies it.

The directory may belong to another user, and its content is published: a link would
publish a file of ours, and a pipe would block the device. Neither is read.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from curtilage.attest.evidence import (
    MAX_CERTIFICATE_BYTES,
    MAX_COLLATERAL_BYTES,
    MAX_CRL_BYTES,
)
from curtilage.enclave_server.errors import AcquisitionError
from curtilage.enclave_server.files import read_ordinary

VEK_FILE: Final = "vek.der"
ASK_FILE: Final = "ask.der"
ARK_FILE: Final = "ark.der"
CRL_FILE: Final = "crl.der"
COLLATERAL_FILE: Final = "collateral.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endorsements:
    """The data that is stapled to a report or a quote; empty if a file is missing.

    Attributes:
        vek: VCEK or VLEK certificate, DER.
        ask: ASK or ASVK certificate, DER.
        ark: root certificate, DER.
        crl: the root's revocation list, DER.
        collateral: for TDX, the JSON text of ``QuoteCollateralV3``.
    """

    vek: bytes = field(default=b"", repr=False)
    ask: bytes = field(default=b"", repr=False)
    ark: bytes = field(default=b"", repr=False)
    crl: bytes = field(default=b"", repr=False)
    collateral: bytes = field(default=b"", repr=False)


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
    )


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
