"""Whatever a parser is given: a value or a refusal, within 64 MiB.

Each input is as large as its parser reads and of the shape that it likes least.
Each is tried in a process of its own, which the kernel denies more memory, so
that what libraries in C and Rust take counts as well.
"""

import json
import os
import resource
import signal
import struct
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime
from functools import partial

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from curtilage.attest.azure.hcl import parse_hcl, parse_runtime_data
from curtilage.attest.encoding.cbor import decode
from curtilage.attest.encoding.cose import parse_cose_sign1
from curtilage.attest.errors import RefusedError
from curtilage.attest.evidence import (
    MAX_BUNDLE_BYTES,
    MAX_CERTIFICATE_BYTES,
    MAX_CHECKPOINT_BYTES,
    MAX_COLLATERAL_BYTES,
    MAX_CPU_EVIDENCE_BYTES,
    MAX_CRL_BYTES,
    MAX_DEVICE_EVIDENCE_BYTES,
    MAX_DOCUMENT_BYTES,
    MAX_GPU_REPORT_BYTES,
    MAX_HCL_BYTES,
    MAX_MANIFEST_BYTES,
    MAX_PROOF_BYTES,
    MAX_QUOTE_BYTES,
    MAX_TPM_MESSAGE_BYTES,
    SnpEvidence,
)
from curtilage.attest.evidence_json import (
    encode_bundle,
    parse_bundle,
    parse_cpu_evidence,
    parse_device_evidence,
)
from curtilage.attest.log.heads import MAX_HISTORY_BYTES, parse_history
from curtilage.attest.log.manifest import parse_manifest
from curtilage.attest.log.note import parse_checkpoint, parse_proof
from curtilage.attest.log.witness_policy import MAX_POLICY_BYTES, parse_policy
from curtilage.attest.nitro.document import parse_nitro_document
from curtilage.attest.nvidia.dice import DICE_TCB_INFO, firmware_id
from curtilage.attest.nvidia.spdm import parse_spdm_report
from curtilage.attest.nvidia.verify import refuse_token
from curtilage.attest.sev_snp.certificates import parse_certificate
from curtilage.attest.sev_snp.report import parse_report
from curtilage.attest.tdx.certificates import parse_platform
from curtilage.attest.tdx.collateral import parse_collateral
from curtilage.attest.tdx.quote import parse_quote
from curtilage.attest.tpm.quote import parse_attest
from curtilage.attest.verify import verify
from curtilage.attest.x509.certificates import parse_revocation_list
from curtilage_dev.deployment import Deployment
from curtilage_dev.emulated.p384_pki import new_key

pytestmark = [
    pytest.mark.skipif(
        sys.platform != "linux", reason="confines children as Linux can"
    ),
    # Newer Pythons mind forks of a process in which other tests left threads.
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]

MIB = 1024 * 1024
MEMORY = 64 * MIB
# A parser that has not ended by then never will; how long it took is not asked.
PATIENCE_S = 60
VALUE, REFUSED, OTHER = 0, 3, 4

Parse = Callable[[bytes], object]


def outcome(call: Callable[[], object]) -> int:
    """Call in a child that can have 64 MiB more; say how it ended."""
    child = os.fork()
    if child == 0:
        os._exit(_confined(call))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _confined(call: Callable[[], object]) -> int:
    with open("/proc/self/statm", "rb") as statm:  # noqa: PTH123 - once, in a child
        pages = int(statm.read().split()[0])
    allowed = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (allowed, allowed))
    resource.setrlimit(resource.RLIMIT_CPU, (PATIENCE_S, PATIENCE_S))
    # A child that waits for what a thread of its parent held would wait for ever.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(10 * PATIENCE_S)
    try:
        call()
    except RefusedError:
        return REFUSED
    # The child must say so with its exit status, whatever it was.
    except BaseException:  # noqa: BLE001 - see above
        return OTHER
    return VALUE


def test_the_children_are_confined() -> None:
    """Far from the limit, for a heap that shrank has room that is already its own."""
    assert outcome(lambda: bytearray(MIB)) == VALUE
    assert outcome(lambda: bytearray(64 * MEMORY)) == OTHER
    assert outcome(sys.exit) == OTHER


def _deep_der(size: int) -> bytes:
    """Sequences in sequences, each as long as it says."""
    data = b""
    while len(data) < size - 4:
        data = b"\x30\x82" + struct.pack(">H", len(data)) + data
    return data


