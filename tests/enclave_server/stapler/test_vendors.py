"""AWS's lists, NVIDIA's answers and Azure's quote, from vendors in memory."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import ocsp
from typing_extensions import override

from curtilage.attest.azure.hcl import HardwareKind
from curtilage.attest.encoding.strict_json import decode_base64url, encode_base64url
from curtilage.attest.evidence import (
    AzureEvidence,
    GpuEvidence,
    NitroEvidence,
    TdxEvidence,
    Tee,
    TpmQuote,
)
from curtilage.attest.evidence_json import encode_cpu_evidence
from curtilage.attest.expectations import Revocation
from curtilage.attest.nitro.document import certificates_of
from curtilage.attest.x509.p384_chain import parse_chain
from curtilage.attest.x509.revocation import (
    RevocationRules,
    check_answers,
    check_lists,
)
from curtilage.enclave_server.acquire.endorsements import (
    answer_file,
    list_file,
    read_endorsements,
)
from curtilage.enclave_server.evidence_protocol import encode_devices
from curtilage.enclave_server.stapler.addresses import (
    AZURE_IMDS,
    NVIDIA_OCSP,
    Addresses,
    aws_list_url,
    is_base_address,
)
from curtilage.enclave_server.stapler.errors import FetchError, IdentityError
from curtilage.enclave_server.stapler.fetch import Fetched
from curtilage.enclave_server.stapler.identity import (
    TdReportIdentity,
    chains_of,
    identity_of,
)
from curtilage.enclave_server.stapler.run import (
    Stapler,
    StaplerSettings,
    devices_file,
)
from curtilage_dev.deployment import MEASUREMENT
from curtilage_dev.emulated.azure import BlobFields, encode_blob, encode_td_report
from curtilage_dev.emulated.gpu import EmulatedGpu
from curtilage_dev.emulated.nitro import EmulatedNitro, NitroFields
from curtilage_dev.emulated.p384_revocation import (
    ANSWER_LIFE,
    BACKDATE,
    LIST_LIFE,
    list_address,
)
from support.enclave_parts import NOW
from support.enclave_vendors import (
    MemoryVendors,
    intel_pages,
    page,
    tdx_evidence,
    tdx_platform,
)

RULES = RevocationRules(
    rule=Revocation.REQUIRED, max_age_s=30 * 86400, clock_skew_s=60, now=NOW
)
HOSTS = ("lists.s3.amazonaws.com", "crl-x.s3.x.amazonaws.com")


class World:
    """A stapler, its folder, and the vendors in memory."""

    def __init__(
        self,
        folder: Path,
        evidence: bytes,
        vendors: MemoryVendors,
        *,
        gpus: tuple[GpuEvidence, ...] = (),
        addresses: Addresses | None = None,
    ) -> None:
        self.folder = folder / "endorsements"
        self.identity = folder / "identity.json"
        self.identity.write_bytes(evidence)
        if gpus:
            devices_file(self.identity).write_bytes(encode_devices(gpus))
        self.vendors = vendors
        self.notices: list[str] = []
        self.stapler = Stapler(
            StaplerSettings(
                endorsements=self.folder,
                identity=self.identity,
                by_socket=False,
                addresses=addresses or Addresses(),
            ),
            vendors,
            clock=lambda: NOW,
            notice=self.notices.append,
        )

    @property
    def files(self) -> set[str]:
        return {each.name for each in self.folder.iterdir()}


# --- AWS ----------------------------------------------------------------------


@cache
def hypervisor() -> EmulatedNitro:
    return EmulatedNitro.make(now=NOW)


def _with_addresses(fields: NitroFields) -> NitroFields:
    region, zone, *rest = fields.chain
    named = tuple(
        replace(each, extensions=list_address(f"http://{host}/crl/a.crl"))
        for each, host in zip((region, zone), HOSTS, strict=True)
    )
    return replace(fields, chain=(*named, *rest))


@cache
def document() -> bytes:
    made = hypervisor().evidence(
        bytes(64), now=NOW, measurement=MEASUREMENT, change=_with_addresses
    )
    return made.document


def nitro_identity() -> bytes:
    return encode_cpu_evidence(NitroEvidence(tee=Tee.NITRO, document=document()))


class Aws(MemoryVendors):
    """AWS's servers: pages by whole address."""

    @override
    async def get(self, url: str, *, limit: int) -> Fetched:
        self.asked.append(url)
        if url not in self.pages:
            raise FetchError("HTTP status 404", lasting=True)
        assert len(self.pages[url].body) <= limit
        return self.pages[url]


