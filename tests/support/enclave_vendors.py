"""The vendors' services in memory and on a socket, under emulated roots."""

import json
import ssl
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from urllib.parse import quote

from aiohttp import web

from curtilage.attest.evidence import SnpEvidence, TdxEvidence
from curtilage.enclave_server.stapler.errors import FetchError
from curtilage.enclave_server.stapler.fetch import Fetched
from curtilage_dev.deployment import MEASUREMENT
from curtilage_dev.emulated.dcap import generate_dcap_keys
from curtilage_dev.emulated.snp_pki import EmulatedPlatform, make_platform
from curtilage_dev.emulated.tdx import EmulatedTdx, make_tdx_platform
from support.enclave_deployment import root_keys
from support.enclave_parts import NOW

DATA = bytes(range(64))


@cache
def snp_platform() -> EmulatedPlatform:
    return make_platform(root_keys(), now=NOW)


@cache
def snp_evidence() -> SnpEvidence:
    fields = snp_platform().report_fields(report_data=DATA, measurement=MEASUREMENT)
    return snp_platform().evidence(fields, now=NOW)


@cache
def tdx_platform() -> EmulatedTdx:
    return make_tdx_platform(generate_dcap_keys(), now=NOW)


@cache
def tdx_evidence() -> TdxEvidence:
    return tdx_platform().evidence(DATA, now=NOW)


def pem(*ders: bytes) -> bytes:
    return "".join(ssl.DER_cert_to_PEM_cert(der) for der in ders).encode()


def amd_pages(evidence: SnpEvidence, *, hardware_id: str = "") -> dict[str, Fetched]:
    """Return what AMD serves for one chip, by path."""
    chip = hardware_id or snp_platform().chip_id.hex()
    chain = pem(evidence.ask, snp_platform().ark)
    return {
        f"/vcek/v1/Genoa/{chip}": page(evidence.vek),
        "/vcek/v1/Genoa/cert_chain": page(chain),
        "/vcek/v1/Genoa/crl": page(evidence.crl),
    }


def intel_pages(evidence: TdxEvidence) -> dict[str, Fetched]:
    """Return what Intel serves for one platform, by path."""
    collateral: dict[str, str] = json.loads(evidence.collateral)

    def signed(name: str, part: str) -> bytes:
        value, signature = collateral[part], collateral[f"{part}_signature"]
        return f'{{"{name}":{value},"signature":"{signature}"}}'.encode()

    def chain(part: str) -> str:
        return quote(collateral[f"{part}_issuer_chain"])

    return {
        "/tdx/certification/v4/tcb": page(
            signed("tcbInfo", "tcb_info"),
            {"TCB-Info-Issuer-Chain": chain("tcb_info")},
        ),
        "/tdx/certification/v4/qe/identity": page(
            signed("enclaveIdentity", "qe_identity"),
            {"SGX-Enclave-Identity-Issuer-Chain": chain("qe_identity")},
        ),
        "/sgx/certification/v4/pckcrl": page(
            bytes.fromhex(collateral["pck_crl"]),
            {"SGX-PCK-CRL-Issuer-Chain": chain("pck_crl")},
        ),
        "/IntelSGXRootCA.der": page(bytes.fromhex(collateral["root_ca_crl"])),
    }


def page(body: bytes, headers: dict[str, str] | None = None) -> Fetched:
    return Fetched(
        body=body,
        headers={name.lower(): value for name, value in (headers or {}).items()},
    )


@dataclass(kw_only=True)
class MemoryVendors:
    """The vendors behind ``Fetches``, without any socket.

    ``answer`` takes an address, a body and its type.
    """

    pages: dict[str, Fetched]
    answer: Callable[[str, bytes, str], bytes | None] = field(
        default=lambda _url, _body, _type: None
    )
    asked: list[str] = field(default_factory=list[str])

    async def post(
        self, url: str, body: bytes, *, content_type: str, limit: int
    ) -> Fetched:
        self.asked.append(url)
        answer = self.answer(url, body, content_type)
        if answer is None:
            raise FetchError("HTTP status 404", lasting=True)
        assert len(answer) <= limit
        return page(answer)

    async def get(self, url: str, *, limit: int) -> Fetched:
        self.asked.append(url)
        path = url.partition("://")[2].partition("/")[2].partition("?")[0]
        found = self.pages.get(f"/{path}")
        if found is None:
            raise FetchError("HTTP status 404", lasting=True)
        assert len(found.body) <= limit
        return found


@asynccontextmanager
async def serving_vendors(
    pages: dict[str, Fetched], *, fail_first: int = 0
) -> AsyncGenerator[tuple[str, list[str]]]:
    """Serve the pages on this machine; yield the base address and what was asked."""
    asked: list[str] = []

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        asked.append(request.rel_url.raw_path_qs)
        if len(asked) <= fail_first:
            return web.Response(status=503)
        found = pages.get(request.rel_url.raw_path)
        if found is None:
            return web.Response(status=404)
        return web.Response(body=found.body, headers=dict(found.headers))

    server = web.Server(handle)
    runner = web.ServerRunner(server)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        host, port = runner.addresses[0][:2]
        yield f"http://{host}:{port}", asked
    finally:
        await runner.cleanup()
