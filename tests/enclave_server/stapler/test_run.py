import asyncio
import json
import os
import stat
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from curtilage.attest.amd_tcb import Product, Tcb
from curtilage.attest.evidence import (
    NitroEvidence,
    SnpEvidence,
    TdxEvidence,
    Tee,
    TpmEvidence,
    TpmQuote,
)
from curtilage.attest.evidence_json import encode_cpu_evidence
from curtilage.attest.sev_snp.report import (
    OFFSET_CHIP_ID,
    OFFSET_KEY_INFO,
    parse_report,
)
from curtilage.attest.tdx.collateral import parse_collateral
from curtilage.enclave_server.acquire.endorsements import (
    Endorsements,
    read_endorsements,
)
from curtilage.enclave_server.stapler import amd
from curtilage.enclave_server.stapler.addresses import (
    AMD_KDS,
    INTEL_CERTIFICATES,
    INTEL_PCS,
    Addresses,
    is_base_address,
    vcek_url,
)
from curtilage.enclave_server.stapler.errors import (
    FetchError,
    IdentityError,
    StaplerError,
    StoreError,
)
from curtilage.enclave_server.stapler.fetch import Fetched
from curtilage.enclave_server.stapler.identity import (
    SnpIdentity,
    TdxIdentity,
    identity_of,
)
from curtilage.enclave_server.stapler.intel import intel_expires, split_signed
from curtilage.enclave_server.stapler.run import (
    LEAST_PAUSE_S,
    NOT_RENEWED,
    UNCHANGED,
    Stapler,
    StaplerSettings,
)
from curtilage.enclave_server.stapler.store import EndorsementStore
from support.enclave_parts import NOW
from support.enclave_vendors import (
    MemoryVendors,
    amd_pages,
    intel_pages,
    page,
    snp_evidence,
    snp_platform,
    tdx_evidence,
)

Pages = dict[str, Fetched]


def bare(evidence: SnpEvidence | TdxEvidence) -> bytes:
    """The identity from the evidence process, without endorsements."""
    if isinstance(evidence, SnpEvidence):
        named = replace(evidence, tee=Tee.SEV_SNP, vek=b"", ask=b"", crl=b"", ark=b"")
        return encode_cpu_evidence(named)
    return encode_cpu_evidence(replace(evidence, tee=Tee.TDX, collateral=b""))


class World:
    """A stapler, its folder, and the vendors in memory."""

    def __init__(self, folder: Path, evidence: bytes, pages: Pages) -> None:
        self.folder = folder / "endorsements"
        self.identity = folder / "identity.json"
        self.identity.write_bytes(evidence)
        self.vendors = MemoryVendors(pages=pages)
        self.notices: list[str] = []
        self.now = NOW
        self.stapler = Stapler(
            StaplerSettings(
                endorsements=self.folder,
                identity=self.identity,
                by_socket=False,
                interval_s=6 * 3600,
            ),
            self.vendors,
            clock=lambda: self.now,
            notice=self.notices.append,
        )


@pytest.fixture
def snp(tmp_path: Path) -> World:
    return World(tmp_path, bare(snp_evidence()), amd_pages(snp_evidence()))


@pytest.fixture
def tdx(tmp_path: Path) -> World:
    return World(tmp_path, bare(tdx_evidence()), intel_pages(tdx_evidence()))


async def test_amd_s_files_are_those_of_the_chip(snp: World) -> None:
    expires = await snp.stapler.round()
    evidence = snp_evidence()
    assert read_endorsements(snp.folder) == Endorsements(
        vek=evidence.vek, ask=evidence.ask, ark=snp_platform().ark, crl=evidence.crl
    )
    assert expires is not None
    assert expires > NOW
    chip = snp_platform().chip_id.hex()
    tcb = parse_report(evidence.report).reported_tcb
    levels = f"blSPL={tcb[0]:02d}&teeSPL={tcb[1]:02d}&snpSPL={tcb[6]:02d}"
    assert snp.vendors.asked == [
        f"{AMD_KDS}/vcek/v1/Genoa/{chip}?{levels}&ucodeSPL={tcb[7]:02d}",
        f"{AMD_KDS}/vcek/v1/Genoa/cert_chain",
        f"{AMD_KDS}/vcek/v1/Genoa/crl",
    ]
    assert (
        snp.notices[0]
        .partition(" ")[2]
        .startswith("ark.der, ask.der, crl.der, vek.der; ")
    )


