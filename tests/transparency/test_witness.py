import shutil
import stat
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.log.note import TrustedLog, verify_checkpoint
from curtilage.transparency.errors import FileError, HeldError
from curtilage.transparency.files import locked
from curtilage.transparency.log import LogFolder, open_log
from curtilage.transparency.witness import (
    Witness,
    WitnessRequest,
    create_witness,
    parse_request,
    request_for,
)
from curtilage_dev.log import new_signer
from support.release_logs import NOW, ORIGIN, KeptLog


@pytest.fixture
def log(tmp_path: Path) -> KeptLog:
    return KeptLog(tmp_path)


def cosign(log: KeptLog, folder: LogFolder | None = None) -> str:
    return log.witness.cosign_folder(folder or log.folder, log.key, now=NOW)


def code(call: Callable[[], object]) -> RefusalCode:
    with pytest.raises(RefusedError) as caught:
        call()
    return caught.value.code


def evidence(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "witness").glob("*.refused"))


def forked(log: KeptLog, tmp_path: Path, *leaves: bytes) -> LogFolder:
    """Sign another history with the same key, as a log that cheats would."""
    other = tmp_path / "fork"
    shutil.copytree(log.path, other / "served")
    shutil.copy(log.key_path, other / "log.pem")
    shutil.copy(log.head_path, other / "log.pem.head")
    fork = KeptLog.__new__(KeptLog)
    fork.path, fork.key_path = other / "served", other / "log.pem"
    fork.add(*leaves)
    return fork.folder


# --- what a witness says --------------------------------------------------------


@pytest.mark.parametrize("ml_dsa", [False, True], ids=["Ed25519", "ML-DSA-44"])
def test_a_witness_cosigns(log: KeptLog, tmp_path: Path, ml_dsa: bool) -> None:
    witness = create_witness(tmp_path / "w", "w2.example", ml_dsa=ml_dsa)
    log.add(b"a")
    line = witness.cosign_folder(log.folder, log.key, now=NOW)
    key = witness.verifier_key.key
    trusted = TrustedLog(origin=ORIGIN, key=log.key, witnesses=(key,))
    checkpoint = verify_checkpoint(log.folder.checkpoint() + line, trusted)
    assert checkpoint.cosigned == {"w2.example": int(NOW.timestamp())}
    assert len(key.public_key) == (1312 if ml_dsa else 32)


def test_a_witness_follows_a_log(log: KeptLog) -> None:
    assert log.witness.last(log.key) is None
    for count in range(1, 5):
        log.add(*(f"{count} {n}".encode() for n in range(count)))
        assert cosign(log)
        assert cosign(log), "again, at a later time"
        last = log.witness.last(log.key)
        assert last is not None
        assert last.size == sum(range(count + 1))


def test_a_witness_follows_several_logs(log: KeptLog, tmp_path: Path) -> None:
    (tmp_path / "second").mkdir()
    second = KeptLog(tmp_path / "second")
    log.add(b"a")
    second.signer = log.signer
    cosign(log)
    other = new_signer("log.example.com/other")
    request = WitnessRequest(
        old_size=0, hashes=(), checkpoint=other.checkpoint(1, bytes(32))
    )
    log.witness.cosign_request(request, other.public, now=NOW)
    sizes = [log.witness.last(key) for key in (log.key, other.public)]
    assert [last and last.origin for last in sizes] == [ORIGIN, other.name]


def test_its_folder_is_private(log: KeptLog, tmp_path: Path) -> None:
    cosign(log)
    folder = tmp_path / "witness"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for path in folder.iterdir():
        expected = 0o644 if path.name == "witness.vkey" else 0o600
        assert stat.S_IMODE(path.stat().st_mode) == expected
    assert "PRIVATE" not in (folder / "witness.vkey").read_text()


# --- what it refuses ------------------------------------------------------------


def test_a_fork_of_one_size_is_refused_and_kept(log: KeptLog, tmp_path: Path) -> None:
    log.add(b"a")
    fork = forked(log, tmp_path, b"x")
    log.add(b"b")
    cosign(log)
    assert code(lambda: cosign(log, fork)) is RefusalCode.PROOF_INVALID
    last = log.witness.last(log.key)
    assert last is not None
    assert last.root == log.folder.tree(last).root()
    assert [path.read_text() for path in evidence(tmp_path)] == [fork.checkpoint()]


