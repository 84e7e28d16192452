"""The verification steps of a bundle, other than those of the evidence in it.

Each takes values that are not trusted yet, compares them with trusted ones, and
refuses by raising. ``verify`` determines their order.
"""

import hashlib
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from curtilage.attest.binding import (
    BindingInputs,
    SignedDevice,
    base_hash_v2,
    base_hash_v3,
    device_nonce_v2,
    qualifying_data_v2,
    report_data_v2,
)
from curtilage.attest.claims import (
    CpuClaims,
    DeviceClaims,
    difference,
    measurement_matches,
)
from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.evidence import (
    PREVIOUS_BUNDLE_VERSION,
    DeviceKind,
    EvidenceBundle,
    Tee,
)
from curtilage.attest.evidence_json import parse_bundle
from curtilage.attest.expectations import (
    Environment,
    Expectations,
    LogExpectations,
    PlatformExpectations,
    names_of,
)
from curtilage.attest.expectations_checks import (
    validate_evidence_expectations,
    validate_expectations,
)
from curtilage.attest.log.manifest import ReleaseManifest, parse_manifest
from curtilage.attest.log.note import (
    Checkpoint,
    NoteKey,
    TrustedLog,
    verify_checkpoint,
    verify_proof,
)
from curtilage.attest.log.tree import verify_consistency
from curtilage.attest.sandbox import SandboxStatement, parse_statement, require_held
from curtilage.attest.steps import Check, StepLog
from curtilage.wire.shaping import Shape, TransportParameters


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The inputs of every step.

    Attributes:
        expectations: the policy's rules.
        now: the time, aware.
        log: where each step is noted as it passes.
    """

    expectations: Expectations
    now: datetime
    log: StepLog


def check_expectations(setting: Setting) -> None:
    """Refuse a policy that permits nothing or too much, and a clock of no zone."""
    setting.log.begin(Check.EXPECTATIONS)
    _require_zone(setting)
    validate_expectations(setting.expectations)
    _pass_expectations(setting)


def check_evidence_expectations(setting: Setting) -> None:
    """Do the same for one piece of evidence, which comes in no bundle."""
    setting.log.begin(Check.EXPECTATIONS)
    _require_zone(setting)
    validate_evidence_expectations(setting.expectations)
    _pass_expectations(setting)


def _require_zone(setting: Setting) -> None:
    # A naive clock is somebody's local time: off by hours, and every date below would
    # be compared with the wrong one.
    if setting.now.tzinfo is None:
        raise RefusedError(RefusalCode.POLICY_INVALID, "the clock has no time zone")


def _pass_expectations(setting: Setting) -> None:
    expectations = setting.expectations
    setting.log.passed(f"{expectations.environment} policy {expectations.digest[:23]}")


def check_bundle(data: bytes, setting: Setting) -> EvidenceBundle:
    """Parse the bundle; shape only."""
    setting.log.begin(Check.BUNDLE)
    bundle = parse_bundle(data)
    setting.log.passed(f"version {bundle.v}, {len(data)} bytes")
    return bundle


def check_kind(tee: Tee, setting: Setting) -> None:
    """Refuse a kind of evidence that the policy does not name."""
    # The claimed kind only chooses which roots apply; it is trusted once a chain
    # to one of those roots is verified.
    expectations, log = setting.expectations, setting.log
    log.begin(Check.EVIDENCE_KIND)
    # Twice, by the environment and by the list of kinds: one typing error in a policy
    # must not let an emulator in.
    production = expectations.environment is Environment.PRODUCTION
    named = tee.value in expectations.required_cpu_tees
    if tee.emulated and (production or not named):
        raise RefusedError(
            RefusalCode.EMULATED_REFUSED, "the policy does not ask for emulation"
        )
    if not tee.isolates and production:
        raise RefusedError(
            RefusalCode.EMULATED_REFUSED, "a TPM by itself shows no isolation"
        )
    if not named:
        raise RefusedError(
            RefusalCode.UNSUPPORTED_PRODUCT, f"the policy does not name {tee}"
        )
    log.passed(f"{tee}{'' if tee.isolates else ', which proves no isolation'}")


def check_window(bundle: EvidenceBundle, setting: Setting) -> None:
    """Refuse a key whose window is too long or does not include now."""
    # The window is signed ("report data"); here it is compared with the clock.
    setting.log.begin(Check.KEY_WINDOW)
    freshness = setting.expectations.freshness
    now = setting.now.timestamp()
    # A long window is a long time in which a key that was stolen can be used, so its
    # length is ours to bound, whatever the enclave signed.
    lifetime = bundle.not_after - bundle.not_before
    if lifetime <= 0:
        raise RefusedError(RefusalCode.MALFORMED, "the window ends before it begins")
    if lifetime > freshness.max_key_lifetime_s:
        raise RefusedError(
            RefusalCode.STALE,
            f"{lifetime} s, at most {freshness.max_key_lifetime_s} s allowed",
        )
    # Allowance for the enclave's clock at the beginning only: at the end it would be a
    # longer life for the key.
    if now + freshness.clock_skew_s < bundle.not_before:
        raise RefusedError(RefusalCode.NOT_YET_VALID, "the window has not begun")
    if now >= bundle.not_after:
        raise RefusedError(RefusalCode.STALE, "the window has ended")
    setting.log.passed(f"until {moment(bundle.not_after):%Y-%m-%d %H:%M:%S} UTC")


def trusted_log(log: LogExpectations) -> TrustedLog:
    """Return the policy's log as ``log.note`` wants it."""
    return TrustedLog(
        origin=log.origin,
        # By convention a log's key has the name of its origin (tlog-checkpoint).
        key=NoteKey(name=log.origin, public_key=log.public_key),
        witnesses=tuple(
            NoteKey(name=name, public_key=key) for name, key in log.witnesses.items()
        ),
    )


