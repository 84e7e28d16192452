"""Which model a rollout gives a device: what is taken, refused, kept and taken back."""

import json
import stat
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from curtilage.client.local.rollout.state import (
    LEAST_GRADED,
    NO_GRADES,
    NO_MANIFEST,
    NONE_IN_FORCE,
    NOT_TRUSTED,
    FilesMissingError,
    RolloutError,
)
from support.rollouts import DEVICE, NOW, FollowedRollout


@pytest.fixture
def home(tmp_path: Path) -> FollowedRollout:
    return FollowedRollout(tmp_path)


def state(home: FollowedRollout) -> Path:
    return home.base / "data" / "rollouts" / "clinic-home.json"


def test_nothing_is_run_before_a_manifest_was_taken(home: FollowedRollout) -> None:
    standing = home.rollout().look(NOW)
    assert standing.run is None
    assert standing.problem == NO_MANIFEST
    assert not state(home).exists()


def test_a_manifest_that_was_taken_says_what_runs(home: FollowedRollout) -> None:
    manifest = home.take(home.manifest())
    standing = home.rollout().look(NOW)
    assert (standing.manifest, standing.run) == (manifest, home.new)
    assert standing.problem == ""
    assert stat.S_IMODE(state(home).stat().st_mode) == 0o600


def test_a_device_outside_of_the_stage_runs_the_model_before(
    home: FollowedRollout,
) -> None:
    manifest = home.manifest(percent=1)
    assert manifest.arm_of(DEVICE) is None
    home.take(manifest)
    standing = home.rollout().look(NOW)
    assert standing.arm is None
    assert standing.run == home.old


def test_the_next_stage_finds_the_device_in_its_place(home: FollowedRollout) -> None:
    home.take(home.manifest(1, percent=1))
    device = json.loads(state(home).read_text())["device"]
    home.take(home.manifest(2, percent=100))
    assert json.loads(state(home).read_text())["device"] == device
    assert home.rollout().look(NOW).run == home.new


# What changes nothing, and says so.


def unchanged(home: FollowedRollout) -> None:
    assert home.rollout().look(NOW).run == home.new


@pytest.mark.parametrize("serial", [4, 5])
def test_an_older_manifest_with_its_own_proof_is_not_taken(
    home: FollowedRollout, serial: int
) -> None:
    old = home.logged(home.manifest(serial, model=home.other))
    home.take(home.manifest(5))
    with pytest.raises(RolloutError, match=rf"stale: number {serial} .* 5,"):
        home.rollout().take(*old, now=NOW)
    unchanged(home)


def test_an_older_one_is_not_taken_under_another_log_either(
    home: FollowedRollout, tmp_path: Path
) -> None:
    home.take(home.manifest(5))
    (tmp_path / "second").mkdir()
    second = FollowedRollout(tmp_path / "second")
    leaf, proof = second.logged(second.manifest(4))
    with pytest.raises(RolloutError, match="not newer than 5"):
        home.rollout(second.trusted).take(leaf, proof, now=NOW)


def test_an_expired_manifest_is_not_taken(home: FollowedRollout) -> None:
    home.take(home.manifest(1))
    with pytest.raises(RolloutError, match=r"stale: .* expired"):
        home.take(home.manifest(2, model=home.other), now=NOW + timedelta(days=30))
    unchanged(home)


def test_a_manifest_that_does_not_verify_is_not_taken(home: FollowedRollout) -> None:
    home.take(home.manifest(1))
    leaf, proof = home.logged(home.manifest(2, model=home.other))
    changed = leaf.replace(b'"percent":100', b'"percent":99')
    for data, said, code in (
        (leaf, "", "release_not_logged"),
        (changed, proof, "proof_invalid"),
        (leaf, proof.replace("log.example/home", "log.example/away"), "malformed|untr"),
    ):
        with pytest.raises(RolloutError, match=code):
            home.rollout().take(data, said, now=NOW)
    unchanged(home)


def test_a_model_is_not_taken_without_the_one_before(home: FollowedRollout) -> None:
    home.take(home.manifest(1))
    missing = home.file("missing", registered=False)
    for manifest in (
        home.manifest(2, model=missing),
        replace(home.manifest(2, model=home.other), previous=missing),
    ):
        with pytest.raises(FilesMissingError) as caught:
            home.take(manifest)
        assert caught.value.missing == (missing,)
    unchanged(home)
    # Who is outside of the stage needs no file that it would not run.
    home.take(home.manifest(3, percent=1, model=missing))


