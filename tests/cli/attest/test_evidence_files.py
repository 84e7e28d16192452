"""Evidence in files of every accepted form; all of it is emulated."""

import base64
import json
import struct
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
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
from curtilage.cli.attest.encodings import (
    FORMS,
    MAX_FILE_BYTES,
    decode_blob,
    decode_certificates,
    decode_der,
    decode_json,
    json_bytes,
)
from curtilage.cli.attest.evidence_files import (
    EvidenceFiles,
    cpu_evidence,
    device_evidence,
)
from curtilage.cli.attest.hints import with_hint
from curtilage.cli.attest.snp_certificate_table import HostTable, read_table
from curtilage.cli.attest.tpm_registers import read_values
from curtilage.cli.main import main
from curtilage_dev.deployment import MEASUREMENT
from curtilage_dev.emulated.machines import (
    Machine,
    make_gpus,
    make_machine,
    registers_of,
)
from support.evidence_policies import SNP, SNP_MINIMUM, write_policy
from support.memory_enclave import NOW

AT = f"{NOW:%Y-%m-%dT%H:%M:%SZ}"
DATA = bytes(64)
WAYS: Mapping[str, Callable[[bytes], bytes]] = {
    "raw": bytes,
    "hex": lambda data: data.hex().encode(),
    "HEX": lambda data: data.hex().upper().encode() + b"\r\n",
    "0x": lambda data: b"0x" + data.hex().encode(),
    "spaces": lambda data: data.hex(" ").encode(),
    "lines": lambda data: data.hex("\n", -4).encode() + b"\n",
    "base64": base64.b64encode,
    "base64 lines": base64.encodebytes,
    "base64url": lambda data: base64.urlsafe_b64encode(data).rstrip(b"="),
    "PEM": lambda data: pem(data, label="REPORT"),
    "bom": lambda data: b"\xef\xbb\xbf" + data.hex().encode(),
}
BINARY = st.binary(min_size=64, max_size=200).filter(lambda data: max(data) > 0x7F)


def refused_form(call: Callable[[], object]) -> None:
    """The refusal names the accepted forms."""
    with pytest.raises(RefusedError) as caught:
        call()
    assert caught.value.code is RefusalCode.MALFORMED
    assert FORMS in caught.value.detail


def refused(call: Callable[[], object]) -> RefusalCode:
    with pytest.raises(RefusedError) as caught:
        call()
    return caught.value.code


# --- encodings ---------------------------------------------------------------


@given(BINARY, st.sampled_from(sorted(WAYS)))
def test_every_way_of_writing_means_the_same(data: bytes, way: str) -> None:
    assert decode_blob(WAYS[way](data), "file") == data


@given(st.binary(max_size=300))
def test_any_bytes_are_decoded_or_refused(data: bytes) -> None:
    for decode in (decode_blob, decode_certificates, decode_der, decode_json):
        with suppress(RefusedError):
            decode(data, "file")


@given(st.text(alphabet="0123456789abcdef \n:*|.=[]{},-xX", max_size=200))
def test_any_text_is_decoded_or_refused(text: str) -> None:
    with suppress(RefusedError):
        decode_blob(text.encode(), "file")
    with suppress(RefusedError):
        decode_certificates(text.encode(), "file")


# Forms that this command once read. Each is one command away from an accepted one.
LISTED = bytes(range(0x70, 0x90)) + b"\x01"
REMOVED = {
    "xxd": b'00000000: 0011 2233 4455 6677 8899 aabb ccdd eeff  .."3DUfw........\n'
    b"00000010: 0102                                     ..\n",
    "hexdump -C": (
        b'00000000  00 11 22 33 44 55 66 77  88 99 aa bb cc dd ee ff  |.."3DUfw|\n'
        b"00000010  01 02                                             |..|\n"
        b"00000012\n"
    ),
    "hexdump": b"0000000 1100 3322 5544 7766 9988 bbaa ddcc ffee\n0000010 0201\n"
    b"0000012\n",
    "od -A x -t x1": b"000000 00 11 22 33 44 55 66 77 88 99 aa bb cc dd ee ff\n"
    b"000010 01 02\n000012\n",
    "od -A x -t x4": b"000000 33221100 77665544 bbaa9988 ffeeddcc\n000010\n",
    "od -t o2": b"0000000 010421 031463\n0000004\n",
    "folded": b"000000 00 00 00 00\n*\n000040 01\n000041\n",
    "a C array": b"{" + b", ".join(b"0x%02x" % each for each in LISTED) + b"}",
    "commas": b", ".join(b"0x%02x" % each for each in LISTED),
    "numbers with 0x": b" ".join(b"0x%02x" % each for each in LISTED),
    "numbers with 0X": b"\n".join(b"0X%02X" % each for each in LISTED),
    "colons": LISTED.hex(":").encode(),
    "a text in quotes": json.dumps(LISTED.hex()).encode(),
    "a text in quotes twice": json.dumps(json.dumps(LISTED.hex())).encode(),
    "an array of numbers": json.dumps(list(LISTED)).encode(),
    "an array of texts": json.dumps([base64.b64encode(LISTED).decode()]).encode(),
    "base64 of hexadecimal": base64.b64encode(LISTED.hex().encode()),
    "base64 of base64": base64.b64encode(base64.b64encode(LISTED)),
    "hexadecimal of base64": base64.b64encode(LISTED).hex().encode(),
    "hexadecimal twice": LISTED.hex().encode().hex().encode(),
    "percent-encoded": b"-----BEGIN%20CERTIFICATE-----%0AMAA%3D",
    "a remark": b"report: " + LISTED.hex().encode(),
}


