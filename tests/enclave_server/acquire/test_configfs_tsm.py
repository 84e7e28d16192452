import errno
import stat
import uuid
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.attest.evidence import SnpEvidence, TdxEvidence, Tee
from curtilage.attest.evidence_json import encode_cpu_evidence, parse_cpu_evidence
from curtilage.attest.sev_snp.report import parse_report
from curtilage.enclave_server.acquire.configfs_tsm import (
    ARK_GUID,
    ASK_GUID,
    CRL_GUID,
    DISTURBED,
    MAX_AUXILIARY_BYTES,
    MAX_QUOTE_BYTES,
    NO_NEW_ENTRY,
    VCEK_GUID,
    VLEK_GUID,
    ConfigFSFolder,
    TsmProvider,
    acquire_report,
    parse_certificate_table,
)
from curtilage.enclave_server.acquire.endorsements import Endorsements
from curtilage.enclave_server.errors import AcquisitionError
from curtilage_dev.deployment import MEASUREMENT
from curtilage_dev.emulated.snp_pki import EmulatedPlatform, make_platform
from support.enclave_deployment import root_keys
from support.enclave_devices import FakeTsm, TsmEntry, certificate_table
from support.enclave_parts import NOW

DATA = bytes(range(64))
STAPLED = Endorsements(vek=b"vek", ask=b"ask", ark=b"ark", crl=b"crl", collateral=b"{}")


@cache
def platform() -> EmulatedPlatform:
    return make_platform(root_keys(), now=NOW)


def signed(report_data: bytes, level: int) -> bytes:
    fields = platform().report_fields(report_data=report_data, measurement=MEASUREMENT)
    return platform().evidence(fields, now=NOW).report if level == 0 else b"other"


Sign = Callable[[bytes, int], bytes]


def fake(
    *,
    sign: Sign = signed,
    provider: str = "sev_guest",
    auxblob: bytes | None = b"",
    settings: Mapping[str, object] | None = None,
) -> FakeTsm:
    tsm = FakeTsm(sign=sign, provider=provider, auxblob=auxblob)
    for name, value in (settings or {}).items():
        setattr(tsm, name, value)
    return tsm


def of_bytes(count: int) -> Sign:
    def sign(_data: bytes, _level: int) -> bytes:
        return bytes(count)

    return sign


def quote_over(data: bytes, _level: int) -> bytes:
    return b"quote over " + data


def failure(tsm: FakeTsm, *, privilege_level: int | None = None) -> str:
    with pytest.raises(AcquisitionError) as caught:
        acquire_report(tsm, DATA, privilege_level=privilege_level)
    assert caught.value.__cause__ is None
    assert not tsm.entries or tsm.rmdir_error
    return str(caught.value)


def test_report_is_over_our_bytes_and_its_entry_is_gone() -> None:
    tsm = fake()
    report = acquire_report(tsm, DATA)
    assert report.provider == "sev_guest"
    assert parse_report(report.outblob).report_data == DATA
    assert tsm.written == [("inblob", DATA)]
    assert tsm.entries == {}


def test_every_entry_has_a_name_of_its_own() -> None:
    tsm = fake()
    for _ in range(3):
        acquire_report(tsm, DATA)
    assert len(set(tsm.made)) == 3
    assert all(len(name) >= 32 for name in tsm.made)


def test_privilege_level_is_written_and_counted() -> None:
    tsm = fake()
    assert acquire_report(tsm, DATA, privilege_level=2).outblob == b"other"
    assert tsm.written == [("privlevel", b"2"), ("inblob", DATA)]


def test_privilege_level_below_the_floor_is_reported() -> None:
    assert (
        failure(fake(settings={"floor": 2}), privilege_level=1) == "no report: EINVAL"
    )


@pytest.mark.parametrize("level", [-1, 4])
def test_privilege_level_that_does_not_exist_is_not_asked_for(level: int) -> None:
    tsm = fake()
    assert "0 to 3" in failure(tsm, privilege_level=level)
    assert tsm.made == []


@pytest.mark.parametrize("length", [0, 63, 65])
def test_report_data_of_another_length_is_not_signed(length: int) -> None:
    tsm = fake()
    with pytest.raises(AcquisitionError, match="not 64 bytes"):
        acquire_report(tsm, bytes(length))
    assert tsm.made == []


