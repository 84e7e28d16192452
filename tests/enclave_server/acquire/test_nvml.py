"""GPUs through NVIDIA's library: with emulated GPUs, and behind NVIDIA's bindings."""

# ruff: noqa: N801, N802, N818 - NVIDIA's names

import ssl
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from types import ModuleType, SimpleNamespace

import pytest

from curtilage.attest.binding import device_nonce_v2
from curtilage.attest.evidence import (
    MAX_CERTIFICATE_BYTES,
    MAX_DEVICES,
    MAX_GPU_CHAIN,
    MAX_GPU_REPORT_BYTES,
    DeviceKind,
)
from curtilage.attest.nvidia.verify import GpuRules, verify_gpu
from curtilage.attest.steps import StepLog
from curtilage.enclave_server.acquire.endorsements import (
    Endorsements,
    answer_file,
    list_file,
)
from curtilage.enclave_server.acquire.nvml import NvmlProvider, nvml_provider
from curtilage.enclave_server.errors import AcquisitionError
from curtilage_dev.emulated.gpu import ordinary_expectations
from curtilage_dev.emulated.machines import Gpus, make_gpus
from curtilage_dev.emulated.p384_pki import sign_certificate
from support.enclave_devices import FakeNvml
from support.enclave_parts import NOW

BASE = bytes(range(64))
NOTHING = Endorsements()


@cache
def gpus() -> Gpus:
    return make_gpus(2, now=NOW)


def nonce(index: int) -> bytes:
    return device_nonce_v2(BASE, DeviceKind.NVIDIA_GPU.value, index)


def test_each_gpu_signs_over_the_nonce_of_its_place() -> None:
    nvml = FakeNvml(gpus=gpus())
    evidence = NvmlProvider(nvml.opened).acquire(BASE, NOTHING)
    assert nvml.nonces == [nonce(0), nonce(1)]
    assert nvml.open == 0
    rules = GpuRules(
        anchors=(gpus().anchor(),),
        expectations=ordinary_expectations(),
        clock_skew_s=60,
    )
    for index, each in enumerate(evidence):
        assert each.kind is DeviceKind.NVIDIA_GPU
        claims = verify_gpu(each, rules, index=index, now=NOW, log=StepLog())
        assert claims.nonce == nonce(index)
    assert len(evidence) == 2


def test_answers_about_its_certificates_are_stapled_and_no_others() -> None:
    first = Gpus(devices=gpus().devices[:1])
    nvml = FakeNvml(gpus=first)
    # Emulated certificates are signed anew each time; here they are the same.
    pem = nvml_chain(first)
    nvml.change_chain = lambda _: pem
    (plain,) = NvmlProvider(nvml.opened).acquire(BASE, NOTHING)
    leaf, brom, ica, identity, root = plain.chain
    files = {answer_file(each): each[:8] for each in plain.chain}
    files[list_file(ica)] = b"list"
    (evidence,) = NvmlProvider(nvml.opened).acquire(BASE, Endorsements(named=files))
    assert evidence.ocsp == (brom[:8], ica[:8], identity[:8])
    assert leaf != root
    del files[answer_file(ica)]
    (evidence,) = NvmlProvider(nvml.opened).acquire(BASE, Endorsements(named=files))
    assert evidence.ocsp == (brom[:8], identity[:8])


def nvml_chain(first: Gpus) -> bytes:
    nvml = FakeNvml(gpus=first)
    with nvml.opened():
        return nvml.chain(0)


def _longer(limit: int) -> Callable[[bytes], bytes]:
    return lambda data: data.ljust(limit + 1, b"\0")


def _big(pem: bytes) -> bytes:
    """The same certificates, and one with more in it than evidence may carry."""
    fields = gpus().devices[0].fields(bytes(32)).chain[0]
    more = ("1.3.6.1.4.1.99999.1", False, bytes(MAX_CERTIFICATE_BYTES))
    fields = replace(fields, extensions=(more,))
    return pem + ssl.DER_cert_to_PEM_cert(sign_certificate(fields, fields)).encode()