@pytest.mark.parametrize("form", REMOVED)
@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"], ids=["LF", "CRLF"])
def test_a_form_that_is_not_accepted_is_refused_with_those_that_are(
    form: str, line_end: bytes
) -> None:
    file = REMOVED[form].replace(b"\n", line_end)
    refused_form(lambda: decode_blob(file, "file"))
    refused_form(lambda: decode_certificates(file, "file"))
    for tee in Tee:
        refused_form(partial(cpu_evidence, tee, EvidenceFiles(evidence=file)))


def test_a_file_too_large_is_refused_unread() -> None:
    large = bytes(MAX_FILE_BYTES + 1)
    assert refused(lambda: decode_blob(large, "file")) is RefusalCode.TOO_LARGE
    text = b"{" + b" " * MAX_FILE_BYTES
    assert refused(lambda: decode_json(text, "file")) is RefusalCode.TOO_LARGE


@pytest.mark.parametrize(
    "text",
    [
        *(b'{"a":1,"a":2}', b"{", b"[{},{}]", b"[{]", b'{"a":' + b"[" * 5000),
        *(b"[\n{},\n{}\n]", b"[\n{\n]", b'[\n{"a":1,"a":2}]'),
    ],
    ids=["twice", "cut", "two", "broken", "deep", "two lines", "lines", "twice, lines"],
)
def test_json_that_is_not_one_object_is_refused(text: bytes) -> None:
    code = refused(lambda: decode_json(text, "file", listed=True))
    assert code is RefusalCode.MALFORMED
    if text.startswith(b"["):
        assert decode_json(text, "file") is None
        refused_form(lambda: decode_blob(text, "file"))


@pytest.mark.parametrize(
    "value",
    [None, 1, {}, [256], [-1], ["a"], [True], "é", list(b"3031"), "\x01\x02"],
    ids=repr,
)
def test_a_json_member_that_is_no_bytes_is_refused(value: object) -> None:
    assert refused(lambda: json_bytes(value, "member")) is RefusalCode.MALFORMED


def pem(*ders: bytes, label: str = "CERTIFICATE") -> bytes:
    return b"".join(
        f"-----BEGIN {label}-----\n{base64.encodebytes(der).decode()}"
        f"-----END {label}-----\n".encode()
        for der in ders
    )


ONE, TWO = b"\x30\x82\x01\x00" + bytes(256), b"\x30\x03abc"


@pytest.mark.parametrize(
    "data",
    [
        pem(ONE, TWO),
        b"subject=/CN=one\n" + pem(ONE) + b"\nand then\n" + pem(TWO),
        pem(ONE, TWO).replace(b"\n", b"\r\n"),
        ONE + TWO,
        base64.b64encode(ONE + TWO),
        (ONE + TWO).hex().encode(),
    ],
    ids=["PEM", "remarks", "CRLF", "DER", "b64", "hex"],
)
def test_certificates_are_found_in_every_form(data: bytes) -> None:
    assert decode_certificates(data, "chain") == (ONE, TWO)


@pytest.mark.parametrize(
    "data",
    [
        base64.b64encode(pem(ONE, TWO)),
        pem(ONE, TWO).hex().encode(),
        json.dumps([base64.b64encode(each).decode() for each in (ONE, TWO)]).encode(),
        json.dumps([pem(ONE).decode(), pem(TWO).decode()]).encode(),
        json.dumps(list(ONE + TWO)).encode(),
        json.dumps(pem(ONE, TWO).decode()).encode(),
        base64.b64encode(base64.b64encode(ONE)),
    ],
    ids=["b64 PEM", "hex PEM", "list", "PEMs", "numbers", "quotes", "b64 twice"],
)
def test_certificates_in_other_forms_are_refused(data: bytes) -> None:
    refused_form(lambda: decode_certificates(data, "chain"))