def test_the_place_among_all_is_drawn_once(home: FollowedRollout) -> None:
    missing = home.file("missing", registered=False)
    with pytest.raises(FilesMissingError):
        home.take(home.manifest(1, model=missing))
    assert state(home).exists()
    assert home.rollout().look(NOW).run is None


# Later.


def test_an_expired_manifest_remains_in_force_with_a_notice(
    home: FollowedRollout,
) -> None:
    home.take(home.manifest())
    standing = home.rollout().look(datetime(2030, 1, 1, tzinfo=UTC))
    assert standing.run == home.new
    assert "expired" in standing.problem


def test_an_untrusted_manifest_is_no_longer_followed(
    home: FollowedRollout, tmp_path: Path
) -> None:
    home.take(home.manifest())
    (tmp_path / "second").mkdir()
    other = FollowedRollout(tmp_path / "second")
    standing = home.rollout(other.trusted).look(NOW)
    assert standing.run is None
    assert standing.problem.startswith(f"{NOT_TRUSTED}: unsigned")


@pytest.mark.parametrize("data", [b"", b"{}", b"[" * 99, b" " * (1 << 20)])
def test_a_damaged_file_is_reported(home: FollowedRollout, data: bytes) -> None:
    home.take(home.manifest())
    state(home).write_bytes(data)
    with pytest.raises(RolloutError, match="damaged"):
        home.rollout().look(NOW)
    with pytest.raises(RolloutError, match="damaged"):
        home.take(home.manifest(2))


def test_a_changed_file_is_reported(home: FollowedRollout) -> None:
    home.take(home.manifest())
    data = state(home).read_bytes()
    for changed in (
        data.replace(b'"v":1', b'"v":2'),
        data.replace(b'"withdrawn":[]', b'"withdrawn":[7]'),
        data + b"\n",
    ):
        state(home).write_bytes(changed)
        with pytest.raises(RolloutError, match="damaged"):
            home.rollout().look(NOW)


# Taken back.


def test_a_worse_model_is_taken_back_after_a_hundred_grades(
    home: FollowedRollout,
) -> None:
    home.take(home.manifest())
    home.grade(home.old, bad=LEAST_GRADED)
    assert home.rollout().look(NOW).alarm is None, "those of another model"
    home.grade(home.new, bad=LEAST_GRADED - 1)
    standing = home.rollout().look(NOW)
    assert (standing.run, standing.graded) == (home.new, LEAST_GRADED - 1)
    home.grade(home.new, bad=1)
    # Reading the state reports it, and withdraws nothing.
    assert home.rollout().standing(NOW).alarm == LEAST_GRADED
    assert not home.rollout().standing(NOW).withdrawn
    assert home.rollout().look(NOW).run == home.old
    assert home.rollout().standing(NOW).withdrawn


def test_a_withdrawn_model_stays_withdrawn(
    home: FollowedRollout,
) -> None:
    home.take(home.manifest(1, percent=99))
    home.grade(home.new, bad=LEAST_GRADED)
    assert home.rollout().look(NOW).run == home.old
    home.trace.unlink()
    assert home.rollout().look(NOW).run == home.old
    # Its next stage is the same model; another model is another matter.
    home.take(home.manifest(2))
    assert home.rollout().look(NOW).run == home.old
    home.take(home.manifest(3, model=home.other))
    assert home.rollout().look(NOW).run == home.other


def test_a_model_as_good_as_promised_is_kept(home: FollowedRollout) -> None:
    home.take(home.manifest())
    for _ in range(30):
        home.grade(home.new, bad=1, good=9)
    standing = home.rollout().look(NOW)
    assert standing.run == home.new
    assert (standing.good, standing.graded) == (270, 300)


def test_somebody_may_take_it_back(home: FollowedRollout) -> None:
    with pytest.raises(RolloutError, match=NONE_IN_FORCE):
        home.rollout().withdraw()
    home.take(home.manifest())
    home.rollout().withdraw()
    home.rollout().withdraw()
    assert home.rollout().look(NOW).run == home.old


def test_grades_that_cannot_be_read_take_nothing_back(home: FollowedRollout) -> None:
    home.take(home.manifest())
    home.trace.write_bytes(b'{"outcome":"graded"}\n')
    standing = home.rollout().look(NOW)
    assert standing.run == home.new
    assert NO_GRADES in standing.problem