def _shapes(size: int) -> dict[str, bytes]:
    """What hurts readers of JSON, CBOR, DER, PEM and of lengths."""
    pairs = ",".join(f'"{number:x}":0' for number in range(size // 9))
    repeated = {
        "arrays": b"[",
        "objects": b'{"a":',
        "texts": b'["\\u0000",',
        "CBOR arrays": b"\x81",
        "CBOR arrays without an end": b"\x9f",
        "CBOR maps": b"\xa1\x00",
        "CBOR tags": b"\xc1",
        "ones": b"\xff",
        "zeros": b"\0",
        "lines": b"A\n",
        "dashes": b"-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n",
        "digits": b"9",
        "quotation marks": b'"',
    }
    shapes = {
        name: (unit * (size // len(unit) + 1))[:size] for name, unit in repeated.items()
    }
    return shapes | {
        "many keys": f"{{{pairs}}}".encode()[:size],
        "one number": b'{"v":' + b"9" * (size - 6) + b"}",
        "one text": b'{"v":"' + b"a" * (size - 8) + b'"}',
        "a string of all bytes": b"\x5b" + b"\xff" * 8,
        "an array of all items": b"\x9b" + b"\xff" * 8,
        "nested DER": _deep_der(min(size, 0xFFFF)),
        "lengths of all bytes": (b"\x30\x84" + b"\xff" * 4) * (size // 6),
        "four times too large": b"[" * 4 * size,
    }


def _text(parse: Callable[[str], object]) -> Parse:
    return lambda data: parse(data.decode("latin-1"))


def _of_dice(data: bytes) -> object:
    return firmware_id({DICE_TCB_INFO: data}, _ISSUER)


_ISSUER = (
    new_key().public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
)
PARSERS: dict[str, tuple[Parse, int]] = {
    "bundle": (parse_bundle, MAX_BUNDLE_BYTES),
    "CPU evidence": (parse_cpu_evidence, MAX_CPU_EVIDENCE_BYTES),
    "device evidence": (parse_device_evidence, MAX_DEVICE_EVIDENCE_BYTES),
    "manifest": (parse_manifest, MAX_MANIFEST_BYTES),
    "proof": (_text(parse_proof), MAX_PROOF_BYTES),
    "checkpoint": (_text(parse_checkpoint), MAX_CHECKPOINT_BYTES),
    "log policy": (parse_policy, MAX_POLICY_BYTES),
    "history": (parse_history, MAX_HISTORY_BYTES),
    "SNP report": (parse_report, 4096),
    "certificate": (partial(parse_certificate, name="VEK"), MAX_CERTIFICATE_BYTES),
    "revocation list": (partial(parse_revocation_list, name="CRL"), MAX_CRL_BYTES),
    "TDX quote": (parse_quote, MAX_QUOTE_BYTES),
    "TDX collateral": (parse_collateral, MAX_COLLATERAL_BYTES),
    "PCK extension": (parse_platform, MAX_CERTIFICATE_BYTES),
    "CBOR": (
        partial(decode, where="item", limit_bytes=MAX_DOCUMENT_BYTES),
        MAX_DOCUMENT_BYTES,
    ),
    "COSE": (
        partial(parse_cose_sign1, where="item", limit_bytes=MAX_DOCUMENT_BYTES),
        MAX_DOCUMENT_BYTES,
    ),
    "Nitro document": (parse_nitro_document, MAX_DOCUMENT_BYTES),
    "HCL blob": (parse_hcl, MAX_HCL_BYTES),
    "runtime data": (parse_runtime_data, MAX_HCL_BYTES),
    "TPM quote": (parse_attest, MAX_TPM_MESSAGE_BYTES),
    "SPDM report": (parse_spdm_report, MAX_GPU_REPORT_BYTES),
    "DICE extension": (_of_dice, MAX_CERTIFICATE_BYTES),
    "GPU token": (refuse_token, MAX_GPU_REPORT_BYTES),
}


def _all_of(parse: Parse, shapes: Iterable[bytes]) -> None:
    """Try each shape; anything but a value or a refusal escapes."""
    for data in shapes:
        try:
            parse(data)
        except RefusedError:
            continue


@pytest.mark.parametrize("name", PARSERS)
def test_no_shape_takes_more_or_ends_otherwise(name: str) -> None:
    parse, size = PARSERS[name]
    shapes = tuple(_shapes(size).values())
    assert outcome(lambda: _all_of(parse, shapes)) == VALUE


def _spoiled(deployment: Deployment, size: int) -> dict[str, bytes]:
    """Bundles of which one certificate or list is of another shape."""
    bundle = deployment.bundle()
    cpu = bundle.cpu
    assert isinstance(cpu, SnpEvidence)
    deep = _deep_der(size)
    return {
        "certificates": encode_bundle(
            replace(bundle, cpu=replace(cpu, vek=deep, ask=deep, ark=deep))
        ),
        "list": encode_bundle(
            replace(bundle, cpu=replace(cpu, crl=_deep_der(MAX_CRL_BYTES)))
        ),
        "manifest": encode_bundle(
            replace(
                bundle,
                release=replace(bundle.release, manifest=b"[" * MAX_MANIFEST_BYTES),
            )
        ),
    }


@pytest.mark.parametrize("name", ["certificates", "list", "manifest"])
def test_no_bundle_takes_more_to_verify(
    deployment: Deployment, now: datetime, name: str
) -> None:
    data = _spoiled(deployment, MAX_CERTIFICATE_BYTES)[name]
    rules = deployment.expectations()
    assert outcome(lambda: verify(data, rules, now=now)) == REFUSED


def test_the_largest_bundle_that_is_read_takes_no_more(deployment: Deployment) -> None:
    """A true one, in which all the room that is left is blanks."""
    data = encode_bundle(deployment.bundle())
    padded = data + b" " * (MAX_BUNDLE_BYTES - len(data))
    assert json.loads(padded)
    assert outcome(lambda: parse_bundle(padded)) == VALUE
    assert outcome(lambda: parse_bundle(padded + b" ")) == REFUSED