def aws(*lists: bytes) -> Aws:
    urls = (f"https://{host}/crl/a.crl" for host in HOSTS)
    return Aws(pages=dict(zip(urls, map(page, lists), strict=True)))


async def test_aws_lists_are_those_of_the_documents_authorities(
    tmp_path: Path,
) -> None:
    lists = hypervisor().lists(NOW)
    world = World(tmp_path, nitro_identity(), aws(*lists))
    expires = await world.stapler.round()
    assert expires == NOW - BACKDATE + LIST_LIFE
    root, region, *_ = certificates_of(document())
    assert world.files == {list_file(root), list_file(region)}
    stapled = read_endorsements(world.folder)
    assert stapled.lists(certificates_of(document())[:-1]) == lists
    # As the verifier takes them.
    chain = parse_chain(certificates_of(document()))
    assert check_lists(chain, lists, RULES) is not None


async def test_lists_of_earlier_authorities_are_removed(tmp_path: Path) -> None:
    world = World(tmp_path, nitro_identity(), aws(*hypervisor().lists(NOW)))
    world.folder.mkdir()
    kept = {"crl.der", "nitro-crl-short.der"}
    for name in (list_file(b"old"), answer_file(b"old"), *kept):
        (world.folder / name).write_bytes(b"x")
    await world.stapler.round()
    root, region, *_ = certificates_of(document())
    assert world.files == {list_file(root), list_file(region), *kept}


WRONG_LISTS: dict[str, Callable[[], tuple[bytes, bytes]]] = {
    "an error page": lambda: (b"<html>", hypervisor().lists(NOW)[1]),
    "another authority's": lambda: (
        hypervisor().lists(NOW)[1],
        hypervisor().lists(NOW)[0],
    ),
}


@pytest.mark.parametrize("name", WRONG_LISTS)
async def test_what_is_not_the_authoritys_list_is_not_stored(
    tmp_path: Path, name: str
) -> None:
    world = World(tmp_path, nitro_identity(), aws(*WRONG_LISTS[name]()))
    with pytest.raises(FetchError, match="AWS: "):
        await world.stapler.round()
    assert not world.folder.exists()


@pytest.mark.parametrize(
    ("address", "url"),
    [
        ("http://x.s3.amazonaws.com/crl/1.crl", "https://x.s3.amazonaws.com/crl/1.crl"),
        ("https://x.amazonaws.com.cn/1.crl", "https://x.amazonaws.com.cn/1.crl"),
        ("http://x.amazonaws.com:81/1.crl", "https://x.amazonaws.com/1.crl"),
    ],
)
def test_aws_address_is_asked_over_https(address: str, url: str) -> None:
    assert aws_list_url(address, "") == url
    path = url.partition(".com")[2].removeprefix(".cn")
    assert aws_list_url(address, "https://mirror.test/a") == (
        f"https://mirror.test/a{path}"
    )


@pytest.mark.parametrize(
    "address",
    [
        "http://example.org/1.crl",
        "http://amazonaws.com.example.org/1.crl",
        "http://evilamazonaws.com/1.crl",
        "http://x.amazonaws.com/1.html",
        "http://[::1/1.crl",
        "ldap:///cn=x",
        "",
    ],
)
def test_address_that_is_not_aws_is_not_asked(address: str) -> None:
    with pytest.raises(FetchError, match="unknown address"):
        aws_list_url(address, "")


def test_document_that_is_none_identifies_nothing() -> None:
    bad = NitroEvidence(tee=Tee.NITRO, document=b"x")
    with pytest.raises(IdentityError):
        identity_of(encode_cpu_evidence(bad))


# --- NVIDIA -------------------------------------------------------------------


@cache
def gpu() -> EmulatedGpu:
    return EmulatedGpu.make(now=NOW)


