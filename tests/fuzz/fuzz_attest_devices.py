"""CBOR, COSE, Nitro documents and GPU reports: bytes that anybody may send."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache, partial
from typing import Final

import cbor2
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from fuzz.common import Harness, hold
from fuzz.fuzz_attest import damaged, refused

from curtilage.attest.encoding.cbor import MAX_ITEMS, decode
from curtilage.attest.encoding.cose import parse_cose_sign1
from curtilage.attest.errors import RefusedError
from curtilage.attest.evidence import GpuEvidence, NitroEvidence, Tee
from curtilage.attest.expectations import Revocation
from curtilage.attest.nitro.document import parse_nitro_document
from curtilage.attest.nitro.verify import MAX_DOCUMENT_AGE_S, NitroRules, verify_nitro
from curtilage.attest.nvidia.dice import DICE_TCB_INFO, firmware_id
from curtilage.attest.nvidia.spdm import parse_spdm_report
from curtilage.attest.nvidia.verify import GpuRules, refuse_token, verify_gpu
from curtilage.attest.steps import StepLog
from curtilage.attest.x509.p384_chain import parse_chain
from curtilage.attest.x509.revocation import (
    MAX_ANSWER_AGE_S,
    MAX_SIGNERS,
    RevocationRules,
    check_answers,
    parse_answer,
)
from curtilage_dev.emulated.gpu import (
    EmulatedGpu,
    composite_device_id,
    dice_tcb_info,
    encode_report,
    ordinary_expectations,
)
from curtilage_dev.emulated.nitro import EmulatedNitro, registers_of
from curtilage_dev.emulated.p384_pki import new_key

NOW: Final = datetime(2027, 6, 1, 12, tzinfo=UTC)
IMAGE: Final = bytes(range(48))
BOUND: Final = bytes(64)
EMPTY: Final[dict[int, object]] = {}

Seed = tuple[str, str, bytes]


@cache
def nitro() -> tuple[EmulatedNitro, bytes]:
    """Make a machine and one document of it."""
    machine = EmulatedNitro.make(now=NOW)
    made = machine.evidence(BOUND, now=NOW, measurement=IMAGE)
    return machine, made.document


@cache
def gpu() -> tuple[EmulatedGpu, GpuEvidence]:
    """Make a GPU and one report of it."""
    device = EmulatedGpu.make(now=NOW)
    return device, device.evidence(bytes(32))


def check_cbor(data: bytes) -> None:
    """A value that the library reads as well, or a RefusedError."""
    parse = partial(decode, where="item", limit_bytes=4096)
    if not refused(parse, data):
        assert parse(data) == cbor2.loads(data)
        assert len(data) <= 4096
    canonical = partial(parse, canonical=True)
    assert refused(canonical, data) or not refused(parse, data)


def check_cose(data: bytes) -> None:
    """Four parts that make up the message again, or a RefusedError."""
    parse = partial(parse_cose_sign1, where="message", limit_bytes=4096)
    if not refused(parse, data):
        message = parse(data)
        parts = [message.protected, EMPTY, message.payload, message.signature]
        assert cbor2.loads(data) == parts


def check_nitro_payload(data: bytes) -> None:
    """A document within its bounds, or a RefusedError."""
    if not refused(parse_nitro_document, data):
        document = parse_nitro_document(data)
        assert 1 <= len(document.pcrs) <= 32
        assert 1 <= len(document.cabundle) < 8


def check_spdm_report(data: bytes) -> None:
    """A report of which every byte is accounted for, or a RefusedError."""
    if not refused(parse_spdm_report, data):
        report = parse_spdm_report(data)
        assert report.signed_part + report.signature == data
        values = sum(len(block.value) + 7 for block in report.blocks)
        assert values == len(report.record)


def check_dice(data: bytes) -> None:
    """A firmware identity of 48 bytes, or a RefusedError."""
    key = _issuer_key().public_key()
    key_info = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    parse = partial(firmware_id, issuer_key=key_info)
    extensions = {DICE_TCB_INFO: data}
    try:
        named = parse(extensions)
    except RefusedError:
        return
    assert len(named) == 48
    assert named in data


_issuer_key = cache(new_key)


def check_gpu_token(data: bytes) -> None:
    """No token at all, or a RefusedError; never for what begins as a report."""
    is_token = refused(refuse_token, data)
    assert not (is_token and data[:1] == b"\x11")


def check_nitro(data: bytes) -> None:
    """A damaged document is refused, or it is the same one."""
    machine, true = nitro()
    rules = NitroRules(
        anchors=(machine.anchor(),),
        clock_skew_s=60,
        max_age_s=MAX_DOCUMENT_AGE_S,
        measurements=(registers_of(IMAGE),),
    )
    found = damaged(true, data)
    evidence = NitroEvidence(tee=Tee.EMULATED_NITRO, document=found)
    try:
        claims = verify_nitro(evidence, rules, now=NOW, log=StepLog())
    except RefusedError:
        hold(found != true)
    else:
        assert claims.bound == BOUND


def check_gpu(data: bytes) -> None:
    """A damaged report or chain is refused, or it is the same one."""
    device, true = gpu()
    rules = GpuRules(
        anchors=(device.anchor(),),
        expectations=ordinary_expectations(),
        clock_skew_s=60,
    )
    # The first byte chooses what is damaged: the report or a certificate.
    place = (data[0] if data else 0) % (len(true.chain) + 1)
    parts = [true.report, *true.chain]
    parts[place] = damaged(parts[place], data[1:])
    found = replace(true, report=parts[0], chain=tuple(parts[1:]))
    try:
        claims = verify_gpu(found, rules, index=0, now=NOW, log=StepLog())
    except RefusedError:
        hold(found != true)
    else:
        assert claims.signed_part == true.report[:-96]
        assert found.chain == true.chain


@cache
def answers() -> tuple[bytes, ...]:
    """Make the answers about that GPU's certificates."""
    device, evidence = gpu()
    return device.answers(evidence.chain, NOW)


