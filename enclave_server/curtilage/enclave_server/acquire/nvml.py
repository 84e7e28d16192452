"""Evidence from NVIDIA GPUs, through the driver's management library (NVML).

Each GPU in confidential-computing mode signs one report over a nonce of ours. The
driver returns request and response together, as the verifier reads them, and the chain
of the key that signed. Verifies nothing.
"""

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final, Protocol

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from curtilage.attest.binding import device_nonce_v2
from curtilage.attest.evidence import (
    MAX_CERTIFICATE_BYTES,
    MAX_DEVICES,
    MAX_GPU_CHAIN,
    MAX_GPU_REPORT_BYTES,
    DeviceKind,
    GpuEvidence,
)
from curtilage.attest.x509.certificates import LIBRARY_ERRORS
from curtilage.enclave_server.acquire.endorsements import Endorsements
from curtilage.enclave_server.errors import AcquisitionError

KIND: Final = DeviceKind.NVIDIA_GPU


class Nvml(Protocol):
    """The calls about the GPUs of this machine, which are numbered from 0.

    Each may raise ``AcquisitionError``.
    """

    def count(self) -> int:
        """Return how many there are."""
        ...

    def report(self, index: int, nonce: bytes) -> bytes:
        """Return a signed report over 32 bytes: request and response."""
        ...

    def chain(self, index: int) -> bytes:
        """Return the certificates of the key that signs, PEM, leaf first."""
        ...


class NvmlProvider:
    """Acquires the evidence of all GPUs.

    Args:
        opened: opens the library for one acquisition, so that a driver that was
            restarted meanwhile is used.
    """

    def __init__(self, opened: Callable[[], AbstractContextManager[Nvml]]) -> None:
        self._opened = opened

    def acquire(
        self, base: bytes, endorsements: Endorsements
    ) -> tuple[GpuEvidence, ...]:
        """Have each GPU sign over the nonce that B0 gives it.

        Raises:
            AcquisitionError: there is no GPU, or one of them returned no evidence.
        """
        with self._opened() as nvml:
            count = nvml.count()
            if not 1 <= count <= MAX_DEVICES:
                raise AcquisitionError(f"{count} GPUs, not 1 to {MAX_DEVICES}")
            # In the order of their numbers: the verifier derives each one's nonce from
            # its place.
            return tuple(
                _evidence(nvml, index, base, endorsements) for index in range(count)
            )


def _evidence(
    nvml: Nvml, index: int, base: bytes, endorsements: Endorsements
) -> GpuEvidence:
    report = nvml.report(index, device_nonce_v2(base, KIND.value, index))
    if not 0 < len(report) <= MAX_GPU_REPORT_BYTES:
        raise AcquisitionError(f"GPU {index}: a report of {len(report)} bytes")
    chain = _chain(nvml.chain(index), index)
    # The leaf is the GPU's own work, and the root nobody's to revoke.
    ocsp = endorsements.answers(chain[1:-1])
    return GpuEvidence(kind=KIND, report=report, chain=chain, ocsp=ocsp)


def _chain(pem: bytes, index: int) -> tuple[bytes, ...]:
    try:
        loaded = x509.load_pem_x509_certificates(pem)
        chain = tuple(each.public_bytes(Encoding.DER) for each in loaded)
    except LIBRARY_ERRORS:
        raise AcquisitionError(f"GPU {index}: not a chain of certificates") from None
    long = any(len(each) > MAX_CERTIFICATE_BYTES for each in chain)
    if long or len(chain) > MAX_GPU_CHAIN:
        raise AcquisitionError(f"GPU {index}: the chain is too long")
    return chain


class _Driver:
    """The driver behind NVIDIA's bindings, which have no types."""

    def __init__(self, library: Any) -> None:  # noqa: ANN401 - see above
        self._library = library

    def count(self) -> int:
        """See the Protocol."""
        return int(self._library.nvmlDeviceGetCount())

    def report(self, index: int, nonce: bytes) -> bytes:
        """See the Protocol."""
        made = self._library.nvmlDeviceGetConfComputeGpuAttestationReport(
            self._handle(index), nonce
        )
        return bytes(made.attestationReport[: made.attestationReportSize])

    def chain(self, index: int) -> bytes:
        """See the Protocol."""
        made = self._library.nvmlDeviceGetConfComputeGpuCertificate(self._handle(index))
        return bytes(made.attestationCertChain[: made.attestationCertChainSize])

    def _handle(self, index: int) -> object:
        return self._library.nvmlDeviceGetHandleByIndex(index)


def nvml_provider() -> NvmlProvider:
    """Return the provider that uses this machine's driver.

    Raises:
        ImportError: the extra ``gpu`` is not installed.
    """
    import pynvml  # noqa: PLC0415 # pyright: ignore[reportMissingTypeStubs]

    library: Any = pynvml

    @contextmanager
    def opened() -> Generator[Nvml]:
        try:
            library.nvmlInit()
            try:
                yield _Driver(library)
            finally:
                library.nvmlShutdown()
        # Its name alone: NVMLError_NotSupported is a GPU that is not in confidential-
        # computing mode.
        except library.NVMLError as error:
            raise AcquisitionError(f"NVML: {type(error).__name__}") from None

    return NvmlProvider(opened)