def check_checkpoint(
    bundle: EvidenceBundle, trusted: TrustedLog, setting: Setting
) -> Checkpoint:
    """Refuse an anchor that is no signed and witnessed tree head."""
    # The anchor's four values are those of a note that the log signed and that a
    # quorum saw no earlier than the anchor's time.
    setting.log.begin(Check.LOG_CHECKPOINT)
    anchor = bundle.anchor
    # The bundle's own numbers are what the binding covers, the note's are what the log
    # signed: only where both are equal does the log speak of what the hardware signed.
    checkpoint = verify_checkpoint(anchor.checkpoint, trusted)
    claimed = (anchor.origin, anchor.size, anchor.root)
    if claimed != (checkpoint.origin, checkpoint.size, checkpoint.root):
        raise RefusedError(
            RefusalCode.PROOF_INVALID, "the anchor is not its own checkpoint"
        )
    quorum = setting.expectations.log.quorum
    # The anchor's time is the enclave's claim. Were it later than any witness saw the
    # tree, evidence could be dated into the future and stay "fresh" for as long.
    if checkpoint.vouched_time(quorum) < anchor.time:
        raise RefusedError(
            RefusalCode.QUORUM_NOT_MET, "no quorum has reached the anchor's time"
        )
    setting.log.passed(
        f"{checkpoint.origin} at size {checkpoint.size}, "
        f"{len(checkpoint.cosigned)} of {len(trusted.witnesses)} witnesses"
    )
    return checkpoint


def check_proof(
    bundle: EvidenceBundle, trusted: TrustedLog, setting: Setting
) -> Checkpoint:
    """Refuse a manifest that is not in the log."""
    # The proof carries a checkpoint of its own, verified like the anchor's.
    setting.log.begin(Check.RELEASE_PROOF)
    # Distinguished from a proof that does not hold: an operator who forgot to publish
    # needs another word than an attacker.
    if not bundle.release.proof:
        raise RefusedError(RefusalCode.RELEASE_NOT_LOGGED, "no proof was served")
    inclusion = verify_proof(
        bundle.release.proof, leaf=bundle.release.manifest, log=trusted
    )
    setting.log.passed(f"leaf {inclusion.index} of {inclusion.checkpoint.size}")
    return inclusion.checkpoint


def check_consistency(
    bundle: EvidenceBundle, logged: Checkpoint, anchor: Checkpoint, setting: Setting
) -> None:
    """Refuse a log that showed two histories: at one size, or between two."""
    setting.log.begin(Check.LOG_CONSISTENCY)
    # A log that shows the client one tree and everybody else another has to keep the
    # two apart for ever. Proof and anchor are two heads of one log, so they must be of
    # one tree.
    first, second = sorted((logged, anchor), key=lambda head: head.size)
    verify_consistency(
        first.size,
        first.root,
        second.size,
        second.root,
        bundle.anchor.consistency,
    )
    setting.log.passed(f"the tree of {first.size} begins the tree of {second.size}")


