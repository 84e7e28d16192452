from dataclasses import replace
from datetime import UTC, datetime

import pytest

from curtilage.attest.claims import REQUIRED_REGISTERS, measurement_problem
from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.evidence import Tee
from curtilage.attest.evidence_json import encode_bundle
from curtilage.attest.verify import verify
from curtilage_dev.deployment import MEASUREMENT, make_any_deployment
from curtilage_dev.emulated.machines import (
    KINDS,
    MAX_GPUS,
    Machine,
    SnpMachine,
    azure_machine,
    make_gpus,
    make_machine,
    registers_of,
)
from curtilage_dev.emulated.snp_pki import EmulatedPlatform

NOW = datetime(2027, 6, 1, 12, tzinfo=UTC)


@pytest.fixture(scope="session", params=KINDS, ids=str)
def machine(request: pytest.FixtureRequest, platform: EmulatedPlatform) -> Machine:
    """A machine of each kind; keys that take seconds are made once."""
    if request.param is Tee.EMULATED_SEV_SNP:
        return SnpMachine(platform=platform, image=MEASUREMENT)
    if request.param is Tee.EMULATED_AZURE_SNP:
        return azure_machine(platform, MEASUREMENT)
    return make_machine(request.param, MEASUREMENT, now=NOW)


def test_every_emulated_kind_is_there() -> None:
    assert set(KINDS) == {tee for tee in Tee if tee.emulated}


def test_a_machine_is_believed_with_and_without_gpus(machine: Machine) -> None:
    for gpus in (None, make_gpus(1, now=NOW)):
        deployment = make_any_deployment(machine, now=NOW, gpus=gpus)
        data = encode_bundle(deployment.bundle())
        key = verify(data, deployment.expectations(), now=NOW)
        assert key.emulated
        assert key.tee == machine.tee.value
        assert len(key.devices) == (0 if gpus is None else 1)
        measured = registers_of(machine.tee, MEASUREMENT)
        assert measured.items() <= dict(key.claims.registers).items()


def test_another_machine_of_the_kind_is_not_trusted(machine: Machine) -> None:
    if machine.tee in {Tee.EMULATED_SEV_SNP, Tee.EMULATED_AZURE_SNP}:
        other = make_machine(Tee.EMULATED_NITRO, MEASUREMENT, now=NOW)
    else:
        other = make_machine(machine.tee, MEASUREMENT, now=NOW)
    deployment = make_any_deployment(machine, now=NOW)
    rules = replace(deployment.expectations(), roots=(other.anchor(),))
    with pytest.raises(RefusedError):
        verify(encode_bundle(deployment.bundle()), rules, now=NOW)


def test_evidence_of_one_key_is_none_of_another(machine: Machine) -> None:
    deployment = make_any_deployment(machine, now=NOW)
    bundle = replace(deployment.bundle(), key_configs=b"\0" * 45)
    with pytest.raises(RefusedError) as caught:
        verify(encode_bundle(bundle), deployment.expectations(), now=NOW)
    assert caught.value.code is RefusalCode.BINDING_MISMATCH


@pytest.mark.parametrize("tee", KINDS)
def test_registers_are_those_that_a_measurement_must_name(tee: Tee) -> None:
    registers = registers_of(tee, MEASUREMENT)
    assert set(registers) >= REQUIRED_REGISTERS[tee]
    assert measurement_problem(registers, tee) is None
    assert registers != registers_of(tee, bytes(48))


@pytest.mark.parametrize("tee", [tee for tee in Tee if not tee.emulated])
def test_no_other_kind_is_made(tee: Tee) -> None:
    with pytest.raises(ValueError, match="not emulated"):
        make_machine(tee, MEASUREMENT, now=NOW)
    with pytest.raises(KeyError):
        registers_of(tee, MEASUREMENT)


@pytest.mark.parametrize("count", [-1, 0, MAX_GPUS + 1])
def test_gpus_are_few(count: int) -> None:
    with pytest.raises(ValueError, match="GPUs"):
        make_gpus(count, now=NOW)


def test_gpus_of_one_machine_differ() -> None:
    devices = make_gpus(3, now=NOW).evidence(bytes(64))
    assert len({device.chain[1] for device in devices}) == 3
    assert len({device.chain[-1] for device in devices}) == 1
    assert len({device.report[4:36] for device in devices}) == 3


@pytest.mark.parametrize("kind", [Tee.EMULATED_TDX, Tee.EMULATED_NITRO])
def test_private_keys_do_not_show(kind: Tee) -> None:
    assert "PrivateKey" not in repr(make_machine(kind, MEASUREMENT, now=NOW))
    assert "PrivateKey" not in repr(make_gpus(2, now=NOW))
