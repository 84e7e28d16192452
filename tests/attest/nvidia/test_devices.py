"""CPU and GPU evidence together: neither can be exchanged for another."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache

import pytest

from curtilage.attest.binding import device_nonce_v2
from curtilage.attest.bundle_checks import base_of
from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.evidence import (
    DeviceKind,
    EvidenceBundle,
    GpuEvidence,
    NitroEvidence,
    Tee,
)
from curtilage.attest.evidence_json import encode_bundle
from curtilage.attest.expectations import (
    AnchorKind,
    Environment,
    Expectations,
    NitroExpectations,
    Revocation,
    TrustAnchor,
)
from curtilage.attest.verify import VerifiedKey, verify
from curtilage_dev.deployment import (
    GPU,
    MEASUREMENT,
    AnyDeployment,
    make_any_deployment,
)
from curtilage_dev.emulated.gpu import EmulatedGpu
from curtilage_dev.emulated.machines import make_gpus, make_machine, stapled
from curtilage_dev.emulated.p384_revocation import ANSWER_LIFE, BACKDATE

NOW = datetime(2027, 6, 1, 12, tzinfo=UTC)


@cache
def node() -> AnyDeployment:
    """A Nitro enclave with two GPUs; no RSA key has to be made."""
    machine = make_machine(Tee.EMULATED_NITRO, MEASUREMENT, now=NOW)
    return make_any_deployment(machine, now=NOW, gpus=make_gpus(2, now=NOW))


@cache
def genuine() -> EvidenceBundle:
    return node().bundle()


def _verify(
    bundle: EvidenceBundle, expected: Expectations | None = None
) -> VerifiedKey:
    rules = expected or node().expectations()
    return verify(encode_bundle(bundle), rules, now=NOW)


def _refused(
    bundle: EvidenceBundle, expected: Expectations | None = None
) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        _verify(bundle, expected)
    return caught.value


def _b0(bundle: EvidenceBundle) -> bytes:
    return base_of(bundle)


def test_cpu_and_gpus_are_accepted_together() -> None:
    key = _verify(genuine())
    assert [device.index for device in key.devices] == [0, 1]
    assert key.devices[0].device != key.devices[1].device
    assert key.devices[0].nonce != key.devices[1].nonce
    assert key.emulated
    assert key.claims.tee is Tee.EMULATED_NITRO


# --- red team 3: reports of other GPUs, of other times, in other places -------


def _older(bundle: EvidenceBundle) -> tuple[GpuEvidence, ...]:
    """The same GPUs' reports over the binding of an hour ago."""
    before = replace(bundle, not_before=bundle.not_before - 3600)
    return node().attest(before).devices


def _other_node(bundle: EvidenceBundle) -> tuple[GpuEvidence, ...]:
    """Reports that other GPUs under the same root made for another key."""
    gpus = node().gpus
    assert gpus is not None
    siblings = replace(
        gpus, devices=tuple(each.sibling(now=NOW) for each in gpus.devices)
    )
    return siblings.evidence(_b0(replace(bundle, key_configs=b"another")))


EXCHANGED: dict[
    str, tuple[Callable[[EvidenceBundle], tuple[GpuEvidence, ...]], RefusalCode]
] = {
    "another node's": (_other_node, RefusalCode.BINDING_MISMATCH),
    "an older binding's": (_older, RefusalCode.BINDING_MISMATCH),
    "reordered": (lambda b: b.devices[::-1], RefusalCode.BINDING_MISMATCH),
    "one dropped": (lambda b: b.devices[:1], RefusalCode.DEVICE_MISSING),
    "the first dropped": (lambda b: b.devices[1:], RefusalCode.DEVICE_MISSING),
    "all dropped": (lambda _: (), RefusalCode.DEVICE_MISSING),
    "one twice": (
        lambda b: (b.devices[0], b.devices[0]),
        RefusalCode.BINDING_MISMATCH,
    ),
    "one more": (
        lambda b: (*b.devices, b.devices[0]),
        RefusalCode.BINDING_MISMATCH,
    ),
}


