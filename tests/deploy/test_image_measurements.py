"""What evidence of an image will show, computed before it is started.

The arithmetic against answers that others computed: a TPM, and another program for
launch digests.
"""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from deploy.image import pcr11
from deploy.image.build import Predicted, measurements, source_of_tree
from deploy.image.compare import compare
from deploy.image.errors import FormatError, ImageError, MissingError
from deploy.image.launch import Boot, Processors, check_firmware, launch_digests
from deploy.image.options import EMULATED, ENDORSEMENTS, Options

from curtilage.attest.claims import Measurement, measurement_problem
from curtilage.attest.evidence import Tee
from support.image_parts import ovmf, pe_image

SECTIONS = {
    ".sbat": b"sbat,1\n",
    ".text": b"code that no register covers",
    ".uname": b"enclave",
    ".initrd": b"initrd",
    ".cmdline": b"quiet",
    ".osrel": b"ID=x\n",
    ".linux": b"kernel",
}


# PCR 11.


def test_pcr11_is_what_a_tpm_computed() -> None:
    # Ten extensions by tpm2-tools on swtpm 0.7.1, in the order of systemd 257:
    # each section's name with a NUL, then its content; .sbat is filled up by two
    # NULs to its virtual size, and .text is none of the stub's.
    image = pe_image(SECTIONS, grown={".sbat": 2})
    assert pcr11.predict_pcr11(image).hex() == (
        "7c576ff5500898552d3eb6a36f7ce35480fd89354d4b64e71e6dbfaa8fa12923"
    )


@pytest.mark.parametrize("name", [name for name in SECTIONS if name != ".text"])
def test_pcr11_covers_each_section(name: str) -> None:
    changed = SECTIONS | {name: SECTIONS[name] + b"!"}
    assert pcr11.predict_pcr11(pe_image(changed)) != pcr11.predict_pcr11(
        pe_image(SECTIONS)
    )


def test_pcr11_covers_which_section_says_what() -> None:
    moved = SECTIONS | {".osrel": SECTIONS[".cmdline"], ".cmdline": SECTIONS[".osrel"]}
    assert pcr11.predict_pcr11(pe_image(moved)) != pcr11.predict_pcr11(
        pe_image(SECTIONS)
    )


@pytest.mark.parametrize(
    "image",
    [
        b"",
        bytes(100),
        b"MZ" + bytes(200),
        pe_image(SECTIONS)[:200],
        pe_image(SECTIONS)[:-40],
        pe_image({".text": b"no kernel"}),
    ],
    ids=["empty", "zeros", "no PE", "cut table", "cut section", "no kernel"],
)
def test_what_is_no_unified_kernel_image_is_refused(image: bytes) -> None:
    with pytest.raises(FormatError):
        pcr11.predict_pcr11(image)


# The launch digest.


@pytest.fixture
def boot(tmp_path: Path) -> Boot:
    (tmp_path / "ovmf.fd").write_bytes(ovmf())
    (tmp_path / "kernel").write_bytes(b"kernel")
    (tmp_path / "initrd").write_bytes(b"initrd")
    return Boot(
        firmware=tmp_path / "ovmf.fd",
        kernel=tmp_path / "kernel",
        initrd=tmp_path / "initrd",
        command_line="quiet",
    )


MACHINE = Processors(count=1, type="EPYC-Milan")


def digest(boot: Boot, machine: Processors = MACHINE, features: int = 1) -> str:
    return launch_digests(boot, [machine], features=features)[machine]


def test_launch_digest_covers_everything_that_is_started(boot: Boot) -> None:
    digests = [digest(boot), digest(replace(boot, command_line="quiet "))]
    digests.append(digest(boot, replace(MACHINE, count=2)))
    digests.append(digest(boot, replace(MACHINE, type="EPYC-Genoa")))
    digests.append(digest(boot, features=0x21))
    for path in (boot.kernel, boot.initrd):
        path.write_bytes(b"another")
        digests.append(digest(boot))
    boot.firmware.write_bytes(b"\1" + boot.firmware.read_bytes()[1:])
    digests.append(digest(boot))
    assert len(set(digests)) == len(digests)
    assert {len(each) for each in digests} == {96}


def test_firmware_that_measures_no_kernel_is_refused(boot: Boot) -> None:
    boot.firmware.write_bytes(ovmf(kernel_hashes=False))
    with pytest.raises(FormatError, match="ovmf-amdsev"):
        digest(boot)


@pytest.mark.parametrize("content", [b"", bytes(4096), ovmf()[:4096]])
def test_what_is_no_firmware_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.fd"
    path.write_bytes(content)
    with pytest.raises(FormatError):
        check_firmware(path)


