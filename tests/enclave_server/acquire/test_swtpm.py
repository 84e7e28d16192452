"""The vTPM's commands against a real TPM 2.0 in software, where there is one.

A TPM is a process of its own here: swtpm, set up with tpm2-tools as a cloud
provider leaves a guest's vTPM (a report in an index, a restricted key at a fixed
handle). It shows that our commands are a TPM's, and nothing about isolation.
"""

import hashlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from curtilage.attest.azure.hcl import parse_hcl
from curtilage.attest.binding import qualifying_data_v2
from curtilage.attest.evidence import AzureEvidence
from curtilage.attest.steps import StepLog
from curtilage.attest.tpm.quote import verify_quote
from curtilage.enclave_server.acquire.azure_vtpm import AzureTpmProvider
from curtilage.enclave_server.acquire.endorsements import Endorsements
from curtilage.enclave_server.acquire.tpm_commands import Tpm
from curtilage.enclave_server.errors import AcquisitionError
from curtilage_dev.emulated.azure import (
    BlobFields,
    encode_blob,
    encode_runtime,
    web_key,
)

TOOLS = (
    *("swtpm", "tpm2_createprimary", "tpm2_create", "tpm2_load", "tpm2_flushcontext"),
    *("tpm2_evictcontrol", "tpm2_nvdefine", "tpm2_nvwrite", "tpm2_pcrextend"),
)
MISSING = [name for name in TOOLS if shutil.which(name) is None]
pytestmark = pytest.mark.skipif(
    bool(MISSING),
    reason=f"SKIPPED LOUDLY: no software TPM here ({', '.join(MISSING)})",
)
DATA = bytes(range(64))
KEY_ATTRIBUTES = "fixedtpm|fixedparent|sensitivedataorigin|userwithauth|restricted|sign"
NV_ATTRIBUTES = "ownerread|ownerwrite|authread|authwrite|no_da"


@dataclass
class SocketChannel:
    """Carries commands to swtpm's socket."""

    path: Path

    def transmit(self, command: bytes) -> bytes:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(60)
            connection.connect(str(self.path))
            connection.sendall(command)
            response = b""
            while len(response) < 10 or len(response) < int.from_bytes(response[2:6]):
                piece = connection.recv(4096)
                if not piece:
                    break
                response += piece
            return response


@dataclass(kw_only=True)
class SoftwareTpm:
    """A running swtpm, set up as a guest's vTPM."""

    channel: SocketChannel
    hcl: bytes
    key: rsa.RSAPublicKey


def tool(folder: Path, *command: str) -> None:
    environment = {
        **os.environ,
        "TPM2TOOLS_TCTI": f"swtpm:path={folder / 's'}",
        "TSS2_LOG": "all+none",
    }
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, check=False
    )
    assert done.returncode == 0, (command, done.stderr)


def wait_for(path: Path) -> None:
    for _ in range(600):
        if path.exists():
            return
        time.sleep(0.05)
    raise TimeoutError


def set_up(folder: Path) -> tuple[bytes, rsa.RSAPublicKey]:
    """Leave a restricted key and a report, as a paravisor does."""
    tool(folder, "tpm2_createprimary", "-C", "o", "-c", "p.ctx")
    tool(folder, "tpm2_flushcontext", "-t")
    tool(
        folder,
        *("tpm2_create", "-C", "p.ctx", "-G", "rsa2048:rsassa-sha256:null"),
        *("-a", KEY_ATTRIBUTES, "-u", "k.pub", "-r", "k.priv", "-f", "pem"),
        *("-o", "k.pem"),
    )
    tool(folder, "tpm2_flushcontext", "-t")
    tool(
        folder, "tpm2_load", "-C", "p.ctx", "-u", "k.pub", "-r", "k.priv", "-c", "k.ctx"
    )
    tool(folder, "tpm2_flushcontext", "-t")
    tool(folder, "tpm2_evictcontrol", "-C", "o", "-c", "k.ctx", "0x81000003")
    tool(folder, "tpm2_flushcontext", "-t")
    key = load_pem_public_key((folder / "k.pem").read_bytes())
    assert isinstance(key, rsa.RSAPublicKey)
    # Only the key: an index of swtpm's holds at most 2048 bytes.
    runtime = encode_runtime({"keys": [web_key("HCLAkPub", key)]})
    fields = BlobFields(report=bytes(1184), runtime_data=runtime, blob_bytes=0)
    hcl = encode_blob(fields)
    (folder / "hcl").write_bytes(hcl)
    size = str(len(hcl))
    tool(
        folder, "tpm2_nvdefine", "-C", "o", "-s", size, "-a", NV_ATTRIBUTES, "0x1400001"
    )
    # In pieces: the buffer of one write is smaller than the index.
    for start in range(0, len(hcl), 1024):
        (folder / "piece").write_bytes(hcl[start : start + 1024])
        offset = f"--offset={start}"
        tool(folder, "tpm2_nvwrite", "-C", "o", offset, "-i", "piece", "0x1400001")
    return hcl, key


@pytest.fixture(scope="module")
def tpm(tmp_path_factory: pytest.TempPathFactory) -> Generator[SoftwareTpm]:
    folder = tmp_path_factory.mktemp("t")
    process = subprocess.Popen(
        [
            *("swtpm", "socket", "--tpm2", "--tpmstate", f"dir={folder}"),
            *("--server", f"type=unixio,path={folder / 's'}"),
            *("--ctrl", f"type=unixio,path={folder / 's.ctrl'}"),
            *("--flags", "startup-clear,not-need-init"),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(folder / "s")
        hcl, key = set_up(folder)
        tool(folder, "tpm2_pcrextend", f"11:sha256={'5a' * 32}")
        yield SoftwareTpm(channel=SocketChannel(folder / "s"), hcl=hcl, key=key)
    finally:
        process.terminate()
        process.wait(timeout=30)


def test_index_is_read_whole(tpm: SoftwareTpm) -> None:
    assert Tpm(tpm.channel).nv_read(0x01400001, 8192) == tpm.hcl


def test_registers_are_read(tpm: SoftwareTpm) -> None:
    values = dict(Tpm(tpm.channel).pcr_read(tuple(range(24))))
    assert len(values) == 24
    assert values[0] == bytes(32)
    assert values[11] == hashlib.sha256(bytes(32) + b"\x5a" * 32).digest()
    assert values[17] == b"\xff" * 32


def test_evidence_verifies(tpm: SoftwareTpm) -> None:
    provider = AzureTpmProvider(tpm.channel)
    evidence = provider.acquire(DATA, Endorsements(vek=b"vek"))
    assert isinstance(evidence, AzureEvidence)
    assert parse_hcl(evidence.hcl).report == bytes(1184)
    quote = verify_quote(evidence.quote, tpm.key, log=StepLog())
    assert quote.extra_data == qualifying_data_v2(DATA)
    assert len(quote.pcrs) == 24


def test_index_and_key_that_do_not_exist_are_refused(tpm: SoftwareTpm) -> None:
    with pytest.raises(AcquisitionError, match="the TPM refused: 0x"):
        Tpm(tpm.channel).nv_read(0x01400009, 8192)
    with pytest.raises(AcquisitionError, match="the TPM refused: 0x"):
        Tpm(tpm.channel).quote(0x81000099, b"q", (0,))