def check_manifest(bundle: EvidenceBundle, setting: Setting) -> ReleaseManifest:
    """Refuse a release that the policy does not want."""
    # A logged manifest says what a release is, not that we want it.
    expectations = setting.expectations
    setting.log.begin(Check.RELEASE_MANIFEST)
    manifest = parse_manifest(bundle.release.manifest)
    # The same log may publish other software of the same people, each properly logged
    # and none of it fit for our data.
    if manifest.name not in expectations.release_names:
        raise RefusedError(
            RefusalCode.RELEASE_NOT_LOGGED, "the policy names another release"
        )
    # A log never forgets, so a bad release stays provable for ever; a policy must be
    # able to say no by name.
    if f"{manifest.name} {manifest.version}" in expectations.denied_releases:
        raise RefusedError(RefusalCode.RELEASE_DENIED, "the policy denies this release")
    if setting.now.timestamp() >= manifest.not_after:
        raise RefusedError(RefusalCode.STALE, "the release has been withdrawn")
    setting.log.passed(f"{manifest.name} {manifest.version}")
    return manifest


def check_freshness(
    bundle: EvidenceBundle, logged: Checkpoint, setting: Setting
) -> int:
    """Refuse evidence or a proof that is too old; return the proof's time."""
    # The evidence is no older than its anchor, the proof no older than its
    # checkpoint; the time at which the latter was witnessed is returned.
    setting.log.begin(Check.FRESHNESS)
    expectations, now = setting.expectations, setting.now.timestamp()
    # Not the log's own time: a quorum of witnesses, each with a clock of its own.
    released = logged.vouched_time(expectations.log.quorum)
    age = now - bundle.anchor.time
    proof_age = now - released
    # An age below zero is a clock that runs ahead. Beyond the allowance it is either
    # broken or somebody's attempt to make evidence last longer.
    if min(age, proof_age) < -expectations.freshness.clock_skew_s:
        raise RefusedError(RefusalCode.NOT_YET_VALID, "a checkpoint of the future")
    # Old evidence may be of an enclave that has been shut down since, and whose keys
    # somebody else has by now.
    if age >= expectations.freshness.max_evidence_age_s:
        raise RefusedError(RefusalCode.STALE, f"the anchor is {age:.0f} s old, too old")
    # An old proof is still valid; but a log that has stopped is not monitored, so a
    # fork would not be seen.
    if proof_age >= expectations.log.max_checkpoint_age_s:
        raise RefusedError(
            RefusalCode.CHECKPOINT_STALE, f"the proof is {proof_age:.0f} s old, too old"
        )
    setting.log.passed(f"evidence at most {max(age, 0):.0f} s old")
    return released


def check_pinned(claims: CpuClaims, setting: Setting) -> None:
    """Refuse a measurement that is released but not among the pinned ones."""
    # A policy may pin measurements in addition to releases; then both must hold.
    pinned = setting.expectations.measurements.get(claims.tee.value)
    if pinned is None:
        return
    setting.log.begin(Check.PINNED_MEASUREMENT)
    if not measurement_matches(claims.registers, pinned, claims.tee):
        raise RefusedError(
            RefusalCode.MEASUREMENT_NOT_ALLOWED,
            "released, but the policy pins others; "
            f"{difference(claims.registers, pinned, claims.tee)}",
        )
    setting.log.passed(f"one of {len(pinned)} that the policy pins")


def check_platform(platform: str, setting: Setting) -> None:
    """Refuse a machine that the policy denies, or does not allow."""
    expected, custody = setting.expectations.platforms, setting.expectations.custody
    setting.log.begin(Check.PLATFORM)
    if expected == PlatformExpectations() and custody is None:
        setting.log.passed("any machine is accepted")
        return
    # An empty name on a list of denied machines would match nothing, and so be let in.
    if not platform:
        raise RefusedError(
            RefusalCode.PLATFORM_DENIED,
            "the policy lists machines, and the evidence names none",
        )
    names = names_of(platform)
    # Denied first: a machine on both lists is denied.
    if names & expected.deny:
        raise RefusedError(RefusalCode.PLATFORM_DENIED, "the policy denies it")
    if expected.allow is not None and not names & expected.allow:
        raise RefusedError(RefusalCode.PLATFORM_DENIED, "the policy does not allow it")
    setting.log.passed(f"{platform[:16]} is allowed")


