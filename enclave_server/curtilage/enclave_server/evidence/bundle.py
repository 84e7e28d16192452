"""The evidence bundle: assembled, verified by ourselves, then served.

The only module of the enclave that may import ``attest.verify``: a bundle that does not
verify here is never served. Renews evidence on one schedule and the key on another; if
a renewal fails, the current one is kept until it expires.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from curtilage.attest.binding import (
    BindingInputs,
    SignedDevice,
    base_hash_v3,
    report_data_v2,
)
from curtilage.attest.errors import RefusedError
from curtilage.attest.evidence import Anchor, EvidenceBundle, GpuEvidence
from curtilage.attest.evidence_json import encode_bundle, encode_cpu_evidence
from curtilage.attest.expectations import TrustAnchor
from curtilage.attest.log.note import NoteKey, TrustedLog, verify_checkpoint
from curtilage.attest.nvidia.spdm import parse_spdm_report
from curtilage.attest.receipt import NO_MODEL
from curtilage.attest.sandbox import SandboxStatement, encode_statement
from curtilage.attest.verified_key import VerifiedKey
from curtilage.attest.verify import verify
from curtilage.enclave_server.config import EnclaveConfig, LogKeys
from curtilage.enclave_server.errors import BundleError, EvidenceError
from curtilage.enclave_server.evidence.release import (
    ReleaseFiles,
    device_kinds,
    expectations_of,
    is_emulated,
    read_release,
    require_sandbox,
)
from curtilage.enclave_server.evidence.report import EvidenceSource
from curtilage.enclave_server.ohttp.keys import (
    KeyRing,
    Published,
    ReceiptTerms,
    ServerKey,
    make_key,
)
from curtilage.enclave_server.ohttp.receipts import offers_receipts
from curtilage.enclave_server.telemetry import Counters, Event

RETRY_S: Final = 30.0
"""After a failed renewal; half the evidence's lifetime is left for retries."""
POLL_S: Final = 5.0
"""Interval to check whether a key's replay set is nearly full: its last tenth
must outlast this, so that new keys exist before requests are refused."""
MAX_BASES: Final = 32
"""Bundles whose base a challenge may name; they are served for hours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A verified bundle and its key.

    Attributes:
        key: that the bundle binds.
        bundle: the bytes to serve.
        verified: the result of our own verification.
        made: when.
        evidence_bytes: length of the CPU evidence in it, encoded.
    """

    key: ServerKey
    bundle: bytes = field(repr=False)
    verified: VerifiedKey
    made: datetime
    evidence_bytes: int = 0


