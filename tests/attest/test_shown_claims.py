"""What genuine evidence shows a data class, with test roots in place of vendors'.

No genuine sample was made over keys of ours, so an emulated root takes the
vendor's place for a test; nothing else differs.
"""

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from typing import Any

import pytest

from curtilage.attest.binding import (
    SignedDevice,
    device_nonce_v2,
    report_data_v2,
)
from curtilage.attest.bundle_checks import base_of
from curtilage.attest.claims import Claim
from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.evidence import DeviceKind, EvidenceBundle, GpuEvidence, Tee
from curtilage.attest.evidence_json import encode_bundle
from curtilage.attest.expectations import AnchorKind, Environment, Expectations
from curtilage.attest.log.manifest import parse_manifest
from curtilage.attest.nvidia.spdm import SIGNATURE_BYTES
from curtilage.attest.verify import VerifiedKey, verify
from curtilage_dev.deployment import MEASUREMENT, AnyDeployment, make_any_deployment
from curtilage_dev.emulated.machines import make_gpus, make_machine

NOW = datetime(2027, 6, 1, 12, tzinfo=UTC)
GPU = DeviceKind.NVIDIA_GPU


@cache
def node() -> AnyDeployment:
    machine = make_machine(Tee.EMULATED_NITRO, MEASUREMENT, now=NOW)
    made = make_any_deployment(machine, now=NOW, gpus=make_gpus(2, now=NOW))
    manifest = parse_manifest(made.manifest)
    measured = {Tee.NITRO.value: manifest.measurements[Tee.EMULATED_NITRO.value]}
    released = replace(manifest, measurements=measured)
    return make_any_deployment(machine, now=NOW, gpus=made.gpus, manifest=released)


def _gpus(b0: bytes) -> tuple[GpuEvidence, ...]:
    """Reports as two genuine GPUs would make them for these keys."""
    gpus = node().gpus
    assert gpus is not None
    return tuple(
        replace(device.evidence(device_nonce_v2(b0, GPU.value, index)), kind=GPU)
        for index, device in enumerate(gpus.devices)
    )


def _bundle(*, gpus: bool) -> EvidenceBundle:
    bundle = node().unsigned_bundle()
    b0 = base_of(bundle)
    devices = _gpus(b0) if gpus else ()
    signed = [
        SignedDevice(
            kind=GPU.value, index=index, signed_part=each.report[:-SIGNATURE_BYTES]
        )
        for index, each in enumerate(devices)
    ]
    report_data = report_data_v2(b0, signed, emulated=False)
    cpu: Any = node().machine.evidence(report_data, now=NOW)
    return replace(bundle, cpu=replace(cpu, tee=Tee.NITRO), devices=devices)


@dataclass(frozen=True)
class Vendors:
    """A production policy that trusts the emulated roots as vendors' own."""

    rules: Expectations

    def verify(self, bundle: EvidenceBundle) -> VerifiedKey:
        return verify(encode_bundle(bundle), self.rules, now=NOW)


@pytest.fixture
def vendors(monkeypatch: pytest.MonkeyPatch) -> Vendors:
    emulated = node().expectations()
    kinds = (AnchorKind.AWS, AnchorKind.NVIDIA)
    roots = tuple(
        replace(root, kind=kind, product="")
        for root, kind in zip(emulated.roots, kinds, strict=True)
    )
    monkeypatch.setattr(
        "curtilage.attest.expectations_checks.VENDOR_ROOT_FINGERPRINTS",
        {root.kind: {"": root.fingerprint} for root in roots},
    )
    return Vendors(
        replace(
            emulated,
            environment=Environment.PRODUCTION,
            roots=roots,
            required_cpu_tees=frozenset({Tee.NITRO.value}),
            required_devices={},
        )
    )


def test_genuine_evidence_shows_hardware(vendors: Vendors) -> None:
    key = vendors.verify(_bundle(gpus=False))
    assert (key.tee, key.emulated, key.isolates) == ("nitro", False, True)
    assert key.shows == {Claim.HARDWARE, Claim.WEIGHTS}


def test_genuine_gpus_show_a_gpu(vendors: Vendors) -> None:
    asked = replace(vendors.rules, required_devices={GPU.value: 2})
    key = Vendors(asked).verify(_bundle(gpus=True))
    assert [device.kind for device in key.devices] == [GPU, GPU]
    assert key.shows == {Claim.HARDWARE, Claim.GPU, Claim.WEIGHTS}


def test_a_gpu_that_no_policy_names_is_refused_genuine_or_not(
    vendors: Vendors,
) -> None:
    with pytest.raises(RefusedError) as caught:
        vendors.verify(_bundle(gpus=True))
    assert caught.value.code is RefusalCode.DEVICE_MISMATCH


def test_the_emulated_label_binds_no_genuine_evidence(vendors: Vendors) -> None:
    bundle = _bundle(gpus=False)
    data = report_data_v2(base_of(bundle), (), emulated=True)
    cpu: Any = node().machine.evidence(data, now=NOW)
    with pytest.raises(RefusedError) as caught:
        vendors.verify(replace(bundle, cpu=replace(cpu, tee=Tee.NITRO)))
    assert (caught.value.code, caught.value.step) == (
        RefusalCode.BINDING_MISMATCH,
        "report data",
    )