def check_required_devices(bundle: EvidenceBundle, setting: Setting) -> None:
    """Refuse a bundle with too few devices, or of kinds that are not named."""
    setting.log.begin(Check.REQUIRED_DEVICES)
    required = setting.expectations.required_devices
    # By kind, for a policy asks for so many of a kind and knows no single device.
    present = Counter(device.kind.value for device in bundle.devices)
    # Also kinds that are not required: a bundle's contents are bound by the evidence
    # and shown to people, so all of them must be checked.
    for kind in present:
        check_device_kind(DeviceKind(kind), setting)
    for kind, count in required.items():
        # "At least": a server with eight GPUs may serve a policy that wants one.
        if present[kind] < count:
            raise RefusedError(
                RefusalCode.DEVICE_MISSING,
                f"{present[kind]} of kind {kind}, at least {count} wanted",
            )
    setting.log.passed(
        ", ".join(f"{count} of kind {kind}" for kind, count in sorted(present.items()))
        or "none, and none is required"
    )


def check_device_kind(kind: DeviceKind, setting: Setting) -> None:
    """Refuse a kind of device that the policy does not name."""
    expectations = setting.expectations
    production = expectations.environment is Environment.PRODUCTION
    named = kind.value in expectations.required_devices
    if kind.emulated and (production or not named):
        raise RefusedError(
            RefusalCode.EMULATED_REFUSED, "the policy requires no emulated device"
        )
    if not named:
        raise RefusedError(
            RefusalCode.DEVICE_MISMATCH, f"the policy does not name {kind}"
        )


def device_indices(bundle: EvidenceBundle) -> tuple[int, ...]:
    """Return each device's place among those of its kind, from 0."""
    # Counted per kind and never taken from the bundle: an index that the sender could
    # choose would let one report stand for two devices.
    seen: Counter[str] = Counter()
    indices: list[int] = []
    for device in bundle.devices:
        indices.append(seen[device.kind.value])
        seen[device.kind.value] += 1
    return tuple(indices)


def check_device_nonce(claims: DeviceClaims, b0: bytes, setting: Setting) -> None:
    """Refuse a device's report that was not made for this bundle and place."""
    setting.log.begin(Check.DEVICE_NONCE)
    # The nonce is derived from the binding and the place. A report made for another
    # enclave, or recorded earlier, has another.
    if claims.nonce != device_nonce_v2(b0, claims.kind.value, claims.index):
        raise RefusedError(
            RefusalCode.BINDING_MISMATCH, "the device's report was made for others"
        )
    setting.log.passed(f"{claims.kind} {claims.index}, made for these keys")


def check_distinct(devices: tuple[DeviceClaims, ...], setting: Setting) -> None:
    """Refuse a device that is listed twice."""
    if not devices:
        return
    setting.log.begin(Check.DISTINCT_DEVICES)
    # By the key burnt into the device, for one GPU that is asked twice signs two
    # different, and both true, reports.
    if len({device.device for device in devices}) < len(devices):
        raise RefusedError(RefusalCode.DEVICE_MISMATCH, "one device is named twice")
    setting.log.passed(f"{len(devices)} signed, each with a key of its own")


def check_report_data(
    claims: CpuClaims,
    devices: tuple[DeviceClaims, ...],
    b0: bytes,
    setting: Setting,
) -> None:
    """Refuse evidence that was made for other keys, devices or anything else."""
    # Late, because only now is it known who signed what, and that every device
    # is one: their signed parts are inside.
    setting.log.begin(Check.REPORT_DATA)
    signed = tuple(
        SignedDevice(
            kind=device.kind.value, index=device.index, signed_part=device.signed_part
        )
        for device in devices
    )
    # Of each report the signed part and not the whole: ECDSA signatures are malleable,
    # so a carrier could change the report's bytes and nothing of its meaning.
    expected = report_data_v2(b0, signed, emulated=claims.tee.emulated)
    # Compared whole. Emulated evidence has a label of its own inside, so an emulator's
    # report data are never a chip's, even for the same keys.
    if claims.bound != carried(expected, claims.tee):
        raise RefusedError(
            RefusalCode.BINDING_MISMATCH, "the report was made for other keys"
        )
    setting.log.passed(
        f"{len(claims.bound)} bytes bind keys, release and {len(devices)} devices"
    )


def carried(report_data: bytes, tee: Tee) -> bytes:
    """Return what evidence of this kind signs for these 64 bytes."""
    return qualifying_data_v2(report_data) if tee.quoted else report_data


