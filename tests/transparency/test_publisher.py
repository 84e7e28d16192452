import hashlib
import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.attest.amd_tcb import Product, Tcb
from curtilage.attest.log.manifest import Image, parse_manifest
from curtilage.transparency.errors import FileError, InputError
from curtilage.transparency.publisher import (
    CHUNK_BYTES,
    digest_of,
    encoded,
    image_of,
    measurements_of,
    min_tcb_of,
    moment_of,
)
from curtilage_dev.deployment import make_manifest

NOW = datetime(2027, 6, 1, 12, tzinfo=UTC)
LAUNCH = "ab" * 48
PCR = "cd" * 32


def write(tmp_path: Path, value: object, name: str = "m.json") -> Path:
    path = tmp_path / name
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return path


# --- digests --------------------------------------------------------------------


def test_a_digest_is_given_or_computed(tmp_path: Path) -> None:
    assert digest_of("AB" * 32) == "ab" * 32
    assert digest_of("sha256:" + "ab" * 32) == "ab" * 32
    path = tmp_path / "model.gguf"
    path.write_bytes(b"weights")
    assert digest_of(str(path)) == hashlib.sha256(b"weights").hexdigest()


def test_a_large_file_reports_progress(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    data = bytes(2 * CHUNK_BYTES + 1)
    path.write_bytes(data)
    reported: list[tuple[str, int, int]] = []

    def report(name: str, done: int, total: int) -> None:
        reported.append((name, done, total))

    digest = digest_of(str(path), report)
    assert digest == hashlib.sha256(data).hexdigest()
    assert reported == [
        ("model.gguf", done, len(data))
        for done in (CHUNK_BYTES, 2 * CHUNK_BYTES, len(data))
    ]


@pytest.mark.parametrize("text", ["", "missing", "ab" * 31, "sha512:" + "ab" * 32])
def test_neither_a_digest_nor_a_file_is_refused(text: str) -> None:
    with pytest.raises(FileError, match="neither"):
        digest_of(text)


def test_an_image_has_a_name(tmp_path: Path) -> None:
    path = tmp_path / "enclave.img"
    path.write_bytes(b"image")
    digest = hashlib.sha256(b"image").hexdigest()
    assert image_of(f"vm={path}") == Image(name="vm", sha256=digest)
    assert image_of(str(path)) == Image(name="enclave.img", sha256=digest)
    assert image_of("vm=sha256:" + "ab" * 32).sha256 == "ab" * 32


# --- measurements ---------------------------------------------------------------


def test_measurements_are_read_and_merged(tmp_path: Path) -> None:
    first = write(
        tmp_path,
        {"sev-snp": [{"launch": LAUNCH}, {"launch": "12" * 48}]},
    )
    second = write(
        tmp_path,
        {"sev-snp": {"launch": LAUNCH.upper()}, "tpm": {"pcr11": PCR}},
        "n.json",
    )
    assert measurements_of([first, second]) == {
        "sev-snp": ({"launch": LAUNCH}, {"launch": "12" * 48}),
        "tpm": ({"pcr11": PCR},),
    }


NO_MEASUREMENTS: list[tuple[object, str]] = [
    ("{", "not JSON"),
    ("[" * 100_000, "not JSON"),
    ("[]", "not an object"),
    ("{}", "not an object"),
    ({"sev": [{"launch": LAUNCH}]}, "no kind of evidence is called 'sev'"),
    ({"sev-snp": LAUNCH}, "registers are hex texts"),
    ({"sev-snp": [LAUNCH]}, "registers are hex texts"),
    ({"sev-snp": [dict[str, str]()]}, "registers are hex texts"),
    ({"sev-snp": [{"launch": 1}]}, "registers are hex texts"),
    ({"sev-snp": [{"pcr11": PCR}]}, "does not exist in such evidence"),
    ({"sev-snp": [{"launch": "ab"}]}, "not 96 hex digits"),
    ({"azure-snp": [{"launch": LAUNCH}]}, "no TPM register"),
    ({"tdx": [{"mrtd": LAUNCH}]}, "names no rtmr0, no rtmr1"),
]


@pytest.mark.parametrize(("value", "said"), NO_MEASUREMENTS)
def test_measurements_that_are_none_are_explained(
    tmp_path: Path, value: object, said: str
) -> None:
    path = write(tmp_path, value)
    with pytest.raises(FileError) as caught:
        measurements_of([path])
    assert said in str(caught.value)
    assert str(caught.value).startswith(str(path))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="No such file"):
        measurements_of([tmp_path / "missing.json"])


