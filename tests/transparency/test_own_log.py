"""A log with a witness of its own: keys are made once, and a release stays provable."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from curtilage.attest.errors import RefusedError
from curtilage.attest.log.witness_policy import simple_policy
from curtilage.transparency.errors import FileError
from curtilage.transparency.own_log import PUBLIC_FILES, OwnLog
from curtilage.transparency.proof import ReleaseRules, verify_release
from support.release_logs import NOW, manifest

ORIGIN, WITNESS = "l.example/log", "l.example/w"
HOUR = timedelta(hours=1)


@pytest.fixture
def log(tmp_path: Path) -> OwnLog:
    made = OwnLog.create(tmp_path / "log", origin=ORIGIN, witness=WITNESS)
    made.publish(manifest(), now=NOW)
    return made


def rules(log: OwnLog) -> ReleaseRules:
    key, witness = log.key, log.witness_key
    policy = simple_policy(log=key, witnesses=[witness], quorum=1)
    return ReleaseRules(log=policy, names=None, max_checkpoint_age_s=60)


def verified_at(log: OwnLog, now: datetime) -> int:
    proof = (log.folder / "proof.txt").read_text()
    return verify_release(log.manifest(), proof, rules(log), now=now).index


def test_a_release_is_proven_under_the_published_names(log: OwnLog) -> None:
    assert verified_at(log, NOW) == 0
    assert log.fields().text("origin", limit=64) == ORIGIN
    assert f'origin = "{ORIGIN}"' in log.table()
    with pytest.raises(RefusedError):
        verified_at(log, NOW + HOUR)
    log.refresh(now=NOW + HOUR)
    assert verified_at(log, NOW + HOUR) == 0


def test_a_second_release_replaces_the_files_and_not_the_log(log: OwnLog) -> None:
    log.publish(manifest("1.0.1"), now=NOW)
    assert verified_at(log, NOW) == 1
    assert log.prove(manifest()).index == 0


def test_keys_are_never_made_twice(log: OwnLog) -> None:
    before = {
        path: path.read_bytes() for path in log.folder.rglob("*") if path.is_file()
    }
    with pytest.raises(FileError):
        OwnLog.create(log.folder, origin=ORIGIN, witness=WITNESS)
    assert all(path.read_bytes() == data for path, data in before.items())


@pytest.mark.parametrize("name", [*PUBLIC_FILES, "log.json", "private", "tlog"])
def test_a_folder_that_lacks_something_is_refused(log: OwnLog, name: str) -> None:
    (log.folder / name).rename(log.folder / "elsewhere")
    assert log.exists
    with pytest.raises(FileError, match=name):
        log.refresh(now=datetime.now(UTC))


def test_an_enclave_gets_no_key(log: OwnLog, tmp_path: Path) -> None:
    log.copy_release(tmp_path / "release")
    copied = {path.name for path in (tmp_path / "release").iterdir()}
    assert copied == set(PUBLIC_FILES)