def check_ocsp(data: bytes) -> None:
    """An answer about one certificate, or a RefusedError."""
    parse = partial(parse_answer, name="answer")
    if not refused(parse, data):
        answer = parse(data)
        assert answer.signed_part in data
        assert len(answer.signers) <= MAX_SIGNERS


def check_revocation(data: bytes) -> None:
    """A damaged answer is refused, or it says the same."""
    _, evidence = gpu()
    chain = parse_chain(evidence.chain[::-1])
    rules = RevocationRules(
        rule=Revocation.REQUIRED,
        max_age_s=MAX_ANSWER_AGE_S,
        clock_skew_s=60,
        now=NOW,
    )
    found = list(answers())
    # The first byte chooses which one.
    place = (data[0] if data else 0) % len(found)
    found[place] = damaged(found[place], data[1:])
    try:
        stated = check_answers(chain, found, rules)
    except RefusedError:
        hold(tuple(found) != answers())
    else:
        assert stated == check_answers(chain, answers(), rules)


HARNESSES: Final = (
    Harness(name="cbor", check=check_cbor),
    Harness(name="cose", check=check_cose),
    Harness(name="nitro_payload", check=check_nitro_payload, max_bytes=8192),
    Harness(name="spdm_report", check=check_spdm_report, max_bytes=8192),
    Harness(name="dice", check=check_dice, max_bytes=512),
    Harness(name="gpu_token", check=check_gpu_token),
    Harness(name="nitro", check=check_nitro, max_bytes=64),
    Harness(name="gpu", check=check_gpu, max_bytes=64),
    Harness(name="ocsp", check=check_ocsp),
    Harness(name="revocation", check=check_revocation, max_bytes=64),
)


def fixed_device_seeds() -> Iterator[Seed]:
    """Yield seeds that are the same bytes every time."""
    texts = {
        "map": "a201000120",
        "indefinite": "bf0100ff",
        "nested": "8181818100",
        "too deep": "818181818100",
        "tag": "d28443a10126a0f640",
        "duplicate": "a201000100",
        "long form": "1a00000001",
        "pieces": "5f4100ff",
        "float": "f90000",
        "length of everything": "5bffffffffffffffff",
        "items of everything": "9bffffffffffffffff",
    }
    for name, text in texts.items():
        yield "cbor", name, bytes.fromhex(text)
    yield "cbor", "many items", b"\x9f" + bytes(MAX_ITEMS) + b"\xff"
    header = cbor2.dumps({1: -35})
    signature = bytes(96)
    messages: dict[str, list[object]] = {
        "whole": [header, EMPTY, b"payload", signature],
        "unprotected": [header, {4: b"x"}, b"payload", signature],
        "detached": [header, EMPTY, None, signature],
        "ES256": [cbor2.dumps({1: -7}), EMPTY, b"payload", signature],
    }
    for name, message in messages.items():
        yield "cose", name, cbor2.dumps(message)
    tokens = {
        "none": b"eyJhbGciOiJub25lIn0.e30.",
        "HS256": b"eyJhbGciOiJIUzI1NiJ9.e30.AAAA",
        "json": b'{"claims": []}',
        "report": b"\x11\xe0 eyJhbGciOiJub25lIn0.e30.",
    }
    for name, token in tokens.items():
        yield "gpu_token", name, token
    for harness in ("nitro", "gpu", "revocation"):
        yield harness, "nothing", b""
        yield harness, "one octet", b"\0\0\x20\0\x41"
        yield harness, "cut", b"\0\1\0\3\0"
        yield harness, "last certificate", b"\5\0\x40\0\x41"
    yield "dice", "newer", dice_tcb_info(b"\1" * 48)
    yield "dice", "two", dice_tcb_info(bytes(48), b"\1" * 48)
    yield "dice", "zeros", dice_tcb_info(bytes(48))
    yield "ocsp", "unauthorized", bytes.fromhex("30030a0106")


def device_seeds() -> Iterator[Seed]:
    """Yield true evidence, which is other bytes every time it is made."""
    _, document = nitro()
    message = parse_cose_sign1(document, where="document", limit_bytes=32768)
    yield "nitro_payload", "true", message.payload
    device, _ = gpu()
    few = replace(device.fields(bytes(32)), blocks=((1, bytes(48)), (64, bytes(48))))
    yield "spdm_report", "true", encode_report(few) + bytes(96)
    yield "dice", "older", composite_device_id(_issuer_key().public_key(), b"\1" * 48)