# --- levels and times -----------------------------------------------------------


def test_levels_are_read() -> None:
    assert min_tcb_of("Genoa:bl=9,tee=0,snp=23,ucode=72") == (
        Product.GENOA,
        Tcb(fmc=0, bl=9, tee=0, snp=23, ucode=72),
    )
    product, tcb = min_tcb_of("Turin:fmc=1, bl=2,tee=3,snp=4,ucode=255")
    assert (product, tcb.fmc, tcb.ucode) == (Product.TURIN, 1, 255)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Genoa",
        "Rome:bl=9,tee=0,snp=23,ucode=72",
        "Genoa:bl=9,tee=0,snp=23",
        "Genoa:bl=9,tee=0,snp=23,ucode=256",
        "Genoa:bl=9,tee=0,snp=23,ucode=-1",
        "Genoa:bl=9,tee=0,snp=23,ucode=72,more=1",
        "Genoa:bl=9,bl=8,tee=0,snp=23,ucode=72",
        "Genoa:fmc=1,bl=9,tee=0,snp=23,ucode=72",
        "Turin:bl=9,tee=0,snp=23,ucode=72",
    ],
)
def test_levels_that_are_none_are_explained(text: str) -> None:
    with pytest.raises(InputError, match="--min-tcb"):
        min_tcb_of(text)


def test_an_end_is_a_time_or_some_days() -> None:
    start = int(NOW.timestamp())
    assert moment_of("+180d", NOW) == start + 180 * 86400
    assert moment_of("2027-07-01T14:00:00+02:00", NOW) == start + 30 * 86400
    assert moment_of("2027-07-01T12:00:00Z", NOW) == start + 30 * 86400


@pytest.mark.parametrize(
    "text",
    [
        "",
        "soon",
        "+0d",
        "+9999d",
        "180d",
        "2027-07-01",
        "2027-07-01T12:00:00",
        "2027-06-01T12:00:00Z",
        "2020-01-01T00:00:00Z",
        "2099-01-01T00:00:00Z",
    ],
)
def test_another_end_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="--not-after"):
        moment_of(text, NOW)


@given(st.text(max_size=30))
def test_any_text_is_a_time_or_refused(text: str) -> None:
    try:
        moment = moment_of(text, NOW)
    except InputError:
        return
    assert moment > NOW.timestamp()


# --- the whole ------------------------------------------------------------------


def test_a_manifest_is_canonical() -> None:
    made = make_manifest(NOW)
    assert parse_manifest(encoded(made)) == made


@pytest.mark.parametrize(
    "change",
    [
        {"name": "grün"},
        {"name": ""},
        {"source": "x" * 300},
        {"models": ("ab",)},
        {"sandbox": "ab"},
    ],
    ids=["name", "no name", "source", "model", "sandbox"],
)
def test_invalid_manifests_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="not a manifest"):
        encoded(replace(make_manifest(NOW), **change))


def test_measurements_that_match_nothing_are_refused() -> None:
    made = make_manifest(NOW)
    for kind, registers in (("sev-snp", {"pcr0": PCR}), ("mars", {"launch": LAUNCH})):
        with pytest.raises(FileError, match="--measurements"):
            encoded(replace(made, measurements={kind: (registers,)}))
