import asyncio
import os
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from curtilage.attest.amd_tcb import Product, Tcb
from curtilage.attest.evidence import (
    MAX_CHECKPOINT_BYTES,
    MAX_MANIFEST_BYTES,
    MAX_PROOF_BYTES,
    Tee,
)
from curtilage.attest.expectations import AnchorKind, Environment
from curtilage.attest.log.manifest import encode_manifest, parse_manifest
from curtilage.attest.verify import verify
from curtilage.enclave_server.errors import (
    BundleError,
    ConfigError,
    EvidenceError,
)
from curtilage.enclave_server.evidence.bundle import POLL_S, RETRY_S, BundleKeeper
from curtilage.enclave_server.evidence.release import expectations_of, read_anchors
from curtilage.enclave_server.evidence.report import NO_ANSWER
from curtilage.wire.shaping import UNPADDED
from curtilage_dev.emulated.snp_pki import RootKeys, make_platform
from support.enclave_deployment import (
    World,
    make_world,
    root_keys,
)
from support.enclave_parts import QUICK, is_wiped

LIFE = timedelta(hours=12)


def counted(world: World) -> dict[str, int]:
    return {name: n for name, n in world.counters.snapshot().items() if n}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return make_world(tmp_path)


async def refusal(world: World) -> str:
    with pytest.raises(BundleError) as caught:
        await world.keeper.renew()
    assert world.keeper.published(world.clock.now) is None
    assert world.keys.current is None
    assert counted(world) == {"bundle_refused": 1}
    return caught.value.code


async def test_bundle_verifies_for_a_client(world: World) -> None:
    await world.keeper.renew()
    published = world.keeper.published(world.clock.now)
    assert published is not None
    verified = verify(
        published.bundle, world.deployment.expectations(), now=world.clock.now
    )
    assert verified.key_configs == published.key_configs
    assert world.keys.current is not None
    assert published.key_configs == world.keys.current.key_configs
    assert published.tee == "emulated-sev-snp"
    assert len(world.evidence.asked[0]) == 64
    assert counted(world) == {"key_made": 1, "bundle_made": 1}


async def test_nothing_is_published_before_or_after(world: World) -> None:
    assert world.keeper.held is None
    assert world.keeper.published(world.clock.now) is None
    await world.keeper.renew()
    almost = world.clock.now + LIFE - timedelta(seconds=1)
    assert world.keeper.published(almost) is not None
    assert world.keeper.published(world.clock.now + LIFE) is None


async def test_refresh_keeps_the_key_and_reads_the_release_again(world: World) -> None:
    await world.keeper.renew()
    first = world.keeper.held
    world.clock.forward(hours=5)
    world.publish()
    await world.keeper.renew()
    second = world.keeper.held
    assert first is not None
    assert second is not None
    assert second.key is first.key
    assert second.bundle != first.bundle
    assert second.made > first.made
    assert counted(world) == {"key_made": 1, "bundle_made": 2}


async def test_key_is_rotated_when_due_and_the_old_one_still_opens(
    world: World,
) -> None:
    await world.keeper.renew()
    old = world.keys.current
    world.clock.forward(hours=6)
    world.publish()
    await world.keeper.renew()
    new = world.keys.current
    assert old is not None
    assert new is not None
    assert not set(new.key_ids) & set(old.key_ids)
    usable = world.keys.usable(world.clock.now)
    assert set(usable) == {*old.key_ids, *new.key_ids}
    world.clock.forward(hours=6)
    assert set(world.keys.usable(world.clock.now)) == set(new.key_ids)


async def test_key_with_a_full_replay_set_is_rotated(world: World) -> None:
    config = replace(
        world.config, limits=replace(world.config.limits, max_requests_per_key=1)
    )
    keeper = BundleKeeper(
        config=config,
        anchors=world.anchors,
        model_sha256="00" * 32,
        source=world.evidence,
        keys=world.keys,
        counters=world.counters,
        clock=world.clock,
    )
    await keeper.renew()
    old = world.keys.current
    assert old is not None
    assert keeper.due_in_s(world.clock.now) > 0
    old.replay.admit(b"x")
    assert keeper.due_in_s(world.clock.now) == 0
    await keeper.renew()
    assert world.keys.current is not old


