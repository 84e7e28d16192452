"""dstack's documents, as Phala publishes them, and NEAR's signed reports."""

import hashlib
import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any, cast

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from curtilage.attest.evidence import Tee
from curtilage.cli.attest.foreign import near
from curtilage.cli.attest.foreign.event_log import (
    MAX_EVENTS,
    read_log,
    require_compose,
)
from curtilage.cli.attest.foreign.verdict import NAMES, READERS
from curtilage.cli.attest.table import PARTS, SOURCES
from curtilage.wire.keyconfig import KeyConfig, SymmetricAlgorithms
from curtilage_dev.deployment import MEASUREMENT
from curtilage_dev.emulated.foreign import (
    NONCE,
    DstackMachine,
    aci_report,
    dstack_machine,
    dstack_quote,
    ohttp_attestation,
    runtime_event,
    signed_report,
)
from curtilage_dev.emulated.gpu import ordinary_expectations
from curtilage_dev.emulated.machines import Gpus, TdxMachine, make_gpus, make_machine
from support.evidence_texts import refused
from support.foreign_bench import DONE, WRONG, Bench, statuses
from support.memory_enclave import NOW

DATA = bytes(range(64))
SENT = ("--nonce", NONCE.hex())
ADDRESS, TLS = b"\xad" * 20, b"\x11" * 32
SIGNER = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
ED25519 = SIGNER.public_key().public_bytes_raw()
PIN = "ab" * 32
KEYSET: dict[str, object] = {
    "subject": "gateway.example",
    "not_after": int(NOW.timestamp()) + 3600,
    "receipt_signing_keys": [{"algorithm": "ed25519", "key": "00"}],
    "tls_public_keys": [{"spki_sha256": PIN}],
}
CONFIG = KeyConfig(
    key_id=1,
    kem_id=0x20,
    public_key=b"\x09" * 32,
    algorithms=(SymmetricAlgorithms(kdf_id=1, aead_id=1),),
).encode()


@pytest.fixture(scope="module")
def machine() -> DstackMachine:
    made = make_machine(Tee.EMULATED_TDX, MEASUREMENT, now=NOW)
    return dstack_machine(cast("TdxMachine", made))


@pytest.fixture(scope="module")
def gpus() -> Gpus:
    return make_gpus(2, now=NOW)


MakeBench = Callable[..., Bench]