@pytest.mark.parametrize("name", EXCHANGED)
@pytest.mark.parametrize("signed", [False, True], ids=["as is", "signed by the CPU"])
def test_exchanged_devices_are_refused(name: str, signed: bool) -> None:
    # Even a machine that signs over them does not make the nonces right.
    change, code = EXCHANGED[name]
    changed = replace(genuine(), devices=change(genuine()))
    error = _refused(node().bind(changed) if signed else changed)
    assert error.code is code


def test_one_gpu_asked_twice_is_not_two() -> None:
    gpus = node().gpus
    assert gpus is not None
    twice = replace(gpus, devices=(gpus.devices[0], gpus.devices[0]))
    bundle = replace(node(), gpus=twice).bundle()
    assert _refused(bundle).code is RefusalCode.DEVICE_MISMATCH


def test_devices_that_the_cpu_did_not_sign_over_are_refused() -> None:
    # The GPUs' reports are right for these keys, yet the CPU's names none.
    without = replace(node(), gpus=None).attest(genuine())
    assert without.devices == ()
    bundle = replace(without, devices=genuine().devices)
    error = _refused(bundle)
    assert (error.code, error.step) == (RefusalCode.BINDING_MISMATCH, "report data")


def test_the_cpus_evidence_of_another_node_is_refused() -> None:
    machine = make_machine(Tee.EMULATED_NITRO, MEASUREMENT, now=NOW)
    other = replace(node(), machine=machine)
    theirs = replace(genuine(), not_after=genuine().not_after - 1)
    bundle = replace(genuine(), cpu=other.attest(theirs).cpu)
    rules = node().expectations()
    both = replace(rules, roots=(*rules.roots, machine.anchor()))
    error = _refused(bundle, both)
    assert (error.code, error.step) == (RefusalCode.BINDING_MISMATCH, "report data")


def test_devices_are_bound_by_what_they_sign_not_by_their_signature() -> None:
    # A GPU signs the same nonce again: another signature, another responder
    # nonce; the CPU has not signed over that one.
    gpus = node().gpus
    assert gpus is not None
    again = gpus.devices[0].evidence(
        device_nonce_v2(_b0(genuine()), GPU.value, 0),
        change=lambda fields: replace(fields, responder_nonce=b"\x77" * 32),
    )
    bundle = replace(genuine(), devices=(again, genuine().devices[1]))
    error = _refused(bundle)
    assert (error.code, error.step) == (RefusalCode.BINDING_MISMATCH, "report data")


def test_a_gpu_beyond_those_asked_for_is_verified_all_the_same() -> None:
    rules = replace(node().expectations(), required_devices={GPU.value: 1})
    assert len(_verify(genuine(), rules).devices) == 2
    broken = bytearray(genuine().devices[1].report)
    broken[-1] ^= 1
    second = replace(genuine().devices[1], report=bytes(broken))
    bundle = replace(genuine(), devices=(genuine().devices[0], second))
    assert _refused(bundle, rules).code is RefusalCode.BAD_SIGNATURE


def test_an_emulated_gpu_that_is_not_required_is_refused() -> None:
    rules = replace(node().expectations(), required_devices={})
    assert _refused(genuine(), rules).code is RefusalCode.EMULATED_REFUSED


# --- revocation ---------------------------------------------------------------


@cache
def with_revocation() -> EvidenceBundle:
    bundle, gpus = genuine(), node().gpus
    assert gpus is not None
    return replace(
        bundle,
        cpu=stapled(node().machine, bundle.cpu, NOW),
        devices=gpus.stapled(bundle.devices, NOW),
    )


def demanding() -> Expectations:
    own = node().expectations()
    return replace(
        own,
        nitro=NitroExpectations(revocation=Revocation.REQUIRED),
        gpu=replace(own.gpu, revocation=Revocation.REQUIRED),
    )