async def test_keys_are_renewed_before_their_set_is_full(world: World) -> None:
    await world.keeper.renew()
    old = world.keeper.require().key
    most = world.config.limits.max_requests_per_key
    for number in range(most - most // 10 - 1):
        old.replay.admit(number.to_bytes(4))
    assert world.keeper.due_in_s(world.clock.now) > 0
    old.replay.admit(b"one more")
    assert not old.replay.is_full
    assert world.keeper.due_in_s(world.clock.now) == 0
    await world.keeper.renew()
    assert world.keeper.require().key is not old
    # Requests sealed to the old ones still open.
    assert set(old.key_ids) <= set(world.keys.usable(world.clock.now))


async def test_evidence_of_another_measurement_is_not_served(world: World) -> None:
    world.evidence.measurement = bytes(48)
    assert await refusal(world) == "measurement_not_allowed"


async def test_evidence_over_another_key_is_not_served(world: World) -> None:
    world.evidence.answer_to = bytes(64)
    assert await refusal(world) == "binding_mismatch"


async def test_evidence_of_another_root_is_not_served(world: World) -> None:
    swapped = RootKeys(ark=root_keys().ask, ask=root_keys().ark)
    world.evidence.platform = make_platform(swapped, now=world.clock.now)
    assert await refusal(world) == "chain_invalid"


async def test_old_checkpoint_is_not_served(world: World) -> None:
    world.clock.forward(hours=13)
    assert await refusal(world) == "stale"


async def test_release_that_is_not_logged_is_not_served(world: World) -> None:
    world.publish(index=0)
    assert await refusal(world) == "proof_invalid"


@pytest.mark.parametrize("sha256", ["11" * 32, ""], ids=["another", "none claimed"])
async def test_model_that_is_not_released_is_not_served(
    world: World, sha256: str
) -> None:
    keeper = BundleKeeper(
        config=world.config,
        anchors=world.anchors,
        model_sha256=sha256,
        source=world.evidence,
        keys=world.keys,
        counters=world.counters,
        clock=world.clock,
    )
    with pytest.raises(BundleError) as caught:
        await keeper.renew()
    assert caught.value.code == "model_not_released"
    assert world.evidence.asked == []


@pytest.mark.parametrize(
    ("file", "content", "code"),
    [
        ("manifest.json", None, "release_unreadable"),
        ("proof.txt", None, "release_unreadable"),
        ("checkpoint.txt", None, "release_unreadable"),
        ("manifest.json", b"{}", "malformed"),
        ("manifest.json", b" " * (MAX_MANIFEST_BYTES + 1), "too_large"),
        ("proof.txt", b"a" * (MAX_PROOF_BYTES + 1), "too_large"),
        ("checkpoint.txt", b"a" * (MAX_CHECKPOINT_BYTES + 1), "too_large"),
        ("checkpoint.txt", b"\xff", "malformed"),
        ("checkpoint.txt", b"nothing", "malformed"),
        ("proof.txt", b"nothing", "malformed"),
    ],
)
async def test_release_files_out_of_shape_are_refused(
    world: World, file: str, content: bytes | None, code: str
) -> None:
    path = world.folder / "release" / file
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    assert await refusal(world) == code


async def test_release_file_that_is_a_pipe_is_not_waited_for(world: World) -> None:
    path = world.folder / "release" / "manifest.json"
    path.unlink()
    os.mkfifo(path)
    assert await refusal(world) == "release_unreadable"


async def test_release_that_is_mounted_as_links_is_read(world: World) -> None:
    release = world.folder / "release"
    release.rename(world.folder / "..data")
    release.mkdir()
    for path in (world.folder / "..data").iterdir():
        (release / path.name).symlink_to(path)
    await world.keeper.renew()
    assert world.keeper.held is not None


@pytest.mark.parametrize("file", ["proof.txt", "checkpoint.txt", "consistency.txt"])
async def test_no_file_of_the_release_is_waited_for(world: World, file: str) -> None:
    path = world.folder / "release" / file
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    assert await refusal(world) == "release_unreadable"


async def test_checkpoint_without_its_witness_is_refused(world: World) -> None:
    path = world.folder / "release" / "checkpoint.txt"
    lines = path.read_text("utf-8").splitlines(keepends=True)
    path.write_text("".join(lines[:-1]), "utf-8")
    assert await refusal(world) == "quorum_not_met"


async def test_failure_to_renew_keeps_what_there_is(world: World) -> None:
    await world.keeper.renew()
    held, key = world.keeper.held, world.keys.current
    world.clock.forward(hours=6)
    world.evidence.fail = True
    with pytest.raises(EvidenceError):
        await world.keeper.renew()
    assert world.keeper.held is held
    assert world.keys.current is key
    assert world.keeper.published(world.clock.now) is not None
    assert counted(world)["evidence_failed"] == 1


async def test_due_time_is_half_of_the_evidence(world: World) -> None:
    keeper = world.keeper
    assert keeper.due_in_s(world.clock.now) == 0
    await keeper.renew()
    assert keeper.due_in_s(world.clock.now) == 6 * 3600
    world.clock.forward(hours=7)
    assert keeper.due_in_s(world.clock.now) == 0


async def test_due_time_comes_sooner_with_an_old_anchor(world: World) -> None:
    world.clock.forward(hours=10)
    await world.keeper.renew()
    # Two hours are left of the anchor's twelve, so half of them.
    assert world.keeper.due_in_s(world.clock.now) == 3600


async def test_loop_renews_retries_and_reports(world: World) -> None:
    notices: list[str] = []
    slept: list[float] = []
    seen: list[bool] = []
    renewed: list[int] = []
    start = world.clock.now

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        world.clock.forward(seconds=seconds)
        gone_s = (world.clock.now - start).total_seconds()
        seen.append(world.keeper.failing)
        world.evidence.fail = 6 * 3600 - 30 < gone_s < 6 * 3600 + 100
        if gone_s % 3600 < seconds:
            world.publish()
        if gone_s > 7 * 3600:
            raise asyncio.CancelledError

    await world.keeper.renew()
    with pytest.raises(asyncio.CancelledError):
        await world.keeper.run(
            notices.append, renewed=lambda: renewed.append(1), sleep=sleep
        )
    assert (seen[0], any(seen), seen[-1]) == (False, True, False)
    assert renewed == [1]
    assert slept[0] == POLL_S
    assert RETRY_S in slept
    assert set(notices) == {NO_ANSWER}
    assert counted(world)["bundle_made"] == 2


def test_self_check_expects_what_the_release_says(world: World) -> None:
    manifest = parse_manifest(world.deployment.manifest)
    tcb = Tcb(bl=9, tee=0, snp=8, ucode=7)
    manifest = replace(manifest, min_tcb={Product.GENOA: tcb})
    expected = expectations_of(world.config, world.anchors, manifest)
    assert expected.environment is Environment.DEVELOPMENT
    assert expected.release_names == {"curtilage-enclave"}
    assert expected.required_cpu_tees == {
        Tee.EMULATED_SEV_SNP.value,
        Tee.EMULATED_AZURE_SNP.value,
    }
    assert expected.snp.min_tcb == {"Genoa": tcb}
    assert expected.roots[0].kind is AnchorKind.EMULATED
    assert expected.freshness.max_evidence_age_s == 43200


@pytest.mark.parametrize("content", [None, b"", b"no certificate", b"a" * 20_000])
def test_anchor_without_a_certificate_is_refused(
    world: World, content: bytes | None
) -> None:
    path = world.folder / "root.pem"
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match="no certificate in"):
        read_anchors(world.config.anchors)


