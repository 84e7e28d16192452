"""The vendors' addresses and the forms of their requests. Pure.

AMD, "Versioned Chip Endorsement Key (VCEK) Certificate and KDS Interface
Specification" (57230), chapter 4. Intel, "API for Intel SGX and TDX Provisioning
Certification Service", version 4. NVIDIA's responder speaks OCSP (RFC 6960). AWS's
certificates name their lists' addresses. A base address may be a mirror's.
"""

from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from curtilage.attest.amd_tcb import Product, Tcb
from curtilage.enclave_server.stapler.errors import FetchError

AMD_KDS: Final = "https://kdsintf.amd.com"
INTEL_PCS: Final = "https://api.trustedservices.intel.com"
INTEL_CERTIFICATES: Final = "https://certificates.trustedservices.intel.com"
NVIDIA_OCSP: Final = "https://ocsp.ndis.nvidia.com"
AZURE_IMDS: Final = "http://169.254.169.254"
"""Link-local, and plain HTTP: the host that the machine runs on answers it."""
LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})
_AWS_HOSTS: Final = (".amazonaws.com", ".amazonaws.com.cn")
_TURIN_HARDWARE_ID_BYTES: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Addresses:
    """The base addresses, without a trailing slash.

    Attributes:
        amd_kds: AMD's Key Distribution Service.
        intel_pcs: Intel's Provisioning Certification Service.
        intel_certificates: where Intel's root publishes its revocation list.
        nvidia_ocsp: NVIDIA's OCSP responder.
        azure_imds: the instance metadata service of an Azure machine.
        aws_lists: in place of the servers that AWS's certificates name; empty for
            these.
    """

    amd_kds: str = AMD_KDS
    intel_pcs: str = INTEL_PCS
    intel_certificates: str = INTEL_CERTIFICATES
    nvidia_ocsp: str = NVIDIA_OCSP
    azure_imds: str = AZURE_IMDS
    aws_lists: str = ""


def is_base_address(text: str) -> bool:
    """Return whether a base address is valid: HTTPS, or HTTP to this machine."""
    if text == AZURE_IMDS:
        return True
    try:
        url = urlsplit(text)
        host = url.hostname
    except ValueError:
        return False
    if not host or url.query or url.fragment or url.username or text.endswith("/"):
        return False
    return url.scheme == "https" or (url.scheme == "http" and host in LOOPBACK)


def vcek_url(base: str, product: Product, chip_id: bytes, tcb: Tcb) -> str:
    """Return the address of a chip's certificate for its patch levels."""
    turin = product is Product.TURIN
    hardware_id = chip_id[:_TURIN_HARDWARE_ID_BYTES] if turin else chip_id
    levels = {"blSPL": tcb.bl, "teeSPL": tcb.tee, "snpSPL": tcb.snp}
    if turin:
        levels = {"fmcSPL": tcb.fmc, **levels}
    levels["ucodeSPL"] = tcb.ucode
    query = "&".join(f"{name}={level:02d}" for name, level in levels.items())
    return f"{base}/vcek/v1/{product}/{hardware_id.hex()}?{query}"


def amd_chain_url(base: str, product: Product, *, vlek: bool) -> str:
    """Return the address of ASK and ARK, or of ASVK and ARK; PEM."""
    return f"{base}/{_kind(vlek=vlek)}/v1/{product}/cert_chain"


def amd_crl_url(base: str, product: Product, *, vlek: bool) -> str:
    """Return the address of the root's revocation list; DER."""
    return f"{base}/{_kind(vlek=vlek)}/v1/{product}/crl"


def tcb_info_url(base: str, fmspc: bytes) -> str:
    """Return the address of a platform's TDX TCB info; signed JSON."""
    return f"{base}/tdx/certification/v4/tcb?fmspc={fmspc.hex().upper()}"


def qe_identity_url(base: str) -> str:
    """Return the address of the TDX quoting enclave's identity; signed JSON."""
    return f"{base}/tdx/certification/v4/qe/identity"


def pck_crl_url(base: str, authority: str) -> str:
    """Return the address of a PCK authority's revocation list; DER.

    Args:
        base: Intel's service.
        authority: ``platform`` or ``processor``.
    """
    return f"{base}/sgx/certification/v4/pckcrl?ca={authority}&encoding=der"


def intel_root_crl_url(base: str) -> str:
    """Return the address of the root's revocation list; DER."""
    return f"{base}/IntelSGXRootCA.der"


def td_quote_url(base: str) -> str:
    """Return the address at which an Azure machine's TDREPORT becomes a quote."""
    return f"{base}/acc/tdquote"


def aws_list_url(address: str, mirror: str) -> str:
    """Return where to fetch a list whose address is in a certificate of AWS's.

    Args:
        address: ``http://`` and a host of AWS's, which answers HTTPS as well.
        mirror: base address in place of the host's; empty for the host itself.

    Raises:
        FetchError: it is no address of AWS's.
    """
    try:
        url = urlsplit(address)
        host, path = url.hostname or "", url.path
    except ValueError:
        host = path = ""
    # Whoever made the certificates, nothing in them leads elsewhere.
    if not host.endswith(_AWS_HOSTS) or not path.endswith(".crl"):
        raise FetchError("AWS: a revocation list at an unknown address")
    return f"{mirror or f'https://{host}'}{path}"


def _kind(*, vlek: bool) -> str:
    return "vlek" if vlek else "vcek"
