import re
import shutil
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.log.model_manifest import (
    Arm,
    ModelFiles,
    ModelManifest,
    encode_model_manifest,
)
from curtilage.attest.log.witness_policy import simple_policy
from curtilage.transparency.auditor import (
    Flag,
    audit,
    compare_checkpoint,
    compare_copy,
)
from curtilage.transparency.errors import FileError
from curtilage.transparency.log import LogFolder, add_cosignatures
from curtilage.transparency.proof import ReleaseRules
from curtilage_dev.log import new_signer
from support.release_logs import NAME, NOW, ORIGIN, KeptLog, manifest


@pytest.fixture
def log(tmp_path: Path) -> KeptLog:
    return KeptLog(tmp_path)


def rules(log: KeptLog, *, quorum: int = 0) -> ReleaseRules:
    witness = log.witness.verifier_key.key
    return ReleaseRules(
        log=simple_policy(log=log.key, witnesses=[witness], quorum=quorum),
        names=frozenset({NAME}),
        denied=frozenset({f"{NAME} 0.8.0"}),
    )


def flags(log: KeptLog) -> list[tuple[Flag, ...]]:
    return [leaf.flags for leaf in audit(log.folder, rules(log), now=NOW).leaves]


def copied(log: KeptLog, tmp_path: Path, name: str = "copy") -> LogFolder:
    shutil.copytree(log.path, tmp_path / name)
    return LogFolder(tmp_path / name)


def forked(log: KeptLog, tmp_path: Path, *leaves: bytes) -> LogFolder:
    other = tmp_path / "fork"
    shutil.copytree(log.path, other / "served")
    for path in (log.key_path, log.head_path):
        shutil.copy(path, other / path.name)
    fork = KeptLog.__new__(KeptLog)
    fork.path, fork.key_path = other / "served", other / "log.pem"
    fork.add(*leaves)
    return fork.folder


# --- what is in a log -----------------------------------------------------------


def test_every_leaf_is_listed(log: KeptLog) -> None:
    log.add(manifest("1.0.0"), manifest("1.1.0"))
    report = audit(log.folder, rules(log), now=NOW)
    assert report.clean
    assert (report.origin, report.size) == (ORIGIN, 2)
    named = [leaf.manifest.version for leaf in report.leaves if leaf.manifest]
    assert named == ["1.0.0", "1.1.0"]
    assert report.vouched_time is None


def test_an_empty_log_is_clean(log: KeptLog) -> None:
    report = audit(log.folder, rules(log), now=NOW)
    assert report.clean
    assert report.leaves == ()


def test_a_manifest_of_home_models_is_listed_and_held_against_the_same_rules(
    log: KeptLog,
) -> None:
    model = ModelFiles(sha256="0a" * 32, size_bytes=1)
    home = ModelManifest(
        name="clinic-home",
        serial=7,
        not_after=int(NOW.timestamp()),
        previous=model,
        arms=(
            Arm(
                percent=1,
                promised_permille=800,
                model=replace(model, sha256="1b" * 32),
            ),
        ),
    )
    log.add(encode_model_manifest(home))
    expected = replace(rules(log), names=frozenset({"clinic-home"}))
    (leaf,) = audit(log.folder, expected, now=NOW).leaves
    assert leaf.manifest == home
    assert leaf.flags == (Flag.EXPIRED,)
    assert flags(log) == [(Flag.UNKNOWN_NAME, Flag.EXPIRED)]


def test_an_unexpected_release_is_flagged(log: KeptLog) -> None:
    log.add(
        manifest("1.0.0"),
        b"\x1b[31mnot a manifest",
        manifest("1.0.0", name="curtilage-other"),
        manifest("0.8.0"),
        manifest("0.9.0", life=timedelta(days=-1)),
        manifest("1.0.0", life=timedelta(days=30)),
    )
    assert flags(log) == [
        (Flag.VERSION_TWICE,),
        (Flag.NOT_A_MANIFEST,),
        (Flag.UNKNOWN_NAME,),
        (Flag.WITHDRAWN,),
        (Flag.EXPIRED,),
        (Flag.VERSION_TWICE,),
    ]


@pytest.mark.parametrize(
    ("leaf", "clean"),
    [
        (b"not a manifest", False),
        (manifest("1.0.0", name="other"), False),
        (manifest("0.8.0"), True),
        (manifest("0.9.0", life=timedelta(days=-1)), True),
    ],
    ids=["no manifest", "unknown", "withdrawn", "expired"],
)
def test_only_what_is_unexpected_asks_for_a_person(
    log: KeptLog, leaf: bytes, clean: bool
) -> None:
    log.add(leaf)
    assert audit(log.folder, rules(log), now=NOW).clean is clean


def test_a_release_expires_unnoticed(log: KeptLog) -> None:
    log.add(manifest("1.0.0"))
    later = NOW + timedelta(days=90)
    (leaf,) = audit(log.folder, rules(log), now=later).leaves
    assert leaf.flags == (Flag.EXPIRED,)


# --- whether the files are the log's --------------------------------------------


