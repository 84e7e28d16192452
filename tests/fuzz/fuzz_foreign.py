"""The readers of other services' documents, and of exported verdicts."""

import base64
import gzip
import hashlib
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Final

from fuzz.common import Harness
from fuzz.fuzz_attest import refused

from curtilage.attest.sev_snp.report import REPORT_BYTES
from curtilage.cli.attest.export_file import read_export
from curtilage.cli.attest.foreign import contrast, dstack, near, tinfoil
from curtilage.cli.attest.foreign.event_log import read_log
from curtilage.cli.attest.foreign.published import (
    REPORT_DATA_BYTES,
    Given,
    Published,
)
from curtilage.cli.attest.foreign.reader import read_value
from curtilage.cli.attest.foreign.snp_protobuf import read_message
from curtilage.client.errors import UsageError

NOW: Final = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
NONCE: Final = bytes(32)
SENT: Final = Given(at=NOW, nonce=NONCE)
Read = Callable[[bytes, Given], Published]


def _published(read: Read, data: bytes, given: Given) -> None:
    """Let a reader take a document apart; what it expects to be bound is whole."""

    def parse(document: bytes) -> None:
        try:
            published = read(document, given)
        # The command line asks for an option that is missing.
        except UsageError:
            return
        bound = published.bound
        assert bound is None or len(bound) == REPORT_DATA_BYTES
        assert published.family in {"sev-snp", "tdx"}
        assert (published.gpu_nonce is None) == (not published.gpus)

    refused(parse, data)


def check_foreign_tinfoil(data: bytes) -> None:
    """A document of Tinfoil, or a RefusedError."""
    _published(tinfoil.read, data, Given(at=NOW))
    _published(tinfoil.read, data, SENT)


def check_foreign_contrast(data: bytes) -> None:
    """An answer of a Coordinator, or a RefusedError."""
    _published(contrast.read, data, SENT)


def check_foreign_dstack(data: bytes) -> None:
    """A document of dstack, or a RefusedError."""
    _published(dstack.read, data, Given(at=NOW))
    _published(dstack.read, data, SENT)


def check_foreign_near(data: bytes) -> None:
    """A document of NEAR, or a RefusedError."""
    for part in near.PARTS:
        _published(near.read, data, Given(at=NOW, part=part))


def check_foreign_message(data: bytes) -> None:
    """A report of its own length, or a RefusedError."""
    if not refused(read_message, data):
        assert len(read_message(data).report) == REPORT_BYTES


def check_foreign_events(data: bytes) -> None:
    """A register of 48 bytes, or a RefusedError."""

    def parse(text: bytes) -> None:
        assert len(read_log(read_value(text, "event_log")).rtmr3) == 96

    refused(parse, data)


def check_attest_export(data: bytes) -> None:
    """An export that is encoded again to the same bytes, or a RefusedError."""
    if not refused(read_export, data):
        assert read_export(data).encode() == data


def fixed_foreign_seeds() -> Iterator[tuple[str, str, bytes]]:
    """Yield whole documents, of which only the hardware's part is not true."""
    yield (
        "foreign_tinfoil",
        "form 2",
        _json(
            {
                "format": "https://tinfoil.sh/predicate/sev-snp-guest/v2",
                "body": _b64(gzip.compress(bytes(8), mtime=0)),
            }
        ),
    )
    yield "foreign_tinfoil", "form 3", _json(_tinfoil_3())
    yield (
        "foreign_contrast",
        "answer",
        _json(
            {
                "raw_attestation_doc": _b64(b"\x0a\x02\x08\x03"),
                "manifests": [_b64(b'{"Policies":{}}')],
                "root_ca": _b64(b"root"),
                "mesh_ca": _b64(b"mesh"),
            }
        ),
    )
    events = _events()
    quote: dict[str, object] = {"quote": "00", "event_log": events, "app_compose": "{}"}
    yield "foreign_dstack", "quote", _json(quote)
    yield "foreign_dstack", "aci", _json(_aci(quote))
    report = {
        "signing_algo": "ed25519",
        "signing_address": "00" * 32,
        "request_nonce": "00" * 32,
        "intel_quote": "00",
        "event_log": json.dumps(events),
        "nvidia_payload": json.dumps(
            {
                "nonce": "00" * 32,
                "evidence_list": [{"certificate": "", "evidence": ""}],
            }
        ),
    }
    yield "foreign_dstack", "signed", _json(report)
    yield "foreign_near", "signed", _json(report)
    yield (
        "foreign_near",
        "gateway",
        _json({"gateway_attestation": report, "model_attestations": [report]}),
    )
    yield "foreign_message", "report", b"\x0a\x02\x08\x03\x12\x03\x0a\x01a"
    yield "foreign_events", "one", _json(events)
    yield "attest_export", "nothing", b"{}\n"
    yield "attest_export", "of no bundle", _export()


def _tinfoil_3() -> dict[str, object]:
    algorithm = "https://tinfoil.sh/report-data/v1"
    material, devices = _json({"items": []}), _json({"items": []})
    parts = hashlib.sha256(material).digest() + hashlib.sha256(devices).digest()
    bound = hashlib.sha256(algorithm.encode() + NONCE + parts).digest() + bytes(32)
    return {
        "format": "https://tinfoil.sh/predicate/attestation/v3",
        "challenge": {
            "nonce": NONCE.hex(),
            "report_data": bound.hex(),
            "report_data_algorithm": algorithm,
        },
        "cpu_evidence": {
            "format": "https://tinfoil.sh/format/sev-snp-report/v1",
            "report_base64": "AA==",
        },
        "crypto_material": _b64(material),
        "device_evidence": _b64(devices),
        "collateral": [],
    }


def _aci(evidence: dict[str, object]) -> dict[str, object]:
    keyset: dict[str, object] = {
        "not_after": 2**40,
        "tls_public_keys": [{"spki_sha256": "00" * 32}],
    }
    return {
        "api_version": "aci/1",
        "workload_keyset_digest": f"sha256:{hashlib.sha256(_json(keyset)).hexdigest()}",
        "attestation": {
            "tee_type": "tdx",
            "workload_keyset": keyset,
            "evidence": evidence,
        },
    }


def _events() -> list[dict[str, object]]:
    text = b"\x01\0\0\x08:app-id:id"
    return [
        {
            "imr": 3,
            "event_type": 0x08000001,
            "digest": hashlib.sha384(text).hexdigest(),
            "event": "app-id",
            "event_payload": b"id".hex(),
        }
    ]


def _export() -> bytes:
    digest = hashlib.sha256(b"").hexdigest()
    value: dict[str, object] = {
        "v": 1,
        "kind": "curtilage-attestation-export",
        "made": "2026-11-21T12:00:00Z",
        "bundle": "AA==",
        "parts": {},
        "policy": {
            "digest": f"sha256:{digest}",
            "text": "",
            "packs": list[object](),
            "files": list[object](),
        },
        "expectations": {},
        "verdict": {},
    }
    return _json(value) + b"\n"


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


HARNESSES: Final = (
    Harness(name="foreign_tinfoil", check=check_foreign_tinfoil),
    Harness(name="foreign_contrast", check=check_foreign_contrast),
    Harness(name="foreign_dstack", check=check_foreign_dstack),
    Harness(name="foreign_near", check=check_foreign_near),
    Harness(name="foreign_message", check=check_foreign_message),
    Harness(name="foreign_events", check=check_foreign_events),
    Harness(name="attest_export", check=check_attest_export),
)
