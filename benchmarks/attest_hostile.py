"""The cost of hostile bytes for a verifier: peak memory, and processor time.

Each input is as large as its cap allows and in the worst form for its parser. Each runs
in its own process, forked from this one, so that leftovers of an earlier one hide
nothing: the child resets the kernel's high-water mark, verifies, and reports by how
much its resident memory rose. That includes the libraries in C and Rust. Python's own
share is reported as well.
"""

import json
import os
import resource
import struct
import time
import tracemalloc
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Final, TypeVar

from benchmarks.report import Table
from curtilage.attest.errors import RefusedError
from curtilage.attest.evidence import (
    MAX_BUNDLE_BYTES,
    MAX_CERTIFICATE_BYTES,
    MAX_CHECKPOINT_BYTES,
    MAX_COLLATERAL_BYTES,
    MAX_CRL_BYTES,
    MAX_DOCUMENT_BYTES,
    MAX_GPU_REPORT_BYTES,
    MAX_HCL_BYTES,
    MAX_PROOF_BYTES,
    MAX_QUOTE_BYTES,
    AzureEvidence,
    CpuEvidence,
    GpuEvidence,
    NitroEvidence,
    SnpEvidence,
    TdxEvidence,
    Tee,
)
from curtilage.attest.evidence_json import parse_bundle
from curtilage.attest.expectations import Expectations
from curtilage.attest.log.note import parse_checkpoint, parse_proof
from curtilage.attest.standalone import verify_device, verify_evidence
from curtilage_dev.emulated.machines import Gpus, Machine

AIM_MIB: Final = 64.0
AIM_S: Final = 1.0
MEBIBYTE: Final = 1024 * 1024
KIBIBYTE: Final = 1024
# The child's limit before the kernel stops it: a broken bound must show in the table,
# not take the machine down.
CEILING_BYTES: Final = 4 * 1024 * MEBIBYTE
REPORT_DATA: Final = bytes(64)

