"""configfs-tsm through real system calls, if FUSE is available."""

import importlib.util
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path

import pytest
from typing_extensions import override

from curtilage.attest.evidence import SnpEvidence
from curtilage.attest.sev_snp.report import parse_report
from curtilage.enclave_server.acquire.configfs_tsm import (
    ConfigFSFolder,
    TsmProvider,
    acquire_report,
)
from curtilage.enclave_server.acquire.endorsements import Endorsements
from curtilage.enclave_server.errors import AcquisitionError


def unmounting() -> list[str] | None:
    """Return the command that unmounts; root does not need FUSE's helper."""
    for name in ("fusermount3", "fusermount"):
        if path := shutil.which(name):
            return [path, "-u"]
    path = shutil.which("umount")
    return [path] if path and os.geteuid() == 0 else None


UNMOUNT = unmounting()
MISSING = [
    name
    for name, there in (
        ("/dev/fuse", os.access("/dev/fuse", os.R_OK | os.W_OK)),
        ("mfusepy", importlib.util.find_spec("mfusepy") is not None),
        ("a way to unmount", UNMOUNT is not None),
    )
    if not there
]
pytestmark = pytest.mark.skipif(
    bool(MISSING), reason=f"SKIPPED LOUDLY: no FUSE here ({', '.join(MISSING)})"
)
DATA = bytes(range(64))
ROOT = Path(__file__).resolve().parents[3]


def wait_until_mounted(path: Path, process: "subprocess.Popen[bytes]") -> None:
    for _ in range(1200):
        if path.is_mount():
            return
        if process.poll() is not None:
            pytest.skip("SKIPPED LOUDLY: FUSE is here and may not be mounted")
        time.sleep(0.05)
    raise TimeoutError


@pytest.fixture(scope="module")
def mounted(tmp_path_factory: pytest.TempPathFactory) -> Generator[Path]:
    path = tmp_path_factory.mktemp("report")
    folders = ("tests", "dev", "wire", "attest", "inference", "enclave_server")
    process = subprocess.Popen(
        [sys.executable, "-m", "support.tsm_filesystem", str(path)],
        env={
            **os.environ,
            "PYTHONPATH": ":".join(str(ROOT / each) for each in folders),
        },
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until_mounted(path, process)
        yield path
    finally:
        if path.is_mount() and UNMOUNT is not None:
            subprocess.run([*UNMOUNT, str(path)], check=False)
        process.terminate()
        process.wait(timeout=60)


def test_report_is_acquired_and_its_entry_is_gone(mounted: Path) -> None:
    evidence = TsmProvider(ConfigFSFolder(mounted)).acquire(
        DATA, Endorsements(vek=b"vek")
    )
    assert isinstance(evidence, SnpEvidence)
    report = parse_report(evidence.report)
    assert report.report_data == DATA
    assert report.vmpl == 0
    assert evidence.vek == b"vek"
    assert list(mounted.iterdir()) == []


def test_privilege_level_reaches_the_report(mounted: Path) -> None:
    report = acquire_report(ConfigFSFolder(mounted), DATA, privilege_level=2)
    assert parse_report(report.outblob).vmpl == 2
    assert report.provider == "sev_guest"


def test_failure_leaves_no_entry(mounted: Path) -> None:
    class Unwilling(ConfigFSFolder):
        @override
        def write(self, entry: str, attribute: str, data: bytes) -> int:
            return super().write(entry, attribute, data + b"x")

    with pytest.raises(AcquisitionError, match="EINVAL"):
        acquire_report(Unwilling(mounted), DATA)
    assert list(mounted.iterdir()) == []
