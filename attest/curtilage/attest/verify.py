"""Numbered steps from a bundle's bytes to a key that may be sealed to.

    1. expectations: they permit something, and nothing emulated in production
    2. bundle: size, strict JSON, every field's type and bound
    3. kind of evidence: one that the expectations name
    4. key window: begun, not ended, not longer than allowed
    5. log checkpoint: the anchor is a tree head, signed and witnessed
    6. release proof: the manifest is in that log
    7. release manifest: canonical, of an allowed name, not withdrawn
    8. freshness: anchor and proof are recent
    9. report layout: exact length, reserved bytes, version
    10. signing key: report, certificate and policy agree on its kind
    11. pinned root: chosen by product from the policy, never from the bundle
    12. certificate chain: names, usage, three RSA-4096 PSS signatures
    13. certificate dates: all valid now
    14. revocation list: the root's, current, names none of the chain
    15. report signature: ECDSA P-384 by the chip's key
    16. chip identity: the key was made for the chip in the report
    17. TCB endorsement: the key was derived for the reported patch levels
    18. guest policy: no debugging, no migration agent
    19. privilege level: an allowed VMPL
    20. minimum TCB: reported, committed and launch, each
    21. measurement: in the release; host data as expected
    22. report data: all 64 bytes bind exactly these keys, window and release
    23. transport parameters: what is bound is the release's, and accepted

Steps 9 to 21 are in ``snp``. The clock is an argument and nothing is fetched,
so the same bytes at the same time always give the same verdict. What this does
not show: that two clients see the same keys, that the log has not forked
between two sizes, that the release itself is good, and that nobody has opened
the machine; and emulated evidence proves no isolation at all.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import InitVar, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final, Never, NoReturn

from typing_extensions import override

from curtilage.attest.binding import BindingInputs, base_hash_v2, report_data_v2
from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.evidence import EvidenceBundle, Tee, parse_bundle
from curtilage.attest.expectations import (
    AnchorKind,
    Environment,
    Expectations,
    LogExpectations,
    validate_expectations,
)
from curtilage.attest.manifest import ReleaseManifest, parse_manifest
from curtilage.attest.snp import SnpClaims, SnpRules, verify_snp
from curtilage.attest.steps import Check, Step, StepLog
from curtilage.attest.tlog import (
    Checkpoint,
    NoteKey,
    TrustedLog,
    verify_checkpoint,
    verify_proof,
)
from curtilage.wire.shaping import Shape, TransportParameters

_VERDICT_ID_CHARACTERS: Final = 16
# What a refusal says when the verifier failed in a way that nobody foresaw.
UNFORESEEN: Final = "the verifier itself failed"
_SEAL: Final = object()
_ANCHOR_KINDS: Final[Mapping[Tee, AnchorKind]] = {
    Tee.SEV_SNP: AnchorKind.AMD,
    Tee.EMULATED_SEV_SNP: AnchorKind.EMULATED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedKey:
    """Key configurations that hardware, release and policy vouch for.

    Only ``verify`` can build one. Check ``usable_at`` again just before sealing.

    Attributes:
        key_configs: the exact RFC 9458 list that the evidence signs.
        key_configs_digest: SHA-256 of it, hex; the same for every client.
        not_before: start of the key's window.
        expires_at: when the first thing that this rests on runs out.
        tee: the kind of evidence.
        emulated: no hardware stands behind this.
        release_name: the release's name.
        release_version: the release's version.
        measurement: the launch measurement, lower-case hex.
        transport: how answers are shaped.
        expectations_digest: the policy that this was verified under.
        steps: what was checked, in order.
        verdict_id: a short name for this verdict; the same verdict, reached
            twice, has the same name.
    """

    key_configs: bytes
    key_configs_digest: str
    not_before: datetime
    expires_at: datetime
    tee: str
    emulated: bool
    release_name: str
    release_version: str
    measurement: str
    transport: TransportParameters
    expectations_digest: str
    steps: tuple[Step, ...] = field(repr=False)
    verdict_id: str
    seal: InitVar[object]
    _brand: object = field(init=False, repr=False, compare=False)

    def __post_init__(self, seal: object) -> None:
        """Refuse to exist unless ``verify`` made this."""
        if seal is not _SEAL:
            raise TypeError("only verify() builds a VerifiedKey")
        object.__setattr__(self, "_brand", _SEAL)

    @override
    def __init_subclass__(cls) -> None:
        """Refuse subclasses, which could answer in this one's place."""
        raise TypeError("VerifiedKey has no subclasses")

    def __copy__(self) -> Never:
        """Refuse to be copied."""
        raise TypeError("a VerifiedKey is not copied")

    def __deepcopy__(self, memo: object) -> Never:
        """Refuse to be copied."""
        raise TypeError("a VerifiedKey is not copied")

    @override
    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """Refuse to be pickled."""
        raise TypeError("a VerifiedKey is not pickled")

    def usable_at(self, now: datetime) -> None:
        """Refuse once anything that this rests on has run out.

        Raises:
            RefusedError: ``stale``.
        """
        if now >= self.expires_at:
            raise RefusedError(RefusalCode.STALE, "the verified key has expired")


