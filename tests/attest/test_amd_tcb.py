import pytest

from curtilage.attest.amd_tcb import (
    Product,
    Tcb,
    encode_tcb,
    parse_tcb,
    product_named,
    product_of_cpu,
)
from curtilage.attest.errors import RefusalCode, RefusedError


@pytest.mark.parametrize(
    ("family", "model", "product"),
    [
        (0x19, 0x00, Product.MILAN),
        (0x19, 0x0F, Product.MILAN),
        (0x19, 0x10, Product.GENOA),
        (0x19, 0x1F, Product.GENOA),
        (0x19, 0xA0, Product.GENOA),
        (0x19, 0xAF, Product.GENOA),
        (0x1A, 0x00, Product.TURIN),
        (0x1A, 0x11, Product.TURIN),
    ],
)
def test_cpu_belongs_to_a_product(family: int, model: int, product: Product) -> None:
    assert product_of_cpu(family, model) is product


@pytest.mark.parametrize(
    ("family", "model"),
    [(0x19, 0x20), (0x19, 0x9F), (0x19, 0xB0), (0x1A, 0x12), (0x1A, 0x1F), (0x17, 0)],
)
def test_other_cpus_are_refused(family: int, model: int) -> None:
    with pytest.raises(RefusedError) as caught:
        product_of_cpu(family, model)
    assert caught.value.code is RefusalCode.UNSUPPORTED_PRODUCT


@pytest.mark.parametrize("product", list(Product))
def test_tcb_survives_its_encoding(product: Product) -> None:
    tcb = Tcb(fmc=1 if product is Product.TURIN else 0, bl=2, tee=3, snp=4, ucode=255)
    assert parse_tcb(encode_tcb(tcb, product), product) == tcb


@pytest.mark.parametrize("product", list(Product))
def test_reserved_bytes_must_be_zero(product: Product) -> None:
    reserved = (4, 5, 6) if product is Product.TURIN else (2, 3, 4, 5)
    for index in reserved:
        raw = bytearray(8)
        raw[index] = 1
        with pytest.raises(RefusedError, match="reserved"):
            parse_tcb(bytes(raw), product)


@pytest.mark.parametrize("size", [7, 9])
def test_tcb_has_eight_bytes(size: int) -> None:
    with pytest.raises(RefusedError, match="not 8 bytes"):
        parse_tcb(bytes(size), Product.MILAN)


def test_known_tcb_is_read() -> None:
    tcb = parse_tcb(bytes.fromhex("04000000000018d9"), Product.MILAN)
    assert tcb == Tcb(bl=4, tee=0, snp=24, ucode=217)
    assert tcb.describe() == "fmc 0, bl 4, tee 0, snp 24, ucode 217"


def test_short_of_names_every_component() -> None:
    low, high = (
        Tcb(bl=0, tee=0, snp=0, ucode=0),
        Tcb(fmc=1, bl=1, tee=1, snp=1, ucode=1),
    )
    assert low.short_of(high) == ("bl", "tee", "snp", "ucode", "fmc")
    assert high.short_of(low) == ()
    assert high.short_of(high) == ()


def test_named_products() -> None:
    assert product_named("Milan-B0") is Product.MILAN
    with pytest.raises(RefusedError):
        product_named("milan")