class BundleKeeper:
    """Holds the current bundle and renews it.

    Args:
        config: the release, the trusted parties, and lifetimes.
        anchors: the trust anchors, read.
        model_sha256: of the loaded model; the release must list it.
        source: the evidence process.
        keys: the ring that a new key is added to once its bundle is verified.
        counters: counts events.
        clock: aware UTC.
        sandbox: what this server's self-test found; None: it is in no sandbox.

    Attributes:
        failing: whether the last renewal failed.
    """

    def __init__(
        self,
        *,
        config: EnclaveConfig,
        anchors: tuple[TrustAnchor, ...],
        model_sha256: str,
        source: EvidenceSource,
        keys: KeyRing,
        counters: Counters,
        clock: Callable[[], datetime],
        sandbox: SandboxStatement | None = None,
    ) -> None:
        self._config = config
        self._sandbox = sandbox
        self._anchors = anchors
        self._model_sha256 = model_sha256
        self._source = source
        self._keys = keys
        self._counters = counters
        self._clock = clock
        self._held: Held | None = None
        self._bases: list[Held] = []
        self._renewing = asyncio.Lock()
        self.failing = False

    @property
    def held(self) -> Held | None:
        """The newest verified bundle, expired or not."""
        return self._held

    def require(self) -> Held:
        """Return the newest verified bundle.

        Raises:
            BundleError: there was none yet.
        """
        if self._held is None:
            raise BundleError("no_bundle", "no bundle has been made")
        return self._held

    def published(self, now: datetime) -> Published | None:
        """Return what may be served now; None once it has expired."""
        held = self._held
        if held is None:
            return None
        try:
            held.verified.usable_at(now)
        except RefusedError:
            return None
        return Published(
            bundle=held.bundle,
            key_configs=held.key.key_configs,
            tee=held.verified.tee,
        )

    @property
    def evidence_bytes(self) -> int:
        """The length of the current bundle's CPU evidence; 0 without a bundle."""
        return 0 if self._held is None else self._held.evidence_bytes

    @property
    def emulated(self) -> bool:
        """Whether our evidence is emulated."""
        return is_emulated(self._anchors)

    def base_of(self, key: ServerKey, base: bytes) -> bytes | None:
        """Return a B0 of ours for this key: ``base`` itself, or the newest.

        A challenge is answered only over a base that was in one of our bundles.

        Args:
            key: that the challenge was sealed to.
            base: that the client holds, 64 bytes; empty for the newest.
        """
        ours = [held.verified.b0 for held in self._bases if held.key is key]
        if not base:
            return ours[-1] if ours else None
        return base if base in ours else None

    async def renew(self) -> None:
        """Make a bundle for the current key, or for a new one when it is due.

        Key and bundle change in one step, after the bundle is verified. Concurrent
        calls wait for each other.

        Raises:
            EvidenceError: no evidence is available.
            BundleError: the bundle does not verify.
        """
        async with self._renewing:
            now = self._clock()
            try:
                files = read_release(self._config.release)
                key = self._key_for(now, files)
                held = await self._make(key, files, now)
            except EvidenceError:
                self._counters.count(Event.EVIDENCE_FAILED)
                self.failing = True
                raise
            except BundleError:
                self._counters.count(Event.BUNDLE_REFUSED)
                self.failing = True
                raise
            # No await from here on: no client gets a key without its bundle, nor seals
            # to one that is not in the ring.
            if key is not self._keys.current:
                self._keys.install(key)
                self._counters.count(Event.KEY_MADE)
            self._held = held
            # A challenge names the base of its client's bundle, which may be an earlier
            # one; no client uses an expired one.
            live = [each for each in self._bases if now < each.verified.expires_at]
            self._bases = [*live, held][-MAX_BASES:]
            self._counters.count(Event.BUNDLE_MADE)
            self.failing = False

    def due_in_s(self, now: datetime) -> float:
        """Return the seconds until ``renew`` should be called next.

        Evidence is renewed after its interval, or half way to its end if that
        comes first: an anchor that was old already shortens its life.
        """
        held = self._held
        if held is None or held.key.replay.is_nearly_full:
            return 0.0
        life_s = (held.verified.expires_at - held.made).total_seconds()
        freshness = self._config.freshness
        refresh_s = min(float(freshness.refresh_s), life_s / 2)
        age_s = (now - held.made).total_seconds()
        key_age_s = now.timestamp() - held.key.not_before
        return max(0.0, min(refresh_s - age_s, freshness.rotate_s - key_age_s))

    async def run(
        self,
        notice: Callable[[str], None],
        *,
        renewed: Callable[[], object] = lambda: None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Renew for ever; ``notice`` gets the reason of each failure.

        ``renewed`` is called after each success.

        Keys whose window has ended are overwritten here as well, since the next request
        may be long in coming.
        """
        while True:
            now = self._clock()
            self._keys.expire(now)
            due_s = self.due_in_s(now)
            if due_s > 0:
                # Also when a window ends: its private key is dropped then, not later.
                expires_s = self._keys.expires_in_s(now)
                ends_s = POLL_S if expires_s is None else expires_s
                await sleep(min(due_s, POLL_S, ends_s))
                continue
            try:
                await self.renew()
            except (BundleError, EvidenceError) as error:
                notice(str(error))
                await sleep(RETRY_S)
            else:
                renewed()

    def _key_for(self, now: datetime, files: ReleaseFiles) -> ServerKey:
        current, held = self._keys.current, self._held
        freshness = self._config.freshness
        if (
            current is not None
            and held is not None
            and not current.replay.is_nearly_full
            and now.timestamp() - current.not_before < freshness.rotate_s
            # A receipt names the manifest that the client verified: one per key.
            and held.verified.release_digest == files.digest
        ):
            return current
        receipts = None
        if offers_receipts(files.manifest.transport):
            receipts = ReceiptTerms(
                release_digest=files.digest,
                model_digest=bytes.fromhex(self._model_sha256) or NO_MODEL,
            )
        return make_key(
            now=now,
            lifetime_s=freshness.key_lifetime_s,
            replay_capacity=self._config.limits.max_requests_per_key,
            avoid=self._keys.key_ids,
            receipts=receipts,
        )

    async def _make(self, key: ServerKey, files: ReleaseFiles, now: datetime) -> Held:
        # Before anything is signed: evidence would certify another model than the one
        # that answers. Weights that another server loaded are nobody's claim, so its
        # release lists none.
        listed = files.manifest.models
        if self._model_sha256 not in (listed or ("",)):
            raise BundleError(
                "model_not_released", "the release does not list the loaded model"
            )
        require_sandbox(files.manifest, self._sandbox)
        # What was loaded and tested here, and never what the release says of it.
        sandbox = b"" if self._sandbox is None else encode_statement(self._sandbox)
        anchor = _anchor_of(files, self._config.log)
        transport = files.manifest.transport.encode()
        # Everything that a client relies on is in B0: whatever is left out of it could
        # be exchanged on the way.
        base = base_hash_v3(
            BindingInputs(
                key_configs=key.key_configs,
                not_before=key.not_before,
                not_after=key.not_after,
                release_digest=files.digest,
                anchor_origin=anchor.origin,
                anchor_size=anchor.size,
                anchor_root=anchor.root,
                anchor_time=anchor.time,
                receipt_public_key=key.receipt_public_key,
                sandbox=sandbox,
                transport_parameters=transport,
            )
        )
        # Devices first: their nonces come from the base, and the CPU's evidence
        # signs what they signed.
        devices: tuple[GpuEvidence, ...] = ()
        if device_kinds(self._anchors):
            devices = await self._source.acquire_devices(base)
        signed = _signed_devices(devices)
        evidence = await self._source.acquire(
            report_data_v2(base, signed, emulated=self.emulated)
        )
        bundle = encode_bundle(
            EvidenceBundle(
                key_configs=key.key_configs,
                not_before=key.not_before,
                not_after=key.not_after,
                release=files.release,
                anchor=anchor,
                cpu=evidence,
                receipt_public_key=key.receipt_public_key,
                sandbox=sandbox,
                transport_parameters=transport,
                devices=devices,
            )
        )
        return Held(
            key=key,
            bundle=bundle,
            verified=self._verify(bundle, files),
            made=now,
            evidence_bytes=len(encode_cpu_evidence(evidence)),
        )

    def _verify(self, bundle: bytes, files: ReleaseFiles) -> VerifiedKey:
        """Verify our own bundle as a client would, and that its shape is unchanged."""
        expectations = expectations_of(self._config, self._anchors, files.manifest)
        try:
            # By the current time, not that of the start: evidence may take a while.
            verified = verify(bundle, expectations, now=self._clock())
        except RefusedError as error:
            raise BundleError(
                error.code, f"our own bundle is refused: {error}"
            ) from None
        # The server took the shape of its answers from the first bundle. Another one
        # would promise lengths and a pace that no answer has.
        held = self._held
        if held is not None and held.verified.transport != verified.transport:
            raise BundleError(
                "transport_changed",
                "the release's transport parameters changed; restart to use them",
            )
        return verified


def _signed_devices(devices: tuple[GpuEvidence, ...]) -> tuple[SignedDevice, ...]:
    """Return what the devices signed, numbered among their kind."""
    seen: Counter[str] = Counter()
    signed: list[SignedDevice] = []
    for device in devices:
        kind = device.kind.value
        try:
            signed_part = parse_spdm_report(device.report).signed_part
        except RefusedError as error:
            raise BundleError(error.code, f"a device's report: {error}") from None
        signed.append(
            SignedDevice(kind=kind, index=seen[kind], signed_part=signed_part)
        )
        seen[kind] += 1
    return tuple(signed)


def _anchor_of(files: ReleaseFiles, log: LogKeys) -> Anchor:
    trusted = TrustedLog(
        origin=log.origin,
        key=NoteKey(name=log.origin, public_key=log.key),
        witnesses=tuple(
            NoteKey(name=witness.name, public_key=witness.key)
            for witness in log.witnesses
        ),
    )
    try:
        head = verify_checkpoint(files.checkpoint, trusted)
        time = head.vouched_time(log.quorum)
    except RefusedError as error:
        raise BundleError(error.code, f"the checkpoint is refused: {error}") from None
    return Anchor(
        origin=head.origin,
        size=head.size,
        root=head.root,
        time=time,
        checkpoint=files.checkpoint,
        consistency=files.consistency,
    )
