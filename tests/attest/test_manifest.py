import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.manifest import (
    ReleaseManifest,
    encode_manifest,
    parse_manifest,
)
from curtilage.attest.strictjson import canonical_json
from curtilage.attest.tcb import Product, Tcb
from curtilage.wire.shaping import PADDED, UNPADDED, TransportParameters

MANIFEST = ReleaseManifest(
    name="curtilage-enclave",
    version="1.2.3",
    source="git:0123456789",
    measurements={"sev-snp": ("ab" * 48,), "emulated-sev-snp": ("cd" * 48, "ef" * 48)},
    models=("12" * 32,),
    min_tcb={
        Product.TURIN: Tcb(fmc=1, bl=2, tee=3, snp=4, ucode=5),
        Product.GENOA: Tcb(bl=10, tee=0, snp=23, ucode=84),
    },
    not_after=1800000000,
    transport=PADDED,
)


@pytest.mark.parametrize("transport", [PADDED, UNPADDED], ids=["padded", "unpadded"])
def test_manifest_survives_its_encoding(transport: TransportParameters) -> None:
    manifest = replace(MANIFEST, transport=transport)
    assert parse_manifest(encode_manifest(manifest)) == manifest


def test_manifest_cannot_be_changed() -> None:
    measurements = cast("dict[str, Any]", MANIFEST.measurements)
    with pytest.raises(TypeError):
        measurements["sev-snp"] = ()
    minimums = cast("dict[str, Any]", MANIFEST.min_tcb)
    with pytest.raises(TypeError):
        minimums["Milan"] = None


LOOSE: dict[str, Callable[[bytes], bytes]] = {
    "newline": lambda data: data + b"\n",
    "spaces": lambda data: data.replace(b":", b": "),
    "order": lambda data: (
        b'{"version":"1.2.3",' + data[1:].replace(b'"version":"1.2.3",', b"")
    ),
    "escape": lambda data: data.replace(b"git", b"\\u0067it"),
}


@pytest.mark.parametrize("name", LOOSE)
def test_other_encodings_are_refused(name: str) -> None:
    loose = LOOSE[name](encode_manifest(MANIFEST))
    with pytest.raises(RefusedError) as caught:
        parse_manifest(loose)
    assert caught.value.code is RefusalCode.MALFORMED


EDITS: dict[str, Callable[[dict[str, Any]], object]] = {
    "version of the format": lambda t: t.update(v=1),
    "missing": lambda t: t.pop("models"),
    "unknown": lambda t: t.update(extra=1),
    "empty name": lambda t: t.update(name=""),
    "control character": lambda t: t.update(version="1\n"),
    "not ASCII": lambda t: t.update(source="é"),
    "capital measurement": lambda t: t["measurements"].update(x=["AB" * 48]),
    "short measurement": lambda t: t["measurements"].update(x=["ab" * 47]),
    "capital TEE": lambda t: t["measurements"].update(X=["ab" * 48]),
    "short model": lambda t: t.update(models=["ab"]),
    "negative end": lambda t: t.update(not_after=-1),
    "level 256": lambda t: t["min_tcb"][0].update(bl=256),
    "unknown product": lambda t: t["min_tcb"][0].update(product="Rome"),
    "product twice": lambda t: t["min_tcb"].append(t["min_tcb"][0]),
    "level missing": lambda t: t["min_tcb"][0].pop("fmc"),
    "no transport": lambda t: t.pop("transport"),
    "transport is bytes": lambda t: t.update(transport="AQECAAAyAEAH"),
    "transport key missing": lambda t: t["transport"].pop("buckets"),
    "transport key unknown": lambda t: t["transport"].update(jitter=1),
    "unknown shape": lambda t: t["transport"].update(shape="off"),
    "frame too small": lambda t: t["transport"].update(frame_bytes=63),
    "no period": lambda t: t["transport"].update(period_ms=0),
    "unpadded with numbers": lambda t: t["transport"].update(shape="unsafe_unpadded"),
}


@pytest.mark.parametrize("name", EDITS)
def test_manifest_is_refused(name: str) -> None:
    tree: dict[str, Any] = json.loads(encode_manifest(MANIFEST))
    EDITS[name](tree)
    with pytest.raises(RefusedError) as caught:
        parse_manifest(canonical_json(tree))
    assert caught.value.code is RefusalCode.MALFORMED


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("version of the format", "manifest.v is not 2"),
        ("transport key unknown", "manifest.transport: 1 unknown key(s)"),
        ("transport key missing", "manifest.transport: missing buckets"),
        ("frame too small", "manifest.transport: a number out of its range"),
    ],
)
def test_the_refusal_says_what_is_wrong(name: str, said: str) -> None:
    tree: dict[str, Any] = json.loads(encode_manifest(MANIFEST))
    EDITS[name](tree)
    with pytest.raises(RefusedError) as caught:
        parse_manifest(canonical_json(tree))
    assert caught.value.detail == said


def test_too_many_models_are_refused() -> None:
    many = replace(MANIFEST, models=("12" * 32,) * 65)
    with pytest.raises(RefusedError) as caught:
        parse_manifest(encode_manifest(many))
    assert caught.value.code is RefusalCode.TOO_LARGE
