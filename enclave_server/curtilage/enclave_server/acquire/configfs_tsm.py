"""Evidence from the kernel's configfs-tsm: SEV-SNP reports and TDX quotes.

Linux 6.7 and later, Documentation/ABI/testing/configfs-tsm-report: a directory
created below ``report`` is an entry; the bytes written to its ``inblob`` are signed,
and ``outblob`` is the report. An entry that others can write to might return a
report over their data, so ours is private (its name is random) and the kernel's
count of writes, ``generation``, must have grown by exactly our own writes.

Verifies nothing: that is left to the verifier of the evidence.
"""

import errno
import os
import secrets
import struct
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from curtilage.attest.evidence import (
    MAX_CERTIFICATE_BYTES,
    MAX_CRL_BYTES,
    MAX_REPORT_BYTES,
    CpuEvidence,
    SnpEvidence,
    TdxEvidence,
    Tee,
)
from curtilage.enclave_server.acquire.endorsements import Endorsements
from curtilage.enclave_server.errors import AcquisitionError

TSM_ROOT: Final = Path("/sys/kernel/config/tsm/report")
REPORT_DATA_BYTES: Final = 64
ATTEMPTS: Final = 3
MAX_PRIVILEGE_LEVEL: Final = 3
SNP_PROVIDER: Final = "sev_guest"
TDX_PROVIDER: Final = "tdx_guest"
MAX_QUOTE_BYTES: Final = 8192
"""A TDX quote takes about 5000 bytes; a longer one is a DICE token (CWT)."""
MAX_AUXILIARY_BYTES: Final = 64 * 1024
MAX_WORD_BYTES: Final = 64
"""Of the attributes that hold a number or a name."""

VCEK_GUID: Final = uuid.UUID("63da758d-e664-4564-adc5-f4b93be8accd")
VLEK_GUID: Final = uuid.UUID("a8074bc2-a25a-483e-aae6-39c045a0b8a1")
ASK_GUID: Final = uuid.UUID("4ab7b379-bbac-4fe4-a02f-05aef327c782")
ARK_GUID: Final = uuid.UUID("c0b406a4-a803-4952-9743-3fb6014cd0ae")
CRL_GUID: Final = uuid.UUID("92f81bc3-5811-4d3d-97ff-d19f88dc67ea")
DISTURBED: Final = "others wrote to our entry"
NO_NEW_ENTRY: Final = "no entry could be made"
_TABLE_ENTRY: Final = struct.Struct("<16sII")
MAX_TABLE_ENTRIES: Final = 32


class TsmFolder(Protocol):
    """The five calls that configfs-tsm takes; each may raise ``OSError``."""

    def make(self, entry: str) -> None:
        """Make the entry (``mkdir``)."""
        ...

    def remove(self, entry: str) -> None:
        """Remove the entry (``rmdir``)."""
        ...

    def has(self, entry: str, attribute: str) -> bool:
        """Return whether the entry has an attribute of this name."""
        ...

    def read(self, entry: str, attribute: str, limit: int) -> bytes:
        """Read an attribute to its end, or one byte beyond ``limit``."""
        ...

    def write(self, entry: str, attribute: str, data: bytes) -> int:
        """Write an attribute in one call; return how many bytes were written."""
        ...


class ConfigFSFolder:
    """The kernel's interface.

    Args:
        root: the mount point of configfs-tsm's ``report``.
    """

    def __init__(self, root: Path = TSM_ROOT) -> None:
        self._root = root

    def make(self, entry: str) -> None:
        """Make the entry; see the Protocol."""
        (self._root / entry).mkdir()

    def remove(self, entry: str) -> None:
        """Remove the entry; see the Protocol."""
        (self._root / entry).rmdir()

    def has(self, entry: str, attribute: str) -> bool:
        """Look for the attribute; see the Protocol."""
        return (self._root / entry / attribute).exists()

    def read(self, entry: str, attribute: str, limit: int) -> bytes:
        """Read the attribute; see the Protocol."""
        descriptor = os.open(self._root / entry / attribute, os.O_RDONLY | os.O_CLOEXEC)
        try:
            data = b""
            while len(data) <= limit:
                piece = os.read(descriptor, limit + 1 - len(data))
                if not piece:
                    break
                data += piece
            return data
        finally:
            os.close(descriptor)

    def write(self, entry: str, attribute: str, data: bytes) -> int:
        """Write the attribute; see the Protocol."""
        descriptor = os.open(self._root / entry / attribute, os.O_WRONLY | os.O_CLOEXEC)
        try:
            return os.write(descriptor, data)
        finally:
            os.close(descriptor)