def check_sandbox(
    bundle: EvidenceBundle, manifest: ReleaseManifest, setting: Setting
) -> SandboxStatement | None:
    """Refuse an enclave whose sandbox is open, or not the one its release names.

    Returns:
        The enclave's statement; None where it makes none.
    """
    setting.log.begin(Check.SANDBOX)
    # The enclave bound a digest of what it loaded; only the release, which people can
    # read, says which digest is good. Equal also where both are empty: a release
    # without a sandbox must say so.
    if bundle.v == PREVIOUS_BUNDLE_VERSION:
        if bundle.sandbox_policy_digest.hex() != manifest.sandbox:
            raise _another_sandbox()
        setting.log.passed("version 3 shows nothing about it")
        return None
    if not bundle.sandbox:
        if manifest.sandbox:
            raise _another_sandbox()
        setting.log.passed("none, and the release names none")
        return None
    statement = parse_statement(bundle.sandbox)
    said = (statement.loaded.hex(), statement.isolation, statement.ephemerality)
    if said != (manifest.sandbox, manifest.isolation, manifest.ephemerality):
        raise _another_sandbox()
    # The same code states the result, and may run on a kernel that enforces less than
    # it was asked to.
    require_held(statement.result)
    setting.log.passed(
        f"{manifest.sandbox[:16]}, isolation {statement.isolation}, "
        f"ephemerality {statement.ephemerality}"
    )
    return statement


def _another_sandbox() -> RefusedError:
    return RefusedError(
        RefusalCode.BINDING_MISMATCH, "the release names another sandbox"
    )


def check_transport(
    bundle: EvidenceBundle, manifest: ReleaseManifest, setting: Setting
) -> None:
    """Refuse answers shaped otherwise than the release says and we accept."""
    # The binding covers these bytes, whatever they say; that they say what the
    # logged release says is compared here, and bytes that encode nothing are the
    # same as no release's.
    setting.log.begin(Check.TRANSPORT)
    if bundle.transport_parameters != manifest.transport.encode():
        raise RefusedError(
            RefusalCode.BINDING_MISMATCH, "the release names other parameters"
        )
    # Padding is what hides how long an answer is. A release may choose less of it;
    # whether that is enough is the policy's to say.
    if manifest.transport not in setting.expectations.transport:
        raise RefusedError(
            RefusalCode.TRANSPORT_NOT_ACCEPTED,
            f"the policy does not accept {_described(manifest.transport)}",
        )
    setting.log.passed(_described(manifest.transport))


def _described(transport: TransportParameters) -> str:
    if transport.shape is not Shape.PADDED:
        return transport.shape.value
    return (
        f"frames of {transport.frame_bytes} bytes, one in {transport.period_ms} ms, "
        f"{transport.first_bucket} to {transport.max_frames} of them"
    )


def base_of(bundle: EvidenceBundle) -> bytes:
    """Return the base hash that a bundle's version has, 64 bytes."""
    older = bundle.v == PREVIOUS_BUNDLE_VERSION
    return (base_hash_v2 if older else base_hash_v3)(binding_inputs(bundle))


def binding_inputs(bundle: EvidenceBundle) -> BindingInputs:
    """Return the inputs of the binding that a bundle claims."""
    return BindingInputs(
        key_configs=bundle.key_configs,
        not_before=bundle.not_before,
        not_after=bundle.not_after,
        # Of the bytes that are in the log, not of what was parsed from them.
        release_digest=hashlib.sha256(bundle.release.manifest).digest(),
        anchor_origin=bundle.anchor.origin,
        anchor_size=bundle.anchor.size,
        anchor_root=bundle.anchor.root,
        anchor_time=bundle.anchor.time,
        receipt_public_key=bundle.receipt_public_key,
        sandbox=bundle.sandbox,
        sandbox_policy_digest=bundle.sandbox_policy_digest,
        sandbox_result_digest=bundle.sandbox_result_digest,
        transport_parameters=bundle.transport_parameters,
    )


def moment(seconds: int) -> datetime:
    """Return Unix seconds as a time; far beyond the calendar is "far away"."""
    # Seconds come from a bundle and may be 2**63 - 1, for which Python has no date and
    # would raise an error in a place that expects none.
    return datetime.fromtimestamp(min(seconds, _LATEST), tz=UTC)


_LATEST: Final = int((datetime.max.replace(tzinfo=UTC) - timedelta(days=2)).timestamp())
