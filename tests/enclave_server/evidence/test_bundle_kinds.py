import asyncio
import base64
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path

import pytest

from curtilage.attest.binding import challenge_report_data, qualifying_data_v2
from curtilage.attest.claims import Claim
from curtilage.attest.evidence import CpuEvidence, GpuEvidence, Tee
from curtilage.attest.evidence_json import encode_cpu_evidence, parse_bundle
from curtilage.attest.expectations import (
    VENDOR_ROOT_FINGERPRINTS,
    AnchorKind,
    TrustAnchor,
)
from curtilage.attest.log.manifest import (
    ReleaseManifest,
    encode_manifest,
    parse_manifest,
)
from curtilage.attest.nitro.verify import MAX_DOCUMENT_AGE_S
from curtilage.attest.receipt import (
    NO_MODEL,
    RECEIPT_BYTES,
    decode_field,
    open_receipt,
)
from curtilage.attest.sandbox import (
    Ephemerality,
    Isolation,
    SandboxStatement,
    encode_statement,
)
from curtilage.attest.verify import verify, verify_challenge
from curtilage.enclave_server.answer.challenger import Challenger
from curtilage.enclave_server.config import AnchorFile
from curtilage.enclave_server.errors import BundleError, ConfigError, EvidenceError
from curtilage.enclave_server.evidence.bundle import MAX_BASES, BundleKeeper
from curtilage.enclave_server.evidence.release import expectations_of, read_anchors
from curtilage.enclave_server.ohttp.inner_requests import ChallengeRequest
from curtilage.enclave_server.ohttp.receipts import MIN_FRAME_BYTES
from curtilage.enclave_server.service import warn_if_unprotected
from curtilage.wire.shaping import UNPADDED
from curtilage_dev.emulated.machines import KINDS, NitroMachine
from curtilage_dev.emulated.nitro import NitroFields
from curtilage_dev.emulated.tpm import (
    EmulatedTpm,
    QuoteFields,
    make_tpm,
    ordinary_pcrs,
)
from support.enclave_deployment import AnyWorld, make_any_world
from support.enclave_parts import QUICK
from support.sandboxes import HELD, naming, statement

SHORT = [Tee.EMULATED_NITRO]


@pytest.fixture
def world(tmp_path: Path) -> AnyWorld:
    return make_any_world(tmp_path, Tee.EMULATED_NITRO)


def published(world: AnyWorld) -> bytes:
    found = world.keeper.published(world.clock.now)
    assert found is not None
    return found.bundle


async def refusal(world: AnyWorld) -> str:
    with pytest.raises(BundleError) as caught:
        await world.keeper.renew()
    assert world.keeper.published(world.clock.now) is None
    return caught.value.code


@pytest.mark.parametrize("gpus", [0, 2])
@pytest.mark.parametrize("tee", KINDS)
async def test_bundle_of_every_kind_verifies_for_a_client(
    tmp_path: Path, tee: Tee, gpus: int
) -> None:
    world = make_any_world(tmp_path, tee, gpus=gpus)
    await world.keeper.renew()
    bundle = published(world)
    verified = verify(bundle, world.deployment.expectations(), now=world.clock.now)
    held = world.keeper.require()
    assert verified.tee == tee.value
    assert len(verified.devices) == gpus
    assert verified.receipt_public_key == held.key.receipt_public_key
    assert len(verified.receipt_public_key) == 32
    assert verified.b0 == held.verified.b0
    assert world.evidence.bases == ([verified.b0] if gpus else [])
    cpu = parse_bundle(bundle).cpu
    assert held.evidence_bytes == len(encode_cpu_evidence(cpu))


@pytest.mark.parametrize("tee", KINDS)
async def test_challenge_of_every_kind_is_answered_for_a_client(
    tmp_path: Path, tee: Tee
) -> None:
    world = make_any_world(tmp_path, tee)
    await world.keeper.renew()
    expectations = world.deployment.expectations()
    key = verify(published(world), expectations, now=world.clock.now)
    # The bundle is renewed; the client still holds the one before.
    world.clock.forward(hours=1)
    world.publish()
    await world.keeper.renew()
    challenger = Challenger(
        bases=world.keeper,
        source=world.evidence,
        least_interval_s=1,
        clock=lambda: 0.0,
    )
    nonce = b"n" * 32
    challenge = ChallengeRequest(nonce=nonce, base=key.b0)
    content = await challenger.begin(world.keeper.require().key, challenge)
    evidence = content.removeprefix(b'{"evidence":').removesuffix(b"}")
    verify_challenge(evidence, key, nonce, expectations, now=world.clock.now)
    assert world.evidence.asked[-1] == challenge_report_data(
        key.b0, nonce, emulated=True
    )


