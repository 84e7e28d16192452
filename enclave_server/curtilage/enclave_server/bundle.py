"""The evidence bundle: assembled, verified by ourselves, then served.

The one module of the enclave that may import ``attest.verify``: a bundle that
does not verify here is never shown to a client. Renews evidence on its own
clock and the key on another; a failure to renew keeps what there is, until
that expires.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from curtilage.attest.binding import BindingInputs, base_hash_v2, report_data_v2
from curtilage.attest.errors import RefusedError
from curtilage.attest.evidence import (
    Anchor,
    EvidenceBundle,
    encode_bundle,
)
from curtilage.attest.expectations import AnchorKind, TrustAnchor
from curtilage.attest.tlog import NoteKey, TrustedLog, verify_checkpoint
from curtilage.attest.verify import VerifiedKey, verify
from curtilage.enclave_server.config import EnclaveConfig, LogKeys
from curtilage.enclave_server.errors import BundleError, EvidenceError
from curtilage.enclave_server.keys import KeyRing, Published, ServerKey, make_key
from curtilage.enclave_server.release import (
    ReleaseFiles,
    expectations_of,
    read_release,
)
from curtilage.enclave_server.report import EvidenceSource
from curtilage.enclave_server.telemetry import Counters, Event

RETRY_S: Final = 30.0
"""After a failure to renew; half the evidence's life is left for retries."""
POLL_S: Final = 5.0
"""How often the loop looks whether a key's replay set is nearly full: its last tenth
must outlast this, so that new keys are there before nobody is answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A bundle that verified, and its key.

    Attributes:
        key: what the bundle binds.
        bundle: the bytes to serve.
        verified: the proof that we believed it ourselves.
        made: when.
    """

    key: ServerKey
    bundle: bytes = field(repr=False)
    verified: VerifiedKey
    made: datetime


class BundleKeeper:
    """Holds the current bundle and renews it.

    Args:
        config: where the release is, whom to believe, how long things live.
        anchors: the trust anchors, read.
        model_sha256: what is loaded; the release must list it.
        source: the evidence process.
        keys: the ring that a new key is put into once its bundle verified.
        counters: counts what happens.
        clock: aware UTC.
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
    ) -> None:
        self._config = config
        self._anchors = anchors
        self._model_sha256 = model_sha256
        self._source = source
        self._keys = keys
        self._counters = counters
        self._clock = clock
        self._held: Held | None = None

    @property
    def held(self) -> Held | None:
        """The newest bundle that verified, expired or not."""
        return self._held

    def require(self) -> Held:
        """Return the newest bundle that verified.

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

    async def renew(self) -> None:
        """Make a bundle for the current key, or for a new one when it is due.

        Key and bundle change in one step, after the bundle verified.

        Raises:
            EvidenceError: no evidence was to be had.
            BundleError: the bundle does not verify.
        """
        now = self._clock()
        key = self._key_for(now)
        try:
            held = await self._make(key, now)
        except EvidenceError:
            self._counters.count(Event.EVIDENCE_FAILED)
            raise
        except BundleError:
            self._counters.count(Event.BUNDLE_REFUSED)
            raise
        if key is not self._keys.current:
            self._keys.install(key)
            self._counters.count(Event.KEY_MADE)
        self._held = held
        self._counters.count(Event.BUNDLE_MADE)

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
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Renew for ever; ``notice`` gets one line for each failure.

        Keys whose window ended are overwritten here as well, since it may be
        long until somebody asks for one.
        """
        while True:
            now = self._clock()
            self._keys.expire(now)
            due_s = self.due_in_s(now)
            if due_s > 0:
                await sleep(min(due_s, POLL_S, self._expiry_s(now)))
                continue
            try:
                await self.renew()
            except (BundleError, EvidenceError) as error:
                notice(f"evidence not renewed: {error}")
                await sleep(RETRY_S)

    def _expiry_s(self, now: datetime) -> float:
        expires_s = self._keys.expires_in_s(now)
        return POLL_S if expires_s is None else expires_s

    def _key_for(self, now: datetime) -> ServerKey:
        current = self._keys.current
        freshness = self._config.freshness
        if (
            current is not None
            and not current.replay.is_nearly_full
            and now.timestamp() - current.not_before < freshness.rotate_s
        ):
            return current
        return make_key(
            now=now,
            lifetime_s=freshness.key_lifetime_s,
            replay_capacity=self._config.limits.max_requests_per_key,
            avoid=self._keys.key_ids,
        )

    async def _make(self, key: ServerKey, now: datetime) -> Held:
        files = read_release(self._config.release)
        if self._model_sha256 not in files.manifest.models:
            raise BundleError(
                "model_not_released", "the release does not list the loaded model"
            )
        anchor = _anchor_of(files.checkpoint, self._config.log)
        evidence = await self._source.acquire(self._report_data(key, files, anchor))
        bundle = encode_bundle(
            EvidenceBundle(
                key_configs=key.key_configs,
                not_before=key.not_before,
                not_after=key.not_after,
                release=files.release,
                anchor=anchor,
                cpu=evidence,
                transport_parameters=files.manifest.transport.encode(),
            )
        )
        verified = self._verify(bundle, files)
        self._require_same_transport(verified)
        return Held(key=key, bundle=bundle, verified=verified, made=now)

    def _require_same_transport(self, verified: VerifiedKey) -> None:
        """Refuse a release that shapes answers otherwise than we already do."""
        held = self._held
        if held is not None and held.verified.transport != verified.transport:
            raise BundleError(
                "transport_changed",
                "the release's transport parameters changed; restart to use them",
            )

    def _report_data(
        self, key: ServerKey, files: ReleaseFiles, anchor: Anchor
    ) -> bytes:
        base = base_hash_v2(
            BindingInputs(
                key_configs=key.key_configs,
                not_before=key.not_before,
                not_after=key.not_after,
                release_digest=hashlib.sha256(files.release.manifest).digest(),
                anchor_origin=anchor.origin,
                anchor_size=anchor.size,
                anchor_root=anchor.root,
                anchor_time=anchor.time,
                transport_parameters=files.manifest.transport.encode(),
            )
        )
        # The configuration admits anchors of one kind only, so one decides.
        emulated = self._anchors[0].kind is AnchorKind.EMULATED
        return report_data_v2(base, (), emulated=emulated)

    def _verify(self, bundle: bytes, files: ReleaseFiles) -> VerifiedKey:
        expectations = expectations_of(self._config, self._anchors, files.manifest)
        try:
            return verify(bundle, expectations, now=self._clock())
        except RefusedError as error:
            raise BundleError(
                error.code, f"our own bundle is refused: {error}"
            ) from None


def _anchor_of(checkpoint: str, log: LogKeys) -> Anchor:
    trusted = TrustedLog(
        origin=log.origin,
        key=NoteKey(name=log.origin, public_key=log.key),
        witnesses=tuple(
            NoteKey(name=witness.name, public_key=witness.key)
            for witness in log.witnesses
        ),
    )
    try:
        head = verify_checkpoint(checkpoint, trusted)
        time = head.vouched_time(log.quorum)
    except RefusedError as error:
        raise BundleError(error.code, f"the checkpoint is refused: {error}") from None
    return Anchor(
        origin=head.origin,
        size=head.size,
        root=head.root,
        time=time,
        checkpoint=checkpoint,
    )
