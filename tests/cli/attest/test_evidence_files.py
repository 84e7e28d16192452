"""Whole pieces of emulated evidence in files, through the command line."""

import base64
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.attest.errors import RefusalCode, RefusedError, Step
from curtilage.attest.evidence import (
    AzureEvidence,
    CpuEvidence,
    DeviceKind,
    NitroEvidence,
    SnpEvidence,
    TdxEvidence,
    Tee,
)
from curtilage.attest.evidence_json import encode_cpu_evidence, encode_device_evidence
from curtilage.attest.expectations import TrustAnchor
from curtilage.attest.nvidia.verify import GpuCheck
from curtilage.cli.attest.encodings import FORMS
from curtilage.cli.attest.evidence_files import (
    EvidenceFiles,
    cpu_evidence,
    device_evidence,
)
from curtilage.cli.attest.hints import with_hint
from curtilage.cli.main import main
from curtilage_dev.deployment import MEASUREMENT
from curtilage_dev.emulated.machines import (
    Machine,
    make_gpus,
    make_machine,
    registers_of,
)
from support.evidence_policies import SNP, SNP_MINIMUM, write_policy
from support.evidence_texts import pem, refused, refused_form
from support.memory_enclave import NOW

AT = f"{NOW:%Y-%m-%dT%H:%M:%SZ}"
DATA = bytes(64)
ONE = b"\x30\x82\x01\x00" + bytes(256)


@pytest.fixture(scope="module")
def machines() -> dict[str, Machine]:
    kinds = ("sev-snp", "tdx", "nitro", "azure-snp")
    return {
        kind: make_machine(Tee(f"emulated-{kind}"), MEASUREMENT, now=NOW)
        for kind in kinds
    }


def policy_for(
    path: Path,
    machine: Machine,
    more_anchors: tuple[TrustAnchor, ...] = (),
    **more: object,
) -> str:
    anchor, tee = machine.anchor(), machine.tee
    sections: dict[str, object] = {
        "environment": "development",
        "trust_anchors": [
            {
                "kind": "emulated",
                "product": each.product,
                "certificate": pem(each.certificate_der).decode(),
            }
            for each in (anchor, *more_anchors)
        ],
        "required_cpu_tees": [tee.value],
        "measurements": {tee.value: [dict(registers_of(tee, MEASUREMENT))]},
        **more,
    }
    if "snp" in tee.value:
        sections["snp"] = {
            **SNP,
            "min_tcb": [{**SNP_MINIMUM, "product": anchor.product}],
        }
    if "tdx" in tee.value:
        sections["tdx"] = {"statuses": ["UpToDate"]}
    return write_policy(path, **sections)


def files_of(evidence: CpuEvidence) -> dict[str, bytes]:
    """Write evidence like common tools, each part in a different form."""
    if isinstance(evidence, SnpEvidence):
        chain = pem(evidence.ark, evidence.ask) if evidence.ark else pem(evidence.ask)
        return {
            "evidence": evidence.report.hex().encode(),
            "vek": pem(evidence.vek),
            "chain": chain,
            "crl": pem(evidence.crl, label="X509 CRL"),
        }
    if isinstance(evidence, TdxEvidence):
        quote = base64.b64encode(evidence.quote)
        return {"evidence": quote, "collateral": evidence.collateral + b"\n"}
    if isinstance(evidence, NitroEvidence):
        return {"evidence": evidence.document}
    azure = cast("AzureEvidence", evidence)
    hardware = cast("SnpEvidence", azure.hardware)
    return {
        **files_of(hardware),
        "evidence": json.dumps(
            {
                "version": 2,
                "tpm_quote": {
                    "signature": azure.quote.signature.hex(),
                    "message": azure.quote.message.hex(),
                    "pcrs": [value.hex() for _, value in azure.quote.pcrs],
                },
                "hcl_report": base64.urlsafe_b64encode(azure.hcl).decode().rstrip("="),
                "vcek": base64.urlsafe_b64encode(hardware.vek).decode(),
            }
        ).encode(),
    }