@cache
def reports() -> tuple[GpuEvidence, ...]:
    return gpu().evidence(bytes(32)), gpu().sibling(now=NOW).evidence(bytes(32))


def responder(
    *, change: Callable[[bytes], bytes] = lambda each: each
) -> Callable[[str, bytes, str], bytes | None]:
    """NVIDIA's responder, which knows the first GPU's certificates."""
    chain = reports()[0].chain
    answers = dict(
        zip(
            (_serial(each) for each in chain[::-1][1:-1]),
            gpu().answers(chain, NOW),
            strict=True,
        )
    )

    def answer(url: str, body: bytes, content_type: str) -> bytes | None:
        assert (url, content_type) == (NVIDIA_OCSP, "application/ocsp-request")
        request = ocsp.load_der_ocsp_request(body)
        assert request.hash_algorithm.name == "sha256"
        assert not list(request.extensions)
        return change(answers[request.serial_number])

    return answer


def _serial(der: bytes) -> int:
    return parse_chain((der,))[0].serial


def nvidia(tmp_path: Path, vendors: MemoryVendors) -> World:
    identity = nitro_identity()
    return World(tmp_path, identity, vendors, gpus=reports()[:1])


async def test_nvidias_answers_are_about_each_certificate_but_the_ends(
    tmp_path: Path,
) -> None:
    vendors = aws(*hypervisor().lists(NOW))
    vendors.answer = responder()
    world = nvidia(tmp_path, vendors)
    expires = await world.stapler.round()
    # Both the lists and the answers; the answers end first.
    assert expires == NOW - BACKDATE + ANSWER_LIFE
    chain = reports()[0].chain
    names = {answer_file(each) for each in chain[1:-1]}
    assert names < world.files
    assert answer_file(chain[0]) not in world.files
    stapled = read_endorsements(world.folder).answers(chain[1:-1])
    assert check_answers(parse_chain(chain[::-1]), stapled, RULES) is not None
    assert vendors.asked.count(NVIDIA_OCSP) == 3


async def test_certificates_in_common_are_asked_about_once(tmp_path: Path) -> None:
    twice = (reports()[0], reports()[0])
    vendors = aws(*hypervisor().lists(NOW))
    vendors.answer = responder()
    world = World(tmp_path, nitro_identity(), vendors, gpus=twice)
    await world.stapler.round()
    assert vendors.asked.count(NVIDIA_OCSP) == 3


WRONG_ANSWERS: dict[str, Callable[[bytes], bytes]] = {
    "an error page": lambda _: b"<html>",
    "no answer": lambda _: ocsp.OCSPResponseBuilder.build_unsuccessful(
        ocsp.OCSPResponseStatus.UNAUTHORIZED
    ).public_bytes(Encoding.DER),
    "about another": lambda _: gpu().answers(reports()[1].chain, NOW)[0],
}


@pytest.mark.parametrize("name", WRONG_ANSWERS)
async def test_what_is_not_the_certificates_answer_is_not_stored(
    tmp_path: Path, name: str
) -> None:
    vendors = aws(*hypervisor().lists(NOW))
    vendors.answer = responder(change=WRONG_ANSWERS[name])
    world = nvidia(tmp_path, vendors)
    with pytest.raises(FetchError, match="NVIDIA: "):
        await world.stapler.round()
    assert not world.folder.exists()


async def test_a_revoked_gpus_answer_is_stored(tmp_path: Path) -> None:
    """The verifier refuses it; without it, it could not say why."""
    chain = reports()[0].chain
    revoked = gpu().answers(
        chain,
        NOW,
        change=lambda each: replace(each, status=ocsp.OCSPCertStatus.REVOKED),
    )
    by_serial = dict(
        zip((_serial(each) for each in chain[::-1][1:-1]), revoked, strict=True)
    )
    vendors = aws(*hypervisor().lists(NOW))
    vendors.answer = lambda _url, body, _type: by_serial[
        ocsp.load_der_ocsp_request(body).serial_number
    ]
    world = nvidia(tmp_path, vendors)
    await world.stapler.round()
    assert read_endorsements(world.folder).answers(chain[1:-1]) == revoked[::-1]


