"""The options of an image; all of them are part of what is measured."""

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

# The kinds of evidence that an image supports, with the process that acquires it and
# the external files that it needs before the server can verify itself. Azure's TDX is
# missing: the stapler would have to run in the image, which reaches no network.
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
    """The options.

    Attributes:
        config: the server's configuration.
        tee: a key of ``ENDORSEMENTS``.
        vsock: the door listens on vsock.
        address: IPv4 address with prefix of the network device, or "": no network.
        gateway: IPv4 address of that network's gateway, or "".
        model: ``embedded``, ``none``, or the path of a model file.
        files: further files for the image: target and source.
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
        """Refuse invalid combinations.

        Raises:
            ImageError: an image that cannot be reached, or an invalid address.
        """
        if self.tee not in ENDORSEMENTS:
            raise ImageError(f"no such kind of evidence: {self.tee}")
        if not self.vsock and not self.address:
            raise ImageError(
                "the image would be unreachable: give vsock, or an address"
            )
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
