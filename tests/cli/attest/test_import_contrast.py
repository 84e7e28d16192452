"""Privatemode's documents, the answers of a Contrast Coordinator."""

import base64
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from curtilage.attest.evidence import SnpEvidence, Tee
from curtilage.cli.attest.foreign.snp_protobuf import MAX_FIELDS, read_message
from curtilage_dev.deployment import MEASUREMENT
from curtilage_dev.emulated.foreign import (
    NONCE,
    as_json,
    b64,
    contrast_answer,
    contrast_manifest,
    snp_message,
    varint,
)
from curtilage_dev.emulated.machines import SnpMachine, make_machine, registers_of
from support.evidence_policies import SNP, SNP_MINIMUM
from support.evidence_texts import refused
from support.foreign_bench import DONE, WRONG, Bench, statuses
from support.memory_enclave import NOW

HOST = b"\x07" * 32
OLDER, MANIFEST = b"{}", contrast_manifest(HOST)
SENT = ("--nonce", NONCE.hex())


@pytest.fixture(scope="module")
def machine() -> SnpMachine:
    made = make_machine(Tee.EMULATED_SEV_SNP, MEASUREMENT, now=NOW)
    return cast("SnpMachine", made)


@pytest.fixture
def bench(
    machine: SnpMachine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Bench:
    registers = registers_of(machine.tee, MEASUREMENT)
    anchor, tee = machine.anchor(), machine.tee.value
    minimum = {**SNP_MINIMUM, "product": anchor.product}
    snp = {**SNP, "min_tcb": [minimum], "host_data": [HOST.hex()]}
    return Bench(tmp_path, capsys, (anchor,), tee, registers, snp=snp)


@pytest.fixture
def files(machine: SnpMachine) -> dict[str, bytes]:
    return {"crl": machine.platform.crl(now=NOW)}


def answer_of(machine: SnpMachine, *, hpke: bytes = b"") -> dict[str, Any]:
    manifests = (OLDER, MANIFEST)
    return contrast_answer(machine, manifests, now=NOW, host_data=HOST, hpke=hpke)


def test_only_the_coordinator_is_known(
    bench: Bench, machine: SnpMachine, files: dict[str, bytes]
) -> None:
    verdict = bench.shown("privatemode", answer_of(machine), *SENT, files=files)
    found = statuses(verdict)
    assert [found[name] for name in ("key", "freshness", "measurement")] == [
        "checked"
    ] * 3
    assert [found[name] for name in ("gpu", "weights", "no_write")] == ["unknown"] * 3
    assert found["release"] == "stated"
    assert verdict["tier"]["way"] is None
    assert "--manifest" in verdict["tier"]["why"]


def test_the_expected_manifest_in_force_is_checked(
    bench: Bench, machine: SnpMachine, files: dict[str, bytes]
) -> None:
    document = answer_of(machine)
    named = {**files, "manifest": MANIFEST}
    verdict = bench.shown("privatemode", document, *SENT, files=named)
    assert statuses(verdict)["release"] == "checked"
    assert verdict["tier"]["way"]["by"] == "mesh_ca"
    # One that was in force before is not the one in force.
    code = bench.code(
        "privatemode", document, *SENT, files={**files, "manifest": OLDER}
    )
    assert code == "binding_mismatch"
    empty = {**files, "manifest": b""}
    assert bench.run("privatemode", document, *SENT, files=empty)[0] == WRONG


def test_as_the_proxy_keeps_it_and_in_the_newer_form(
    bench: Bench, machine: SnpMachine, files: dict[str, bytes]
) -> None:
    newer = answer_of(machine, hpke=b"key")
    kept = {"AttestationDoc": b64(as_json(newer))}
    assert bench.shown("privatemode", kept, *SENT, files=files)["accepted"]
    newer["hpke_pub_key"] = b64(b"another key")
    code = bench.code("privatemode", newer, *SENT, files=files)
    assert code == "binding_mismatch"


def test_the_report_may_come_by_itself(
    bench: Bench, machine: SnpMachine, files: dict[str, bytes]
) -> None:
    document = answer_of(machine)
    message = read_message(base64.b64decode(document["raw_attestation_doc"]))
    document["raw_attestation_doc"] = b64(b64(message.report).encode())
    named = {**files, "vek": message.vek, "chain": message.chain}
    assert bench.shown("privatemode", document, *SENT, files=named)["accepted"]


def test_a_tdx_quote_is_recognised(bench: Bench, machine: SnpMachine) -> None:
    quote = b"\x04\0\x02\0\x81\0\0\0" + bytes(2000)
    document = answer_of(machine) | {"raw_attestation_doc": b64(quote)}
    # The policy takes emulated SEV-SNP alone.
    assert bench.code("privatemode", document, *SENT) != "malformed"


def test_without_the_nonce_nothing_is_bound(
    bench: Bench, machine: SnpMachine, files: dict[str, bytes]
) -> None:
    document = answer_of(machine)
    status, printed = bench.run("privatemode", document, files=files)
    assert (status, "--nonce" in printed) == (WRONG, True)
    assert bench.run("privatemode", document, "--nonce", "00", files=files)[0] == WRONG
    other = ("--nonce", bytes(32).hex())
    code = bench.code("privatemode", document, *other, files=files)
    assert code == "binding_mismatch"


@pytest.mark.parametrize("name", ["root_ca", "mesh_ca"])
def test_another_authority_is_refused(
    bench: Bench, machine: SnpMachine, files: dict[str, bytes], name: str
) -> None:
    document = answer_of(machine) | {name: b64(b"another")}
    code = bench.code("privatemode", document, *SENT, files=files)
    assert code == "binding_mismatch"


def test_another_history_is_refused(
    bench: Bench, machine: SnpMachine, files: dict[str, bytes]
) -> None:
    for manifests in ((MANIFEST,), (MANIFEST, OLDER), (OLDER, OLDER, MANIFEST)):
        document = answer_of(machine)
        document["manifests"] = [b64(each) for each in manifests]
        code = bench.code("privatemode", document, *SENT, files=files)
        assert code == "binding_mismatch"
    document = answer_of(machine)
    document["manifests"] = []
    assert bench.code("privatemode", document, *SENT, files=files) == "malformed"


def test_a_machine_that_is_not_the_coordinator_is_refused(
    bench: Bench, machine: SnpMachine, files: dict[str, bytes]
) -> None:
    for manifest in (contrast_manifest(HOST, "worker"), contrast_manifest(bytes(32))):
        document = contrast_answer(machine, (manifest,), now=NOW, host_data=HOST)
        code = bench.code("privatemode", document, *SENT, files=files)
        assert code == "measurement_not_allowed"
    document = contrast_answer(machine, (OLDER,), now=NOW, host_data=HOST)
    code = bench.code("privatemode", document, *SENT, files=files)
    assert code == "unsupported_version"


def test_a_report_of_other_software_is_refused(
    bench: Bench, machine: SnpMachine, files: dict[str, bytes]
) -> None:
    other = replace(machine, image=b"\x55" * 48)
    code = bench.code("privatemode", answer_of(other), *SENT, files=files)
    assert code == "measurement_not_allowed"


def evidence_of(machine: SnpMachine) -> SnpEvidence:
    return cast("SnpEvidence", machine.evidence(bytes(range(64)), now=NOW))


def test_every_byte_of_a_report_is_put_back(machine: SnpMachine) -> None:
    evidence = evidence_of(machine)
    message = read_message(snp_message(evidence))
    assert message.report == evidence.report
    assert message.vek == evidence.vek
    assert message.chain == evidence.ask + evidence.ark


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a",  # a length is missing
        b"\x0a\x05ab",  # truncated
        b"\x08" + b"\xff" * 10,  # a number without end
        b"\x08" + b"\xff" * 9 + b"\x7f",  # more than 64 bits
        b"\x0b",  # groups are not used
        b"\x09\0\0",  # eight bytes, of which two are there
        b"\x08\x01",  # a number where bytes belong
        b"\x0a\0\x0a\0",  # repeated
        b"\x0a\x07\x2a\x05" + bytes(5),  # an image id of five bytes
        b"\x0a\x06\x08\x80\x80\x80\x80\x10",  # a version of 33 bits
        b"\x0a\x03\x0a\x01a",  # bytes where a number belongs
        b"\x0a\x05\xea\x01\x02ab",  # the same for CPUID
        b"\x12\x06\x0a\x01a\x32\x01b",  # both a VCEK and a VLEK
        b"".join(varint(n << 3) + b"\0" for n in range(3, MAX_FIELDS + 4)),
    ],
)
def test_other_messages_are_refused(data: bytes) -> None:
    assert refused(lambda: read_message(data)) == "malformed"


def test_fixed_numbers_are_numbers() -> None:
    message = read_message(b"\x0a\x05\x0d\x03\0\0\0")
    assert message.report[:4] == b"\x03\0\0\0"


def test_people_read_what_is_missing(
    bench: Bench, machine: SnpMachine, files: dict[str, bytes]
) -> None:
    status, printed = bench.run("privatemode", answer_of(machine), *SENT, files=files)
    assert (status, "this is the Coordinator alone" in printed) == (DONE, True)
