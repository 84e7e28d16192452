"""Verification of an evidence bundle, in numbered steps, to a key to seal to.

    1. expectations: they permit something, and nothing emulated in production
    2. bundle: size, strict JSON, every field's type and bound
    3. kind of evidence: one that the expectations name
    4. key window: begun, not ended, not longer than allowed
    5. log checkpoint: the anchor is a tree head, signed and witnessed
    6. release proof: the manifest is in that log
    7. log consistency: anchor and proof speak of one history
    8. release manifest: canonical, of an allowed name, not denied or withdrawn
    9. freshness: anchor and proof are recent
    10. the CPU's evidence: the steps of its kind's verifier
    11. pinned measurement: where the policy pins some in addition to releases
    12. platform: not denied, and allowed
    13. required devices: as many as wanted, of kinds that are named
    14. each device's evidence: the steps of its verifier, then its nonce
    15. distinct devices: none is listed twice
    16. report data: all of it binds exactly these keys, window, release, devices
    17. sandbox: what is bound is the release's, and its self-test holds
    18. transport parameters: what is bound is the release's, and accepted

Steps 1 to 9 and 11 to 18 are in ``bundle_checks``; ``dispatch`` knows which vendor's
verifier judges which evidence. Numbers run through: a verdict's steps count what ran
for it.

The clock is an argument and nothing is fetched, so the same bytes at the same
time always give the same verdict. This does not show that two clients see the
same keys, that the release itself is good, or that the machine has not been
opened; and emulated evidence, or a TPM's alone, proves no isolation at all.
"""

import hashlib
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Final

from curtilage.attest import bundle_checks as checks
from curtilage.attest.binding import NONCE_BYTES, challenge_report_data
from curtilage.attest.bundle_checks import Setting, moment
from curtilage.attest.claims import Claim, CpuClaims, DeviceClaims, Link
from curtilage.attest.dispatch import Accepted, verify_cpu, verify_device_report
from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.evidence import EvidenceBundle
from curtilage.attest.evidence_json import parse_cpu_evidence
from curtilage.attest.expectations import Expectations
from curtilage.attest.log.manifest import ReleaseManifest
from curtilage.attest.sandbox import Ephemerality, Isolation, SandboxStatement
from curtilage.attest.steps import Check, StepLog, refusing
from curtilage.attest.verified_key import VERIFY_DOOR, VerifiedKey, require_verified

__all__ = ["VerifiedKey", "require_verified", "verify", "verify_challenge"]

# What the hardware measured first, by which a person knows a machine.
_FIRST_REGISTERS: Final = ("launch", "mrtd", "pcr0")


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
    setting = Setting(expectations=expectations, now=now, log=log)
    return refusing(log, lambda: _verify(bundle, setting))


def verify_challenge(
    evidence: bytes,
    key: VerifiedKey,
    nonce: bytes,
    expectations: Expectations,
    *,
    now: datetime,
) -> None:
    """Refuse an answer to a challenge that is not from this key's enclave, now.

    Proves that the machine which was verified is there at this moment: the same
    kind, registers and platform, no lower patch levels than policy and release
    want, and a report over our nonce and the key's binding. Where evidence names
    no platform, any machine that runs the same is accepted. Devices are not asked
    again.

    Args:
        evidence: ``encode_cpu_evidence`` JSON; nothing in it is trusted.
        key: the key that the challenge was sealed to.
        nonce: 32 bytes that have not been used before.
        expectations: those that the key was verified under; others refuse.
        now: the time, aware.

    Raises:
        RefusedError: one step did not hold; ``steps`` ends with that one.
        TypeError: ``key`` is not a verified one.
        ValueError: ``nonce`` is not 32 bytes.
    """
    # A key that was built by other means would bring registers of its own choosing,
    # against which the answer is then compared.
    verified = require_verified(key)
    # A mistake of the caller's and no refusal: nothing has come from outside yet.
    if len(nonce) != NONCE_BYTES:
        raise ValueError(f"nonce is not {NONCE_BYTES} bytes")
    log = StepLog()
    setting = Setting(expectations=expectations, now=now, log=log)
    refusing(log, lambda: _verify_challenge(evidence, verified, nonce, setting))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Findings:
    """The verified parts of a verdict."""

    bundle: EvidenceBundle
    manifest: ReleaseManifest
    vouched: int
    released: int
    b0: bytes
    claims: CpuClaims
    devices: tuple[DeviceClaims, ...]
    sandbox: SandboxStatement | None