def require_verified(value: object) -> VerifiedKey:
    """Return ``value`` if ``verify`` built it; the seal door asks this.

    Raises:
        TypeError: it is anything else, an unfinished ``VerifiedKey`` included.
    """
    branded = getattr(value, "_brand", None) is _SEAL
    if type(value) is not VerifiedKey or not branded:
        raise TypeError("only a VerifiedKey that verify() built may be sealed to")
    return value


def verify(bundle: bytes, expectations: Expectations, *, now: datetime) -> VerifiedKey:
    """Verify an evidence bundle, in the order of the module's list.

    Trusts nothing in ``bundle``. Every failure, foreseen or not, is a refusal.

    Args:
        bundle: the JSON bytes; longer than 256 KiB is refused unread.
        expectations: what to hold it against.
        now: the time, aware.

    Raises:
        RefusedError: one step did not hold; ``steps`` ends with that one.
    """
    log = StepLog()
    try:
        return _verify(bundle, expectations, now, log)
    except RefusedError as refusal:
        raise log.refusal(refusal.code, refusal.detail) from None
    # An outermost edge: whatever went wrong, the answer is no. The cause may
    # hold evidence bytes and is dropped.
    except Exception:  # noqa: BLE001 - see above
        raise log.refusal(RefusalCode.VERIFIER_UNAVAILABLE, UNFORESEEN) from None


def _verify(
    data: bytes, expectations: Expectations, now: datetime, log: StepLog
) -> VerifiedKey:
    _check_expectations(expectations, now, log)
    bundle = _check_bundle(data, log)
    _check_kind(bundle, expectations, log)
    _check_window(bundle, expectations, now, log)
    trusted = _trusted_log(expectations.log)
    anchor = _check_checkpoint(bundle, expectations, trusted, log)
    logged = _check_proof(bundle, trusted, anchor, log)
    manifest = _check_manifest(bundle, expectations, now, log)
    released = _check_freshness(bundle, expectations, logged, now, log)
    claims = verify_snp(
        bundle.cpu, _snp_rules(bundle, expectations, manifest), now=now, log=log
    )
    _check_report_data(bundle, claims, log)
    _check_transport(bundle, expectations, manifest, log)
    expires_at = min(
        claims.expires_at,
        _time(bundle.not_after),
        _time(manifest.not_after),
        _time(bundle.anchor.time + expectations.freshness.max_evidence_age_s),
        _time(released + expectations.log.max_checkpoint_age_s),
    )
    return _verdict(bundle, expectations, manifest, claims, expires_at, log=log)


def _check_expectations(
    expectations: Expectations, now: datetime, log: StepLog
) -> None:
    # 1. Nothing below can make up for a policy that says nothing.
    log.begin(Check.EXPECTATIONS)
    if now.tzinfo is None:
        raise RefusedError(RefusalCode.POLICY_INVALID, "the clock has no time zone")
    validate_expectations(expectations)
    log.passed(f"{expectations.environment} policy {expectations.digest[:23]}")


def _check_bundle(data: bytes, log: StepLog) -> EvidenceBundle:
    # 2. Shape only.
    log.begin(Check.BUNDLE)
    bundle = parse_bundle(data)
    log.passed(f"version {bundle.v}, {len(data)} bytes")
    return bundle


def _check_kind(
    bundle: EvidenceBundle, expectations: Expectations, log: StepLog
) -> None:
    # 3. The kind that the bundle claims only chooses which roots apply; it is
    # believed once a chain to one of those roots holds.
    log.begin(Check.EVIDENCE_KIND)
    tee = bundle.cpu.tee
    production = expectations.environment is Environment.PRODUCTION
    named = tee.value in expectations.required_cpu_tees
    if tee.emulated and (production or not named):
        raise RefusedError(
            RefusalCode.EMULATED_REFUSED, "the policy does not ask for emulation"
        )
    if not named:
        raise RefusedError(
            RefusalCode.UNSUPPORTED_PRODUCT, f"the policy does not name {tee}"
        )
    log.passed(f"{tee}{', which proves no isolation' if tee.emulated else ''}")