@dataclass(frozen=True, slots=True, kw_only=True)
class TsmReport:
    """The kernel's result.

    Attributes:
        provider: the kind of report.
        outblob: the report or quote.
        auxblob: for SEV-SNP the host's table of certificates, or empty.
    """

    provider: str
    outblob: bytes = field(repr=False)
    auxblob: bytes = field(repr=False)


def acquire_report(
    folder: TsmFolder,
    report_data: bytes,
    *,
    privilege_level: int | None = None,
    random: Callable[[int], str] = secrets.token_hex,
) -> TsmReport:
    """Have 64 bytes signed, in a private entry that is removed afterwards.

    Args:
        folder: the kernel's interface.
        report_data: 64 bytes.
        privilege_level: VMPL to ask for, 0 to 3; None for the kernel's own.
        random: makes the entry's name.

    Raises:
        AcquisitionError: the kernel returned none, or not over our bytes alone.
    """
    if len(report_data) != REPORT_DATA_BYTES:
        raise AcquisitionError(f"report data is not {REPORT_DATA_BYTES} bytes")
    if privilege_level is not None and not 0 <= privilege_level <= MAX_PRIVILEGE_LEVEL:
        raise AcquisitionError(f"privilege level is not 0 to {MAX_PRIVILEGE_LEVEL}")
    # Random, so that no other process can have opened it or can write to it by
    # guessing.
    name = f"curtilage-{random(16)}"
    try:
        folder.make(name)
    except OSError as error:
        raise _failed(NO_NEW_ENTRY, error) from None
    try:
        entry = _Entry(folder, name)
        for _ in range(ATTEMPTS):
            report = entry.attempt(report_data, privilege_level)
            if report is not None:
                return report
        raise AcquisitionError(f"{DISTURBED}, {ATTEMPTS} times")
    except OSError as error:
        raise _failed("no report", error) from None
    finally:
        # An entry that is left behind holds kernel memory and nothing secret.
        with suppress(OSError):
            folder.remove(name)


@dataclass(frozen=True, slots=True)
class _Entry:
    """Our entry: reads and writes of its attributes, all bounded."""

    folder: TsmFolder
    name: str

    def attempt(self, report_data: bytes, level: int | None) -> TsmReport | None:
        """Return a report, or None if another process has written meanwhile."""
        # First: writes by others are counted from here on.
        before = self._number("generation")
        writes = 1
        if level is not None:
            self._write("privlevel", str(level).encode())
            writes += 1
        self._write("inblob", report_data)
        provider = self._word("provider")
        outblob = self._read("outblob", max(MAX_QUOTE_BYTES, MAX_REPORT_BYTES))
        auxblob = b""
        if self.folder.has(self.name, "auxblob"):
            auxblob = self._read("auxblob", MAX_AUXILIARY_BYTES)
        report = TsmReport(provider=provider, outblob=outblob, auxblob=auxblob)
        # configfs passes a binary attribute's bytes on when the file is closed and
        # drops the result: only this shows whether the write failed.
        return report if self._number("generation") == before + writes else None

    def _number(self, attribute: str) -> int:
        word = self._word(attribute)
        if not (word.isascii() and word.isdecimal()):
            raise AcquisitionError(f"{attribute} is not a number")
        return int(word)

    def _word(self, attribute: str) -> str:
        data = self._read(attribute, MAX_WORD_BYTES)
        return data.decode("ascii", "replace").strip()

    def _read(self, attribute: str, limit: int) -> bytes:
        data = self.folder.read(self.name, attribute, limit)
        if len(data) > limit:
            raise AcquisitionError(f"{attribute} is longer than {limit} bytes")
        return data

    def _write(self, attribute: str, data: bytes) -> None:
        if self.folder.write(self.name, attribute, data) != len(data):
            raise AcquisitionError(f"{attribute} was not written completely")