async def test_old_keys_are_overwritten_when_their_window_ends(world: World) -> None:
    """Without any request for a key in all this time: the keeper does it itself."""
    overwritten: list[float] = []
    unheard: list[str] = []
    start = world.clock.now
    slept = 0.0

    async def sleep(seconds: float) -> None:
        nonlocal slept
        slept += seconds
        world.clock.forward(seconds=seconds)
        # Hourly, as the stapler outside would.
        if slept % 3600 < seconds:
            world.publish()
        gone_s = (world.clock.now - start).total_seconds()
        # A request takes a decapsulation, so not at every step of twelve hours.
        may_be = gone_s % 3600 < seconds or gone_s > 12 * 3600 - 60
        if may_be and not overwritten and is_wiped(first):
            overwritten.append(gone_s)
        if slept > 13 * 3600:
            raise asyncio.CancelledError

    await world.keeper.renew()
    first = world.keeper.require().key
    with pytest.raises(asyncio.CancelledError):
        await world.keeper.run(unheard.append, sleep=sleep)
    # Seen at the first look after twelve hours, at most a poll later.
    (moment,) = overwritten
    assert 12 * 3600 <= moment <= 12 * 3600 + POLL_S
    current = world.keys.current
    assert current is not None
    # Its ids may be drawn again: no valid bundle names them any more.
    assert current is not first
    assert counted(world)["key_made"] == 3


async def test_release_whose_shape_changed_is_not_served(world: World) -> None:
    await world.keeper.renew()
    before = world.deployment
    manifest = replace(parse_manifest(before.manifest), transport=UNPADDED)
    leaf = encode_manifest(manifest)
    log = replace(before.log, leaves=(*before.log.leaves, leaf))
    world.deployment = replace(
        before, log=log, manifest=leaf, index=len(before.log.leaves)
    )
    world.publish()
    with pytest.raises(BundleError) as caught:
        await world.keeper.renew()
    assert caught.value.code == "transport_changed"
    assert world.keeper.require().verified.transport == QUICK


async def test_bundle_that_was_never_made_is_required_in_vain(world: World) -> None:
    with pytest.raises(BundleError, match="no bundle"):
        world.keeper.require()