def _verify(data: bytes, setting: Setting) -> VerifiedKey:
    # 1. Before anything in the bundle is checked: nothing below can make up for a
    # policy that permits everything, or nothing.
    checks.check_expectations(setting)
    # 2, 3, 4. Shape, kind and clock: cheap, and they need no key of anybody's. An
    # attacker who floods us with bundles is stopped before a signature is computed.
    bundle = checks.check_bundle(data, setting)
    checks.check_kind(bundle.cpu.tee, setting)
    checks.check_window(bundle, setting)
    # 5, 6, 7. What is public comes before what the machine says: a release that is not
    # in the log, or only in the tree that one client is shown, is refused whatever
    # hardware runs it.
    trusted = checks.trusted_log(setting.expectations.log)
    anchor = checks.check_checkpoint(bundle, trusted, setting)
    logged = checks.check_proof(bundle, trusted, setting)
    checks.check_consistency(bundle, logged, anchor, setting)
    # 8, 9. Only a manifest whose place in the log is proven is read at all.
    manifest = checks.check_manifest(bundle, setting)
    released = checks.check_freshness(bundle, logged, setting)
    # 10. From the pinned root to the measurement, which must be the release's: the
    # measurements come from the manifest just proven, never from the bundle.
    accepted = Accepted.of_release(manifest, bundle.cpu.tee.value)
    claims = verify_cpu(
        bundle.cpu, setting.expectations, accepted, now=setting.now, log=setting.log
    )
    # 11, 12. What the policy adds to the release.
    checks.check_pinned(claims, setting)
    checks.check_platform(claims.platform, setting)
    # 13, 14, 15. Every device in turn. Its nonce is derived from the binding, so its
    # report was made for these keys and this place, and no other bundle may use it.
    b0 = checks.base_of(bundle)
    checks.check_required_devices(bundle, setting)
    devices: tuple[DeviceClaims, ...] = ()
    for evidence, index in zip(
        bundle.devices, checks.device_indices(bundle), strict=True
    ):
        device = verify_device_report(
            evidence,
            setting.expectations,
            accepted,
            index=index,
            now=setting.now,
            log=setting.log,
        )
        checks.check_device_nonce(device, b0, setting)
        devices += (device,)
    checks.check_distinct(devices, setting)
    # 16. The step that binds all others to these keys: without it, an attacker could
    # pair genuine evidence of a good enclave with the attacker's own keys. Last of the
    # evidence, because it covers what every device signed.
    checks.check_report_data(claims, devices, b0, setting)
    # 17, 18. What is bound by now is the enclave's own word; here it is compared with
    # what its release says in public.
    sandbox = checks.check_sandbox(bundle, manifest, setting)
    checks.check_transport(bundle, manifest, setting)
    vouched = anchor.vouched_time(setting.expectations.log.quorum)
    findings = _Findings(
        bundle=bundle,
        manifest=manifest,
        # A witness whose clock runs ahead must not make evidence look younger.
        vouched=min(vouched, int(setting.now.timestamp())),
        released=released,
        b0=b0,
        claims=claims,
        devices=devices,
        sandbox=sandbox,
    )
    return _verdict(findings, setting)


def _verify_challenge(
    data: bytes, key: VerifiedKey, nonce: bytes, setting: Setting
) -> None:
    checks.check_expectations(setting)
    setting.log.begin(Check.CHALLENGE)
    # Otherwise a policy that has become stricter would be bypassed: the key was
    # verified under the old one. The caller verifies the bundle again.
    if setting.expectations.digest != key.expectations_digest:
        raise RefusedError(
            RefusalCode.POLICY_INVALID, "the key was verified under another policy"
        )
    key.usable_at(setting.now)
    evidence = parse_cpu_evidence(data)
    # An emulator, or a TPM by itself, must not answer for hardware.
    if evidence.tee is not key.claims.tee:
        raise RefusedError(RefusalCode.BINDING_MISMATCH, "evidence of another kind")
    setting.log.passed(f"answered with {evidence.tee}")
    # Only the registers that were verified are accepted.
    claims = verify_cpu(
        evidence,
        setting.expectations,
        Accepted(measurements=(key.claims.registers,), min_tcb=key.min_tcb),
        now=setting.now,
        log=setting.log,
    )
    setting.log.begin(Check.CHALLENGE_BINDING)
    # All registers and the platform, not only those that a measurement names: the
    # question is whether it is still the same machine.
    same = (claims.registers, claims.platform)
    if same != (key.claims.registers, key.claims.platform):
        raise RefusedError(RefusalCode.BINDING_MISMATCH, "another machine answered")
    # Over our nonce, so not recorded earlier, and over the key's binding, so not
    # fetched from an honest enclave that holds other keys. The label is another than
    # a bundle's: an answer to a challenge is no evidence for a bundle, nor is a
    # bundle's an answer.
    expected = challenge_report_data(key.b0, nonce, emulated=claims.tee.emulated)
    if claims.bound != checks.carried(expected, claims.tee):
        raise RefusedError(
            RefusalCode.BINDING_MISMATCH, "the answer is to another challenge"
        )
    setting.log.passed(
        "made now, by the machine that was verified"
        if claims.platform
        else "made now, by a machine that runs the same and does not identify itself"
    )