@pytest.fixture
def make_bench(
    machine: DstackMachine,
    gpus: Gpus,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> MakeBench:
    def make(**more: object) -> Bench:
        anchors = (machine.machine.anchor(), gpus.anchor())
        tee = machine.machine.tee.value
        return Bench(tmp_path, capsys, anchors, tee, machine.measurement(), **more)

    return make


@pytest.fixture
def bench(make_bench: MakeBench) -> Bench:
    return make_bench()


def with_file(
    made: tuple[dict[str, object], bytes],
) -> tuple[dict[str, Any], dict[str, bytes]]:
    return made[0], {"collateral": made[1]}


def test_the_lists_for_the_command_line_are_the_readers() -> None:
    assert tuple(READERS) == SOURCES
    assert near.PARTS == PARTS
    assert NAMES[0] == "hardware"


def test_a_plain_quote_binds_what_the_application_chose(
    bench: Bench, machine: DstackMachine
) -> None:
    document, files = with_file(dstack_quote(machine, DATA, now=NOW))
    verdict = bench.shown("dstack", document, files=files)
    found = statuses(verdict)
    assert (found["release"], found["key"], found["freshness"]) == (
        "checked",
        "unknown",
        "unknown",
    )
    assert verdict["tier"]["way"] is None
    compared = ("--report-data", DATA.hex())
    verdict = bench.shown("dstack", document, *compared, files=files)
    assert verdict["claims"]["bound_checked"]
    assert statuses(verdict)["freshness"] == "stated"
    other = ("--report-data", bytes(64).hex())
    assert bench.code("dstack", document, *other, files=files) == "binding_mismatch"
    assert bench.run("dstack", document, *SENT, files=files)[0] == WRONG


def test_the_application_may_be_measured_and_not_given(
    bench: Bench, machine: DstackMachine
) -> None:
    document, files = with_file(dstack_quote(machine, DATA, now=NOW))
    del document["info"]
    row = bench.shown("dstack", document, files=files)["appraisal"]["release"]
    digest = hashlib.sha256(machine.compose).hexdigest()
    assert (row["status"], digest in row["why"]) == ("checked", True)
    del document["event_log"]
    row = bench.shown("dstack", document, files=files)["appraisal"]["release"]
    assert row["status"] == "unknown"


def test_an_application_of_another_digest_is_refused(
    bench: Bench, machine: DstackMachine
) -> None:
    document, files = with_file(dstack_quote(machine, DATA, now=NOW))
    document["info"]["tcb_info"] = {"app_compose": "{}"}
    assert bench.code("dstack", document, files=files) == "binding_mismatch"
    # MRCONFIGID alone names it too.
    del document["event_log"]
    assert bench.code("dstack", document, files=files) == "binding_mismatch"
    document["app_compose"] = "{ }"
    assert bench.code("dstack", document, files=files) == "malformed"


@pytest.mark.parametrize(
    ("config", "named"),
    [
        (bytes(48), False),
        (b"\x02" + bytes(47), False),
        (b"\x01" + hashlib.sha256(b"{}").digest() + bytes(15), True),
    ],
)
def test_what_measures_the_application_is_known(config: bytes, named: bool) -> None:
    assert require_compose(b"{}", None, config.hex()) is named
    assert not require_compose(b"", None, config.hex())
    other = b"\x01" + bytes(47)
    code = refused(lambda: require_compose(b"{}", None, other.hex()))
    assert code == "binding_mismatch"


def test_a_log_that_does_not_lead_to_the_register_is_refused(
    bench: Bench, machine: DstackMachine
) -> None:
    document, files = with_file(dstack_quote(machine, DATA, now=NOW))
    for events in (machine.events[:-1], machine.events[::-1], ()):
        document["event_log"] = list(events)
        assert bench.code("dstack", document, files=files) in {
            "binding_mismatch",
            "malformed",
        }
    document["event_log"] = []
    assert bench.code("dstack", document, files=files) == "binding_mismatch"


def test_events_are_their_content() -> None:
    event = runtime_event("app-id", b"id")
    assert refused(lambda: read_log([event | {"event_payload": "00"}])) == (
        "binding_mismatch"
    )
    assert refused(lambda: read_log([event | {"event": "app"}])) == "binding_mismatch"
    assert refused(lambda: read_log([event, event])) == "malformed"
    assert refused(lambda: read_log([event | {"digest": "00"}])) == "malformed"
    assert refused(lambda: read_log("[")) == "malformed"
    assert refused(lambda: read_log([event] * (MAX_EVENTS + 1))) == "too_large"


def test_an_application_cannot_add_to_what_dstack_measured() -> None:
    events = [
        runtime_event("compose-hash", b"dstack"),
        runtime_event("system-ready", b""),
        runtime_event("compose-hash", b"application"),
    ]
    assert read_log(events).payloads["compose-hash"] == b"dstack"
    # Of another kind, whatever its name, it counts for the register alone.
    other = runtime_event("compose-hash", b"x") | {"event_type": 1}
    assert not read_log([other]).payloads
    assert read_log([other]).rtmr3 != read_log([]).rtmr3


def test_a_gateway_s_set_of_keys_is_checked(
    bench: Bench, machine: DstackMachine
) -> None:
    document, files = with_file(aci_report(machine, KEYSET, now=NOW))
    verdict = bench.shown("dstack", document, *SENT, files=files)
    found = statuses(verdict)
    assert (found["key"], found["freshness"], found["receipts"]) == (
        "checked",
        "checked",
        "stated",
    )
    assert verdict["tier"]["way"]["by"] == "tls"
    assert verdict["tier"]["way"]["key"] == PIN
    # Without the nonce the report data lead elsewhere.
    assert bench.code("dstack", document, files=files) == "binding_mismatch"
    assert bench.run("dstack", document, "--nonce", "00", files=files)[0] == WRONG
    given = ("--report-data", DATA.hex())
    assert bench.run("dstack", document, *given, files=files)[0] == WRONG


def test_a_set_of_keys_without_a_nonce_has_no_age(
    bench: Bench, machine: DstackMachine
) -> None:
    keys = {name: KEYSET[name] for name in ("subject", "not_after")}
    document, files = with_file(aci_report(machine, keys, now=NOW, nonce=None))
    verdict = bench.shown("dstack", document, files=files)
    assert statuses(verdict)["freshness"] == "unknown"
    assert verdict["tier"]["way"] is None
    assert "no TLS key" in verdict["tier"]["why"]


def test_another_set_of_keys_is_refused(bench: Bench, machine: DstackMachine) -> None:
    document, files = with_file(aci_report(machine, KEYSET, now=NOW))
    changed = deepcopy(document)
    changed["attestation"]["workload_keyset"]["subject"] = "other.example"
    assert bench.code("dstack", changed, *SENT, files=files) == "binding_mismatch"
    # A digest that fits the changed set is not the one in the report data.
    made, _ = aci_report(machine, {**KEYSET, "subject": "other"}, now=NOW)
    other = cast("dict[str, Any]", made)
    other["attestation"]["evidence"] = document["attestation"]["evidence"]
    assert bench.code("dstack", other, *SENT, files=files) == "binding_mismatch"


@pytest.mark.parametrize(
    ("keys", "code"),
    [
        ({"not_after": int(NOW.timestamp())}, "stale"),
        ({"not_after": True}, "malformed"),
        ({"subject": "größer"}, "malformed"),
        ({"subject": 1.5}, "malformed"),
        ({"subject": 2**53}, "malformed"),
        ({"workload_id": "app"}, "unsupported_version"),
        ({"tls_public_keys": [{"spki_sha256": "ab"}]}, "malformed"),
    ],
)
def test_sets_of_keys_that_are_not_read_are_refused(
    bench: Bench, machine: DstackMachine, keys: dict[str, object], code: str
) -> None:
    document, files = with_file(aci_report(machine, KEYSET | keys, now=NOW))
    assert bench.code("dstack", document, *SENT, files=files) == code


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"api_version": "aci/2"}, "unsupported_version"),
        ({"workload_keyset_digest": "md5:00"}, "malformed"),
    ],
)
def test_gateways_of_other_forms_are_refused(
    bench: Bench, machine: DstackMachine, change: dict[str, object], code: str
) -> None:
    document, files = with_file(aci_report(machine, KEYSET, now=NOW))
    assert bench.code("dstack", document | change, *SENT, files=files) == code
    document["attestation"]["tee_type"] = "sev_snp"
    code = bench.code("dstack", document, *SENT, files=files)
    assert code == "unsupported_version"