def test_only_nvidias_base64_of_pem_is_decoded_twice() -> None:
    inner = pem(ONE, TWO)
    encoded = base64.b64encode(inner)
    assert decode_certificates(encoded, "chain", wrapped=True) == (ONE, TWO)
    for wrong in (
        base64.b64encode(encoded),
        base64.b64encode(ONE.hex().encode()),
        base64.b64encode(base64.b64encode(ONE)),
        base64.b64encode(json.dumps([inner.decode()]).encode()),
    ):
        refused_form(partial(decode_certificates, wrong, "chain", wrapped=True))


@pytest.mark.parametrize(
    "data",
    [
        pem(ONE)[:-20],
        pem(ONE) + b"-----BEGIN CERTIFICATE-----\n",
        ONE[:-1],
        ONE + b"\0",
        b"\x30\x80" + bytes(9),
        b"\x30\x85" + bytes(9),
        b'[1, "x"]',
    ],
    ids=["half", "open", "cut", "tail", "indefinite", "length", "mixed"],
)
def test_half_a_certificate_is_refused(data: bytes) -> None:
    assert refused(lambda: decode_certificates(data, "chain")) is RefusalCode.MALFORMED


def test_too_many_certificates_are_refused() -> None:
    many = TWO * 17
    assert refused(lambda: decode_certificates(many, "x")) is RefusalCode.TOO_LARGE


def test_where_one_belongs_two_are_refused() -> None:
    assert decode_der(b"", "VEK") == b""
    assert decode_der(pem(ONE), "VEK") == ONE
    assert refused(lambda: decode_der(ONE + TWO, "VEK")) is RefusalCode.MALFORMED


# --- the host's table of certificates ----------------------------------------

GUIDS = (
    "63da758d-e664-4564-adc5-f4b93be8accd",
    "4ab7b379-bbac-4fe4-a02f-05aef327c782",
    "c0b406a4-a803-4952-9743-3fb6014cd0ae",
)


def table(*ders: bytes, swapped: bool = False, end: bool = True) -> bytes:
    at, rows = 24 * (len(ders) + 1), b""
    for guid, der in zip(GUIDS, ders, strict=False):
        name = uuid.UUID(guid)
        octets = name.bytes_le if swapped else name.bytes
        rows += octets + struct.pack("<II", at, len(der))
        at += len(der)
    return rows + (bytes(24) if end else b"") + b"".join(ders)


@pytest.mark.parametrize("swapped", [False, True])
def test_the_hosts_table_is_read_in_either_byte_order(swapped: bool) -> None:
    found = HostTable(certificates=(ONE, TWO))
    assert read_table(table(ONE, TWO, swapped=swapped)) == found


def test_what_is_no_table_is_told_apart() -> None:
    assert read_table(ONE) is None
    assert read_table(pem(ONE)) is None


def test_a_table_that_points_outside_is_refused() -> None:
    assert refused(lambda: read_table(table(ONE)[:-1])) is RefusalCode.MALFORMED
    row = table(TWO, end=False)[:24]
    assert refused(lambda: read_table(row)) is RefusalCode.MALFORMED
    assert refused(lambda: read_table(row * 17)) is RefusalCode.MALFORMED


# --- register values ---------------------------------------------------------

PCRS = tuple((index, bytes([index]) * 32) for index in range(24))
FEW = (PCRS[0], PCRS[4], PCRS[7])


def nothing_selected() -> tuple[int, ...]:
    raise AssertionError("the file says which registers")


def serialized(pcrs: tuple[tuple[int, bytes], ...]) -> bytes:
    """What tpm2-tools write: the structures as they lie in memory."""
    mask = sum(1 << index for index, _ in pcrs).to_bytes(4, "little")
    selection = struct.pack("<I", 1) + struct.pack("<HB4sx", 0x0B, 3, mask)
    selection = selection.ljust(4 + 16 * 8, b"\0")
    lists = [pcrs[at : at + 8] for at in range(0, len(pcrs), 8)]
    body = struct.pack("<I", len(lists))
    for each in lists:
        body += struct.pack("<I", len(each))
        values = b"".join(struct.pack("<H64s", len(value), value) for _, value in each)
        body += values.ljust(8 * 66, b"\0")
    return selection + body