async def test_release_without_gpus_is_not_asked_for_any(world: AnyWorld) -> None:
    await world.keeper.renew()
    assert world.evidence.bases == []


Order = Callable[[tuple[GpuEvidence, ...]], tuple[GpuEvidence, ...]]


def _none(_devices: tuple[GpuEvidence, ...]) -> tuple[GpuEvidence, ...]:
    return ()


def _reversed(devices: tuple[GpuEvidence, ...]) -> tuple[GpuEvidence, ...]:
    return devices[::-1]


def _twice(devices: tuple[GpuEvidence, ...]) -> tuple[GpuEvidence, ...]:
    return (devices[0], devices[0])


def _cut(devices: tuple[GpuEvidence, ...]) -> tuple[GpuEvidence, ...]:
    return (replace(devices[0], report=devices[0].report[:50]),)


@pytest.mark.parametrize(
    ("order", "code"),
    [
        (_none, "device_missing"),
        (_reversed, "binding_mismatch"),
        (_twice, "binding_mismatch"),
        (_cut, "malformed"),
    ],
)
async def test_devices_out_of_order_are_not_served(
    tmp_path: Path, order: Order, code: str
) -> None:
    world = make_any_world(tmp_path, Tee.EMULATED_NITRO, gpus=2)
    world.evidence.order = order
    assert await refusal(world) == code


@pytest.mark.parametrize("transport", [QUICK, UNPADDED])
async def test_receipts_are_offered_where_they_fit(
    tmp_path: Path, transport: object
) -> None:
    assert transport in {QUICK, UNPADDED}
    shape = QUICK if transport == QUICK else UNPADDED
    world = make_any_world(tmp_path, Tee.EMULATED_NITRO, transport=shape)
    await world.keeper.renew()
    assert len(world.keeper.require().verified.receipt_public_key) == 32


async def test_no_receipts_are_offered_where_frames_are_short(tmp_path: Path) -> None:
    short = replace(QUICK, frame_bytes=MIN_FRAME_BYTES - 1)
    world = make_any_world(tmp_path, Tee.EMULATED_NITRO, transport=short)
    await world.keeper.renew()
    assert world.keeper.require().verified.receipt_public_key == b""


async def test_without_a_digest_no_weights_are_claimed(tmp_path: Path) -> None:
    """An engine of others loaded them: the release lists none, a receipt names none."""
    world = make_any_world(
        tmp_path,
        Tee.EMULATED_NITRO,
        change=lambda manifest: replace(manifest, models=()),
    )
    keeper = BundleKeeper(
        config=world.config,
        anchors=read_anchors(world.config.anchors),
        model_sha256="",
        source=world.evidence,
        keys=world.keys,
        counters=world.counters,
        clock=world.clock,
    )
    await keeper.renew()
    held = keeper.require()
    assert Claim.WEIGHTS not in held.verified.shows
    issuer = held.key.receipts
    assert issuer is not None
    secret = b"k" * 32
    receipting = issuer.begin(secret, b"{}", int(world.clock.now.timestamp()))
    receipting.begin(200)
    receipting.model_ran()
    ((_, field),) = receipting.trailers()
    receipt = open_receipt(
        decode_field(field, length=RECEIPT_BYTES),
        public_key=held.verified.receipt_public_key,
    )
    assert receipt.model_digest == NO_MODEL


async def test_every_pair_has_a_receipt_key_of_its_own(world: AnyWorld) -> None:
    await world.keeper.renew()
    first = world.keeper.require()
    world.clock.forward(hours=1)
    world.publish()
    await world.keeper.renew()
    same = world.keeper.require()
    assert same.key is first.key
    assert same.verified.receipt_public_key == first.verified.receipt_public_key
    world.clock.forward(hours=5)
    world.publish()
    await world.keeper.renew()
    other = world.keeper.require()
    assert other.key is not first.key
    assert other.verified.receipt_public_key != first.verified.receipt_public_key


def relogged(
    world: AnyWorld, change: Callable[[ReleaseManifest], ReleaseManifest]
) -> None:
    before = world.deployment
    leaf = encode_manifest(change(parse_manifest(before.manifest)))
    log = replace(before.log, leaves=(*before.log.leaves, leaf))
    world.deployment = replace(
        before, log=log, manifest=leaf, index=len(before.log.leaves)
    )
    world.publish()