def test_a_fork_that_grew_is_refused(log: KeptLog, tmp_path: Path) -> None:
    log.add(b"a")
    fork = forked(log, tmp_path, b"x", b"y", b"z")
    log.add(b"b")
    cosign(log)
    assert code(lambda: cosign(log, fork)) is RefusalCode.PROOF_INVALID
    assert evidence(tmp_path)


def test_a_log_that_shrank_is_refused(log: KeptLog, tmp_path: Path) -> None:
    log.add(b"a")
    shutil.copytree(log.path, tmp_path / "yesterday")
    log.add(b"b")
    cosign(log)
    with pytest.raises(RefusedError, match="shrunk"):
        cosign(log, LogFolder(tmp_path / "yesterday"))
    assert not evidence(tmp_path), "an older copy proves no fork"


def test_the_first_proof_of_a_fork_stays(log: KeptLog, tmp_path: Path) -> None:
    log.add(b"a")
    fork = forked(log, tmp_path, b"x")
    log.add(b"b")
    cosign(log)
    request = request_for(fork, log.key, 2)
    refusal = code(lambda: log.witness.cosign_request(request, log.key, now=NOW))
    assert refusal is RefusalCode.PROOF_INVALID
    first = fork.checkpoint()
    with open_log(tmp_path / "fork/served", tmp_path / "fork/log.pem") as writer:
        writer.add([b"y"])
    assert code(lambda: cosign(log, fork)) is RefusalCode.PROOF_INVALID
    assert [path.read_text() for path in evidence(tmp_path)] == [first]


def test_a_witness_that_lost_its_memory_does_not_begin_again(
    log: KeptLog, tmp_path: Path
) -> None:
    log.add(b"a")
    cosign(log)
    (kept,) = (tmp_path / "witness").glob("*.checkpoint")
    text = kept.read_text()
    kept.unlink()
    with pytest.raises(RefusedError, match=f"restore {kept.name},"):
        cosign(log)
    kept.write_text(text)
    assert cosign(log)


def test_a_folder_that_is_not_its_checkpoint_is_refused(
    log: KeptLog, tmp_path: Path
) -> None:
    log.add(b"a", b"b")
    (log.path / "tile/entries/000.p/2").write_bytes(b"\0\1a\0\1c")
    assert code(lambda: cosign(log)) is RefusalCode.PROOF_INVALID
    assert log.witness.last(log.key) is None
    assert not evidence(tmp_path)


def test_another_log_is_refused(log: KeptLog) -> None:
    stranger = new_signer(ORIGIN)
    assert (
        code(lambda: log.witness.cosign_folder(log.folder, stranger.public, now=NOW))
        is RefusalCode.UNSIGNED
    )
    other = new_signer("elsewhere")
    assert (
        code(lambda: log.witness.cosign_folder(log.folder, other.public, now=NOW))
        is RefusalCode.UNTRUSTED_ROOT
    )


def test_a_log_that_changes_its_key_is_not_followed_blindly(log: KeptLog) -> None:
    """What was cosigned under the old key cannot be continued by another one."""
    log.add(b"a")
    cosign(log)
    stranger = new_signer(ORIGIN)
    request = WitnessRequest(
        old_size=1, hashes=(), checkpoint=stranger.checkpoint(1, bytes(32))
    )
    assert (
        code(lambda: log.witness.cosign_request(request, stranger.public, now=NOW))
        is RefusalCode.UNSIGNED
    )


def test_nothing_is_given_out_before_it_is_remembered(
    log: KeptLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_args: object) -> None:
        raise FileError("no space left")

    monkeypatch.setattr(Witness, "_keep", full)
    with pytest.raises(FileError, match="no space"):
        cosign(log)
    monkeypatch.undo()
    assert log.witness.last(log.key) is None
    del tmp_path


def test_two_at_once_are_locked_out(log: KeptLog, tmp_path: Path) -> None:
    with locked(tmp_path / "witness"), pytest.raises(HeldError):
        cosign(log)