@pytest.mark.parametrize(
    "file",
    [
        serialized(FEW),
        json.dumps({str(i): v.hex() for i, v in FEW}).encode(),
        json.dumps({"sha256": {f"pcr{i}": v.hex() for i, v in FEW}}).encode(),
    ],
    ids=["tpm2_quote", "JSON", "JSON with bank"],
)
def test_register_values_with_indices(file: bytes) -> None:
    assert read_values(file, selected=nothing_selected) == FEW


LINES = b"".join(b"  %-2d: 0x%s\n" % (i, v.hex().upper().encode()) for i, v in FEW)


@pytest.mark.parametrize(
    "file",
    [
        LINES,
        b"sha256:\n" + LINES,
        b"sha1:\n  0 : 0x00\nsha256:\n" + LINES,
        b"quoted: ff544347\nsignature:\n  alg: rsassa\n  sig: 00\npcrs:\n  sha256:\n"
        + LINES
        + b"calcDigest: 00\n",
        ",".join(f"pcr{i}={v.hex()}" for i, v in FEW).encode(),
        f"pcr0={PCRS[0][1].hex()}".encode(),
    ],
    ids=["lines", "a bank", "tpm2_pcrread", "tpm2_quote", "commas", "one"],
)
def test_register_values_as_printed_text_are_refused(file: bytes) -> None:
    refused_form(lambda: read_values(file, selected=lambda: (0, 4, 7)))


def test_many_register_values_of_tpm2_tools() -> None:
    assert read_values(serialized(PCRS), selected=nothing_selected) == PCRS


def test_register_values_one_after_another() -> None:
    every = b"".join(value for _, value in PCRS)
    few = b"".join(value for _, value in FEW)
    assert read_values(every, selected=nothing_selected) == PCRS
    assert read_values(few, selected=lambda: (0, 4, 7)) == FEW
    assert read_values(few.hex().encode(), selected=lambda: (0, 4, 7)) == FEW
    values = json.dumps([value.hex() for _, value in PCRS]).encode()
    assert read_values(values, selected=nothing_selected) == PCRS
    assert read_values(b"", selected=nothing_selected) == ()


@pytest.mark.parametrize(
    "file",
    [
        bytes(31),
        bytes(64),
        serialized(FEW)[:-1],
        serialized(FEW) + b"\0",
        b"0: 0x123",
        b'{"one": "00"}',
        b'{"0": ',
        b'{"100": "00"}',
    ],
    ids=["length", "count", "cut", "tail", "half", "name", "broken", "number"],
)
def test_register_values_that_fit_nothing_are_refused(file: bytes) -> None:
    code = refused(lambda: read_values(file, selected=lambda: (0, 4, 7)))
    assert code is RefusalCode.MALFORMED


@given(st.binary(max_size=900))
def test_any_register_values_are_read_or_refused(file: bytes) -> None:
    with suppress(RefusedError):
        read_values(file, selected=lambda: (0,))


# --- whole pieces, through the command line ----------------------------------


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
    """Write evidence as tools do, each part in another way."""
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