class Meddler:
    """Another process that writes to our entry, several times."""

    def __init__(self, times: int) -> None:
        self.left = times

    def __call__(self, entry: TsmEntry) -> None:
        if self.left:
            self.left -= 1
            entry.inblob = b"m" * 64
            entry.generation += 1


@pytest.mark.parametrize("times", [1, 2])
def test_entry_that_others_wrote_to_is_tried_again(times: int) -> None:
    tsm = fake(settings={"disturb": Meddler(times)})
    report = acquire_report(tsm, DATA)
    assert parse_report(report.outblob).report_data == DATA
    assert len(tsm.written) == times + 1


def test_entry_that_others_keep_writing_to_is_given_up() -> None:
    tsm = fake(settings={"disturb": Meddler(3)})
    assert failure(tsm) == f"{DISTURBED}, 3 times"
    assert len(tsm.written) == 3


def test_write_that_the_kernel_dropped_is_no_report() -> None:
    tsm = fake(sign=of_bytes(5), settings={"drop_writes": True})

    def fill(entry: TsmEntry) -> None:
        entry.inblob = b"x" * 64

    tsm.disturb = fill
    assert failure(tsm) == f"{DISTURBED}, 3 times"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mkdir_error": errno.ENOENT}, "no entry could be made: ENOENT"),
        ({"mkdir_error": errno.EACCES}, "no entry could be made: EACCES"),
        ({"outblob_error": errno.EFBIG}, "larger than the kernel holds"),
        ({"outblob_error": errno.EBUSY}, "no report: EBUSY"),
        ({"short_write": True}, "inblob was not written completely"),
        ({"generation_word": b"many"}, "generation is not a number"),
        ({"generation_word": b"1" * 65}, "generation is longer than 64 bytes"),
        ({"generation_word": "²".encode()}, "generation is not a number"),
        ({"provider": "x" * 65}, "provider is longer"),
        ({"sign": of_bytes(MAX_QUOTE_BYTES + 1)}, "outblob is longer"),
        ({"auxblob": bytes(MAX_AUXILIARY_BYTES + 1)}, "auxblob is longer"),
    ],
)
def test_kernel_that_fails_is_an_error(
    settings: dict[str, object], message: str
) -> None:
    assert message in failure(fake(settings=settings))


def test_entry_that_cannot_be_removed_does_not_cost_the_report() -> None:
    tsm = fake(settings={"rmdir_error": errno.EBUSY})
    assert parse_report(acquire_report(tsm, DATA).outblob).report_data == DATA


def test_kernel_without_an_auxblob_gives_none() -> None:
    assert acquire_report(fake(auxblob=None), DATA).auxblob == b""


def test_snp_evidence_carries_what_is_stapled() -> None:
    evidence = TsmProvider(fake()).acquire(DATA, STAPLED)
    assert isinstance(evidence, SnpEvidence)
    assert evidence.tee is Tee.SEV_SNP
    assert (evidence.vek, evidence.ask) == (b"vek", b"ask")
    assert (evidence.ark, evidence.crl) == (b"ark", b"crl")
    assert parse_cpu_evidence(encode_cpu_evidence(evidence)) == evidence


TABLE = {
    VCEK_GUID: b"host's vcek",
    ASK_GUID: b"host's ask",
    ARK_GUID: b"host's ark",
    CRL_GUID: b"host's crl",
    uuid.UUID(int=7): b"something else",
}


@pytest.mark.parametrize("little_endian", [False, True])
def test_host_gives_what_no_stapler_has(little_endian: bool) -> None:
    auxblob = certificate_table(TABLE, little_endian=little_endian)
    evidence = TsmProvider(fake(auxblob=auxblob)).acquire(DATA, Endorsements())
    assert isinstance(evidence, SnpEvidence)
    assert evidence.vek == b"host's vcek"
    assert evidence.ask == b"host's ask"
    assert evidence.ark == b"host's ark"
    assert evidence.crl == b"host's crl"


def test_provider_s_key_comes_before_the_chip_s() -> None:
    auxblob = certificate_table({**TABLE, VLEK_GUID: b"vlek"})
    evidence = TsmProvider(fake(auxblob=auxblob)).acquire(DATA, Endorsements())
    assert isinstance(evidence, SnpEvidence)
    assert evidence.vek == b"vlek"