VERSION = b"\xa0\x03\x02\x01"
ODD: dict[str, Callable[[bytes], bytes]] = {
    "a version that there is not": lambda der: der.replace(
        VERSION + b"\2", VERSION + b"\5"
    ),
    "a name that is no text": lambda der: der.replace(b"Clara", b"\xff\xfeara"),
    "a date that is none": lambda der: der.replace(b"\x17\x0d2", b"\x17\x0dz"),
}


@pytest.mark.parametrize("odd", ODD)
async def test_odd_certificates_of_amd_end_a_round_and_no_more(
    snp: World, odd: str
) -> None:
    evidence = snp_evidence()
    vek, ask = (ODD[odd](der) for der in (evidence.vek, evidence.ask))
    assert (vek, ask) != (evidence.vek, evidence.ask)
    for changed in (replace(evidence, vek=vek), replace(evidence, ask=ask)):
        snp.vendors.pages = amd_pages(changed)
        with pytest.raises(FetchError, match="AMD: not a"):
            await snp.stapler.round()
    assert amd.amd_expires({"vek.der": vek, "crl.der": evidence.crl}) is None
    assert not snp.folder.exists()


async def test_intel_s_collateral_is_the_platform_s(tdx: World) -> None:
    expires = await tdx.stapler.round()
    stored = read_endorsements(tdx.folder).collateral
    expected = parse_collateral(tdx_evidence().collateral)
    assert parse_collateral(stored) == expected
    assert expires == min(expected.tcb.next_update, expected.qe.next_update)
    assert [url.partition("?")[0] for url in tdx.vendors.asked] == [
        f"{INTEL_PCS}/tdx/certification/v4/tcb",
        f"{INTEL_PCS}/tdx/certification/v4/qe/identity",
        f"{INTEL_PCS}/sgx/certification/v4/pckcrl",
        f"{INTEL_CERTIFICATES}/IntelSGXRootCA.der",
    ]


@pytest.mark.parametrize("body", [b"", b"<html>Service Unavailable</html>"])
@pytest.mark.parametrize("end", ["/pckcrl", "IntelSGXRootCA.der"])
async def test_error_page_takes_no_revocation_list_s_place(
    tdx: World, end: str, body: bytes
) -> None:
    await tdx.stapler.round()
    good = read_endorsements(tdx.folder).collateral
    (url,) = (each for each in tdx.vendors.pages if each.endswith(end))
    tdx.vendors.pages[url] = replace(tdx.vendors.pages[url], body=body)
    with pytest.raises(FetchError, match="not a revocation list"):
        await tdx.stapler.round()
    assert read_endorsements(tdx.folder).collateral == good


async def test_identity_file_that_is_a_pipe_is_not_waited_for(snp: World) -> None:
    snp.identity.unlink()
    os.mkfifo(snp.identity)
    with pytest.raises(IdentityError, match=r"identity\.json"):
        await snp.stapler.round()


async def test_genuine_collateral_is_passed_through_byte_for_byte(
    tmp_path: Path, shared_dir: Path
) -> None:
    sample = shared_dir / "evidence" / "tdx" / "v4-uptodate-2025"
    collateral = (sample / "collateral.json").read_bytes()
    evidence = TdxEvidence(
        tee=Tee.TDX, quote=(sample / "quote.bin").read_bytes(), collateral=collateral
    )
    identity = identity_of(encode_cpu_evidence(evidence))
    assert isinstance(identity, TdxIdentity)
    assert identity.fmspc.hex() == "b0c06f000000"
    world = World(tmp_path, bare(evidence), intel_pages(evidence))
    await world.stapler.round()
    stored = read_endorsements(world.folder).collateral
    assert parse_collateral(stored) == parse_collateral(collateral)
    (tcb, *_, pck, _) = world.vendors.asked
    assert tcb.endswith("?fmspc=B0C06F000000")
    assert pck.endswith(f"?ca={identity.authority}&encoding=der")


async def test_genuine_reports_name_their_chips(shared_dir: Path) -> None:
    folder = shared_dir / "evidence" / "sev-snp" / "gce-milan-v4-novcek"
    (sample,) = (path for path in folder.iterdir() if path.stat().st_size == 1184)
    evidence = SnpEvidence(
        tee=Tee.SEV_SNP, report=sample.read_bytes(), vek=b"", ask=b"", crl=b""
    )
    identity = identity_of(encode_cpu_evidence(evidence))
    assert isinstance(identity, SnpIdentity)
    assert identity.product is Product.MILAN
    assert identity.has_vcek