def test_revocation_that_is_demanded_comes_with_cpu_and_gpus() -> None:
    key = _verify(with_revocation(), demanding())
    assert {device.expires_at for device in key.devices} == {
        NOW - BACKDATE + ANSWER_LIFE
    }
    assert _refused(genuine(), demanding()).code is RefusalCode.CRL_MISSING
    # Stapled later to evidence that stays: it is not bound.
    assert _verify(with_revocation()).b0 == _verify(genuine()).b0


@pytest.mark.parametrize("index", [0, 1])
def test_each_gpus_answers_are_demanded(index: int) -> None:
    devices = list(with_revocation().devices)
    devices[index] = replace(devices[index], ocsp=())
    bundle = replace(with_revocation(), devices=tuple(devices))
    assert _refused(bundle, demanding()).code is RefusalCode.CRL_MISSING
    # Another GPU's are about other certificates.
    other = with_revocation().devices[1 - index].ocsp
    devices[index] = replace(devices[index], ocsp=other)
    bundle = replace(with_revocation(), devices=tuple(devices))
    assert _refused(bundle, demanding()).code is RefusalCode.CRL_MISSING
    assert _refused(bundle).code is RefusalCode.CRL_INVALID


# --- red team 5: labels that lie ----------------------------------------------


def test_an_emulated_document_labelled_genuine_is_refused() -> None:
    rules = node().expectations()
    aws = TrustAnchor.of_vendor(AnchorKind.AWS)
    genuine_too = replace(
        rules,
        roots=(*rules.roots, aws),
        required_cpu_tees=frozenset({Tee.NITRO.value, Tee.EMULATED_NITRO.value}),
    )
    cpu = genuine().cpu
    assert isinstance(cpu, NitroEvidence)
    lying = replace(genuine(), cpu=replace(cpu, tee=Tee.NITRO))
    assert _refused(lying, genuine_too).code is RefusalCode.UNTRUSTED_ROOT


def test_an_emulated_gpu_labelled_genuine_is_refused() -> None:
    rules = node().expectations()
    nvidia = TrustAnchor.of_vendor(AnchorKind.NVIDIA)
    genuine_too = replace(
        rules,
        roots=(*rules.roots, nvidia),
        required_devices={DeviceKind.NVIDIA_GPU.value: 1},
    )
    devices = tuple(
        replace(device, kind=DeviceKind.NVIDIA_GPU) for device in genuine().devices
    )
    lying = replace(genuine(), devices=devices)
    assert _refused(lying, genuine_too).code is RefusalCode.UNTRUSTED_ROOT


def test_production_refuses_what_is_emulated() -> None:
    rules = replace(node().expectations(), environment=Environment.PRODUCTION)
    assert _refused(genuine(), rules).code is RefusalCode.EMULATED_REFUSED


def test_an_emulated_gpu_with_genuine_evidence_is_refused() -> None:
    rules = node().expectations()
    production = replace(
        rules,
        environment=Environment.PRODUCTION,
        roots=(TrustAnchor.of_vendor(AnchorKind.AWS),),
        required_cpu_tees=frozenset({Tee.NITRO.value}),
        required_devices={DeviceKind.NVIDIA_GPU.value: 1},
    )
    cpu = genuine().cpu
    assert isinstance(cpu, NitroEvidence)
    lying = replace(genuine(), cpu=replace(cpu, tee=Tee.NITRO))
    assert _refused(lying, production).code is RefusalCode.UNTRUSTED_ROOT


def test_another_gpus_root_is_refused() -> None:
    rules = node().expectations()
    other = EmulatedGpu.make(now=NOW).anchor()
    roots = (node().machine.anchor(), other)
    error = _refused(genuine(), replace(rules, roots=roots))
    assert error.code is RefusalCode.UNTRUSTED_ROOT


def test_the_leaf_of_three_hours_ends_the_key() -> None:
    key = _verify(genuine())
    assert key.expires_at == NOW - timedelta(seconds=3) + timedelta(hours=3)