def test_stapler_comes_before_the_host() -> None:
    auxblob = certificate_table(TABLE)
    evidence = TsmProvider(fake(auxblob=auxblob)).acquire(DATA, STAPLED)
    assert isinstance(evidence, SnpEvidence)
    assert (evidence.vek, evidence.crl) == (b"vek", b"crl")


@pytest.mark.parametrize(
    ("auxblob", "message"),
    [
        (certificate_table(TABLE)[:-1], "points outside itself"),
        (certificate_table(TABLE)[:24], "points outside itself"),
        (b"\1", "has no end"),
        (b"\1" + bytes(15) + bytes(8), "has no end"),
        ((b"\1" + bytes(23)) * 40, "has no end"),
        (certificate_table({VCEK_GUID: bytes(4097)}), "too long"),
        (certificate_table({CRL_GUID: bytes(24 * 1024 + 1)}), "too long"),
    ],
)
def test_host_s_table_out_of_shape_is_refused(auxblob: bytes, message: str) -> None:
    with pytest.raises(AcquisitionError, match=message):
        TsmProvider(fake(auxblob=auxblob)).acquire(DATA, Endorsements())


@given(data=st.binary(max_size=300))
def test_any_table_is_read_or_refused(data: bytes) -> None:
    try:
        table = parse_certificate_table(data)
    except AcquisitionError:
        return
    assert all(content in data for content in table.values())


def test_report_that_is_too_long_is_refused() -> None:
    with pytest.raises(AcquisitionError, match="too long"):
        TsmProvider(fake(sign=of_bytes(5000))).acquire(DATA, STAPLED)


def test_tdx_evidence_carries_its_collateral() -> None:
    tsm = fake(provider="tdx_guest", sign=quote_over)
    evidence = TsmProvider(tsm).acquire(DATA, STAPLED)
    assert evidence == TdxEvidence(
        tee=Tee.TDX, quote=b"quote over " + DATA, collateral=b"{}"
    )


def test_dice_token_in_place_of_a_quote_is_refused() -> None:
    tsm = fake(provider="tdx_guest", sign=of_bytes(8193))
    with pytest.raises(AcquisitionError, match="longer than 8192"):
        TsmProvider(tsm).acquire(DATA, STAPLED)


def test_unknown_provider_is_refused() -> None:
    with pytest.raises(AcquisitionError, match="not known here"):
        TsmProvider(fake(provider="arm_cca_guest")).acquire(DATA, STAPLED)


@pytest.fixture
def attributes(tmp_path: Path) -> Path:
    """A folder where the kernel would have attributes, as plain files."""
    (tmp_path / "e").mkdir()
    (tmp_path / "e" / "outblob").write_bytes(bytes(range(200)))
    (tmp_path / "e" / "inblob").write_bytes(b"")
    return tmp_path


def test_real_folder_reads_and_writes_bounded(attributes: Path) -> None:
    folder = ConfigFSFolder(attributes)
    assert folder.read("e", "outblob", 200) == bytes(range(200))
    assert folder.read("e", "outblob", 10) == bytes(range(11))
    assert folder.write("e", "inblob", DATA) == 64
    assert (attributes / "e" / "inblob").read_bytes() == DATA
    assert folder.has("e", "inblob")
    assert not folder.has("e", "auxblob")


def test_real_folder_makes_and_removes_entries(attributes: Path) -> None:
    folder = ConfigFSFolder(attributes)
    folder.make("new")
    assert stat.S_ISDIR((attributes / "new").stat().st_mode)
    folder.remove("new")
    assert not (attributes / "new").exists()
    with pytest.raises(FileNotFoundError):
        folder.read("new", "outblob", 1)
    with pytest.raises(FileNotFoundError):
        folder.write("new", "inblob", b"")


def test_machine_without_the_interface_is_an_error(tmp_path: Path) -> None:
    folder = ConfigFSFolder(tmp_path / "absent")
    with pytest.raises(AcquisitionError, match=f"{NO_NEW_ENTRY}: ENOENT"):
        TsmProvider(folder).acquire(DATA, STAPLED)


def descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_descriptors_are_closed(attributes: Path) -> None:
    before = descriptors()
    folder = ConfigFSFolder(attributes)
    for _ in range(20):
        folder.read("e", "outblob", 500)
        folder.write("e", "inblob", DATA)
    assert descriptors() == before