@pytest.mark.parametrize(("address", "tls"), [(ADDRESS, b""), (ADDRESS, TLS)])
def test_a_signer_is_bound_with_its_tls_key(
    bench: Bench, machine: DstackMachine, address: bytes, tls: bytes
) -> None:
    made = signed_report(machine, address, now=NOW, tls=tls)
    document, files = with_file(made)
    for source in ("near", "dstack"):
        verdict = bench.shown(source, document, *SENT, files=files)
        assert statuses(verdict)["key"] == "checked"
        assert statuses(verdict)["freshness"] == "checked"
        way = verdict["tier"]["way"]
        assert (way and way["key"]) == (tls.hex() or None)
        for name, value in (
            ("signing_address", "00" * 20),
            ("tls_cert_fingerprint", "00" * 32),
            ("request_nonce", "00" * 32),
        ):
            changed = document | {name: value}
            code = bench.code(source, changed, files=files)
            assert code == "binding_mismatch"
    given = ("--report-data", DATA.hex())
    assert bench.run("dstack", document, *given, files=files)[0] == WRONG
    other = ("--nonce", bytes(32).hex())
    assert bench.code("near", document, *other, files=files) == "binding_mismatch"
    changed = document | {"signing_algo": "rsa"}
    assert bench.code("near", changed, files=files) == "malformed"