async def test_second_round_writes_nothing_that_is_the_same(snp: World) -> None:
    await snp.stapler.round()
    before = {path.name: path.stat().st_ino for path in snp.folder.iterdir()}
    await snp.stapler.round()
    assert {path.name: path.stat().st_ino for path in snp.folder.iterdir()} == before
    assert snp.notices[1].startswith(f"{UNCHANGED}; ")


async def test_what_has_changed_is_replaced_in_one_step(snp: World) -> None:
    await snp.stapler.round()
    old = (snp.folder / "crl.der").open("rb")
    crl = snp_platform().crl(now=NOW + timedelta(days=1))
    snp.vendors.pages["/vcek/v1/Genoa/crl"] = page(crl)
    await snp.stapler.round()
    assert snp.notices[1].startswith("renewed crl.der; ")
    # A reader that had the old file open still reads all of it.
    with old:
        assert old.read() == snp_evidence().crl
    assert read_endorsements(snp.folder).crl == crl
    assert {path.name for path in snp.folder.iterdir()} == {
        *("vek.der", "ask.der", "ark.der", "crl.der")
    }


BAD_PAGES: dict[str, tuple[str, Fetched | None]] = {
    "no-vcek": ("vcek", None),
    "vcek-is-html": ("vcek", page(b"<html>")),
    "no-chain": ("cert_chain", None),
    "chain-is-empty": ("cert_chain", page(b"")),
    "chain-of-one": ("cert_chain", page(b"one")),
    "no-crl": ("crl", None),
    "crl-is-html": ("crl", page(b"<html>")),
}


@pytest.mark.parametrize("bad", BAD_PAGES)
async def test_nothing_is_stored_that_is_not_what_was_asked_for(
    snp: World, bad: str
) -> None:
    await snp.stapler.round()
    before = read_endorsements(snp.folder)
    name, content = BAD_PAGES[bad]
    (path,) = (
        each
        for each in snp.vendors.pages
        if each.endswith(f"/{name}") or (name == "vcek" and len(each) > 60)
    )
    if content is None:
        del snp.vendors.pages[path]
    elif content.body == b"one":
        chain = snp.vendors.pages[path].body
        snp.vendors.pages[path] = page(chain[: chain.index(b"-----END") + 26])
    else:
        snp.vendors.pages[path] = content
    with pytest.raises(FetchError):
        await snp.stapler.round()
    assert read_endorsements(snp.folder) == before


Change = Callable[[Pages], None]


def _no_header(path: str) -> Change:
    def change(pages: Pages) -> None:
        pages[path] = page(pages[path].body)

    return change


def _body(path: str, body: Callable[[bytes], bytes]) -> Change:
    def change(pages: Pages) -> None:
        old = pages[path]
        pages[path] = replace(old, body=body(old.body))

    return change


TCB, QE = "/tdx/certification/v4/tcb", "/tdx/certification/v4/qe/identity"
PCK = "/sgx/certification/v4/pckcrl"


@pytest.mark.parametrize(
    "change",
    [
        _no_header(TCB),
        _no_header(QE),
        _no_header(PCK),
        _body(TCB, lambda _body: b"<html>"),
        _body(TCB, lambda body: body.replace(b"tcbInfo", b"tcbInfos", 1)),
        _body(TCB, lambda body: body.replace(b'"signature"', b'"sig"')),
        _body(TCB, lambda body: body[:-10] + b'"}'),
        _body(QE, lambda body: body.replace(b'"TD_QE"', b"7")),
        _body(QE, lambda _body: b"\xff"),
        _body(QE, lambda _body: b'{"enclaveIdentity":[],"signature":"00"}'),
        _body(QE, lambda _body: b'{"enclaveIdentity":'),
        _body(PCK, lambda _body: bytes(24 * 1024)),
    ],
)
async def test_collateral_out_of_shape_is_not_stored(
    tdx: World, change: Change
) -> None:
    await tdx.stapler.round()
    before = read_endorsements(tdx.folder)
    change(tdx.vendors.pages)
    with pytest.raises(FetchError):
        await tdx.stapler.round()
    assert read_endorsements(tdx.folder) == before


def test_signed_json_is_cut_and_never_written_anew() -> None:
    signature = "ab" * 64
    text = '{ "a" : [1, 2.50] ,  "b":"\\u00e9}" }'
    body = f'{{ "tcbInfo": {text} , "signature": "{signature}" }}\n'
    assert split_signed(body.encode(), "tcbInfo") == (text, signature)


