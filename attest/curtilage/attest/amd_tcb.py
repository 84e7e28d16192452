"""AMD's product names and their security patch levels.

Knows which byte of a TCB version means what on which product, and which CPU
belongs to which product; decides nothing.
"""

from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Final

from curtilage.attest.encoding.strict_json import malformed
from curtilage.attest.errors import RefusalCode, RefusedError

TCB_BYTES: Final = 8


class Product(StrEnum):
    """The processor lines with SEV-SNP, as AMD's certificates spell them."""

    MILAN = "Milan"
    GENOA = "Genoa"
    TURIN = "Turin"


# Family, first model and last model (AMD's VCEK specification, section 3).
_MODELS: Final = (
    (0x19, 0x00, 0x0F, Product.MILAN),
    (0x19, 0x10, 0x1F, Product.GENOA),
    (0x19, 0xA0, 0xAF, Product.GENOA),
    (0x1A, 0x00, 0x11, Product.TURIN),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tcb:
    """Security patch levels, 0 to 255 each.

    Attributes:
        bl: boot loader.
        tee: PSP operating system.
        snp: SNP firmware.
        ucode: microcode.
        fmc: firmware measured by the chip; Turin only, else 0.
    """

    bl: int
    tee: int
    snp: int
    ucode: int
    fmc: int = 0

    def short_of(self, minimum: "Tcb") -> tuple[str, ...]:
        """Return the components that are lower than the minimum's."""
        # Each level by itself, as AMD's bulletins name them: no sum and no order, or a
        # high microcode would make up for a boot loader with a known hole.
        return tuple(
            field.name
            for field in fields(self)
            if getattr(self, field.name) < getattr(minimum, field.name)
        )

    def describe(self) -> str:
        """Spell the levels in the order of AMD's tables."""
        return (
            f"fmc {self.fmc}, bl {self.bl}, tee {self.tee}, snp {self.snp}, "
            f"ucode {self.ucode}"
        )


def parse_tcb(raw: bytes, product: Product) -> Tcb:
    """Read a TCB version of 8 bytes in the product's layout."""
    if len(raw) != TCB_BYTES:
        raise malformed(f"TCB version: not {TCB_BYTES} bytes")
    # Turin moved every byte (AMD 56860, TCB_VERSION). Read in another product's layout,
    # a low boot loader could pass for a high microcode.
    if product is Product.TURIN:
        fmc, bl, tee, snp = raw[:4]
        reserved = raw[4:7]
    else:
        fmc, (bl, tee), snp = 0, raw[:2], raw[6]
        reserved = raw[2:6]
    # Reserved today, a component tomorrow: a level that is not compared must not be
    # there.
    if any(reserved):
        raise malformed("TCB version: reserved bytes are not zero")
    return Tcb(fmc=fmc, bl=bl, tee=tee, snp=snp, ucode=raw[7])


def encode_tcb(tcb: Tcb, product: Product) -> bytes:
    """Write a TCB version in the product's layout."""
    if product is Product.TURIN:
        return bytes([tcb.fmc, tcb.bl, tcb.tee, tcb.snp, 0, 0, 0, tcb.ucode])
    return bytes([tcb.bl, tcb.tee, 0, 0, 0, 0, tcb.snp, tcb.ucode])


def product_of_cpu(family: int, model: int) -> Product:
    """Return the product that a CPU belongs to."""
    # A processor that is not listed is refused, not taken for its neighbour: its layout
    # is not known.
    for known_family, first, last, product in _MODELS:
        if family == known_family and first <= model <= last:
            return product
    raise RefusedError(
        RefusalCode.UNSUPPORTED_PRODUCT, f"family {family:#x}, model {model:#x}"
    )


def product_named(name: str) -> Product:
    """Return the product that a certificate names, without the stepping.

    A VCEK says ``Milan-B0``, a VLEK says ``Milan``.
    """
    # Compared whole after the cut: a name that only begins with a product's is none.
    base = name.partition("-")[0]
    if base not in {product.value for product in Product}:
        raise RefusedError(RefusalCode.UNSUPPORTED_PRODUCT, "unknown product name")
    return Product(base)