class Bench:
    """The command over one machine's evidence."""

    def __init__(self, machine: Machine, folder: Path) -> None:
        self.machine = machine
        self.folder = folder
        self.policy = policy_for(folder / "policy.yaml", machine)

    def run(self, files: Mapping[str, bytes], *more: str, at: str = AT) -> int:
        options: list[str] = []
        for name, data in files.items():
            path = self.folder / name
            path.write_bytes(data)
            options += [f"--{name}", str(path)]
        kind = self.machine.tee.value
        options += ["--policy", self.policy, "--at", at, "--json", *more]
        return main(["attest", "verify-evidence", "--tee", kind, *options])


KINDS = ["sev-snp", "tdx", "nitro", "azure-snp"]


@pytest.fixture(params=KINDS)
def bench(
    request: pytest.FixtureRequest, machines: dict[str, Machine], tmp_path: Path
) -> Bench:
    return Bench(machines[cast("str", request.param)], tmp_path)


def printed(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_emulated_evidence_in_files_is_accepted(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    files = files_of(bench.machine.evidence(DATA, now=NOW))
    assert bench.run(files) == 0, printed(capsys)
    claims = printed(capsys)["claims"]
    assert claims["emulated"]
    assert not claims["isolates"]
    assert bench.run(files, "--report-data", claims["report_data"]) == 0
    assert printed(capsys)["claims"]["bound_checked"]
    assert bench.run(files, "--report-data", "ff" * 64) == 1
    assert printed(capsys)["code"] == "binding_mismatch"


MISSING = {
    ("sev-snp", "vek"): ("chain_invalid", "--vek"),
    ("sev-snp", "chain"): ("chain_invalid", "--chain"),
    ("azure-snp", "chain"): ("chain_invalid", "--chain"),
    ("tdx", "collateral"): ("collateral_invalid", "--collateral"),
}


@pytest.mark.parametrize("missing", MISSING, ids=" ".join)
def test_a_missing_file_is_named(
    missing: tuple[str, str],
    machines: dict[str, Machine],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    kind, option = missing
    bench = Bench(machines[kind], tmp_path)
    files = files_of(bench.machine.evidence(DATA, now=NOW))
    del files[option]
    assert bench.run(files) == 1
    refusal = printed(capsys)
    code, named = MISSING[missing]
    assert refusal["code"] == code
    assert f"with {named}" in refusal["detail"]


def test_a_blob_without_its_quote_asks_for_it(
    machines: dict[str, Machine], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bench = Bench(machines["azure-snp"], tmp_path)
    evidence = bench.machine.evidence(DATA, now=NOW)
    assert isinstance(evidence, AzureEvidence)
    files = {**files_of(evidence.hardware), "evidence": evidence.hcl}
    assert bench.run(files) == 1
    refusal = printed(capsys)
    assert refusal["code"] == "malformed"
    assert "with --quote-message" in refusal["detail"]
    assert bench.run({**files, "evidence": b"no blob at all"}) == 1
    assert "--quote-message" not in printed(capsys)["detail"]


def test_a_given_file_is_not_requested(
    machines: dict[str, Machine], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bench = Bench(machines["sev-snp"], tmp_path)
    files = files_of(bench.machine.evidence(DATA, now=NOW))
    for name in ("vek", "chain"):
        assert bench.run({**files, name: pem(ONE)}) == 1
        refusal = printed(capsys)
        assert refusal["code"] in {"chain_invalid", "untrusted_root"}
        assert " with --" not in refusal["detail"]
    bench = Bench(machines["tdx"], tmp_path)
    assert bench.run({"evidence": bytes(2000)}) == 1
    assert " with --" not in printed(capsys)["detail"]


def test_a_refusal_keeps_its_code_and_steps(machines: dict[str, Machine]) -> None:
    found = machines["sev-snp"].evidence(DATA, now=NOW)
    assert isinstance(found, SnpEvidence)
    (gpu,) = make_gpus(1, now=NOW).evidence(DATA)
    rootless, no_chain = replace(found, ark=b""), replace(gpu, chain=())
    steps = (Step(number=1, name="root", passed=False, detail="seen"),)
    for evidence, code, hint in (
        (rootless, RefusalCode.UNTRUSTED_ROOT, "; add the chip's ASK"),
        (no_chain, RefusalCode.CHAIN_INVALID, "; add the GPU's five"),
        (rootless, RefusalCode.CHAIN_INVALID, ""),
        (replace(rootless, vek=b""), RefusalCode.MALFORMED, ""),
        (gpu, RefusalCode.CHAIN_INVALID, ""),
        (no_chain, RefusalCode.MALFORMED, ""),
        (machines["nitro"].evidence(DATA, now=NOW), RefusalCode.CHAIN_INVALID, ""),
    ):
        refusal = RefusedError(code, "seen", step="root", steps=steps)
        shown = with_hint(refusal, evidence)
        assert (shown.code, shown.step, shown.steps) == (code, "root", steps)
        assert shown.detail.startswith(f"seen{hint}")
        assert bool(hint) or shown.detail == "seen"


def test_a_refused_form_says_which_are_accepted(
    machines: dict[str, Machine], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bench = Bench(machines["tdx"], tmp_path)
    files = files_of(bench.machine.evidence(DATA, now=NOW))
    fields = json.loads(files["collateral"])
    anew = {**fields, "tcb_info": json.loads(fields["tcb_info"])}
    quoted = json.dumps(files["evidence"].decode()).encode()
    for wrong, words in (
        ({"collateral": json.dumps(anew).encode()}, "QuoteCollateralV3"),
        ({"collateral": json.dumps({"collateral": fields}).encode()}, "Intel signed"),
        ({"evidence": quoted}, FORMS),
    ):
        assert bench.run({**files, **wrong}) == 1
        refusal = printed(capsys)
        assert refusal["code"] == "malformed"
        assert words in refusal["detail"]
    files["collateral"] = json.dumps(
        {**fields, "tcb_info": fields["tcb_info"].replace(":", ": ", 1)}
    ).encode()
    assert bench.run(files) == 1
    assert printed(capsys)["code"] == "collateral_invalid"


def test_our_own_form_is_accepted(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    evidence = bench.machine.evidence(DATA, now=NOW)
    assert bench.run({"evidence": encode_cpu_evidence(evidence)}) == 0, printed(capsys)
    capsys.readouterr()
    other = {"tdx": "collateral", "sev-snp": "vek", "azure-snp": "vek"}
    name = other.get(bench.machine.tee.value.removeprefix("emulated-"))
    if name is not None:
        own = {"evidence": encode_cpu_evidence(evidence), name: b"unread"}
        assert bench.run(own) == 1
        assert printed(capsys)["code"] == "malformed"


def test_evidence_of_another_kind_is_refused(
    bench: Bench, machines: dict[str, Machine], capsys: pytest.CaptureFixture[str]
) -> None:
    other = machines["nitro" if bench.machine is machines["tdx"] else "tdx"]
    evidence = other.evidence(DATA, now=NOW)
    assert bench.run({"evidence": encode_cpu_evidence(evidence)}) == 1
    assert printed(capsys)["code"] == "malformed"


def test_a_lie_about_the_kind_is_refused(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    """Emulated bytes that are called genuine end at no vendor's root."""
    kind = bench.machine.tee.value.removeprefix("emulated-")
    files = files_of(bench.machine.evidence(DATA, now=NOW))
    options: list[str] = []
    for name, data in files.items():
        path = bench.folder / name
        path.write_bytes(data)
        options += [f"--{name}", str(path)]
    vendor = {"tdx": "intel", "nitro": "aws"}.get(kind, "amd")
    product = {"product": bench.machine.anchor().product} if vendor == "amd" else {}
    sections: dict[str, object] = {
        "trust_anchors": [{"kind": vendor, **product}],
        "required_cpu_tees": [kind],
        "measurements": {kind: [dict(registers_of(bench.machine.tee, MEASUREMENT))]},
    }
    if "snp" in kind:
        minimum = {**SNP_MINIMUM, "product": bench.machine.anchor().product}
        sections["snp"] = {**SNP, "min_tcb": [minimum]}
    if kind == "tdx":
        sections["tdx"] = {"statuses": ["UpToDate"]}
    policy = write_policy(bench.folder / "genuine.yaml", **sections)
    command = ["attest", "verify-evidence", "--tee", kind, *options]
    assert main([*command, "--policy", policy, "--at", AT, "--json"]) == 1
    assert printed(capsys)["code"] in {"untrusted_root", "chain_invalid"}


def test_a_year_later_it_is_refused(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    files = files_of(bench.machine.evidence(DATA, now=NOW))
    assert bench.run(files, at="2028-11-21T12:00:00Z") == 1
    assert printed(capsys)["code"] in {
        "crl_expired",
        "collateral_expired",
        "expired_endorsement",
    }


def test_verification_opens_no_socket(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a socket was opened")

    for name in ("socket", "create_connection", "getaddrinfo"):
        monkeypatch.setattr(f"socket.{name}", refuse)
    assert bench.run(files_of(bench.machine.evidence(DATA, now=NOW))) == 0


@given(data=st.binary(max_size=200))
def test_any_file_in_evidences_place_is_read_or_refused(data: bytes) -> None:
    for tee in Tee:
        with suppress(RefusedError):
            cpu_evidence(tee, EvidenceFiles(evidence=data))
    with suppress(RefusedError):
        device_evidence(DeviceKind.NVIDIA_GPU, EvidenceFiles(evidence=data))


def test_a_gpus_evidence_in_every_form() -> None:
    gpus = make_gpus(1, now=NOW)
    (evidence,) = gpus.evidence(bytes(64))
    kind, report, chain = evidence.kind, evidence.report, evidence.chain
    encoded = base64.b64encode(report).decode()
    as_pem = base64.b64encode(pem(*chain)).decode()
    entry = {"evidence": encoded, "certificate": as_pem, "arch": "HOPPER"}
    listed = json.dumps({"evidences": [entry], "nonce": "00"}).encode()
    forms = [
        EvidenceFiles(evidence=report, certs=pem(*chain)),
        EvidenceFiles(evidence=report.hex().encode(), certs=pem(*chain[::-1])),
        EvidenceFiles(evidence=json.dumps(entry).encode()),
        EvidenceFiles(evidence=json.dumps([entry]).encode()),
        EvidenceFiles(evidence=json.dumps([entry], indent=2).encode()),
        EvidenceFiles(evidence=json.dumps(entry, indent="\t").encode()),
        EvidenceFiles(evidence=b"[\r\n" + json.dumps(entry).encode() + b"\r\n]\r\n"),
        EvidenceFiles(
            evidence=b"\xef\xbb\xbf\n[ \t\n" + json.dumps(entry).encode() + b"]"
        ),
        EvidenceFiles(evidence=listed),
        EvidenceFiles(evidence=encode_device_evidence(evidence)),
    ]
    for form in forms:
        found = device_evidence(kind, form)
        assert (found.report, found.chain) == (report, chain)
    twice = base64.b64encode(report.hex().encode())
    refused_form(
        lambda: device_evidence(kind, EvidenceFiles(evidence=twice, certs=pem(*chain)))
    )
    several = json.dumps({"evidences": [entry, entry]}).encode()
    other = EvidenceFiles(evidence=several)
    assert refused(lambda: device_evidence(kind, other)) is RefusalCode.MALFORMED
    own = EvidenceFiles(evidence=encode_device_evidence(evidence))
    unread = replace(own, certs=pem(*chain))
    assert refused(lambda: device_evidence(kind, unread)) is RefusalCode.MALFORMED
    genuine = DeviceKind.NVIDIA_GPU
    assert refused(lambda: device_evidence(genuine, own)) is RefusalCode.MALFORMED


def token(algorithm: str) -> bytes:
    head = base64.urlsafe_b64encode(json.dumps({"alg": algorithm}).encode())
    return head.rstrip(b"=") + b".e30.c2ln"


@pytest.mark.parametrize(
    ("file", "code"),
    [
        (token("none"), RefusalCode.UNSIGNED),
        (token("HS256"), RefusalCode.UNSUPPORTED_ALGORITHM),
        (token("ES384"), RefusalCode.UNSUPPORTED_ALGORITHM),
        (b'{"tokens":["%b"]}' % token("none"), RefusalCode.UNSIGNED),
        (b'[["JWT","%b"]]' % token("HS256"), RefusalCode.UNSUPPORTED_ALGORITHM),
    ],
    ids=["none", "HS256", "ES384", "inside JSON", "inside an array"],
)
def test_somebodys_token_is_no_report(file: bytes, code: RefusalCode) -> None:
    files = EvidenceFiles(evidence=file, certs=pem(ONE))
    assert refused(lambda: device_evidence(DeviceKind.NVIDIA_GPU, files)) is code


@pytest.mark.parametrize("option", ["--report-data", "--at"])
def test_wrong_use_is_distinguished_from_a_refusal(
    option: str, machines: dict[str, Machine], tmp_path: Path
) -> None:
    bench = Bench(machines["nitro"], tmp_path)
    files = files_of(bench.machine.evidence(DATA, now=NOW))
    assert bench.run(files, option, "xyz") == 2


@pytest.mark.parametrize("missing", ["policy", "evidence"])
def test_a_file_that_is_not_there_is_no_acceptance(
    missing: str, machines: dict[str, Machine], tmp_path: Path
) -> None:
    bench = Bench(machines["nitro"], tmp_path)
    evidence = tmp_path / "evidence"
    evidence.write_bytes(files_of(bench.machine.evidence(DATA, now=NOW))["evidence"])
    (Path(bench.policy) if missing == "policy" else evidence).unlink()
    command = ["attest", "verify-evidence", "--tee", "emulated-nitro"]
    options = ["--evidence", str(evidence), "--policy", bench.policy, "--at", AT]
    assert main([*command, *options]) == 2


def test_a_person_reads_the_verdict_in_words(
    machines: dict[str, Machine], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bench = Bench(machines["nitro"], tmp_path)
    path = tmp_path / "evidence"
    path.write_bytes(files_of(bench.machine.evidence(DATA, now=NOW))["evidence"])
    command = ["attest", "verify-evidence", "--tee", "emulated-nitro"]
    options = ["--evidence", str(path), "--policy", bench.policy, "--at"]
    assert main([*command, *options, AT]) == 0
    shown = capsys.readouterr().out
    assert "ACCEPTED until" in shown
    assert "was not compared" in shown
    assert "└─" in shown
    assert main([*command, *options, "2030-01-01T00:00:00Z"]) == 1
    answer = capsys.readouterr()
    assert "REFUSED: expired_endorsement" in answer.err
    assert "certificate has expired" in answer.err


def test_a_file_of_another_kind_is_refused(
    machines: dict[str, Machine],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """An ignored root would look as if it had been verified."""
    bench = Bench(machines["nitro"], tmp_path)
    files = files_of(bench.machine.evidence(DATA, now=NOW))
    assert bench.run(files) == 0
    capsys.readouterr()
    assert bench.run({**files, "chain": b"any"}) == 2
    said = capsys.readouterr().err
    assert "--chain" in said
    assert "nitro" in said


@pytest.mark.parametrize("form", ["DER", "PEM"])
def test_a_gpus_certificates_may_come_in_several_files(
    form: str,
    machines: dict[str, Machine],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    gpus = make_gpus(1, now=NOW)
    (gpu,) = gpus.evidence(bytes(64))
    (tmp_path / "report").write_bytes(gpu.report)
    paths: list[str] = []
    for index, der in enumerate(gpu.chain):
        path = tmp_path / f"{index}"
        path.write_bytes(der if form == "DER" else pem(der))
        paths.append(str(path))
    policy = policy_for(
        tmp_path / "policy.yaml",
        machines["nitro"],
        (gpus.anchor(),),
        required_devices={"emulated-nvidia-gpu": 1},
        gpu={"drivers": ["none"], "vbioses": ["none"], "golden": ["00" * 32]},
    )
    command = ["attest", "verify-evidence", "--tee", "emulated-nvidia-gpu", "--json"]
    command += ["--policy", policy, "--at", AT, "--evidence", str(tmp_path / "report")]
    each = [part for path in paths for part in ("--certs", path)]
    for files in (["--certs", *paths], each):
        assert main([*command, *files]) == 1
        # Chain and signature are valid; the driver is checked next.
        assert printed(capsys)["step"] == GpuCheck.VERSIONS
    assert main([*command, "--certs", *paths[:-1]]) == 1
    assert printed(capsys)["code"] == "chain_invalid"
