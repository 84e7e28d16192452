"""The identity of the machine, from its own evidence, by a socket or a file.

The evidence process answers on its stapler socket with evidence over a fixed text,
which binds nothing. The identity in it decides only what is fetched, so it need not be
verified.
"""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from curtilage.attest.amd_tcb import Product, Tcb, parse_tcb
from curtilage.attest.azure.hcl import parse_hcl
from curtilage.attest.errors import RefusedError
from curtilage.attest.evidence import (
    AzureEvidence,
    NitroEvidence,
    SnpEvidence,
    TdxEvidence,
)
from curtilage.attest.evidence_json import parse_cpu_evidence
from curtilage.attest.nitro.document import certificates_of
from curtilage.attest.sev_snp.report import SigningKey, SnpReport, parse_report
from curtilage.attest.tdx.certificates import (
    parse_pem_chain,
    parse_platform,
    platform_extension,
)
from curtilage.attest.tdx.quote import parse_quote
from curtilage.enclave_server.evidence_protocol import (
    DATA_BYTES,
    DEVICE_IDENTITY,
    IDENTITY,
    LENGTH_BYTES,
    MAX_ANSWER_BYTES,
    encode_request,
    parse_devices,
)
from curtilage.enclave_server.stapler.errors import IdentityError

SOCKET_TIMEOUT_S: Final = 60.0
_CHAIN_LENGTH: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class SnpIdentity:
    """A machine with SEV-SNP.

    Attributes:
        product: the family of chips.
        chip_id: 64 bytes, zeros if the host hides it.
        tcb: the patch levels that the signing key was derived for.
        vlek: the provider loaded the signing key, and gives its certificate to
            the guest; AMD has none for it.
    """

    product: Product
    chip_id: bytes
    tcb: Tcb
    vlek: bool

    @property
    def has_vcek(self) -> bool:
        """Whether AMD can return the certificate of this chip's key."""
        return not self.vlek and any(self.chip_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class TdxIdentity:
    """A machine with TDX.

    Attributes:
        fmspc: the platform's family, 6 bytes.
        authority: that issued its certificate: ``platform`` or ``processor``.
    """

    fmspc: bytes
    authority: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TdReportIdentity:
    """An Azure machine with TDX, which has no quote yet.

    Attributes:
        report: the paravisor's TDREPORT, 1024 bytes.
    """

    report: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class NitroIdentity:
    """A Nitro enclave.

    Attributes:
        chain: its certificates, DER, root first.
    """

    chain: tuple[bytes, ...]


Identity = SnpIdentity | TdxIdentity | TdReportIdentity | NitroIdentity


async def ask_identity(socket: Path, *, timeout_s: float = SOCKET_TIMEOUT_S) -> bytes:
    """Ask the evidence process for evidence that identifies its machine.

    Returns:
        ``encode_cpu_evidence`` JSON, not yet parsed.

    Raises:
        IdentityError: it returned none.
    """
    return await _asked(socket, IDENTITY, timeout_s)


async def ask_devices(socket: Path, *, timeout_s: float = SOCKET_TIMEOUT_S) -> bytes:
    """Ask the evidence process for evidence that identifies its machine's GPUs.

    Returns:
        ``encode_devices`` JSON, not yet parsed.

    Raises:
        IdentityError: it returned none.
    """
    return await _asked(socket, DEVICE_IDENTITY, timeout_s)


def chains_of(data: bytes) -> tuple[tuple[bytes, ...], ...]:
    """Return the certificates of each GPU, DER, leaf first.

    Args:
        data: ``encode_devices`` JSON; unverified.

    Raises:
        IdentityError: unreadable.
    """
    try:
        return tuple(device.chain for device in parse_devices(data))
    except RefusedError as error:
        raise IdentityError(f"the GPUs' evidence: {error}") from None


async def _asked(socket: Path, asked: int, timeout_s: float) -> bytes:
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_unix_connection(socket)  # noqa: TID251 - a door
            try:
                # The data is ignored: evidence that identifies a machine binds nothing.
                writer.write(encode_request(asked, bytes(DATA_BYTES)))
                await writer.drain()
                length = int.from_bytes(await reader.readexactly(LENGTH_BYTES))
                # Before it is read into memory.
                if length > MAX_ANSWER_BYTES[asked]:
                    raise IdentityError("the evidence is too large")
                if length == 0:
                    raise IdentityError("the evidence process has no evidence")
                return await reader.readexactly(length)
            finally:
                writer.close()
    except (OSError, asyncio.IncompleteReadError, TimeoutError) as error:
        raise IdentityError(
            f"the evidence process did not answer: {type(error).__name__}"
        ) from None


def identity_of(data: bytes, *, product: Product | None = None) -> Identity:
    """Read the identity of the machine that made a piece of evidence.

    Args:
        data: ``encode_cpu_evidence`` JSON; unverified.
        product: for reports that do not name it (version 2).

    Raises:
        IdentityError: unreadable, or of a kind without endorsements.
    """
    try:
        given = parse_cpu_evidence(data)
        # Azure's paravisor wraps the report of the hardware that it runs on.
        hardware = given.hardware if isinstance(given, AzureEvidence) else given
        match hardware:
            case SnpEvidence():
                return _snp(parse_report(hardware.report), product)
            case TdxEvidence() if isinstance(given, AzureEvidence):
                # Its quote is what the stapler fetches.
                return TdReportIdentity(report=parse_hcl(given.hcl).report)
            case TdxEvidence():
                return tdx_identity(hardware.quote)
            case NitroEvidence():
                return NitroIdentity(chain=certificates_of(hardware.document))
            case _:
                raise IdentityError(f"nothing is stapled to {given.tee}")
    except RefusedError as error:
        raise IdentityError(f"the machine's evidence: {error}") from None


def _snp(report: SnpReport, product: Product | None) -> SnpIdentity:
    named = report.product or product
    if named is None:
        raise IdentityError("the report does not name its product; pass it explicitly")
    return SnpIdentity(
        product=named,
        chip_id=report.chip_id,
        tcb=parse_tcb(report.reported_tcb, named),
        vlek=report.signing_key is SigningKey.VLEK,
    )


def tdx_identity(quote: bytes) -> TdxIdentity:
    """Read the identity of the platform that made a quote.

    Raises:
        RefusedError: it cannot be read.
    """
    chain = parse_pem_chain(
        parse_quote(quote).pck_chain.rstrip(b"\0"),
        "PCK",
        count=_CHAIN_LENGTH,
        known={},
    )
    leaf, issuer = chain[:2]
    platform = parse_platform(platform_extension(leaf))
    authority = "platform" if "Platform" in issuer.common_name else "processor"
    return TdxIdentity(fmspc=platform.fmspc, authority=authority)