def test_gpus_are_verified_and_only_stated(
    make_bench: MakeBench, machine: DstackMachine, gpus: Gpus
) -> None:
    evidence = tuple(device.evidence(NONCE) for device in gpus.devices)
    made = signed_report(machine, ADDRESS, now=NOW, gpus=evidence)
    document, files = with_file(made)
    # A policy that asks for none says nothing about them.
    verdict = make_bench().shown("near", document, *SENT, files=files)
    assert statuses(verdict)["gpu"] == "unknown"
    assert verdict["devices"] == []
    asking = make_bench(**gpu_section(2))
    verdict = asking.shown("near", document, *SENT, files=files)
    assert statuses(verdict)["gpu"] == "stated"
    assert [each["accepted"] for each in verdict["devices"]] == [True, True]
    payload = json.loads(document["nvidia_payload"])
    other = payload | {"nonce": "00" * 32}
    changed = document | {"nvidia_payload": json.dumps(other)}
    assert asking.code("near", changed, *SENT, files=files) == "binding_mismatch"
    # One too few, and one that signed over another nonce.
    fewer = payload | {"evidence_list": payload["evidence_list"][:1]}
    changed = document | {"nvidia_payload": json.dumps(fewer)}
    assert asking.code("near", changed, *SENT, files=files) == "device_missing"
    twice = payload | {"evidence_list": payload["evidence_list"][:1] * 2}
    changed = document | {"nvidia_payload": json.dumps(twice)}
    assert asking.code("near", changed, *SENT, files=files) == "device_mismatch"
    old = (evidence[0], gpus.devices[1].evidence(bytes(32)))
    document, files = with_file(signed_report(machine, ADDRESS, now=NOW, gpus=old))
    assert asking.code("near", document, *SENT, files=files) == "binding_mismatch"


def test_the_key_configuration_of_a_bound_signer_is_a_way(
    bench: Bench, machine: DstackMachine
) -> None:
    document, files = with_file(signed_report(machine, ED25519, now=NOW))
    document["ohttp_attestation"] = ohttp_attestation(SIGNER, CONFIG)
    verdict = bench.shown("near", document, *SENT, files=files)
    way = verdict["tier"]["way"]
    assert (way["by"], way["key"]) == ("ohttp", CONFIG.hex())
    assert verdict["tier"]["why"] == "not checked: hardware"


def test_key_configurations_of_others_are_refused(
    bench: Bench, machine: DstackMachine
) -> None:
    document, files = with_file(signed_report(machine, ED25519, now=NOW))
    signed = ohttp_attestation(SIGNER, CONFIG)
    other = Ed25519PrivateKey.generate()
    for attested, code in (
        (signed | {"signature": "00" * 64}, "bad_signature"),
        (signed | {"key_config": CONFIG.hex() + "00"}, "bad_signature"),
        (signed | {"signing_algo": "ecdsa"}, "malformed"),
        (ohttp_attestation(other, CONFIG), "binding_mismatch"),
        (ohttp_attestation(SIGNER, CONFIG + b"\0"), "malformed"),
    ):
        changed = document | {"ohttp_attestation": attested}
        assert bench.code("near", changed, *SENT, files=files) == code
    document, files = with_file(signed_report(machine, ADDRESS, now=NOW))
    document["ohttp_attestation"] = signed
    assert bench.code("near", document, *SENT, files=files) == "binding_mismatch"


def test_of_several_machines_the_reader_names_one(
    bench: Bench, machine: DstackMachine
) -> None:
    gateway, files = with_file(signed_report(machine, ED25519, now=NOW))
    model, _ = signed_report(machine, ADDRESS, now=NOW)
    document: dict[str, Any] = {
        "gateway_attestation": gateway,
        "model_attestations": [model],
        "ohttp_attestation": ohttp_attestation(SIGNER, CONFIG),
    }
    status, printed = bench.run("near", document, *SENT, files=files)
    assert (status, "--part" in printed) == (WRONG, True)
    part = ("--part", "gateway")
    verdict = bench.shown("near", document, *SENT, *part, files=files)
    assert verdict["form"] == "near gateway signed report"
    assert verdict["tier"]["way"]["by"] == "ohttp"
    part = ("--part", "model")
    verdict = bench.shown("near", document, *SENT, *part, files=files)
    assert verdict["form"] == "near model signed report"
    assert verdict["tier"]["way"] is None
    document["model_attestations"] = [model, model]
    assert bench.code("near", document, *SENT, *part, files=files) == "malformed"


def test_people_read_the_key(bench: Bench, machine: DstackMachine) -> None:
    made = signed_report(machine, ADDRESS, now=NOW, tls=TLS)
    document, files = with_file(made)
    status, printed = bench.run("near", document, *SENT, files=files)
    assert (status, f"tls key {TLS.hex()}" in printed) == (DONE, True)


def gpu_section(count: int) -> dict[str, object]:
    """Return the sections of a policy that asks for GPUs."""
    rules = ordinary_expectations()
    return {
        "required_devices": {"emulated-nvidia-gpu": count},
        "gpu": {
            "drivers": sorted(rules.drivers),
            "vbioses": sorted(rules.vbioses),
            "golden": sorted(rules.golden),
        },
    }