def told(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    printed: dict[str, Any] = json.loads(capsys.readouterr().out)
    return printed


def test_emulated_evidence_in_files_is_accepted(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    files = files_of(bench.machine.evidence(DATA, now=NOW))
    assert bench.run(files) == 0, told(capsys)
    claims = told(capsys)["claims"]
    assert claims["emulated"]
    assert not claims["isolates"]
    assert bench.run(files, "--report-data", claims["report_data"]) == 0
    assert told(capsys)["claims"]["bound_checked"]
    assert bench.run(files, "--report-data", "ff" * 64) == 1
    assert told(capsys)["code"] == "binding_mismatch"


MISSING = {
    ("sev-snp", "vek"): ("chain_invalid", "--vek"),
    ("sev-snp", "chain"): ("chain_invalid", "--chain"),
    ("azure-snp", "chain"): ("chain_invalid", "--chain"),
    ("tdx", "collateral"): ("collateral_invalid", "--collateral"),
}


@pytest.mark.parametrize("missing", MISSING, ids=" ".join)
def test_what_is_missing_is_named(
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
    refusal = told(capsys)
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
    refusal = told(capsys)
    assert refusal["code"] == "malformed"
    assert "with --quote-message" in refusal["detail"]
    assert bench.run({**files, "evidence": b"no blob at all"}) == 1
    assert "--quote-message" not in told(capsys)["detail"]


def test_what_is_there_is_not_asked_for(
    machines: dict[str, Machine], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bench = Bench(machines["sev-snp"], tmp_path)
    files = files_of(bench.machine.evidence(DATA, now=NOW))
    for name in ("vek", "chain"):
        assert bench.run({**files, name: pem(ONE)}) == 1
        refusal = told(capsys)
        assert refusal["code"] in {"chain_invalid", "untrusted_root"}
        assert " with --" not in refusal["detail"]
    bench = Bench(machines["tdx"], tmp_path)
    assert bench.run({"evidence": bytes(2000)}) == 1
    assert " with --" not in told(capsys)["detail"]


def test_a_refusal_keeps_its_code_and_steps(machines: dict[str, Machine]) -> None:
    found = machines["sev-snp"].evidence(DATA, now=NOW)
    assert isinstance(found, SnpEvidence)
    (gpu,) = make_gpus(1, now=NOW).evidence(DATA)
    rootless, no_chain = replace(found, ark=b""), replace(gpu, chain=())
    steps = (Step(number=1, name="root", passed=False, detail="seen"),)
    for evidence, code, hint in (
        (rootless, RefusalCode.UNTRUSTED_ROOT, "; bring the chip's ASK"),
        (no_chain, RefusalCode.CHAIN_INVALID, "; bring the GPU's five"),
        (rootless, RefusalCode.CHAIN_INVALID, ""),
        (replace(rootless, vek=b""), RefusalCode.MALFORMED, ""),
        (gpu, RefusalCode.CHAIN_INVALID, ""),
        (no_chain, RefusalCode.MALFORMED, ""),
        (machines["nitro"].evidence(DATA, now=NOW), RefusalCode.CHAIN_INVALID, ""),
    ):
        refusal = RefusedError(code, "seen", step="root", steps=steps)
        told_ = with_hint(refusal, evidence)
        assert (told_.code, told_.step, told_.steps) == (code, "root", steps)
        assert told_.detail.startswith(f"seen{hint}")
        assert bool(hint) or told_.detail == "seen"


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
        refusal = told(capsys)
        assert refusal["code"] == "malformed"
        assert words in refusal["detail"]
    files["collateral"] = json.dumps(
        {**fields, "tcb_info": fields["tcb_info"].replace(":", ": ", 1)}
    ).encode()
    assert bench.run(files) == 1
    assert told(capsys)["code"] == "collateral_invalid"


def test_our_own_form_is_accepted(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    evidence = bench.machine.evidence(DATA, now=NOW)
    assert bench.run({"evidence": encode_cpu_evidence(evidence)}) == 0, told(capsys)
    capsys.readouterr()
    beside = {"tdx": "collateral", "sev-snp": "vek", "azure-snp": "vek"}
    name = beside.get(bench.machine.tee.value.removeprefix("emulated-"))
    if name is not None:
        own = {"evidence": encode_cpu_evidence(evidence), name: b"unread"}
        assert bench.run(own) == 1
        assert told(capsys)["code"] == "malformed"


def test_evidence_of_another_kind_is_refused(
    bench: Bench, machines: dict[str, Machine], capsys: pytest.CaptureFixture[str]
) -> None:
    other = machines["nitro" if bench.machine is machines["tdx"] else "tdx"]
    evidence = other.evidence(DATA, now=NOW)
    assert bench.run({"evidence": encode_cpu_evidence(evidence)}) == 1
    assert told(capsys)["code"] == "malformed"


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
    assert told(capsys)["code"] in {"untrusted_root", "chain_invalid"}


def test_a_year_later_it_is_refused(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    files = files_of(bench.machine.evidence(DATA, now=NOW))
    assert bench.run(files, at="2028-11-21T12:00:00Z") == 1
    assert told(capsys)["code"] in {
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
def test_wrong_use_is_told_apart_from_a_refusal(
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


def test_a_person_is_told_in_words(
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
    told_ = capsys.readouterr()
    assert "REFUSED: expired_endorsement" in told_.err
    assert "certificate's time is over" in told_.err


def test_a_file_that_is_nothing_of_this_kind_is_refused(
    machines: dict[str, Machine],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A root given where none is read would look as if it had been compared."""
    bench = Bench(machines["nitro"], tmp_path)
    files = files_of(bench.machine.evidence(DATA, now=NOW))
    assert bench.run(files) == 0
    capsys.readouterr()
    assert bench.run({**files, "chain": b"any"}) == 2
    assert "--chain is nothing of nitro's, which takes none" in capsys.readouterr().err


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
        # The chain holds and the report is signed; then its driver is looked at.
        assert told(capsys)["step"] == "GPU driver and VBIOS"
    assert main([*command, "--certs", *paths[:-1]]) == 1
    assert told(capsys)["code"] == "chain_invalid"
