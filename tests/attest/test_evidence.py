import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.evidence import (
    EvidenceBundle,
    encode_bundle,
    encode_cpu_evidence,
    parse_bundle,
    parse_cpu_evidence,
)


def _edited(bundle: EvidenceBundle, edit: Callable[[dict[str, Any]], object]) -> bytes:
    tree: dict[str, Any] = json.loads(encode_bundle(bundle))
    edit(tree)
    return json.dumps(tree).encode()


def _code(data: bytes) -> RefusalCode:
    with pytest.raises(RefusedError) as caught:
        parse_bundle(data)
    return caught.value.code


EDITS: dict[str, tuple[Callable[[dict[str, Any]], object], RefusalCode]] = {
    "no version": (lambda t: t.pop("v"), RefusalCode.MALFORMED),
    "version 1": (lambda t: t.update(v=1), RefusalCode.UNSUPPORTED_VERSION),
    "version 3": (lambda t: t.update(v=3, new=1), RefusalCode.UNSUPPORTED_VERSION),
    "missing": (lambda t: t.pop("anchor"), RefusalCode.MALFORMED),
    "unknown": (lambda t: t.update(note=""), RefusalCode.MALFORMED),
    "unknown below": (lambda t: t["cpu"].update(note=""), RefusalCode.MALFORMED),
    "unknown in anchor": (lambda t: t["anchor"].update(x=1), RefusalCode.MALFORMED),
    "unknown in release": (lambda t: t["release"].update(x=1), RefusalCode.MALFORMED),
    "no keys": (lambda t: t.update(key_configs=""), RefusalCode.MALFORMED),
    "keys too large": (
        lambda t: t.update(key_configs="AAAA" * 5462),
        RefusalCode.TOO_LARGE,
    ),
    "text window": (lambda t: t.update(not_after="1"), RefusalCode.MALFORMED),
    "true window": (lambda t: t.update(not_before=True), RefusalCode.MALFORMED),
    "null proof": (lambda t: t["release"].update(proof=None), RefusalCode.MALFORMED),
    "short root": (lambda t: t["anchor"].update(root="AAAA"), RefusalCode.MALFORMED),
    "long root": (
        lambda t: t["anchor"].update(root="AAAA" * 11),
        RefusalCode.TOO_LARGE,
    ),
    "short digest": (
        lambda t: t.update(sandbox_policy_digest="AAAA"),
        RefusalCode.MALFORMED,
    ),
    "short receipt key": (
        lambda t: t.update(receipt_public_key="AAAA"),
        RefusalCode.MALFORMED,
    ),
    "tdx": (lambda t: t["cpu"].update(tee="tdx"), RefusalCode.VERIFIER_UNAVAILABLE),
    "tee in capitals": (
        lambda t: t["cpu"].update(tee="SEV-SNP"),
        RefusalCode.VERIFIER_UNAVAILABLE,
    ),
    "a device": (
        lambda t: t["devices"].append({"kind": "nvidia-gpu"}),
        RefusalCode.VERIFIER_UNAVAILABLE,
    ),
    "many devices": (lambda t: t["devices"].extend([{}] * 17), RefusalCode.TOO_LARGE),
    "report too large": (
        lambda t: t["cpu"].update(report="AAAA" * 1366),
        RefusalCode.TOO_LARGE,
    ),
    "certificate too large": (
        lambda t: t["cpu"].update(ask="AAAA" * 1366),
        RefusalCode.TOO_LARGE,
    ),
    "list too large": (
        lambda t: t["cpu"].update(crl="AAAA" * 8193),
        RefusalCode.TOO_LARGE,
    ),
    "manifest too large": (
        lambda t: t["release"].update(manifest="AAAA" * 10923),
        RefusalCode.TOO_LARGE,
    ),
    "proof too large": (
        lambda t: t["release"].update(proof="x" * 16385),
        RefusalCode.TOO_LARGE,
    ),
    "checkpoint too large": (
        lambda t: t["anchor"].update(checkpoint="x" * 8193),
        RefusalCode.TOO_LARGE,
    ),
    "cpu is a list": (lambda t: t.update(cpu=[]), RefusalCode.MALFORMED),
}


@pytest.mark.parametrize("name", EDITS)
def test_bundle_is_refused(bundle: EvidenceBundle, name: str) -> None:
    edit, code = EDITS[name]
    assert _code(_edited(bundle, edit)) is code


def test_untouched_edit_is_accepted(bundle: EvidenceBundle) -> None:
    assert parse_bundle(_edited(bundle, lambda _: None)) == bundle


def test_duplicate_key_is_refused(bundle: EvidenceBundle) -> None:
    doubled = encode_bundle(bundle).replace(b'{"v":2', b'{"v":2,"v":2', 1)
    assert _code(doubled) is RefusalCode.MALFORMED


def test_optional_values_survive(bundle: EvidenceBundle) -> None:
    full = replace(
        bundle,
        receipt_public_key=bytes(range(32)),
        sandbox_policy_digest=b"\1" * 32,
        sandbox_result_digest=b"\2" * 32,
        transport_parameters=b"x" * 1024,
    )
    assert parse_bundle(encode_bundle(full)) == full


def test_cpu_evidence_survives_alone(bundle: EvidenceBundle) -> None:
    assert parse_cpu_evidence(encode_cpu_evidence(bundle.cpu)) == bundle.cpu


def test_cpu_evidence_is_bounded() -> None:
    with pytest.raises(RefusedError) as caught:
        parse_cpu_evidence(b" " * (64 * 1024 + 1))
    assert caught.value.code is RefusalCode.TOO_LARGE


@given(data=st.binary(max_size=300))
def test_any_bytes_are_refused(data: bytes) -> None:
    assert isinstance(_code(data), RefusalCode)