def _check_window(
    bundle: EvidenceBundle, expectations: Expectations, now: datetime, log: StepLog
) -> None:
    # 4. The window is signed (step 22); here it is only compared with the clock.
    log.begin(Check.KEY_WINDOW)
    freshness = expectations.freshness
    lifetime = bundle.not_after - bundle.not_before
    if lifetime <= 0:
        raise RefusedError(RefusalCode.MALFORMED, "the window ends before it begins")
    if lifetime > freshness.max_key_lifetime_s:
        raise RefusedError(
            RefusalCode.STALE,
            f"{lifetime} s, at most {freshness.max_key_lifetime_s} s allowed",
        )
    if now.timestamp() + freshness.clock_skew_s < bundle.not_before:
        raise RefusedError(RefusalCode.NOT_YET_VALID, "the window has not begun")
    if now.timestamp() >= bundle.not_after:
        raise RefusedError(RefusalCode.STALE, "the window has ended")
    log.passed(f"until {_time(bundle.not_after):%Y-%m-%d %H:%M:%S} UTC")


def _check_checkpoint(
    bundle: EvidenceBundle,
    expectations: Expectations,
    trusted: TrustedLog,
    log: StepLog,
) -> Checkpoint:
    # 5. The anchor's four values are those of a note that the log signed and
    # that a quorum saw no earlier than the anchor's time.
    log.begin(Check.LOG_CHECKPOINT)
    anchor = bundle.anchor
    checkpoint = verify_checkpoint(anchor.checkpoint, trusted)
    claimed = (anchor.origin, anchor.size, anchor.root)
    if claimed != (checkpoint.origin, checkpoint.size, checkpoint.root):
        raise RefusedError(
            RefusalCode.PROOF_INVALID, "the anchor is not its own checkpoint"
        )
    quorum = expectations.log.quorum
    if checkpoint.vouched_time(quorum) < anchor.time:
        raise RefusedError(
            RefusalCode.QUORUM_NOT_MET, "no quorum has reached the anchor's time"
        )
    log.passed(
        f"{checkpoint.origin} at size {checkpoint.size}, "
        f"{len(checkpoint.cosigned)} of {len(trusted.witnesses)} witnesses"
    )
    return checkpoint


def _check_proof(
    bundle: EvidenceBundle, trusted: TrustedLog, anchor: Checkpoint, log: StepLog
) -> Checkpoint:
    # 6. The proof carries a checkpoint of its own, verified like the anchor's.
    log.begin(Check.RELEASE_PROOF)
    if not bundle.release.proof:
        raise RefusedError(RefusalCode.RELEASE_NOT_LOGGED, "no proof was served")
    inclusion = verify_proof(
        bundle.release.proof, leaf=bundle.release.manifest, log=trusted
    )
    logged = inclusion.checkpoint
    if logged.size == anchor.size and logged.root != anchor.root:
        raise RefusedError(RefusalCode.PROOF_INVALID, "the log has forked")
    log.passed(f"leaf {inclusion.index} of {logged.size}")
    return logged


def _check_manifest(
    bundle: EvidenceBundle, expectations: Expectations, now: datetime, log: StepLog
) -> ReleaseManifest:
    # 7. A logged manifest says what a release is, not that we want it.
    log.begin(Check.RELEASE_MANIFEST)
    manifest = parse_manifest(bundle.release.manifest)
    if manifest.name not in expectations.release_names:
        raise RefusedError(
            RefusalCode.RELEASE_NOT_LOGGED, "the policy names another release"
        )
    if now.timestamp() >= manifest.not_after:
        raise RefusedError(RefusalCode.STALE, "the release has been withdrawn")
    log.passed(f"{manifest.name} {manifest.version}")
    return manifest


def _check_freshness(
    bundle: EvidenceBundle,
    expectations: Expectations,
    logged: Checkpoint,
    now: datetime,
    log: StepLog,
) -> int:
    # 8. The evidence is no older than its anchor, the proof no older than its
    # checkpoint; the time at which the latter was witnessed is returned.
    log.begin(Check.FRESHNESS)
    freshness = expectations.freshness
    released = logged.vouched_time(expectations.log.quorum)
    age = now.timestamp() - bundle.anchor.time
    proof_age = now.timestamp() - released
    if min(age, proof_age) < -freshness.clock_skew_s:
        raise RefusedError(RefusalCode.NOT_YET_VALID, "a checkpoint of the future")
    if age >= freshness.max_evidence_age_s:
        raise RefusedError(RefusalCode.STALE, f"the anchor is {age:.0f} s old, too old")
    if proof_age >= expectations.log.max_checkpoint_age_s:
        raise RefusedError(
            RefusalCode.CHECKPOINT_STALE, f"the proof is {proof_age:.0f} s old, too old"
        )
    log.passed(f"evidence at most {max(age, 0):.0f} s old")
    return released


