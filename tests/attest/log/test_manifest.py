import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from curtilage.attest.amd_tcb import Product, Tcb
from curtilage.attest.encoding.strict_json import canonical_json
from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.log.manifest import (
    GpuRelease,
    Image,
    ReleaseManifest,
    Residency,
    encode_manifest,
    parse_manifest,
)
from curtilage.attest.sandbox import Ephemerality, Isolation
from curtilage.wire.shaping import PADDED, UNPADDED, TransportParameters

MANIFEST = ReleaseManifest(
    name="curtilage-enclave",
    version="1.2.3",
    source="git:0123456789",
    measurements={
        "sev-snp": ({"launch": "ab" * 48},),
        "emulated-sev-snp": ({"launch": "cd" * 48}, {"launch": "ef" * 48}),
    },
    models=("12" * 32,),
    min_tcb={
        Product.TURIN: Tcb(fmc=1, bl=2, tee=3, snp=4, ucode=5),
        Product.GENOA: Tcb(bl=10, tee=0, snp=23, ucode=84),
    },
    not_after=1800000000,
    transport=PADDED,
    images=(
        Image(name="kernel", sha256="34" * 32),
        Image(name="disk", sha256="56" * 32),
    ),
    gpu=GpuRelease(drivers=("570.1",), vbioses=("96.00", "97.00"), golden=("78" * 32,)),
    sandbox="9a" * 32,
)


@pytest.mark.parametrize("transport", [PADDED, UNPADDED], ids=["padded", "unpadded"])
def test_manifest_survives_its_encoding(transport: TransportParameters) -> None:
    manifest = replace(MANIFEST, transport=transport)
    assert parse_manifest(encode_manifest(manifest)) == manifest


STATED = replace(
    MANIFEST, residency=Residency(operator="Example AG", country="CH", region="zrh-1")
)


@pytest.mark.parametrize(
    "residency",
    [STATED.residency, Residency(country="DE"), Residency(operator="Example AG")],
)
def test_manifest_may_say_where_it_runs(residency: Residency) -> None:
    manifest = replace(MANIFEST, residency=residency)
    data = encode_manifest(manifest)
    assert parse_manifest(data) == manifest
    assert json.loads(data)["v"] == 4


def test_manifest_that_does_not_is_spelt_as_before() -> None:
    tree = json.loads(encode_manifest(MANIFEST))
    assert tree["v"] == 3, "a release may name a sandbox that nothing proves"
    assert not {"operator", "country", "region"} & tree.keys()
    # The same release in the other version would be a second leaf of it.
    tree |= {"v": 4, "operator": "", "country": "", "region": ""}
    with pytest.raises(RefusedError, match="canonical"):
        parse_manifest(canonical_json(tree))


@pytest.mark.parametrize(
    "edit",
    [
        {"v": 3},
        {"v": 5},
        {"country": "ch"},
        {"country": "CHE"},
        {"operator": "a\n"},
        {"operator": "a" * 129},
        {"region": "zrh 1"},
        {"region": "a" * 129},
        {"city": "Bern"},
    ],
)
def test_where_it_runs_is_refused(edit: dict[str, object]) -> None:
    tree = json.loads(encode_manifest(STATED)) | edit
    with pytest.raises(RefusedError):
        parse_manifest(canonical_json(tree))


def test_where_it_runs_is_stated_whole() -> None:
    for key in ("operator", "country", "region"):
        tree = json.loads(encode_manifest(STATED))
        del tree[key]
        with pytest.raises(RefusedError, match="missing"):
            parse_manifest(canonical_json(tree))


PROVEN = replace(
    MANIFEST, isolation=Isolation.PROCESS, ephemerality=Ephemerality.PROCESS
)


@pytest.mark.parametrize("residency", [Residency(), STATED.residency])
@pytest.mark.parametrize("isolation", Isolation)
@pytest.mark.parametrize("ephemerality", Ephemerality)
def test_manifest_may_say_how_requests_are_kept_apart(
    residency: Residency, isolation: Isolation, ephemerality: Ephemerality
) -> None:
    manifest = replace(
        PROVEN, residency=residency, isolation=isolation, ephemerality=ephemerality
    )
    data = encode_manifest(manifest)
    assert parse_manifest(data) == manifest
    assert json.loads(data)["v"] == 5