def parse_certificate_table(data: bytes) -> Mapping[uuid.UUID, bytes]:
    """Read the host's table of certificates (GHCB, "SNP Extended Guest Request").

    Each entry has a GUID, an offset and a length, both u32 little-endian; an entry of
    zeros ends the table. The GUID's first three fields may be in either byte order:
    writers differ.

    Raises:
        AcquisitionError: an entry points outside, or there is no end.
    """
    found: dict[uuid.UUID, bytes] = {}
    if not data:
        return found
    for number in range(MAX_TABLE_ENTRIES):
        place = number * _TABLE_ENTRY.size
        if place + _TABLE_ENTRY.size > len(data):
            break
        name, offset, length = _TABLE_ENTRY.unpack_from(data, place)
        if not any(name):
            return found
        # The host wrote the table and may be the attacker: no number in it is trusted.
        if offset + length > len(data):
            raise AcquisitionError("the certificate table points outside itself")
        content = data[offset : offset + length]
        found[uuid.UUID(bytes=name)] = content
        found[uuid.UUID(bytes_le=name)] = content
    raise AcquisitionError("the certificate table has no end")


class TsmProvider:
    """Acquires SEV-SNP or TDX evidence, whichever the kernel offers.

    Args:
        folder: the kernel's interface.
        privilege_level: see ``acquire_report``.
    """

    def __init__(
        self, folder: TsmFolder | None = None, *, privilege_level: int | None = None
    ) -> None:
        self._folder = ConfigFSFolder() if folder is None else folder
        self._privilege_level = privilege_level

    def acquire(self, report_data: bytes, endorsements: Endorsements) -> CpuEvidence:
        """Have 64 bytes signed and staple the machine's endorsements.

        Raises:
            AcquisitionError: there is no report.
        """
        report = acquire_report(
            self._folder, report_data, privilege_level=self._privilege_level
        )
        if report.provider == SNP_PROVIDER:
            return snp_evidence(report, endorsements)
        if report.provider == TDX_PROVIDER:
            return TdxEvidence(
                tee=Tee.TDX, quote=report.outblob, collateral=endorsements.collateral
            )
        raise AcquisitionError("the kernel's provider is not known here")


def snp_evidence(report: TsmReport, endorsements: Endorsements) -> SnpEvidence:
    """Staple certificates to a report: the stapler's, else the host's.

    Raises:
        AcquisitionError: the host's table is unusable, or a certificate too long.
    """
    table = parse_certificate_table(report.auxblob)
    vek = table.get(VLEK_GUID) or table.get(VCEK_GUID) or b""
    evidence = SnpEvidence(
        tee=Tee.SEV_SNP,
        report=report.outblob,
        vek=endorsements.vek or vek,
        ask=endorsements.ask or table.get(ASK_GUID, b""),
        crl=endorsements.crl or table.get(CRL_GUID, b""),
        ark=endorsements.ark or table.get(ARK_GUID, b""),
    )
    certificates = (evidence.vek, evidence.ask, evidence.ark)
    too_long = any(len(each) > MAX_CERTIFICATE_BYTES for each in certificates)
    if too_long or len(evidence.crl) > MAX_CRL_BYTES:
        raise AcquisitionError("one of the host's certificates is too long")
    if len(evidence.report) > MAX_REPORT_BYTES:
        raise AcquisitionError("the report is too long")
    return evidence


def _failed(what: str, error: OSError) -> AcquisitionError:
    if error.errno == errno.EFBIG:
        return AcquisitionError(f"{what}: larger than the kernel holds (EFBIG)")
    name = errno.errorcode.get(error.errno or 0, type(error).__name__)
    return AcquisitionError(f"{what}: {name}")