def _snp_rules(
    bundle: EvidenceBundle, expectations: Expectations, manifest: ReleaseManifest
) -> SnpRules:
    tee = bundle.cpu.tee
    return SnpRules(
        anchors=tuple(a for a in expectations.roots if a.kind is _ANCHOR_KINDS[tee]),
        expectations=expectations.snp,
        clock_skew_s=expectations.freshness.clock_skew_s,
        release_min_tcb=manifest.min_tcb,
        measurements=frozenset(manifest.measurements.get(tee.value, ())),
    )


def _check_report_data(bundle: EvidenceBundle, claims: SnpClaims, log: StepLog) -> None:
    # 22. Last, because only now is it known who signed these 64 bytes.
    log.begin(Check.REPORT_DATA)
    expected = report_data_v2(
        base_hash_v2(binding_inputs(bundle)), (), emulated=bundle.cpu.tee.emulated
    )
    if claims.report_data != expected:
        raise RefusedError(
            RefusalCode.BINDING_MISMATCH, "the report was made for other keys"
        )
    log.passed(f"binds keys {_digest(bundle.key_configs)[:16]}")


def _check_transport(
    bundle: EvidenceBundle,
    expectations: Expectations,
    manifest: ReleaseManifest,
    log: StepLog,
) -> None:
    # 23. The binding covers these bytes, whatever they say; that they say what
    # the logged release says is compared here, and bytes that encode nothing
    # are the same as no release's.
    log.begin(Check.TRANSPORT)
    if bundle.transport_parameters != manifest.transport.encode():
        raise RefusedError(
            RefusalCode.BINDING_MISMATCH, "the release names other parameters"
        )
    if manifest.transport not in expectations.transport:
        raise RefusedError(
            RefusalCode.TRANSPORT_NOT_ACCEPTED,
            f"the policy does not accept {_described(manifest.transport)}",
        )
    log.passed(_described(manifest.transport))


def _described(transport: TransportParameters) -> str:
    if transport.shape is not Shape.PADDED:
        return transport.shape.value
    return (
        f"frames of {transport.frame_bytes} bytes, one in {transport.period_ms} ms, "
        f"{transport.first_bucket} to {transport.max_frames} of them"
    )


def binding_inputs(bundle: EvidenceBundle) -> BindingInputs:
    """Return the inputs of the binding that a bundle claims."""
    return BindingInputs(
        key_configs=bundle.key_configs,
        not_before=bundle.not_before,
        not_after=bundle.not_after,
        release_digest=hashlib.sha256(bundle.release.manifest).digest(),
        anchor_origin=bundle.anchor.origin,
        anchor_size=bundle.anchor.size,
        anchor_root=bundle.anchor.root,
        anchor_time=bundle.anchor.time,
        receipt_public_key=bundle.receipt_public_key,
        sandbox_policy_digest=bundle.sandbox_policy_digest,
        sandbox_result_digest=bundle.sandbox_result_digest,
        transport_parameters=bundle.transport_parameters,
    )


def _verdict(
    bundle: EvidenceBundle,
    expectations: Expectations,
    manifest: ReleaseManifest,
    claims: SnpClaims,
    expires_at: datetime,
    *,
    log: StepLog,
) -> VerifiedKey:
    keys = _digest(bundle.key_configs)
    return VerifiedKey(
        key_configs=bundle.key_configs,
        key_configs_digest=keys,
        not_before=_time(bundle.not_before),
        expires_at=expires_at,
        tee=bundle.cpu.tee.value,
        emulated=bundle.cpu.tee.emulated,
        release_name=manifest.name,
        release_version=manifest.version,
        measurement=claims.measurement,
        transport=manifest.transport,
        expectations_digest=expectations.digest,
        steps=log.steps,
        verdict_id=_verdict_id(expectations, claims),
        seal=_SEAL,
    )


def _verdict_id(expectations: Expectations, claims: SnpClaims) -> str:
    # Only what was signed: a bundle's JSON and its signatures are malleable, and
    # a verdict must not get a second name through them. The report data covers
    # keys, window, release and kind of evidence.
    named = f"{expectations.digest}\n{claims.measurement}\n{claims.report_data.hex()}"
    return _digest(named.encode())[:_VERDICT_ID_CHARACTERS]


def _trusted_log(log: LogExpectations) -> TrustedLog:
    return TrustedLog(
        origin=log.origin,
        key=NoteKey(name=log.origin, public_key=log.public_key),
        witnesses=tuple(
            NoteKey(name=name, public_key=key) for name, key in log.witnesses.items()
        ),
    )


def _time(seconds: int) -> datetime:
    # The window, the anchor and the proof are bounded by now; a manifest's
    # end may lie beyond what a datetime can hold, which means "far away".
    return datetime.fromtimestamp(min(seconds, _LATEST), tz=UTC)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


_LATEST: Final = int((datetime.max.replace(tzinfo=UTC) - timedelta(days=2)).timestamp())