@pytest.mark.parametrize(
    "edit",
    [
        {"v": 3},
        {"v": 4},
        {"v": 6},
        {"isolation": ""},
        {"isolation": "Process"},
        {"ephemerality": ""},
        {"ephemerality": "forgotten"},
        {"isolation": None},
        {"sandbox": ""},
        {"memory": "locked"},
    ],
)
def test_how_requests_are_kept_apart_is_refused(edit: dict[str, object]) -> None:
    tree = json.loads(encode_manifest(PROVEN)) | edit
    with pytest.raises(RefusedError):
        parse_manifest(canonical_json(tree))


@pytest.mark.parametrize(
    "key", ["isolation", "ephemerality", "operator", "country", "region"]
)
def test_how_requests_are_kept_apart_is_stated_whole(key: str) -> None:
    tree = json.loads(encode_manifest(PROVEN))
    del tree[key]
    with pytest.raises(RefusedError, match="missing"):
        parse_manifest(canonical_json(tree))


@pytest.mark.parametrize(
    "changes", [{"isolation": None}, {"ephemerality": None}, {"sandbox": ""}]
)
def test_half_a_statement_is_no_manifest(changes: dict[str, Any]) -> None:
    with pytest.raises(RefusedError):
        parse_manifest(encode_manifest(replace(PROVEN, **changes)))


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
    "version of the format": lambda t: t.update(v=2),
    "missing": lambda t: t.pop("models"),
    "unknown": lambda t: t.update(extra=1),
    "empty name": lambda t: t.update(name=""),
    "control character": lambda t: t.update(version="1\n"),
    "name no policy can write": lambda t: t.update(name="a b"),
    "long name": lambda t: t.update(name="a" * 129),
    "version with a space": lambda t: t.update(version="1.2.3 "),
    "long version": lambda t: t.update(version="1" * 129),
    "not ASCII": lambda t: t.update(source="é"),
    "capital measurement": lambda t: t["measurements"].update(
        x=[{"launch": "AB" * 48}]
    ),
    "short measurement": lambda t: t["measurements"].update(x=[{"launch": "ab" * 47}]),
    "capital TEE": lambda t: t["measurements"].update(X=[{"launch": "ab" * 48}]),
    "no register": lambda t: t["measurements"].update(x=[{}]),
    "many registers": lambda t: t["measurements"].update(
        x=[{f"pcr{n}": "ab" * 32 for n in range(33)}]
    ),
    "capital register": lambda t: t["measurements"].update(x=[{"PCR0": "ab" * 32}]),
    "empty register": lambda t: t["measurements"].update(x=[{"launch": ""}]),
    "measurement of version 2": lambda t: t["measurements"].update(x=["ab" * 48]),
    "image without a digest": lambda t: t["images"][0].pop("sha256"),
    "image with more": lambda t: t["images"][0].update(size=1),
    "short image": lambda t: t["images"][0].update(sha256="ab"),
    "image without a name": lambda t: t["images"][0].update(name=""),
    "GPU key missing": lambda t: t["gpu"].pop("golden"),
    "driver with a line feed": lambda t: t["gpu"].update(drivers=["570\n"]),
    "short golden": lambda t: t["gpu"].update(golden=["ab"]),
    "short sandbox": lambda t: t.update(sandbox="ab"),
    "capital sandbox": lambda t: t.update(sandbox="AB" * 32),
    "no sandbox key": lambda t: t.pop("sandbox"),
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
    other_version = tree.get("v") == 2
    assert caught.value.code is (
        RefusalCode.UNSUPPORTED_VERSION if other_version else RefusalCode.MALFORMED
    )


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("version of the format", "manifest.v is not 3 to 5"),
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


def test_a_release_may_name_no_images_gpus_or_sandbox() -> None:
    bare = replace(MANIFEST, images=(), gpu=GpuRelease(), sandbox="")
    assert parse_manifest(encode_manifest(bare)) == bare


def test_a_measurement_cannot_be_changed() -> None:
    measurement = cast("dict[str, Any]", MANIFEST.measurements["sev-snp"][0])
    with pytest.raises(TypeError):
        measurement["launch"] = ""


def test_too_many_models_are_refused() -> None:
    many = replace(MANIFEST, models=("12" * 32,) * 65)
    with pytest.raises(RefusedError) as caught:
        parse_manifest(encode_manifest(many))
    assert caught.value.code is RefusalCode.TOO_LARGE
