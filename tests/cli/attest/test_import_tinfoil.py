"""Tinfoil's documents: what is checked of them, and every refusal."""

import base64
import gzip
import hashlib
import json
from copy import deepcopy
from pathlib import Path
from typing import Any, cast

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from curtilage.attest.evidence import SnpEvidence, Tee
from curtilage.cli.attest.foreign.verdict import NAMES
from curtilage_dev.deployment import MEASUREMENT
from curtilage_dev.emulated.foreign import (
    NONCE,
    as_json,
    b64,
    pem,
    tinfoil_2,
    tinfoil_3,
    tinfoil_keys,
    tinfoil_statement,
)
from curtilage_dev.emulated.machines import (
    SnpMachine,
    TdxMachine,
    make_machine,
    registers_of,
)
from support.foreign_bench import DONE, WRONG, Bench, statuses
from support.memory_enclave import NOW

TLS, HPKE = b"\x11" * 32, b"\x22" * 32
SENT = ("--nonce", NONCE.hex())


@pytest.fixture(scope="module")
def snp() -> SnpMachine:
    machine = make_machine(Tee.EMULATED_SEV_SNP, MEASUREMENT, now=NOW)
    return cast("SnpMachine", machine)


@pytest.fixture(scope="module")
def tdx() -> TdxMachine:
    return cast("TdxMachine", make_machine(Tee.EMULATED_TDX, MEASUREMENT, now=NOW))