@pytest.mark.parametrize(
    ("evidence", "message"),
    [
        (b"", "malformed"),
        (b"{}", "malformed"),
        (
            encode_cpu_evidence(NitroEvidence(tee=Tee.NITRO, document=b"d")),
            "malformed",
        ),
        (
            encode_cpu_evidence(
                TpmEvidence(
                    tee=Tee.TPM,
                    quote=TpmQuote(
                        message=b"m", signature=b"s", pcrs=((0, bytes(32)),)
                    ),
                    ak=b"key",
                )
            ),
            "nothing is stapled to tpm",
        ),
        (
            encode_cpu_evidence(
                SnpEvidence(tee=Tee.SEV_SNP, report=b"r", vek=b"", ask=b"", crl=b"")
            ),
            "malformed",
        ),
        (
            encode_cpu_evidence(TdxEvidence(tee=Tee.TDX, quote=b"q", collateral=b"")),
            "malformed",
        ),
    ],
)
async def test_evidence_that_names_no_machine_is_an_error(
    snp: World, evidence: bytes, message: str
) -> None:
    snp.identity.write_bytes(evidence)
    with pytest.raises(IdentityError, match=message):
        await snp.stapler.round()
    assert snp.vendors.asked == []


async def test_identity_file_that_is_not_there_is_an_error(snp: World) -> None:
    snp.identity.unlink()
    with pytest.raises(IdentityError, match=r"identity\.json: FileNotFoundError"):
        await snp.stapler.round()
    snp.identity.write_bytes(bytes(200_000))
    with pytest.raises(IdentityError, match="more than"):
        await snp.stapler.round()


def _report(change: Callable[[bytearray], None]) -> bytes:
    report = bytearray(snp_evidence().report)
    change(report)
    return bare(replace(snp_evidence(), report=bytes(report)))


def _mask_chip(report: bytearray) -> None:
    report[OFFSET_CHIP_ID : OFFSET_CHIP_ID + 64] = bytes(64)


def _sign_with_vlek(report: bytearray) -> None:
    report[OFFSET_KEY_INFO] |= 1 << 2


async def test_hidden_chip_has_no_certificate_of_amd_s(snp: World) -> None:
    snp.identity.write_bytes(_report(_mask_chip))
    await snp.stapler.round()
    assert not (snp.folder / "vek.der").exists()
    assert (snp.folder / "crl.der").exists()


async def test_provider_s_key_has_a_chain_of_its_own(snp: World) -> None:
    pages = snp.vendors.pages
    for name in ("cert_chain", "crl"):
        pages[f"/vlek/v1/Genoa/{name}"] = pages[f"/vcek/v1/Genoa/{name}"]
    snp.identity.write_bytes(_report(_sign_with_vlek))
    await snp.stapler.round()
    assert all("/vlek/v1/" in url for url in snp.vendors.asked)
    assert not (snp.folder / "vek.der").exists()


def test_report_without_a_product_needs_it_named() -> None:
    def version_2(report: bytearray) -> None:
        report[0] = 2
        report[0x188:0x18B] = bytes(3)

    evidence = _report(version_2)
    with pytest.raises(IdentityError, match="pass it explicitly"):
        identity_of(evidence)
    named = identity_of(evidence, product=Product.MILAN)
    assert isinstance(named, SnpIdentity)
    assert named.product is Product.MILAN


def test_turin_is_asked_for_by_its_short_id_and_firmware() -> None:
    tcb = Tcb(fmc=1, bl=2, tee=3, snp=14, ucode=72)
    url = vcek_url("https://mirror.example", Product.TURIN, bytes(range(64)), tcb)
    assert url == (
        "https://mirror.example/vcek/v1/Turin/0001020304050607"
        "?fmcSPL=01&blSPL=02&teeSPL=03&snpSPL=14&ucodeSPL=72"
    )


async def test_mirrors_are_asked_in_the_vendors_place(tmp_path: Path) -> None:
    vendors = MemoryVendors(pages=intel_pages(tdx_evidence()))
    identity = tmp_path / "identity.json"
    identity.write_bytes(bare(tdx_evidence()))
    settings = StaplerSettings(
        endorsements=tmp_path / "e",
        identity=identity,
        by_socket=False,
        addresses=Addresses(
            amd_kds="https://a.example",
            intel_pcs="https://b.example",
            intel_certificates="https://c.example",
        ),
    )
    stapler = Stapler(settings, vendors, clock=lambda: NOW, notice=lambda _line: None)
    await stapler.round()
    hosts = [url.split("/")[2] for url in vendors.asked]
    assert hosts == ["b.example"] * 3 + ["c.example"]


