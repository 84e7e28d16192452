"""What a person chooses about an image; all of it ends up in what is measured."""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deploy.image.errors import ImageError
from deploy.image.launch import DEFAULT_COUNTS, DEFAULT_TYPES, SNP_ACTIVE

ROOT: Final = Path(__file__).resolve().parents[2]
EMBEDDED: Final = "embedded"
NO_MODEL: Final = "none"

# The kinds of evidence that an image can be for, with the process that takes it and
# the files from outside that it needs before the server can verify itself. Nothing
# acquires Azure's on TDX yet.
PROVIDERS: Final = {
    "sev-snp": "tsm",
    "tdx": "tsm",
    "azure-snp": "azure-vtpm",
}
EMULATED: Final = ("emulated-sev-snp", "emulated-tdx", "emulated-nitro")
ENDORSEMENTS: Final[Mapping[str, tuple[str, ...]]] = {
    "sev-snp": ("vek.der", "ask.der", "crl.der"),
    "tdx": ("collateral.json",),
    "azure-snp": ("vek.der", "ask.der", "crl.der"),
    **dict.fromkeys(EMULATED, ()),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The choices.

    Attributes:
        config: the server's configuration.
        tee: a key of ``ENDORSEMENTS``.
        vsock: the door listens on vsock.
        address: IPv4 address with prefix of the network device, or "": no network.
        gateway: IPv4 address of the way out of that network, or "".
        model: ``embedded``, ``none``, or the path of a model file.
        files: further files for the image: where, and from where.
        engine: the engine's wheel.
        counts, types: of virtual processors, to predict launch digests for.
        features: the guest's SEV_FEATURES.
    """

    config: Path
    tee: str
    vsock: bool
    address: str
    gateway: str
    model: str
    files: tuple[tuple[str, Path], ...]
    engine: Path
    counts: tuple[int, ...] = DEFAULT_COUNTS
    types: tuple[str, ...] = DEFAULT_TYPES
    features: int = SNP_ACTIVE

    def __post_init__(self) -> None:
        """Refuse what cannot be meant.

        Raises:
            ImageError: an image that nobody could reach, or a wrong address.
        """
        if self.tee not in ENDORSEMENTS:
            raise ImageError(f"no such kind of evidence: {self.tee}")
        if not self.vsock and not self.address:
            raise ImageError("an image that nobody can reach: vsock, or an address")
        try:
            if self.address:
                ipaddress.IPv4Interface(self.address)
            if self.gateway:
                ipaddress.IPv4Address(self.gateway)
        except ValueError:
            raise ImageError("the address is not IPv4 with a prefix") from None
        if self.address and "/" not in self.address:
            raise ImageError("the address has no prefix, such as /24")

    @property
    def development(self) -> bool:
        """Whether the image's evidence is emulated."""
        return self.tee in EMULATED