async def test_new_release_gets_a_new_pair(world: AnyWorld) -> None:
    """A receipt names one manifest: the one that its client has verified."""
    await world.keeper.renew()
    first = world.keeper.require()
    relogged(world, lambda manifest: replace(manifest, version="0.0.2"))
    await world.keeper.renew()
    second = world.keeper.require()
    assert second.key is not first.key
    assert second.verified.release_version == "0.0.2"
    usable = world.keys.usable(world.clock.now)
    assert set(first.key.key_ids) <= set(usable)


async def test_a_release_that_names_a_sandbox_is_not_vouched_for(
    tmp_path: Path,
) -> None:
    """A copied digest would claim that nothing is written."""
    digest = sha256(b"sandbox policy").hexdigest()
    world = make_any_world(
        tmp_path,
        Tee.EMULATED_NITRO,
        change=lambda manifest: replace(manifest, sandbox=digest),
    )
    with pytest.raises(BundleError, match="is in none") as refused:
        await world.keeper.renew()
    assert refused.value.code == "sandbox_not_applied"
    assert world.keeper.published(world.clock.now) is None
    assert world.evidence.asked == []


async def test_a_sandbox_is_stated_as_it_was_loaded(tmp_path: Path) -> None:
    """Never as the release says; the two are compared."""
    world = make_any_world(
        tmp_path,
        Tee.EMULATED_NITRO,
        change=lambda manifest: naming(manifest, statement()),
        sandbox=statement(),
    )
    await world.keeper.renew()
    bundle = parse_bundle(published(world))
    assert (bundle.v, bundle.sandbox) == (4, encode_statement(statement()))
    verified = world.keeper.require().verified
    assert verified.sandbox == statement()
    assert verified.shows >= {Claim.ISOLATION, Claim.EPHEMERALITY}


@pytest.mark.parametrize(
    "loaded",
    [
        statement(loaded="00" * 32),
        statement(isolation=Isolation.SHARED),
        statement(ephemerality=Ephemerality.NONE),
    ],
    ids=["digest", "isolation", "ephemerality"],
)
async def test_another_sandbox_than_the_releases_is_not_vouched_for(
    tmp_path: Path, loaded: SandboxStatement
) -> None:
    world = make_any_world(
        tmp_path,
        Tee.EMULATED_NITRO,
        change=lambda manifest: naming(manifest, statement()),
        sandbox=loaded,
    )
    assert await refusal(world) == "sandbox_not_released"
    assert world.evidence.asked == []


async def test_a_sandbox_that_no_release_names_is_not_vouched_for(
    tmp_path: Path,
) -> None:
    world = make_any_world(tmp_path, Tee.EMULATED_NITRO, sandbox=statement())
    assert await refusal(world) == "sandbox_not_released"


async def test_an_open_sandbox_is_not_served(tmp_path: Path) -> None:
    opened = statement(result=replace(HELD, landlock_abi=0))
    world = make_any_world(
        tmp_path,
        Tee.EMULATED_NITRO,
        change=lambda manifest: naming(manifest, opened),
        sandbox=opened,
    )
    assert await refusal(world) == "sandbox_open"
    assert world.keeper.published(world.clock.now) is None


async def test_without_a_launcher_nothing_is_stated(world: AnyWorld) -> None:
    await world.keeper.renew()
    bundle = parse_bundle(published(world))
    assert (bundle.v, bundle.sandbox) == (4, b"")
    shown = world.keeper.require().verified.shows
    assert not shown & {Claim.NO_WRITE, Claim.ISOLATION, Claim.EPHEMERALITY}


async def test_consistency_proof_is_read_from_its_file(world: AnyWorld) -> None:
    log = world.deployment.log
    later = replace(log, leaves=(*log.leaves, b"sixth leaf", b"seventh leaf"))
    folder = world.folder / "release"
    (folder / "checkpoint.txt").write_text(later.checkpoint(world.clock.now), "utf-8")
    assert await refusal(world) == "proof_invalid"
    hashes = later.consistency(len(log.leaves))
    lines = "".join(f"{_base64(value)}\n" for value in hashes)
    (folder / "consistency.txt").write_text(lines, "utf-8")
    await world.keeper.renew()
    bundle = parse_bundle(published(world))
    assert bundle.anchor.consistency == hashes
    assert bundle.anchor.size == len(later.leaves)


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"x\n", "malformed"),
        (b"AAAA\n", "malformed"),
        (_base64(bytes(32)).encode(), "malformed"),
        (b"\xff", "malformed"),
        (b"\n", "malformed"),
        ((_base64(bytes(32)) + "\n").encode() * 65, "too_large"),
        ((_base64(bytes(32)) + "\n").encode(), "proof_invalid"),
    ],
)
async def test_consistency_file_out_of_shape_is_refused(
    world: AnyWorld, content: bytes, code: str
) -> None:
    (world.folder / "release" / "consistency.txt").write_bytes(content)
    assert await refusal(world) == code