def test_a_changed_leaf_is_a_problem(log: KeptLog) -> None:
    log.add(manifest("1.0.0"))
    bundle = log.path / "tile/entries/000.p/1"
    bundle.write_bytes(bundle.read_bytes().replace(b"1.0.0", b"1.0.1"))
    report = audit(log.folder, rules(log), now=NOW)
    assert not report.clean
    assert "leaf 0 " in report.problems[0]
    assert len(report.leaves) == 1, "what can be read is still listed"


def test_every_damaged_file_is_a_problem(log: KeptLog) -> None:
    log.add(*(manifest(f"1.{number}.0") for number in range(260)))
    for path in sorted(log.path.rglob("*")):
        if path.is_dir() or path.name == "checkpoint":
            continue
        good = path.read_bytes()
        path.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
        assert audit(log.folder, rules(log), now=NOW).problems, path
        path.unlink()
        assert audit(log.folder, rules(log), now=NOW).problems, path
        path.write_bytes(good)
    assert audit(log.folder, rules(log), now=NOW).clean


def test_a_checkpoint_by_an_unknown_key_is_refused(
    log: KeptLog, tmp_path: Path
) -> None:
    log.add(manifest())
    stranger = new_signer(ORIGIN)
    log.folder.checkpoint_path.write_text(stranger.checkpoint(1, bytes(32)))
    with pytest.raises(RefusedError) as caught:
        audit(log.folder, rules(log), now=NOW)
    assert caught.value.code is RefusalCode.UNSIGNED
    with pytest.raises(FileError, match="checkpoint"):
        audit(LogFolder(tmp_path), rules(log), now=NOW)


def test_a_short_quorum_is_a_problem(log: KeptLog) -> None:
    log.add(manifest())
    report = audit(log.folder, rules(log, quorum=1), now=NOW)
    (problem,) = report.problems
    assert problem.startswith(f"{RefusalCode.QUORUM_NOT_MET.value}: 0 of 1 ")
    line = log.witness.cosign_folder(log.folder, log.key, now=NOW)
    add_cosignatures(log.path, log.key, [log.witness.verifier_key.key], line)
    report = audit(log.folder, rules(log, quorum=1), now=NOW)
    assert report.clean
    assert report.vouched_time == int(NOW.timestamp())


# --- whether it is one log ------------------------------------------------------


def test_an_earlier_copy_is_the_same_log(log: KeptLog, tmp_path: Path) -> None:
    log.add(manifest("1.0.0"))
    earlier = copied(log, tmp_path)
    log.add(manifest("1.1.0"), manifest("1.2.0"))
    assert compare_copy(log.folder, earlier, rules(log)) == ()
    assert compare_copy(earlier, log.folder, rules(log)) == ()


@pytest.mark.parametrize("grown", [1, 2])
def test_two_histories_are_a_fork(log: KeptLog, tmp_path: Path, grown: int) -> None:
    log.add(manifest("1.0.0"))
    other = [manifest(f"9.{number}.0") for number in range(grown)]
    fork = forked(log, tmp_path, *other)
    log.add(manifest("1.1.0"))
    for pair in ((log.folder, fork), (fork, log.folder)):
        (problem,) = compare_copy(*pair, rules(log))
        assert re.match(r"FORK: .* leaf 1 on$", problem)


def test_a_damaged_copy_is_a_problem(log: KeptLog, tmp_path: Path) -> None:
    log.add(manifest("1.0.0"))
    copy = copied(log, tmp_path)
    (copy.path / "tile/0/000.p/1").write_bytes(bytes(32))
    (problem,) = compare_copy(log.folder, copy, rules(log))
    assert problem.startswith(f"other copy: {RefusalCode.PROOF_INVALID.value}")


def test_a_copy_of_another_log_is_none(log: KeptLog, tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    other = KeptLog(tmp_path / "b")
    (problem,) = compare_copy(log.folder, other.folder, rules(log))
    assert "unsigned" in problem


def test_an_earlier_checkpoint_is_continued(log: KeptLog) -> None:
    log.add(manifest("1.0.0"))
    earlier = log.folder.checkpoint()
    for version in ("1.1.0", "1.2.0"):
        assert compare_checkpoint(log.folder, earlier, rules(log)) == ()
        log.add(manifest(version))


def test_an_earlier_checkpoint_of_a_fork_is_reported(
    log: KeptLog, tmp_path: Path
) -> None:
    log.add(manifest("1.0.0"))
    fork = forked(log, tmp_path, manifest("9.0.0"))
    log.add(manifest("1.1.0"), manifest("1.2.0"))
    (problem,) = compare_checkpoint(log.folder, fork.checkpoint(), rules(log))
    assert re.match(r"FORK: .* 2 leaves ", problem)


def test_a_log_that_shrank_is_reported(log: KeptLog, tmp_path: Path) -> None:
    log.add(manifest("1.0.0"))
    earlier = copied(log, tmp_path)
    log.add(manifest("1.1.0"))
    (problem,) = compare_checkpoint(earlier, log.folder.checkpoint(), rules(log))
    assert re.match(r"SHRUNK: .* 2 .* 1$", problem)


@pytest.mark.parametrize("text", ["", "x\n\n", "checkpoint"])
def test_an_invalid_checkpoint_is_reported(log: KeptLog, text: str) -> None:
    (problem,) = compare_checkpoint(log.folder, text, rules(log))
    assert problem.startswith("earlier checkpoint: malformed")