WRONG: dict[str, tuple[Callable[[], FakeNvml], str]] = {
    "no GPU": (FakeNvml, "0 GPUs"),
    "too many": (
        lambda: FakeNvml(gpus=gpus(), numbered=MAX_DEVICES + 1),
        f"{MAX_DEVICES + 1} GPUs",
    ),
    "no report": (
        lambda: FakeNvml(gpus=gpus(), change_report=lambda _: b""),
        "GPU 0: a report of 0 bytes",
    ),
    "a long report": (
        lambda: FakeNvml(gpus=gpus(), change_report=_longer(MAX_GPU_REPORT_BYTES)),
        "GPU 0: a report of",
    ),
    "no chain": (
        lambda: FakeNvml(gpus=gpus(), change_chain=lambda _: b""),
        "GPU 0: not a chain",
    ),
    "rubbish": (
        lambda: FakeNvml(gpus=gpus(), change_chain=lambda _: b"\0\xff"),
        "GPU 0: not a chain",
    ),
    "a long chain": (
        lambda: FakeNvml(gpus=gpus(), change_chain=lambda pem: pem * MAX_GPU_CHAIN),
        "GPU 0: the chain is too long",
    ),
    "a big certificate": (
        lambda: FakeNvml(gpus=gpus(), change_chain=_big),
        "GPU 0: the chain is too long",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_evidence_is_an_error(name: str) -> None:
    make, message = WRONG[name]
    nvml = make()
    with pytest.raises(AcquisitionError, match=message):
        NvmlProvider(nvml.opened).acquire(BASE, NOTHING)
    assert nvml.open == 0


# --- NVIDIA's bindings ----------------------------------------------------------


class NVMLError(Exception):
    """As in pynvml, whose errors have classes of their own."""


class NVMLError_NotSupported(NVMLError):
    """A GPU that is not in confidential-computing mode."""


@dataclass
class Bindings:
    """The module pynvml, with buffers longer than what is in them."""

    nvml: FakeNvml
    failing: str = ""
    called: list[str] = field(default_factory=list[str])

    def module(self) -> ModuleType:
        module = ModuleType("pynvml")
        names = [name for name in dir(self) if name.startswith("nvml")]
        for name in names:
            if callable(function := getattr(self, name)):
                setattr(module, name, self._recording(name, function))
        module.NVMLError = NVMLError  # type: ignore[attr-defined] # pyright: ignore[reportAttributeAccessIssue]
        return module

    def _recording(
        self, name: str, function: Callable[..., object]
    ) -> Callable[..., object]:
        def call(*arguments: object) -> object:
            self.called.append(name)
            if name == self.failing:
                raise NVMLError_NotSupported
            return function(*arguments)

        return call

    def nvmlInit(self) -> None:
        self.nvml.open += 1

    def nvmlShutdown(self) -> None:
        self.nvml.open -= 1

    def nvmlDeviceGetCount(self) -> int:
        return self.nvml.count()

    def nvmlDeviceGetHandleByIndex(self, index: int) -> object:
        return SimpleNamespace(index=index)

    def nvmlDeviceGetConfComputeGpuAttestationReport(
        self, handle: SimpleNamespace, nonce: bytes
    ) -> object:
        report = self.nvml.report(handle.index, nonce)
        return SimpleNamespace(
            attestationReport=list(report.ljust(8192, b"\xee")),
            attestationReportSize=len(report),
        )

    def nvmlDeviceGetConfComputeGpuCertificate(self, handle: SimpleNamespace) -> object:
        chain = self.nvml.chain(handle.index)
        return SimpleNamespace(
            attestationCertChain=list(chain.ljust(8192, b"\xee")),
            attestationCertChainSize=len(chain),
        )


def test_nvidias_bindings_are_asked_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    bindings = Bindings(FakeNvml(gpus=gpus()))
    monkeypatch.setitem(sys.modules, "pynvml", bindings.module())
    evidence = nvml_provider().acquire(BASE, NOTHING)
    assert [len(each.chain) for each in evidence] == [5, 5]
    assert [each.report[4:36] for each in evidence] == [nonce(0), nonce(1)]
    assert bindings.called[0] == "nvmlInit"
    assert bindings.called[-1] == "nvmlShutdown"
    assert bindings.nvml.open == 0


@pytest.mark.parametrize(
    "call",
    [
        "nvmlInit",
        "nvmlDeviceGetCount",
        "nvmlDeviceGetHandleByIndex",
        "nvmlDeviceGetConfComputeGpuAttestationReport",
        "nvmlDeviceGetConfComputeGpuCertificate",
        "nvmlShutdown",
    ],
)
def test_an_error_of_the_driver_has_its_name_alone(
    monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    bindings = Bindings(FakeNvml(gpus=gpus()), failing=call)
    monkeypatch.setitem(sys.modules, "pynvml", bindings.module())
    with pytest.raises(AcquisitionError) as caught:
        nvml_provider().acquire(BASE, NOTHING)
    assert str(caught.value) == "NVML: NVMLError_NotSupported"
    assert call == "nvmlInit" or bindings.called[-1] == "nvmlShutdown"


def test_without_nvidias_package_there_is_no_provider(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(ImportError):
        nvml_provider()