@pytest.mark.parametrize("tee", KINDS)
async def test_short_lived_evidence_is_renewed_in_time(
    tmp_path: Path, tee: Tee
) -> None:
    world = make_any_world(tmp_path, tee)
    await world.keeper.renew()
    due_s = world.keeper.due_in_s(world.clock.now)
    life_s = (world.keeper.require().verified.expires_at - world.clock.now).seconds
    assert due_s <= life_s / 2 or life_s == 0
    assert due_s <= (7200 if tee in SHORT else 21600)


class LongLived:
    """A Nitro machine whose certificates live for days."""

    tee = Tee.EMULATED_NITRO

    def __init__(self, machine: NitroMachine) -> None:
        self._machine = machine

    def anchor(self) -> TrustAnchor:
        return self._machine.anchor()

    def evidence(self, report_data: bytes, *, now: datetime) -> CpuEvidence:
        def change(fields: NitroFields) -> NitroFields:
            end = now + timedelta(days=3)
            chain = tuple(replace(each, not_after=end) for each in fields.chain)
            return replace(fields, chain=chain)

        return self._machine.platform.evidence(
            report_data, now=now, measurement=self._machine.image, change=change
        )


async def test_short_lived_kind_is_renewed_in_time_whatever_it_says(
    world: AnyWorld,
) -> None:
    machine = world.evidence.machine
    assert isinstance(machine, NitroMachine)
    world.evidence.machine = LongLived(machine)
    await world.keeper.renew()
    life = world.keeper.require().verified.expires_at - world.clock.now
    assert life == timedelta(seconds=MAX_DOCUMENT_AGE_S)
    assert world.keeper.due_in_s(world.clock.now) == MAX_DOCUMENT_AGE_S / 2


async def test_bases_are_those_that_were_published_for_the_key(
    world: AnyWorld,
) -> None:
    await world.keeper.renew()
    first = world.keeper.require()
    world.clock.forward(hours=1)
    world.publish()
    await world.keeper.renew()
    second = world.keeper.require()
    base_of = world.keeper.base_of
    assert base_of(first.key, b"") == second.verified.b0
    assert base_of(first.key, first.verified.b0) == first.verified.b0
    assert base_of(first.key, second.verified.b0) == second.verified.b0
    assert base_of(first.key, b"x" * 64) is None
    other = make_any_world(world.folder, Tee.EMULATED_NITRO)
    await other.keeper.renew()
    assert base_of(other.keeper.require().key, b"") is None
    assert base_of(other.keeper.require().key, first.verified.b0) is None


async def test_bases_end_with_their_bundles(world: AnyWorld) -> None:
    await world.keeper.renew()
    first = world.keeper.require()
    world.clock.now = first.verified.expires_at
    world.publish()
    await world.keeper.renew()
    assert world.keeper.base_of(first.key, first.verified.b0) is None


async def test_bases_are_bounded(world: AnyWorld) -> None:
    await world.keeper.renew()
    first = world.keeper.require()
    for renewed in range(1, MAX_BASES + 1):
        base = world.keeper.base_of(first.key, first.verified.b0)
        assert base == first.verified.b0, renewed
        world.clock.forward(seconds=1)
        world.publish()
        await world.keeper.renew()
    assert world.keeper.base_of(first.key, first.verified.b0) is None


async def test_challenger_without_a_bundle_knows_nothing(world: AnyWorld) -> None:
    assert world.keeper.evidence_bytes == 0
    assert world.keeper.emulated


async def test_two_renewals_at_a_time_make_one_key(world: AnyWorld) -> None:
    """Red team 13: two concurrent refreshes."""
    acquire = world.evidence.acquire

    async def slowly(report_data: bytes) -> CpuEvidence:
        await asyncio.sleep(0)
        return await acquire(report_data)

    world.evidence.acquire = slowly  # type: ignore[method-assign]
    await asyncio.gather(world.keeper.renew(), world.keeper.renew())
    counts = world.counters.snapshot()
    assert (counts["key_made"], counts["bundle_made"]) == (1, 2)
    assert world.keys.current is world.keeper.require().key