@pytest.fixture
def bench(snp: SnpMachine, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Bench:
    registers = registers_of(snp.tee, MEASUREMENT)
    return Bench(tmp_path, capsys, (snp.anchor(),), snp.tee.value, registers)


def chain_files(machine: SnpMachine) -> dict[str, bytes]:
    """Return the endorsements that form 2 leaves to its reader."""
    evidence = cast("SnpEvidence", machine.evidence(bytes(64), now=NOW))
    return {"chain": pem(evidence.ask, evidence.ark).encode(), "crl": evidence.crl}


def test_form_3_with_a_nonce_sent_could_be_a_tier(
    bench: Bench, snp: SnpMachine
) -> None:
    # An emulated machine shows no hardware, so this one cannot.
    verdict = bench.shown("tinfoil", tinfoil_3(snp, now=NOW), *SENT)
    found = statuses(verdict)
    assert tuple(found) == NAMES
    assert (
        found.items()
        >= {
            "hardware": "unknown",
            "gpu": "stated",
            "weights": "unknown",
            "no_write": "unknown",
            "measurement": "checked",
            "release": "unknown",
            "key": "checked",
            "freshness": "checked",
            "platform": "stated",
            "receipts": "unknown",
        }.items()
    )
    assert verdict["kind"] == "import"
    assert verdict["form"] == "tinfoil-attestation 3"
    tier = verdict["tier"]
    assert (tier["may"], tier["why"]) == (False, "not checked: hardware")
    assert (tier["way"]["by"], tier["way"]["key"]) == ("hpke", HPKE.hex())


def test_without_the_nonce_sent_the_age_is_only_stated(
    bench: Bench, snp: SnpMachine
) -> None:
    verdict = bench.shown("tinfoil", tinfoil_3(snp, now=NOW))
    assert statuses(verdict)["freshness"] == "stated"
    assert "freshness" in verdict["tier"]["why"]


def test_form_3_of_a_tdx_machine_brings_intel_s_answers(
    tdx: TdxMachine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    registers = tdx.platform.measurement
    bench = Bench(tmp_path, capsys, (tdx.anchor(),), tdx.tee.value, registers)
    document = tinfoil_3(tdx, now=NOW)
    assert bench.shown("tinfoil", document, *SENT)["accepted"]
    responses = cast("Any", document)["collateral"][0]["data"]["responses"]
    for at in range(4):
        twice = deepcopy(document)
        cast("Any", twice)["collateral"][0]["data"]["responses"].append(responses[at])
        assert bench.code("tinfoil", twice) == "malformed"
    for header in ("TCB-Info-Issuer-Chain",):
        less = deepcopy(document)
        del cast("Any", less)["collateral"][0]["data"]["responses"][0]["headers"][
            header
        ]
        assert bench.code("tinfoil", less) == "malformed"


def test_form_2_has_a_key_and_no_age(bench: Bench, snp: SnpMachine) -> None:
    document = tinfoil_2(snp, TLS, HPKE, now=NOW)
    verdict = bench.shown("tinfoil", document, files=chain_files(snp))
    found = statuses(verdict)
    assert (found["key"], found["freshness"]) == ("checked", "unknown")
    assert found["release"] == "stated"
    assert "freshness" in verdict["tier"]["why"]
    status, printed = bench.run("tinfoil", document, *SENT, files=chain_files(snp))
    assert (status, "no nonce" in printed) == (WRONG, True)


def test_a_plain_document_of_form_2_needs_a_vcek(bench: Bench, snp: SnpMachine) -> None:
    cache = tinfoil_2(snp, TLS, HPKE, now=NOW)
    plain = cast("dict[str, object]", cache["enclaveAttestationReport"])
    files = chain_files(snp)
    files["vek"] = base64.b64decode(cast("str", cache["vcek"]))
    verdict = bench.shown("tinfoil", plain, files=files)
    assert verdict["accepted"]
    assert statuses(verdict)["release"] == "unknown"


@pytest.mark.parametrize(
    ("hpke", "tls", "by"),
    [(HPKE, TLS, "hpke"), (bytes(32), TLS, "tls"), (bytes(32), bytes(32), None)],
)
def test_zeros_are_no_key(
    bench: Bench, snp: SnpMachine, hpke: bytes, tls: bytes, by: str | None
) -> None:
    document = tinfoil_2(snp, tls, hpke, now=NOW)
    way = bench.shown("tinfoil", document, files=chain_files(snp))["tier"]["way"]
    assert (way and way["by"]) == by


def test_a_certificate_of_another_key_is_refused(bench: Bench, snp: SnpMachine) -> None:
    certificate = snp.platform.root
    key = x509.load_der_x509_certificate(certificate).public_key()
    spki = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    files = chain_files(snp)
    document = tinfoil_2(snp, hashlib.sha256(spki).digest(), HPKE, now=NOW)
    document["enclaveCert"] = pem(certificate)
    assert bench.shown("tinfoil", document, files=files)["accepted"]
    document = tinfoil_2(snp, TLS, HPKE, now=NOW)
    document["enclaveCert"] = pem(certificate)
    assert bench.code("tinfoil", document, files=files) == "binding_mismatch"


def test_a_statement_of_another_measurement_is_refused(
    bench: Bench, snp: SnpMachine
) -> None:
    document = tinfoil_2(snp, TLS, HPKE, now=NOW)
    document["sigstoreBundle"] = tinfoil_statement("ab" * 48)
    code = bench.code("tinfoil", document, files=chain_files(snp))
    assert code == "endorsement_mismatch"


def test_a_body_that_unpacks_without_end_is_refused(
    bench: Bench, snp: SnpMachine
) -> None:
    def code(body: bytes) -> str:
        document = cast("dict[str, Any]", tinfoil_2(snp, TLS, HPKE, now=NOW))
        document["enclaveAttestationReport"]["body"] = b64(body)
        return bench.code("tinfoil", document, files=chain_files(snp))

    assert code(gzip.compress(bytes(2**24))) == "too_large"
    assert code(b"no gzip") == "malformed"
    whole = gzip.compress(bytes(1184))
    assert code(whole[:-9]) == "malformed"
    assert code(whole + whole) == "malformed"


def test_parts_that_the_report_does_not_bind_are_refused(
    bench: Bench, snp: SnpMachine
) -> None:
    document = cast("dict[str, Any]", tinfoil_3(snp, now=NOW))
    other = ("--nonce", bytes(32).hex())
    assert bench.code("tinfoil", document, *other) == "binding_mismatch"
    for name, value in (
        ("crypto_material", tinfoil_keys(tls=TLS, hpke=bytes(range(32)))),
        ("device_evidence", as_json({"items": []})),
    ):
        changed = {**document, name: b64(value)}
        assert bench.code("tinfoil", changed) == "binding_mismatch"
    stating = {**document["challenge"], "report_data": "00" * 64}
    changed = {**document, "challenge": stating}
    assert bench.code("tinfoil", changed) == "binding_mismatch"
    # A challenge that fits the parts, under a report that does not.
    moved = tinfoil_3(snp, now=NOW, nonce=bytes(32))
    moved["cpu_evidence"] = document["cpu_evidence"]
    assert bench.code("tinfoil", moved) == "binding_mismatch"


@pytest.mark.parametrize(
    "change",
    [
        {"format": "https://tinfoil.sh/predicate/sev-snp-guest/v1"},
        {"format": "https://tinfoil.sh/predicate/attestation/v4"},
    ],
)
def test_other_forms_are_refused(
    bench: Bench, snp: SnpMachine, change: dict[str, object]
) -> None:
    document = tinfoil_3(snp, now=NOW) | change
    assert bench.code("tinfoil", document) == "unsupported_version"


def test_other_forms_inside_form_3_are_refused(bench: Bench, snp: SnpMachine) -> None:
    for holder, name in (
        ("challenge", "report_data_algorithm"),
        ("cpu_evidence", "format"),
    ):
        document = cast("dict[str, Any]", tinfoil_3(snp, now=NOW))
        document[holder][name] = "https://tinfoil.sh/other"
        assert bench.code("tinfoil", document) == "unsupported_version"


def test_two_keys_or_lists_of_one_form_are_refused(
    bench: Bench, snp: SnpMachine
) -> None:
    items = json.loads(tinfoil_keys(tls=TLS))["items"]
    material = as_json({"items": [*items, *items]})
    document = tinfoil_3(snp, now=NOW, material=material)
    assert bench.code("tinfoil", document) == "malformed"
    doubled = cast("dict[str, Any]", tinfoil_3(snp, now=NOW))
    doubled["collateral"] *= 2
    assert bench.code("tinfoil", doubled) == "malformed"


def test_keys_and_collateral_of_unknown_forms_are_passed_over(
    bench: Bench, snp: SnpMachine
) -> None:
    items = json.loads(tinfoil_keys(tls=TLS))["items"]
    items.append({"id": "later", "format": "https://example/key", "data": ""})
    document = cast(
        "dict[str, Any]", tinfoil_3(snp, now=NOW, material=as_json({"items": items}))
    )
    document["collateral"].append({"format": "https://example/collateral"})
    verdict = bench.shown("tinfoil", document)
    assert verdict["tier"]["way"]["by"] == "tls"


def test_a_file_replaces_the_document_s_own(bench: Bench, snp: SnpMachine) -> None:
    document = tinfoil_3(snp, now=NOW)
    assert bench.code("tinfoil", document, files={"crl": b"\x30\x00"}) != ""


def test_an_option_of_another_service_is_refused(bench: Bench, snp: SnpMachine) -> None:
    document = tinfoil_3(snp, now=NOW)
    for more in (
        ("--part", "model"),
        ("--report-data", "00"),
        ("--nonce", ""),
        ("--nonce", "0"),
    ):
        assert bench.run("tinfoil", document, *more)[0] == WRONG
    status, printed = bench.run("tinfoil", document, files={"collateral": b"{}"})
    assert (status, "sev-snp" in printed) == (WRONG, True)
    status, _ = bench.run("tinfoil", document, files={"manifest": b"{}"})
    assert status == WRONG


def test_people_read_each_claim_on_a_line(bench: Bench, snp: SnpMachine) -> None:
    status, printed = bench.run("tinfoil", tinfoil_3(snp, now=NOW), *SENT)
    assert status == DONE
    lines = [line.split() for line in printed.splitlines()]
    assert ["key", "checked"] in [each[:2] for each in lines]
    assert "As a tier: no (not checked: hardware)" in printed
    status, printed = bench.run("tinfoil", b"[]")
    assert "REFUSED: malformed" in printed