async def test_certificates_that_are_none_are_not_asked_about(tmp_path: Path) -> None:
    bad = replace(reports()[0], chain=(b"leaf", b"x", b"y"))
    vendors = aws(*hypervisor().lists(NOW))
    world = World(tmp_path, nitro_identity(), vendors, gpus=(bad,))
    with pytest.raises(FetchError, match="NVIDIA: a GPU's certificates"):
        await world.stapler.round()


def test_devices_that_cannot_be_read_identify_nothing() -> None:
    assert chains_of(encode_devices(())) == ()
    with pytest.raises(IdentityError, match="the GPUs' evidence"):
        chains_of(b"{}")


# --- Azure on TDX ---------------------------------------------------------------


def td_report(report_data: bytes) -> bytes:
    return encode_td_report(report_data, {})


@cache
def azure_identity() -> bytes:
    blob = BlobFields(
        report=td_report(bytes(range(64))),
        runtime_data=b"{}",
        kind=HardwareKind.TDX,
    )
    evidence = AzureEvidence(
        tee=Tee.AZURE_TDX,
        hcl=encode_blob(blob),
        hardware=TdxEvidence(tee=Tee.TDX, quote=b"", collateral=b""),
        quote=TpmQuote(message=b"m", signature=b"s", pcrs=((0, bytes(32)),)),
    )
    return encode_cpu_evidence(evidence)


def azure(
    tmp_path: Path, answer: Callable[[dict[str, str]], object]
) -> tuple[World, list[str]]:
    asked: list[str] = []

    def respond(url: str, body: bytes, content_type: str) -> bytes:
        asked.append(url)
        assert content_type == "application/json"
        return json.dumps(answer(json.loads(body))).encode()

    vendors = MemoryVendors(pages=intel_pages(tdx_evidence()), answer=respond)
    return World(tmp_path, azure_identity(), vendors), asked


def quoted(asked: dict[str, str]) -> object:
    """The quoting enclave, which takes the report that the paravisor keeps."""
    assert set(asked) == {"report"}
    report = decode_base64url(asked["report"], "report")
    assert report == td_report(bytes(range(64)))
    return {"quote": encode_base64url(tdx_evidence().quote)}


async def test_azures_quote_is_over_the_paravisors_report(tmp_path: Path) -> None:
    world, asked = azure(tmp_path, quoted)
    expires = await world.stapler.round()
    assert asked == [f"{AZURE_IMDS}/acc/tdquote"]
    stapled = read_endorsements(world.folder)
    assert stapled.quote == tdx_evidence().quote
    assert json.loads(stapled.collateral) == json.loads(tdx_evidence().collateral)
    assert expires is not None
    assert expires > NOW


WRONG_QUOTES: dict[str, Callable[[dict[str, str]], object]] = {
    "no object": lambda _: [],
    "no quote": lambda _: {"error": "x"},
    "not base64url": lambda _: {"quote": "+/+/"},
    "not a quote": lambda _: {"quote": "AAAA"},
    "over another report": lambda _: {
        "quote": encode_base64url(tdx_platform().evidence(bytes(64), now=NOW).quote),
    },
}


@pytest.mark.parametrize("name", WRONG_QUOTES)
async def test_what_is_not_the_reports_quote_is_not_stored(
    tmp_path: Path, name: str
) -> None:
    world, _ = azure(tmp_path, WRONG_QUOTES[name])
    with pytest.raises(FetchError, match="Azure: "):
        await world.stapler.round()
    assert not world.folder.exists()


async def test_a_quote_with_padding_is_read(tmp_path: Path) -> None:
    padded = encode_base64url(tdx_evidence().quote) + "=="
    world, _ = azure(tmp_path, lambda _: {"quote": padded})
    await world.stapler.round()
    assert read_endorsements(world.folder).quote == tdx_evidence().quote


def test_the_metadata_service_is_the_one_address_without_tls() -> None:
    assert is_base_address(AZURE_IMDS)
    for other in ("http://169.254.169.253", f"{AZURE_IMDS}/", "http://example.org"):
        assert not is_base_address(other)


def test_the_paravisors_report_identifies_the_machine() -> None:
    identity = identity_of(azure_identity())
    assert identity == TdReportIdentity(report=td_report(bytes(range(64))))