async def test_key_and_bundle_change_in_one_step(world: AnyWorld) -> None:
    """Red team 13: concurrent readers see an old pair or a new one."""
    await world.keeper.renew()
    old = world.keeper.require()
    world.clock.forward(hours=6)
    world.publish()
    seen: list[tuple[bool, bool]] = []
    acquire = world.evidence.acquire

    async def looking(report_data: bytes) -> CpuEvidence:
        for _ in range(3):
            await asyncio.sleep(0)
            now = world.keeper.require()
            seen.append((now is old, world.keys.current is old.key))
        return await acquire(report_data)

    world.evidence.acquire = looking  # type: ignore[method-assign]
    await world.keeper.renew()
    assert seen == [(True, True)] * 3
    new = world.keeper.require()
    assert world.keys.current is new.key
    found = world.keeper.published(world.clock.now)
    assert found is not None
    assert found.key_configs == new.key.key_configs
    # Requests sealed to the old pair still open, and are signed by the old key.
    assert set(old.key.key_ids) <= set(world.keys.usable(world.clock.now))
    assert old.key.receipt_public_key == old.verified.receipt_public_key


async def test_pair_whose_bundle_does_not_verify_is_never_used(
    world: AnyWorld,
) -> None:
    await world.keeper.renew()
    old = world.keeper.require()
    world.clock.forward(hours=6)
    world.publish()
    world.evidence.fail = True
    with pytest.raises(EvidenceError):
        await world.keeper.renew()
    assert world.keys.current is old.key
    assert world.keeper.require() is old


def test_self_check_knows_every_kind(tmp_path: Path) -> None:
    world = make_any_world(tmp_path, Tee.EMULATED_TDX, gpus=1)
    manifest = parse_manifest(world.deployment.manifest)
    expected = expectations_of(
        world.config, read_anchors(world.config.anchors), manifest
    )
    assert expected.required_cpu_tees == {"emulated-tdx"}
    assert dict(expected.required_devices) == {"emulated-nvidia-gpu": 1}
    assert expected.gpu.drivers
    assert "OutOfDate" not in expected.tdx.statuses
    assert "UpToDate" in expected.tdx.statuses


@dataclass
class TpmMachine:
    """A TPM by itself: it reports what was started, and proves no isolation."""

    tpm: EmulatedTpm
    tee: Tee = Tee.TPM

    def anchor(self) -> TrustAnchor:
        return self.tpm.anchor()

    def evidence(self, report_data: bytes, *, now: datetime) -> CpuEvidence:
        assert now.tzinfo is UTC
        fields = QuoteFields(extra_data=qualifying_data_v2(report_data))
        return self.tpm.evidence(fields)


def tpm_world(folder: Path) -> AnyWorld:
    pcr = ordinary_pcrs()[11].hex()
    return make_any_world(
        folder,
        Tee.EMULATED_NITRO,
        machine=TpmMachine(make_tpm(elliptic=True)),
        change=lambda manifest: replace(
            manifest, measurements={"tpm": ({"pcr11": pcr},)}
        ),
    )


async def test_tpm_by_itself_is_served_in_development(tmp_path: Path) -> None:
    world = tpm_world(tmp_path)
    await world.keeper.renew()
    verified = world.keeper.require().verified
    assert verified.tee == "tpm"
    assert not verified.emulated
    assert not world.keeper.emulated


async def test_tpm_by_itself_is_announced(tmp_path: Path) -> None:
    world = tpm_world(tmp_path)
    await world.keeper.renew()
    notices: list[str] = []
    warn_if_unprotected(world.keeper.require(), notices.append)
    assert [notice.partition(":")[0] for notice in notices] == ["NO ISOLATION"]


@pytest.mark.parametrize(
    ("kind", "product"),
    [
        *(("amd", "Milan"), ("amd", "Genoa"), ("amd", "Turin")),
        *(("intel", ""), ("aws", ""), ("nvidia", "")),
    ],
)
def test_vendor_without_a_file_is_pinned_by_its_fingerprint(
    kind: str, product: str
) -> None:
    file = AnchorFile(kind=kind, product=product, certificate=None)
    (anchor,) = read_anchors((file,))
    roots = VENDOR_ROOT_FINGERPRINTS[AnchorKind(kind)]
    assert anchor.fingerprint == roots[product]
    assert anchor.certificate_der == b""


@pytest.mark.parametrize("content", [b"", b"no key", b"-----BEGIN PUBLIC KEY-----"])
def test_tpm_anchor_without_a_key_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "ak.pem"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match="no key in"):
        read_anchors((AnchorFile(kind="tpm", product="", certificate=path),))