@pytest.mark.parametrize(
    ("address", "good"),
    [
        ("https://kdsintf.amd.com", True),
        ("https://mirror.example/amd", True),
        ("http://127.0.0.1:8080", True),
        ("http://[::1]:8080", True),
        ("http://localhost", True),
        ("http://mirror.example", False),
        ("https://mirror.example/", False),
        ("https://user@mirror.example", False),
        ("https://mirror.example?x", False),
        ("https://mirror.example#x", False),
        ("ftp://mirror.example", False),
        ("https://", False),
        ("https://[", False),
        ("", False),
    ],
)
def test_base_addresses(address: str, good: bool) -> None:
    assert is_base_address(address) is good


async def run_for(world: World, rounds: int) -> list[float]:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        world.now += timedelta(seconds=seconds)
        if len(slept) == rounds:
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await world.stapler.run(sleep=sleep)
    return slept


async def test_rounds_come_after_the_interval(snp: World) -> None:
    assert await run_for(snp, 2) == [6 * 3600, 6 * 3600]
    assert len(snp.vendors.asked) == 6


async def test_rounds_come_half_way_to_the_next_expiry(snp: World) -> None:
    files = {"ask.der": snp_evidence().ask, "crl.der": snp_evidence().crl}
    expires = amd.amd_expires(files)
    assert expires is not None
    snp.now = expires - timedelta(hours=4)
    assert (await run_for(snp, 1))[0] == 2 * 3600
    snp.now = expires + timedelta(hours=4)
    assert (await run_for(snp, 1))[0] == LEAST_PAUSE_S


async def test_failed_rounds_come_again_later_and_later(snp: World) -> None:
    pages = dict(snp.vendors.pages)
    snp.vendors.pages.clear()
    assert await run_for(snp, 4) == [60, 120, 240, 480]
    assert snp.notices == [f"{NOT_RENEWED}: HTTP status 404"] * 4
    snp.vendors.pages.update(pages)
    assert await run_for(snp, 1) == [6 * 3600]


async def test_failed_rounds_never_wait_longer_than_the_interval(snp: World) -> None:
    snp.vendors.pages.clear()
    slept = await run_for(snp, 20)
    assert max(slept) == 6 * 3600
    assert slept[-1] == 6 * 3600


def test_expiry_that_cannot_be_read_is_none() -> None:
    assert amd.amd_expires({}) is None
    assert amd.amd_expires({"crl.der": b"x"}) is None
    assert amd.amd_expires({"crl.der": snp_evidence().crl}) is None
    assert intel_expires({}) is None
    assert intel_expires({"collateral.json": b"{}"}) is None


def _next_updates(collateral: bytes) -> list[datetime]:
    parsed = parse_collateral(collateral)
    return [parsed.tcb.next_update, parsed.qe.next_update]


def test_expiry_is_the_first_of_all() -> None:
    collateral = tdx_evidence().collateral
    expires = intel_expires({"collateral.json": collateral})
    assert expires == min(_next_updates(collateral))
    without = json.loads(collateral)
    without["pck_crl"] = ""
    assert intel_expires({"collateral.json": json.dumps(without).encode()}) is None


def test_store_writes_for_others_to_read(tmp_path: Path) -> None:
    store = EndorsementStore(tmp_path / "a" / "b")
    store.write("vek.der", b"x" * 70_000)
    path = tmp_path / "a" / "b" / "vek.der"
    assert path.read_bytes() == b"x" * 70_000
    assert stat.S_IMODE(path.stat().st_mode) & 0o777 & ~0o644 == 0
    assert store.read("vek.der") == b"x" * 70_000
    assert store.read("other") == b""


def test_store_that_fails_keeps_the_old_file(tmp_path: Path) -> None:
    store = EndorsementStore(tmp_path)
    (tmp_path / "vek.der").mkdir()
    with pytest.raises(StoreError, match=r"vek\.der: "):
        store.write("vek.der", b"x")
    with pytest.raises(StoreError, match=r"vek\.der: IsADirectoryError"):
        store.read("vek.der")
    assert [path.name for path in tmp_path.iterdir()] == ["vek.der"]
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StaplerError):
        EndorsementStore(tmp_path / "file").write("vek.der", b"x")