def _verdict(findings: _Findings, setting: Setting) -> VerifiedKey:
    bundle, manifest, claims = findings.bundle, findings.manifest, findings.claims
    sandbox = findings.sandbox
    expiries = _expiries(findings, setting)
    # What a data class may demand and this evidence shows.
    shown = {
        Claim.HARDWARE: claims.tee.isolates,
        # A policy for development may let emulated devices pass; they show nothing.
        Claim.GPU: any(not device.kind.emulated for device in findings.devices),
        # The enclave serves no model but those that its release lists.
        Claim.WEIGHTS: bool(manifest.models),
        # Which sandboxes keep an enclave from writing is for the policy to say; without
        # a statement nothing shows that one was loaded.
        Claim.NO_WRITE: sandbox is not None
        and manifest.sandbox in setting.expectations.sandbox,
        # A custodian's word: evidence does not show who can reach the machine.
        Claim.CUSTODY: _in_custody(findings, setting),
        Claim.ISOLATION: sandbox is not None and sandbox.isolation is Isolation.PROCESS,
        Claim.EPHEMERALITY: sandbox is not None
        and sandbox.ephemerality is not Ephemerality.NONE,
    }
    # A TPM's quote need not have register 0; then the first that is there.
    names = [name for name in _FIRST_REGISTERS if name in claims.registers]
    first = (names or sorted(claims.registers))[0]
    return VerifiedKey(
        key_configs=bundle.key_configs,
        key_configs_digest=_digest(bundle.key_configs),
        not_before=moment(bundle.not_before),
        not_after=moment(bundle.not_after),
        expires_at=min(end for _, end in expiries),
        expiries=expiries,
        tee=claims.tee.value,
        emulated=claims.tee.emulated,
        release_name=manifest.name,
        release_version=manifest.version,
        release_digest=hashlib.sha256(bundle.release.manifest).digest(),
        model_digests=frozenset(bytes.fromhex(each) for each in manifest.models),
        measurement=claims.registers[first],
        residency=manifest.residency,
        transport=manifest.transport,
        expectations_digest=setting.expectations.digest,
        claims=claims,
        min_tcb=MappingProxyType(dict(manifest.min_tcb)),
        devices=findings.devices,
        shows=frozenset(claim for claim, holds in shown.items() if holds),
        anchor_time=moment(bundle.anchor.time),
        anchor_vouched=moment(findings.vouched),
        b0=findings.b0,
        receipt_public_key=bundle.receipt_public_key,
        sandbox=sandbox,
        links=_links(findings),
        steps=setting.log.steps,
        verdict_id=_verdict_id(setting.expectations, claims),
        door=VERIFY_DOOR,
    )


def _in_custody(findings: _Findings, setting: Setting) -> bool:
    custody, platform = setting.expectations.custody, findings.claims.platform
    return custody is not None and custody.covers(platform, setting.now.timestamp())


def _expiries(
    findings: _Findings, setting: Setting
) -> tuple[tuple[str, datetime], ...]:
    """Return everything that the verdict depends on, and when it expires."""
    bundle, expectations = findings.bundle, setting.expectations
    custody = expectations.custody
    # All of them: the earliest ends the verdict, so that none of them is trusted for
    # longer than its issuer said.
    return (
        ("key window", moment(bundle.not_after)),
        (
            "evidence age",
            moment(bundle.anchor.time + expectations.freshness.max_evidence_age_s),
        ),
        ("CPU endorsements", findings.claims.expires_at),
        *(
            (f"{device.kind} {device.index} endorsements", device.expires_at)
            for device in findings.devices
        ),
        ("release", moment(findings.manifest.not_after)),
        (
            "release proof",
            moment(findings.released + expectations.log.max_checkpoint_age_s),
        ),
        # Only where it shows something: a list that has ended ends no other claim.
        *(
            [("custody list", moment(custody.until))]
            if custody is not None and _in_custody(findings, setting)
            else []
        ),
    )


def _links(findings: _Findings) -> tuple[Link, ...]:
    bundle, manifest = findings.bundle, findings.manifest
    release = f"{manifest.name} {manifest.version}"
    return (
        # Root first: people read the chain of trust from the root to the key.
        *findings.claims.links,
        *(link for device in findings.devices for link in device.links),
        Link(
            subject=release,
            issuer=f"log {bundle.anchor.origin}",
            role="published release",
            fingerprint=_digest(bundle.release.manifest),
            not_after=moment(manifest.not_after),
        ),
        Link(
            subject="key configurations",
            issuer=f"enclave running {release}",
            role="key to seal to",
            fingerprint=_digest(bundle.key_configs),
            not_after=moment(bundle.not_after),
        ),
    )


def _verdict_id(expectations: Expectations, claims: CpuClaims) -> str:
    # Only what was signed: a bundle's JSON and its signatures are malleable, and
    # a verdict must not get a second name through them. What is bound covers
    # keys, window, release, devices and kind of evidence.
    # The whole digest: the enclave's operator chooses the keys, so half of it could
    # be made to collide, and a truncated one in an hour.
    registers = "\n".join(
        f"{name}={value}" for name, value in sorted(claims.registers.items())
    )
    who = f"{claims.tee}\n{claims.platform}"
    named = f"{expectations.digest}\n{who}\n{registers}\n{claims.bound.hex()}"
    return _digest(named.encode())


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
