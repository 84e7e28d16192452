"""Every genuine sample through the command line, under a policy written for it."""

import base64
import copy
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest

from curtilage.attest.encoding.cose import parse_cose_sign1
from curtilage.attest.evidence import (
    AzureEvidence,
    DeviceKind,
    NitroEvidence,
    SnpEvidence,
    TdxEvidence,
    Tee,
)
from curtilage.attest.nitro.document import parse_nitro_document
from curtilage.attest.nvidia.spdm import parse_spdm_report
from curtilage.attest.nvidia.verify import driver_version, golden_digest, vbios_version
from curtilage.attest.sev_snp.report import parse_report
from curtilage.attest.tdx.quote import parse_quote
from curtilage.cli.attest.encodings import FORMS
from curtilage.cli.attest.evidence_files import (
    EvidenceFiles,
    cpu_evidence,
    device_evidence,
)
from curtilage.cli.main import main
from support.evidence_policies import SNP, SNP_MINIMUM, write_policy
from support.evidence_texts import ARK, ASK, VCEK, certificate_table, pem, pem_text

Section = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One genuine piece of evidence.

    Attributes:
        tee: of ``--tee``.
        files: option to path below the evidence folder.
        at: a time at which it is accepted.
        policy: entries of its policy that the sample itself does not determine.
        like: the good sample whose registers the policy lists instead.
    """

    tee: str
    files: Mapping[str, str]
    at: str
    policy: Mapping[str, Any] = field(default_factory=dict[str, Any])
    like: str = ""


MILAN = {
    "chain": "sev-snp/roots/ask_ark_milan.pem",
    "crl": "sev-snp/crl/milan-crl6-2025-05-06.pem",
}
VLEK = {**MILAN, "chain": "sev-snp/roots/ask_ark_milan_vlek.pem"}
OLD = {"environment": "development", "snp": {**SNP, "min_version": 2}}
SEPTEMBER = "2025-09-01T00:00:00Z"


def snp(name: str, **files: str) -> dict[str, str]:
    folder = f"sev-snp/{name}"
    return {
        "evidence": f"{folder}/report.bin",
        "vek": f"{folder}/vcek.der",
        **MILAN,
        **files,
    }


GOOD: dict[str, Sample] = {
    "snp v2 virtee": Sample(
        tee="sev-snp", files=snp("virtee-milan-v2"), at=SEPTEMBER, policy=OLD
    ),
    "snp v2 trustee": Sample(
        tee="sev-snp", files=snp("trustee-milan-v2"), at=SEPTEMBER, policy=OLD
    ),
    "snp v3 vlek": Sample(
        tee="sev-snp",
        files={
            **VLEK,
            "evidence": "sev-snp/trustee-vlek-milan-v3-vmpl1/report.bin",
            "vek": "sev-snp/trustee-vlek-milan-v3-vmpl1/vlek.der",
        },
        at=SEPTEMBER,
        policy={
            "snp": {**SNP, "vmpl": [1], "allow_vlek": True, "allow_masked_chip": True}
        },
    ),
    "tdx v4": Sample(
        tee="tdx",
        files={
            "evidence": "tdx/v4-uptodate-2025/quote.bin",
            "collateral": "tdx/v4-uptodate-2025/collateral.json",
        },
        at="2025-07-01T00:00:00Z",
    ),
    "nitro 2025": Sample(
        tee="nitro",
        files={"evidence": "nitro/dstack_nsmqvl_2025.cbor"},
        at="2025-12-25T13:30:00Z",
    ),
    "nitro 2023": Sample(
        tee="nitro",
        files={"evidence": "nitro/evervault_2023.cbor"},
        at="2023-01-18T13:30:00Z",
    ),
    "azure v0": Sample(
        tee="azure-snp",
        files={"evidence": "azure-cvm/evidence-v0.json", **MILAN},
        at=SEPTEMBER,
        policy=OLD,
    ),
    "azure v2": Sample(
        tee="azure-snp",
        files={"evidence": "azure-cvm/evidence-v2.json", **MILAN},
        at=SEPTEMBER,
    ),
    "tpm": Sample(
        tee="tpm",
        files={"evidence": "tpm/trustee_swtpm_evidence.json"},
        at=SEPTEMBER,
        policy={"environment": "development"},
    ),
    "gpu": Sample(
        tee="nvidia-gpu",
        files={
            "evidence": "nvidia-gpu/hopperAttestationReport.txt",
            "certs": "nvidia-gpu/hopperCertChain.txt",
        },
        at="2026-09-01T00:00:00Z",
    ),
}


class Bench:
    """The samples' folder, a folder for what is made of them, and the command."""

    def __init__(
        self, shared: Path, folder: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.evidence = shared / "evidence"
        self.folder = folder
        self.capsys = capsys

    def read(self, name: str) -> bytes:
        return (self.evidence / name).read_bytes()

    def write(self, name: str, data: bytes) -> str:
        path = self.folder / name
        path.write_bytes(data)
        return str(path)

    def policy(self, sample: Sample, **changes: object) -> str:
        shown = GOOD.get(sample.like, sample)
        sections = {
            **policy_of(shown, self.files(shown)),
            **sample.policy,
            **changes,
        }
        return write_policy(self.folder / "policy.yaml", **sections)

    def files(self, sample: Sample) -> EvidenceFiles:
        return EvidenceFiles(
            **{
                name.replace("-", "_"): self.read(path)
                for name, path in sample.files.items()
            }
        )

    def run(
        self,
        sample: Sample,
        *more: str,
        policy: str | None = None,
        at: str | None = None,
        files: Mapping[str, str | None] | None = None,
    ) -> tuple[int, Section]:
        """Run the command; return the exit status and the JSON object."""
        named: dict[str, str | None] = {
            name: str(self.evidence / path) for name, path in sample.files.items()
        }
        named |= files or {}
        options = [
            part
            for name, path in named.items()
            if path is not None
            for part in (f"--{name}", path)
        ]
        self.capsys.readouterr()
        status = main(
            [
                *("attest", "verify-evidence", "--tee", sample.tee, *options),
                *("--policy", policy or self.policy(sample)),
                *("--at", at or sample.at, "--json", *more),
            ]
        )
        printed: Section = json.loads(self.capsys.readouterr().out)
        assert status == (0 if printed["accepted"] else 1)
        assert (printed["code"] is None) == printed["accepted"]
        return status, printed


def policy_of(sample: Sample, files: EvidenceFiles) -> Section:
    """Return the minimal policy that accepts a sample."""
    if sample.tee == "nvidia-gpu":
        report = parse_spdm_report(
            device_evidence(DeviceKind(sample.tee), files).report
        )
        return {
            "trust_anchors": [{"kind": "amd", "product": "Milan"}, {"kind": "nvidia"}],
            "required_cpu_tees": ["sev-snp"],
            "required_devices": {"nvidia-gpu": 1},
            "snp": SNP,
            "gpu": {
                "drivers": [driver_version(report)],
                "vbioses": [vbios_version(report)],
                "golden": [golden_digest(report)],
            },
            **sample.policy,
        }
    sections: Section = {
        "trust_anchors": [anchor_of(sample, files)],
        "required_cpu_tees": [sample.tee],
        "measurements": {sample.tee: [registers_of(sample, files)]},
    }
    if "snp" in sample.tee:
        sections["snp"] = SNP
    if "tdx" in sample.tee:
        sections["tdx"] = {"statuses": ["UpToDate"]}
    return {**sections, **sample.policy}


def anchor_of(sample: Sample, files: EvidenceFiles) -> Section:
    if "snp" in sample.tee:
        return {"kind": "amd", "product": "Milan"}
    if sample.tee == "tpm":
        evidence = cpu_evidence(Tee.TPM, files)
        ak = hashlib.sha256(evidence.ak).hexdigest()  # type: ignore[union-attr]
        return {"kind": "tpm", "fingerprint": ak}
    return {"kind": {"nitro": "aws"}.get(sample.tee, "intel")}


def registers_of(sample: Sample, files: EvidenceFiles) -> dict[str, str]:
    """Read the registers that a policy must list, without verifying anything."""
    evidence = cpu_evidence(Tee(sample.tee), files)
    if isinstance(evidence, SnpEvidence):
        return {"launch": parse_report(evidence.report).measurement.hex()}
    if isinstance(evidence, TdxEvidence):
        return td_registers(evidence.quote)
    if isinstance(evidence, NitroEvidence):
        signed = parse_cose_sign1(
            evidence.document, where="document", limit_bytes=32768
        )
        pcrs = parse_nitro_document(signed.payload).pcrs
        return {f"pcr{index}": pcrs[index].hex() for index in range(3)}
    if isinstance(evidence, AzureEvidence):
        hardware = evidence.hardware
        assert isinstance(hardware, SnpEvidence)
        launch = parse_report(hardware.report).measurement.hex()
        return {"launch": launch, "pcr4": dict(evidence.quote.pcrs)[4].hex()}
    return {"pcr4": dict(evidence.quote.pcrs)[4].hex()}


def td_registers(quote: bytes) -> dict[str, str]:
    report = parse_quote(quote).report
    found = {f"rtmr{number}": value.hex() for number, value in enumerate(report.rtmr)}
    return {
        **found,
        "mrtd": report.mrtd.hex(),
        "mrconfigid": report.mrconfigid.hex(),
        "mrowner": report.mrowner.hex(),
        "mrownerconfig": report.mrownerconfig.hex(),
    }


@pytest.fixture
def bench(
    shared_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Bench:
    return Bench(shared_dir, tmp_path, capsys)


@pytest.mark.parametrize("name", GOOD)
def test_a_genuine_sample_is_accepted_at_its_date(bench: Bench, name: str) -> None:
    status, findings = bench.run(GOOD[name])
    assert findings["code"] is None, findings["steps"][-1]
    assert status == 0
    assert all(step["passed"] for step in findings["steps"])
    assert findings["claims"]["tee"] == GOOD[name].tee
    assert not findings["claims"]["bound_checked"]
    assert findings["links"], "the output names the chain"
    assert findings["expires_at"] > GOOD[name].at


def other(name: str, **changes: Any) -> Sample:  # noqa: ANN401 - fields by name
    """Return a good sample with other files, another time or policy."""
    sample = GOOD[name]
    files = {**sample.files, **changes.pop("files", {})}
    return replace(
        sample,
        files={option: path for option, path in files.items() if path},
        **changes,
    )


def snp_policy(name: str, **changes: object) -> Section:
    policy = GOOD[name].policy
    return {**policy, "snp": {**policy["snp"], **changes}}


DEBUG_TDX = {
    "evidence": "tdx/DEBUG-v4-2023/quote.bin",
    "collateral": "tdx/DEBUG-v4-2023/collateral.json",
}
LATE, EARLY = "2026-06-01T00:00:00Z", "2020-01-01T00:00:00Z"
BAD: dict[str, tuple[Sample, str]] = {
    # debug
    "snp debug": (
        Sample(
            tee="sev-snp",
            files=snp("go-sev-guest-milan-v2-DEBUG"),
            at=SEPTEMBER,
            policy=OLD,
        ),
        "debug_enabled",
    ),
    "tdx debug": (
        Sample(tee="tdx", files=DEBUG_TDX, at="2023-07-01T00:00:00Z"),
        "debug_enabled",
    ),
    "nitro debug": (
        Sample(
            tee="nitro",
            files={"evidence": "nitro/evervault_DEBUG_2023.cbor"},
            at="2023-01-18T15:30:00Z",
        ),
        "debug_enabled",
    ),
    # stale
    "snp list out of date": (other("snp v2 virtee", at=LATE), "crl_expired"),
    "snp before its time": (other("snp v2 virtee", at=EARLY), "not_yet_valid"),
    "vlek out of date": (
        other("snp v3 vlek", at="2026-01-01T00:00:00Z"),
        "expired_endorsement",
    ),
    "azure list out of date": (other("azure v2", at=LATE), "crl_expired"),
    "tdx collateral out of date": (
        other("tdx v4", at="2025-07-25T00:00:00Z"),
        "collateral_expired",
    ),
    "tdx collateral of the future": (
        other("tdx v4", at="2025-06-01T00:00:00Z"),
        "not_yet_valid",
    ),
    "nitro after its leaf": (
        other("nitro 2025", at="2025-12-26T13:30:00Z"),
        "expired_endorsement",
    ),
    "nitro before its leaf": (other("nitro 2025", at=EARLY), "not_yet_valid"),
    "gpu before its chain": (other("gpu", at="2019-01-01T00:00:00Z"), "not_yet_valid"),
    # endorsements
    "snp without a list": (other("snp v2 virtee", files={"crl": ""}), "crl_missing"),
    "snp list of another product": (
        other(
            "snp v2 virtee",
            files={"crl": "sev-snp/crl/genoa-crl4-2024-10-23.pem"},
            at="2025-06-01T00:00:00Z",
        ),
        "crl_invalid",
    ),
    "snp chain of another product": (
        other("snp v2 virtee", files={"chain": "sev-snp/roots/ask_ark_genoa.pem"}),
        "untrusted_root",
    ),
    "snp chain of a vlek": (
        other("snp v2 virtee", files={"chain": "sev-snp/roots/ask_ark_milan_vlek.pem"}),
        "chain_invalid",
    ),
    "snp key of another chip": (
        other("snp v2 virtee", files={"vek": "sev-snp/trustee-milan-v2/vcek.der"}),
        "bad_signature",
    ),
    "snp key of another product": (
        other("snp v2 virtee", files={"vek": "sev-snp/turin-vcek-only/vcek_turin.der"}),
        "untrusted_root",
    ),
    "snp without a key": (
        other(
            "snp v2 virtee",
            files={"vek": "", "evidence": "sev-snp/gce-milan-v4-novcek/report.bin"},
        ),
        "chain_invalid",
    ),
    "snp without a chain": (
        other("snp v2 virtee", files={"chain": ""}),
        "untrusted_root",
    ),
    "snp edited key, old form": (
        other(
            "snp v2 trustee",
            files={"vek": "sev-snp/trustee-milan-v2/test-vcek-invalid-legacy.der"},
        ),
        "chain_invalid",
    ),
    "snp edited key, new form": (
        other(
            "snp v2 trustee",
            files={"vek": "sev-snp/trustee-milan-v2/test-vcek-invalid-new.der"},
        ),
        "chain_invalid",
    ),
    "tdx without collateral": (
        other("tdx v4", files={"collateral": ""}),
        "collateral_invalid",
    ),
    "tdx collateral of another platform": (
        other(
            "tdx v4",
            files={"collateral": "tdx/v5-tcb-too-low-2026/collateral.json"},
            at="2026-02-20T00:00:00Z",
        ),
        "endorsement_mismatch",
    ),
    "an sgx quote": (
        other("tdx v4", files={"evidence": "tdx/sgx/quote.bin"}, like="tdx v4"),
        "unsupported_version",
    ),
    # firmware
    "tdx level too low": (
        Sample(
            tee="tdx",
            files={
                "evidence": "tdx/v5-tcb-too-low-2026/quote.bin",
                "collateral": "tdx/v5-tcb-too-low-2026/collateral.json",
            },
            at="2026-02-20T00:00:00Z",
        ),
        "tcb_too_low",
    ),
    "tdx of no level": (
        Sample(
            tee="tdx",
            files={
                "evidence": "tdx/go-v4-2023-no-level/quote.bin",
                "collateral": "tdx/go-v4-2023-no-level/collateral.json",
            },
            like="tdx v4",
            at="2023-07-01T00:00:00Z",
        ),
        "malformed",
    ),
    "tdx evaluation number too low": (
        other(
            "tdx v4",
            policy={"tdx": {"statuses": ["UpToDate"], "min_tcb_evaluation_number": 18}},
        ),
        "tcb_too_low",
    ),
    "snp firmware too old": (
        other(
            "snp v2 virtee",
            policy=snp_policy("snp v2 virtee", min_tcb=[{**SNP_MINIMUM, "ucode": 255}]),
        ),
        "tcb_too_low",
    ),
    # the policy's content
    "snp v2 in production": (other("snp v2 virtee", policy={}), "unsupported_version"),
    "snp vmpl 1": (
        other("snp v3 vlek", policy=snp_policy("snp v3 vlek", vmpl=[0])),
        "vmpl",
    ),
    "vlek not allowed": (
        other("snp v3 vlek", policy=snp_policy("snp v3 vlek", allow_vlek=False)),
        "endorsement_mismatch",
    ),
    "chip not named": (
        other("snp v3 vlek", policy=snp_policy("snp v3 vlek", allow_masked_chip=False)),
        "endorsement_mismatch",
    ),
    "another root": (
        other(
            "snp v2 virtee",
            policy={**OLD, "trust_anchors": [{"kind": "amd", "product": "Genoa"}]},
        ),
        "untrusted_root",
    ),
    "another vendor": (
        other("nitro 2025", policy={"trust_anchors": [{"kind": "intel"}]}),
        "untrusted_root",
    ),
    "tpm key not pinned": (
        other(
            "tpm",
            policy={
                "environment": "development",
                "trust_anchors": [{"kind": "tpm", "fingerprint": "00" * 32}],
            },
        ),
        "untrusted_root",
    ),
    "gpu driver not listed": (
        other(
            "gpu",
            policy={"gpu": {"drivers": ["1"], "vbioses": ["1"], "golden": ["00" * 32]}},
        ),
        "measurement_not_allowed",
    ),
    "unsigned gpu token": (
        other(
            "gpu",
            files={"evidence": "nvidia-gpu/nvat_local_ALG-NONE_h100.json"},
            like="gpu",
        ),
        "unsigned",
    ),
    "gpu chain of another": (
        other("gpu", files={"certs": "nvidia-gpu/nras_root.pem"}),
        "chain_invalid",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_genuine_sample_is_refused(bench: Bench, name: str) -> None:
    sample, code = BAD[name]
    status, findings = bench.run(sample)
    assert (status, findings["code"]) == (1, code), findings
    assert findings["claims"] == {}


NAMES = list(GOOD)
BOUND = [name for name in NAMES if name != "gpu"]


@pytest.mark.parametrize("name", NAMES)
def test_what_it_signs_for_us_is_compared(bench: Bench, name: str) -> None:
    _, findings = bench.run(GOOD[name])
    claims = findings["claims"]
    signed = claims["nonce"] if name == "gpu" else claims["report_data"]
    if signed:
        _, findings = bench.run(GOOD[name], "--report-data", signed)
        assert findings["claims"]["bound_checked"]
    half = len(signed) // 4 * 2
    for wrong in (signed[:-2] + "ff", signed[:half], signed + "00"):
        # Left empty it is wrong use, also where the evidence signs nothing.
        if wrong not in ("", signed):
            _, findings = bench.run(GOOD[name], "--report-data", wrong)
            assert findings["code"] == "binding_mismatch"


@pytest.mark.parametrize("name", BOUND)
@pytest.mark.parametrize("listed", ["another", "nothing"])
def test_what_is_not_listed_is_refused(bench: Bench, name: str, listed: str) -> None:
    sample = GOOD[name]
    registers = registers_of(sample, bench.files(sample))
    changed = {key: "ab" * (len(value) // 2) for key, value in registers.items()}
    listing = [changed] if listed == "another" else []
    policy = bench.policy(sample, measurements={sample.tee: listing})
    status, findings = bench.run(sample, policy=policy)
    assert (status, findings["code"]) == (1, "measurement_not_allowed")


@pytest.mark.parametrize("name", ["snp v2 virtee", "tdx v4", "nitro 2025", "azure v2"])
def test_a_machine_that_is_denied_is_refused(bench: Bench, name: str) -> None:
    sample = GOOD[name]
    _, findings = bench.run(sample)
    platform = findings["claims"]["platform"]
    denied = bench.policy(sample, platforms={"deny": [platform]})
    _, findings = bench.run(sample, policy=denied)
    assert findings["code"] == "platform_denied"
    allowed = bench.policy(sample, platforms={"allow": [platform]})
    assert bench.run(sample, policy=allowed)[0] == 0


def flips(size: int) -> list[int]:
    """Return bits all over a file, its first and its last bytes among them."""
    step = max(size // 8, 1)
    return [*(8 * place + place % 8 for place in range(0, size, step)), 8 * size - 1]


RAW = ["snp v2 virtee", "snp v3 vlek", "tdx v4", "nitro 2025"]


@pytest.mark.parametrize("name", RAW)
def test_one_bit_flipped_anywhere_is_refused(bench: Bench, name: str) -> None:
    sample = GOOD[name]
    policy = bench.policy(sample)
    data = bench.read(sample.files["evidence"])
    for bit in flips(len(data)):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        path = bench.write("flipped", bytes(changed))
        status, findings = bench.run(sample, policy=policy, files={"evidence": path})
        assert (status, findings["code"] is None) == (1, False), bit


@pytest.mark.parametrize("name", RAW)
def test_bytes_too_many_or_too_few_are_malformed(bench: Bench, name: str) -> None:
    sample = GOOD[name]
    policy = bench.policy(sample)
    data = bench.read(sample.files["evidence"])
    for changed in (data + b"\x01", data[:-1], data[: len(data) // 2], b"\x00"):
        path = bench.write("changed", changed)
        _, findings = bench.run(sample, policy=policy, files={"evidence": path})
        assert findings["code"] == "malformed"


@pytest.mark.parametrize("option", ["vek", "chain", "crl"])
def test_an_endorsement_with_one_bit_flipped_is_refused(
    bench: Bench, option: str
) -> None:
    sample = GOOD["snp v2 virtee"]
    policy = bench.policy(sample)
    files = cpu_evidence(Tee.SEV_SNP, bench.files(sample))
    assert isinstance(files, SnpEvidence)
    data = {"vek": files.vek, "chain": files.ask, "crl": files.crl}[option]
    for bit in flips(len(data)):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        added = files.ark if option == "chain" else b""
        path = bench.write("flipped", bytes(changed) + added)
        status, _ = bench.run(sample, policy=policy, files={option: path})
        assert status == 1, bit


def dumped(data: bytes) -> bytes:
    lines = [
        f"{at:08x}: {data[at : at + 16].hex(' ', 2)}  {'.' * 16}"
        for at in range(0, len(data), 16)
    ]
    return "\n".join(lines).encode()


def listed(data: bytes) -> bytes:
    lines = [data[at : at + 16].hex(" ") for at in range(0, len(data), 16)]
    rows = [f"{at * 16:08x}  {line}  |{'.' * 16}|" for at, line in enumerate(lines)]
    return "\n".join([*rows, f"{len(data):08x}", ""]).encode()


WRITTEN: dict[str, Callable[[bytes], bytes]] = {
    "hex": lambda data: data.hex().encode(),
    "hex in upper case and lines": lambda data: (
        data.hex("\n", 32).upper().encode() + b"\r\n"
    ),
    "hex with 0x": lambda data: b"0x" + data.hex().encode(),
    "base64": base64.b64encode,
    "base64 in lines": base64.encodebytes,
    "base64url without padding": lambda data: base64.urlsafe_b64encode(data).rstrip(
        b"="
    ),
    "JSON": lambda data: json.dumps({"report": list(data)}).encode(),
    "pem": lambda data: pem(data, label="REPORT"),
}


UNREAD: dict[str, Callable[[bytes], bytes]] = {
    "bytes of a program": lambda data: b", ".join(b"0x%02x" % each for each in data),
    "xxd": dumped,
    "hexdump": listed,
    "numbers": lambda data: json.dumps(list(data)).encode(),
    "a text in quotes": lambda data: json.dumps(data.hex()).encode(),
    "base64 of hex": lambda data: base64.b64encode(data.hex().encode()),
}


WAYS = [
    *(("snp v2 virtee", way) for way in WRITTEN),
    *((name, way) for name in RAW[1:] for way in ("hex", "base64")),
]


@pytest.mark.parametrize(("name", "way"), WAYS)
def test_evidence_is_read_in_every_accepted_form(
    bench: Bench, name: str, way: str
) -> None:
    sample = GOOD[name]
    data = bench.read(sample.files["evidence"])
    path = bench.write("written", WRITTEN[way](data))
    assert bench.run(sample, files={"evidence": path})[0] == 0


@pytest.mark.parametrize("way", UNREAD)
def test_genuine_evidence_in_another_form_is_refused(bench: Bench, way: str) -> None:
    sample = GOOD["snp v2 virtee"]
    data = bench.read(sample.files["evidence"])
    path = bench.write("written", UNREAD[way](data))
    status, findings = bench.run(sample, files={"evidence": path})
    assert (status, findings["code"]) == (1, "malformed")
    assert FORMS in findings["detail"]


def chain_forms(ask: bytes, ark: bytes) -> dict[str, bytes]:
    return {
        "ARK first": pem(ark, ask),
        "DER": ask + ark,
        "DER, ARK first": ark + ask,
        "base64 of DER": base64.b64encode(ask + ark),
        "hexadecimal of DER": (ask + ark).hex().encode(),
        "PEM with remarks": b"issuer:\n" + pem(ask) + b"\nroot:\n" + pem(ark),
        "the ASK alone": pem(ask),
    }


@pytest.mark.parametrize("form", chain_forms(b"", b""))
def test_a_chain_is_read_in_every_accepted_form(bench: Bench, form: str) -> None:
    sample = GOOD["snp v2 virtee"]
    parts = cpu_evidence(Tee.SEV_SNP, bench.files(sample))
    assert isinstance(parts, SnpEvidence)
    path = bench.write("chain", chain_forms(parts.ask, parts.ark)[form])
    policy = None
    if form == "the ASK alone":  # then the policy has to bring the root itself
        root = pem_text(parts.ark)
        anchor = {"kind": "amd", "product": "Milan", "certificate": root}
        policy = bench.policy(sample, trust_anchors=[anchor])
    assert bench.run(sample, files={"chain": path}, policy=policy)[0] == 0


def test_the_hosts_table_brings_all_certificates(bench: Bench) -> None:
    sample = GOOD["snp v2 virtee"]
    parts = cpu_evidence(Tee.SEV_SNP, bench.files(sample))
    assert isinstance(parts, SnpEvidence)
    rows = (VCEK, parts.vek), (ASK, parts.ask), (ARK, parts.ark)
    path = bench.write("auxblob", certificate_table(*rows, swapped=False))
    named: dict[str, str | None] = {"vek": None, "chain": None, "certs": path}
    assert bench.run(sample, files=named)[0] == 0


def test_a_newer_tdx_quote_with_collateral_put_together(bench: Bench) -> None:
    """Quote v5: its TCB info is in the format of Intel's service."""
    collateral = json.loads(bench.read("tdx/v5-tcb-too-low-2026/collateral.json"))
    answer = bench.read("tdx/go-v5-2026/tcbinfo_response.json").decode()
    info = answer[answer.index(":") + 1 : answer.rindex(',"signature"')]
    collateral["tcb_info"] = info
    collateral["tcb_info_signature"] = json.loads(answer)["signature"]
    path = bench.write("collateral", json.dumps(collateral).encode())
    sample = Sample(
        tee="tdx",
        files={"evidence": "tdx/go-v5-2026/quote.bin"},
        at="2026-02-20T00:00:00Z",
    )
    status, findings = bench.run(sample, files={"collateral": path})
    assert (status, findings["code"]) == (0, None), findings


def test_a_quote_without_what_a_tool_appended_has_no_level(bench: Bench) -> None:
    sample, _ = BAD["tdx of no level"]
    data = bench.read(sample.files["evidence"])
    end = data.index(b"\nextra bytes")
    path = bench.write("quote", data[:end])
    registers = td_registers(data[:end])
    policy = bench.policy(GOOD["tdx v4"], measurements={"tdx": [registers]})
    _, findings = bench.run(sample, policy=policy, files={"evidence": path})
    assert findings["code"] == "tcb_too_low"


def azure(bench: Bench, name: str) -> Section:
    return cast("Section", json.loads(bench.read(GOOD[name].files["evidence"])))


def test_azure_evidence_in_separate_files(bench: Bench) -> None:
    sample, found = GOOD["azure v2"], azure(bench, "azure v2")
    quote = found["tpm_quote"]
    values = {"sha256": {str(i): value for i, value in enumerate(quote["pcrs"])}}
    files: dict[str, str | None] = {
        "evidence": bench.write("hcl", found["hcl_report"].encode()),
        "vek": bench.write("vcek", found["vcek"].encode()),
        "quote-message": bench.write("message", quote["message"].encode()),
        "quote-signature": bench.write("signature", quote["signature"].encode()),
        "pcrs": bench.write("pcrs", json.dumps(values).encode()),
    }
    assert bench.run(sample, files=files)[0] == 0


@pytest.mark.parametrize("part", ["pcrs", "message", "signature", "hcl_report", "vcek"])
def test_azure_evidence_with_a_part_changed_is_refused(bench: Bench, part: str) -> None:
    sample, found = GOOD["azure v2"], azure(bench, "azure v2")
    holder = found["tpm_quote"] if part in found["tpm_quote"] else found
    policy = bench.policy(sample)
    changed = copy.deepcopy(holder[part])
    if part == "pcrs":
        changed[7] = "00" * 32
    else:
        middle = len(changed) // 2
        swapped = "b" if changed[middle] == "a" else "a"
        changed = changed[:middle] + swapped + changed[middle + 1 :]
    holder[part] = changed
    path = bench.write("changed", json.dumps(found).encode())
    status, _ = bench.run(sample, policy=policy, files={"evidence": path})
    assert status == 1


def test_a_tpm_quote_in_the_files_of_tpm2_tools(bench: Bench) -> None:
    folder = "tpm/own-swtpm"
    sample = Sample(
        tee="tpm",
        files={
            "evidence": f"{folder}/quote.msg",
            "quote-signature": f"{folder}/quote.sig",
            "pcrs": f"{folder}/quote.pcrs",
            "ak": f"{folder}/ak.pem",
        },
        at=SEPTEMBER,
        policy={"environment": "development"},
    )
    status, findings = bench.run(sample)
    assert status == 0
    assert findings["claims"]["isolates"] is False
    assert set(findings["claims"]["registers"]) == {
        f"pcr{index}" for index in (0, 1, 2, 3, 4, 7, 11, 12)
    }


@pytest.mark.parametrize("bad", ["tpm", "emulated-sev-snp"])
def test_what_proves_nothing_is_no_production_policy(
    bench: Bench, bad: str, capsys: pytest.CaptureFixture[str]
) -> None:
    sample = GOOD["tpm"]
    policy = bench.policy(sample, environment="production", required_cpu_tees=[bad])
    path = str(bench.evidence / sample.files["evidence"])
    command = ["attest", "verify-evidence", "--tee", bad, "--evidence", path]
    assert main([*command, "--policy", policy]) == 2
    assert "needs environment: development" in capsys.readouterr().err


def test_no_socket_is_opened(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr("socket.socket", refuse)
    monkeypatch.setattr("socket.create_connection", refuse)
    monkeypatch.setattr("socket.getaddrinfo", refuse)
    for name in NAMES:
        assert bench.run(GOOD[name])[0] == 0