@pytest.mark.parametrize(
    "machine", [Processors(count=0, type="EPYC"), Processors(count=1, type="486")]
)
def test_processors_that_do_not_exist_are_refused(
    boot: Boot, machine: Processors
) -> None:
    with pytest.raises(FormatError):
        digest(boot, machine)


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        (
            0x1,
            (
                "ddc5224521617a536ee7ce9dd6224d1b58a8d4fda1c741f3ac99fc4bfa04ba6e"
                "9fc98646d4a07a9079397fa3852819b5"
            ),
        ),
        (
            0x21,
            (
                "329c8ce0972ae52343b64d34a434a86f245dfd74f5ed7aae15d22efc78fb9683"
                "632b9b50e4e1d7fa41179ef98a7ef198"
            ),
        ),
    ],
    ids=["SNP", "SNP and debug swap"],
)
def test_launch_digest_known_answers(
    shared_dir: Path, tmp_path: Path, features: int, expected: str
) -> None:
    """The end of a firmware, its digest and two answers, by others' software."""
    folder = shared_dir / "evidence" / "sev-snp" / "launch-digest"
    nothing = tmp_path / "nothing"
    nothing.touch()
    boot = Boot(
        firmware=folder / "ovmf_AmdSev_suffix.bin",
        kernel=nothing,
        initrd=nothing,
        command_line="",
        firmware_digest=(
            "086e2e9149ebf45abdc3445fba5b2da8270bdbb04094d7a2c37faaa4b24af3aa"
            "16aff8c374c2a55c467a50da6d466b74"
        ),
    )
    machine = Processors(count=1, type="EPYC-v4")
    assert digest(boot, machine, features) == expected


def test_ordinary_firmware_is_refused(shared_dir: Path) -> None:
    folder = shared_dir / "evidence" / "sev-snp" / "launch-digest"
    with pytest.raises(FormatError):
        check_firmware(folder / "ovmf_OvmfX64_suffix.bin")


# Measurements for the manifest.


def options(tee: str, **changes: object) -> Options:
    values: dict[str, object] = {
        "config": Path("enclave.toml"),
        "tee": tee,
        "vsock": True,
        "address": "",
        "gateway": "",
        "model": "embedded",
        "files": (),
        "engine": Path("engine.whl"),
    }
    return Options(**(values | changes))  # type: ignore[arg-type]


PREDICTED = Predicted(
    launch={MACHINE: "ab" * 48, replace(MACHINE, count=2): "cd" * 48}, pcr11="ef" * 32
)


@pytest.mark.parametrize("tee", ENDORSEMENTS)
def test_measurements_are_such_as_a_manifest_may_name(tee: str) -> None:
    found = measurements(options(tee), PREDICTED)
    for kind, accepted in found.items():
        for each in cast("list[Measurement]", accepted):
            assert measurement_problem(each, Tee(kind)) is None


@pytest.mark.parametrize("tee", EMULATED)
def test_development_image_names_no_measurement_of_real_hardware(tee: str) -> None:
    found = measurements(options(tee), PREDICTED)
    assert set(found) == {tee}
    assert PREDICTED.pcr11 not in json.dumps(found)
    assert not any(each in json.dumps(found) for each in PREDICTED.launch.values())


@pytest.mark.parametrize(
    "change",
    [
        {"vsock": False},
        {"address": "10.0.2.15"},
        {"address": "fe80::1/64"},
        {"address": "10.0.2.15/24", "gateway": "x"},
    ],
    ids=["no way in", "no prefix", "IPv6", "gateway"],
)
def test_options_that_cannot_be_meant_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(ImageError):
        options("sev-snp", **change)


def test_unknown_kind_of_evidence_is_refused() -> None:
    with pytest.raises(ImageError):
        options("sev-es")


# Comparing, and the time of the source.


def test_comparison_says_which_file_and_where(tmp_path: Path) -> None:
    one, other = tmp_path / "1", tmp_path / "2"
    for folder in (one, other):
        folder.mkdir()
        for name in ("a", "b", "c"):
            (folder / name).write_bytes(b"0123456789")
    assert compare(one, other, ("a", "b", "c")) == []
    (other / "a").write_bytes(b"01234x6789")
    (other / "b").write_bytes(b"0123")
    (other / "c").unlink()
    first, second, absent = compare(one, other, ("a", "b", "c"))
    assert re.match("a: .* byte 5 on$", first)
    assert re.match("b: .* byte 4 on$", second)
    assert re.match("c: .* both$", absent)


def test_time_of_the_build_can_be_stated() -> None:
    assert source_of_tree({"SOURCE_DATE_EPOCH": "123"}).epoch == 123
    with pytest.raises(MissingError):
        source_of_tree({"SOURCE_DATE_EPOCH": "yesterday"})