def test_a_damaged_memory_is_refused(log: KeptLog, tmp_path: Path) -> None:
    """A witness that lost its memory must not begin anew by itself."""
    cosign(log)
    (path,) = (tmp_path / "witness").glob("*.checkpoint")
    path.write_text("")
    assert code(lambda: cosign(log)) is RefusalCode.MALFORMED


@pytest.mark.parametrize("name", ["", "a b", "a+b", "a\nb"])
def test_a_name_is_one_word(tmp_path: Path, name: str) -> None:
    with pytest.raises(FileError, match="name"):
        create_witness(tmp_path / "w", name)


def test_a_witness_is_made_once(log: KeptLog, tmp_path: Path) -> None:
    with pytest.raises(FileError, match="already"):
        create_witness(tmp_path / "witness", "w.example")
    assert log.witness.verifier_key.key.name == "w.example"


# --- requests -------------------------------------------------------------------


def test_a_request_is_answered_without_the_log(log: KeptLog, tmp_path: Path) -> None:
    log.add(b"a", b"b", b"c")
    first = parse_request(request_for(log.folder, log.key, 0).encode())
    assert first.hashes == ()
    log.witness.cosign_request(first, log.key, now=NOW)
    log.add(b"d", b"e")
    second = parse_request(request_for(log.folder, log.key, 3).encode())
    assert second.hashes
    line = log.witness.cosign_request(second, log.key, now=NOW + timedelta(hours=1))
    assert line.startswith("\u2014 w.example ")
    last = log.witness.last(log.key)
    assert last is not None
    assert last.size == 5
    del tmp_path


def test_a_request_from_another_size_names_the_right_one(log: KeptLog) -> None:
    log.add(b"a", b"b", b"c")
    log.witness.cosign_request(request_for(log.folder, log.key, 0), log.key, now=NOW)
    log.add(b"d")
    for old in (0, 2, 4):
        request = request_for(log.folder, log.key, old)
        with pytest.raises(RefusedError, match="is at size 3") as caught:
            log.witness.cosign_request(request, log.key, now=NOW)
        assert caught.value.code is RefusalCode.STALE


def test_a_request_without_its_proof_is_refused(log: KeptLog, tmp_path: Path) -> None:
    log.add(b"a", b"b", b"c")
    log.witness.cosign_request(request_for(log.folder, log.key, 0), log.key, now=NOW)
    log.add(b"d")
    request = request_for(log.folder, log.key, 3)
    for hashes in ((), request.hashes[:-1], (*request.hashes, bytes(32))):
        bad = WitnessRequest(
            old_size=3, hashes=hashes, checkpoint=log.folder.checkpoint()
        )
        assert (
            code(
                lambda bad=bad: log.witness.cosign_request(bad, log.key, now=NOW)  # type: ignore[misc]
            )
            is RefusalCode.PROOF_INVALID
        )
    assert not evidence(tmp_path), "anybody can send an honest checkpoint with it"


def test_a_request_beyond_the_log_is_refused(log: KeptLog) -> None:
    log.add(b"a")
    assert code(lambda: request_for(log.folder, log.key, 2)) is (
        RefusalCode.PROOF_INVALID
    )


GOOD = WitnessRequest(old_size=3, hashes=(bytes(32),), checkpoint="c\n").encode()


def test_a_request_is_read_back() -> None:
    assert parse_request(GOOD).encode() == GOOD


@pytest.mark.parametrize(
    "text",
    [
        "",
        "old 3",
        GOOD.replace("old 3", "old 03"),
        GOOD.replace("old 3", "old +3"),
        GOOD.replace("old 3", "new 3"),
        GOOD.replace("old 3\n", ""),
        GOOD.replace("A=", "=="),
        "old 0\n" + "A" * 43 + "=",
        "old 0\n" + ("A" * 43 + "=\n") * 64 + "\nc\n",
    ],
    ids=range(9),
)
def test_an_invalid_request_is_refused(text: str) -> None:
    assert code(lambda: parse_request(text)) is RefusalCode.MALFORMED


@given(st.text(max_size=200))
def test_any_text_is_a_request_or_refused(text: str) -> None:
    try:
        found = parse_request(text)
    except RefusedError as refusal:
        assert_code = refusal.code
    else:
        assert_code = RefusalCode.MALFORMED
        assert found.encode() == text
    assert assert_code is RefusalCode.MALFORMED