Operation = Callable[[], object]
_EvidenceT = TypeVar("_EvidenceT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """Genuine-looking evidence to spoil, and the rules it is held against.

    Attributes:
        machines: one of each kind.
        rules: what accepts each kind's evidence.
        gpus: one GPU.
        gpu_rules: what accepts its evidence.
        now: the moment at which everything is fresh.
    """

    machines: Mapping[Tee, Machine]
    rules: Mapping[Tee, Expectations]
    gpus: Gpus
    gpu_rules: Expectations
    now: datetime


def measure_hostile(targets: Targets) -> Table:
    """Run every hostile input once, each in a process of its own."""
    rows: list[tuple[str | float, ...]] = []
    for name, operation in _inputs(targets).items():
        measured = _in_a_child(operation)
        rows.append(
            (
                name,
                measured["resident"] / MEBIBYTE,
                measured["python"] / MEBIBYTE,
                measured["seconds"] * 1000,
                "refused" if measured["refused"] else "accepted",
            )
        )
    return Table(
        title=f"Hostile input: at most {AIM_MIB:.0f} MiB and {AIM_S:.0f} s",
        columns=("input", "memory MiB", "of it Python's", "CPU ms", "outcome"),
        rows=tuple(rows),
        note="by how much resident memory rose at most, in a process of its own "
        "(includes libraries loaded on the way); CPU time of a second child, without "
        "tracing",
    )


def _inputs(targets: Targets) -> dict[str, Operation]:
    return (
        _bundles()
        | _log_inputs()
        | _snp_inputs(targets)
        | _tdx_inputs(targets)
        | _nitro_inputs(targets)
        | _azure_inputs(targets)
        | _gpu_inputs(targets)
    )


def _bundles() -> dict[str, Operation]:
    size = MAX_BUNDLE_BYTES
    pairs = ",".join(f'"k{number}":0' for number in range(size // 11))
    shapes = {
        "bundle: 256 KiB of [": b"[" * size,
        'bundle: 256 KiB of {"a":': b'{"a":' * (size // 5),
        "bundle: an object of 20,000 keys": f"{{{pairs}}}".encode()[:size],
        "bundle: one number of 256 KiB": b'{"v":' + b"9" * (size - 6) + b"}",
        "bundle: 16 MiB": b"[" * 16 * MEBIBYTE,
    }
    return {name: _parsing(parse_bundle, data) for name, data in shapes.items()}


def _log_inputs() -> dict[str, Operation]:
    head = "c2sp.org/tlog-proof@v1\nindex 1\n"
    hashes = ("A" * 43 + "=\n") * (MAX_PROOF_BYTES // 45)
    body = "origin\n1\n" + "A" * 43 + "=\n\n"
    line = "\u2014 name " + "A" * 96 + "\n"
    signatures = line * (MAX_CHECKPOINT_BYTES // len(line.encode()))
    return {
        "proof: 32 KiB of hashes": lambda: parse_proof(head + hashes + "\n" + body),
        "checkpoint: 24 KiB of signatures": lambda: parse_checkpoint(body + signatures),
    }


def _snp_inputs(targets: Targets) -> dict[str, Operation]:
    evidence = _evidence(targets, Tee.EMULATED_SEV_SNP, SnpEvidence)
    nested = _nested_der(MAX_CERTIFICATE_BYTES)
    spoiled = {
        "SNP: a chain of nested DER": replace(evidence, vek=nested, ask=nested),
        "SNP: RSA exponent of 2 KiB": replace(evidence, ask=_stretched(evidence.ask)),
        "SNP: 24 KiB of nested DER as CRL": replace(
            evidence, crl=_nested_der(MAX_CRL_BYTES)
        ),
        "SNP: report of 4 KiB": replace(evidence, report=b"\3" * 4096),
    }
    return _verifying(targets, Tee.EMULATED_SEV_SNP, spoiled)


def _tdx_inputs(targets: Targets) -> dict[str, Operation]:
    evidence = _evidence(targets, Tee.EMULATED_TDX, TdxEvidence)
    levels = json.loads(evidence.collateral)
    info = json.loads(levels["tcb_info"])
    # As many levels as fit; the signature no longer fits, which is detected only after
    # the parser has read all of it.
    level = info["tcbLevels"][0]
    room = MAX_COLLATERAL_BYTES - len(evidence.collateral)
    info["tcbLevels"] = [level] * (room // (len(json.dumps(level)) * 5 // 4))
    levels["tcb_info"] = json.dumps(info)
    deep = {**levels, "tcb_info": "[" * 30 * KIBIBYTE}
    pem = b"-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n"
    tail = pem * ((MAX_QUOTE_BYTES - len(evidence.quote)) // len(pem))
    spoiled = {
        "TDX: 48 KiB of TCB levels": replace(
            evidence, collateral=json.dumps(levels).encode()
        ),
        "TDX: TCB info of 30 Ki [": replace(
            evidence, collateral=json.dumps(deep).encode()
        ),
        "TDX: 48 KiB of [ as collateral": replace(
            evidence, collateral=b"[" * MAX_COLLATERAL_BYTES
        ),
        "TDX: a quote with 150 more certificates": replace(
            evidence, quote=evidence.quote + tail
        ),
        "TDX: a quote that claims 4 GiB": replace(
            evidence,
            quote=evidence.quote[:632] + b"\xff" * 4 + evidence.quote[636:],
        ),
    }
    return _verifying(targets, Tee.EMULATED_TDX, spoiled)


def _nitro_inputs(targets: Targets) -> dict[str, Operation]:
    evidence = _evidence(targets, Tee.EMULATED_NITRO, NitroEvidence)
    size = MAX_DOCUMENT_BYTES
    documents = {
        "CBOR: 32 KiB of arrays in arrays": b"\x81" * size,
        "CBOR: arrays that never end": b"\x9f" * size,
        "CBOR: an array of 2^64 items": b"\x9b" + b"\xff" * 8,
        "CBOR: a string of 2^63 bytes": b"\x5b\x7f" + b"\xff" * 7,
        "CBOR: 32 KiB of empty maps": b"\x99\x7f\xff" + b"\xa0" * (size - 3),
        "CBOR: tags of tags": b"\xc1" * size,
        "CBOR: a big number of 32 KiB": b"\xc2\x59\x7f\xf0" + b"\xff" * 0x7FF0,
    }
    spoiled: dict[str, CpuEvidence] = {
        name: replace(evidence, document=data) for name, data in documents.items()
    }
    return _verifying(targets, Tee.EMULATED_NITRO, spoiled)


def _azure_inputs(targets: Targets) -> dict[str, Operation]:
    evidence = _evidence(targets, Tee.EMULATED_AZURE_SNP, AzureEvidence)
    start = evidence.hcl.index(b'{"')
    room = MAX_HCL_BYTES - start
    length = struct.pack("<I", room)
    head = evidence.hcl[: start - 4] + length
    spoiled = {
        "Azure: runtime data of nested arrays": replace(
            evidence, hcl=head + b"[" * room
        ),
        "Azure: runtime data of many keys": replace(
            evidence, hcl=head + (b'{"keys":[' + b'{"kid":"a"},' * room)[:room]
        ),
    }
    return _verifying(targets, Tee.EMULATED_AZURE_SNP, spoiled)


def _gpu_inputs(targets: Targets) -> dict[str, Operation]:
    evidence = targets.gpus.evidence(REPORT_DATA)[0]
    nested = _nested_der(MAX_CERTIFICATE_BYTES)
    many = evidence.report[:37] + b"\x11\x60\0\0\xff\xff\xff\xff"
    spoiled = {
        "GPU: 255 blocks and 32 KiB": replace(
            evidence, report=many + b"\1" * (MAX_GPU_REPORT_BYTES - len(many))
        ),
        "GPU: eight certificates of nested DER": replace(evidence, chain=(nested,) * 8),
    }
    return {name: _device(targets, each) for name, each in spoiled.items()}


def _device(targets: Targets, evidence: GpuEvidence) -> Operation:
    rules, now = targets.gpu_rules, targets.now
    return lambda: verify_device(evidence, rules, now=now, nonce=None)


def _verifying(
    targets: Targets, tee: Tee, spoiled: Mapping[str, CpuEvidence]
) -> dict[str, Operation]:
    return {name: _cpu(targets, tee, each) for name, each in spoiled.items()}


def _cpu(targets: Targets, tee: Tee, evidence: CpuEvidence) -> Operation:
    rules, now = targets.rules[tee], targets.now
    return lambda: verify_evidence(evidence, rules, now=now, bound=None)


def _parsing(parse: Callable[[bytes], object], data: bytes) -> Operation:
    return lambda: parse(data)


def _evidence(targets: Targets, tee: Tee, kind: type[_EvidenceT]) -> _EvidenceT:
    evidence = targets.machines[tee].evidence(REPORT_DATA, now=targets.now)
    if not isinstance(evidence, kind):
        raise TypeError(f"not evidence of the kind {tee}")
    return evidence


def _nested_der(size: int) -> bytes:
    """Wrap sequences in sequences until there is no more room."""
    data = b""
    while len(data) + 4 <= size:
        head = b"\x30\x82" + struct.pack(">H", len(data))
        data = head + data
    return data


def _stretched(certificate: bytes) -> bytes:
    """Put a long public exponent in the place of 65537; the lengths no longer fit."""
    return certificate.replace(
        b"\x02\x03\x01\x00\x01", b"\x02\x82\x08\x00" + b"\x7f" * 2048
    )


def _in_a_child(operation: Operation) -> Mapping[str, float]:
    """Run once for memory and once more for time."""
    memory = _forked(lambda: _memory_of(operation))
    return memory | _forked(lambda: _time_of(operation))


def _forked(measure: Callable[[], Mapping[str, float]]) -> dict[str, float]:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            resource.setrlimit(resource.RLIMIT_AS, (CEILING_BYTES, CEILING_BYTES))
            os.write(write, json.dumps(measure()).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        report = pipe.read()
    _, status = os.waitpid(child, 0)
    if status != 0:
        raise RuntimeError("a hostile input ended the process that verified it")
    measured: dict[str, float] = json.loads(report)
    return measured


def _memory_of(operation: Operation) -> Mapping[str, float]:
    Path("/proc/self/clear_refs").write_text("5", "ascii")
    before = _status("VmRSS")
    tracemalloc.start()
    refused = _run(operation)
    python = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return {
        "resident": _status("VmHWM") - before,
        "python": python,
        "refused": float(refused),
    }


def _time_of(operation: Operation) -> Mapping[str, float]:
    started = time.process_time()
    _run(operation)
    return {"seconds": time.process_time() - started}


def _run(operation: Operation) -> bool:
    try:
        operation()
    except RefusedError:
        return True
    return False


def _status(name: str) -> int:
    for line in Path("/proc/self/status").read_text("ascii").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * KIBIBYTE
    raise OSError(f"the kernel does not report {name}")
