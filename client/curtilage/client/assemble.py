"""From a configuration to the parts of a running client.

What cannot be had is left out in the safe direction: without a local model,
what must stay is refused; without a relay, or without an audit trail that can
be written, everything stays.
"""

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path

from curtilage.client.audit.directory import state_directory
from curtilage.client.audit.trail import DiskAuditTrail
from curtilage.client.audit.writer import AuditLog
from curtilage.client.config import ClientConfig
from curtilage.client.detection.inspection import CheckedInspector, Inspector
from curtilage.client.detection.side_by_side import SideBySide, cores
from curtilage.client.errors import (
    FailureReason,
    LocalUnavailableError,
    SealingError,
)
from curtilage.client.local.model import LocalModel
from curtilage.client.local.registry import Registry, data_directory
from curtilage.client.remote.access import read_access
from curtilage.client.remote.cover import CoverSettings
from curtilage.client.remote.keys import KeyStore
from curtilage.client.remote.log_history import LogHistory, LogHistoryFiles
from curtilage.client.remote.separation import require_apart
from curtilage.client.remote.transport import (
    MirrorAddress,
    MirrorTransport,
    RelayAddress,
    RelayTransport,
)
from curtilage.client.session import AnswersLocally, ClientParts, UnavailableLocal
from curtilage.policy.document.model import Policy
from curtilage.policy.expectations import expectations_from
from curtilage.wire.errors import SelfTestError
from curtilage.wire.hpke.self_test import self_test


async def assemble(config: ClientConfig, *, spare: bool = True) -> ClientParts:
    """Start the detectors, the local model and the audit trail, side by side.

    Args:
        config: the client's configuration.
        spare: keep a second worker of the detectors warm; not worth it for one
            question.

    Raises:
        ConfigError: an address is not acceptable under the policy, or one of the
            files with the relay's access is not what it should be.
        SealingError: there is a way out, and our HPKE fails its self-test.
    """
    ways = ways_out(config)
    # Here and not at the first question: whoever starts it sees it. Without a way
    # out nothing is sealed, and what is answered at home needs no HPKE.
    if ways.transport is not None:
        try:
            self_test()
        except SelfTestError as error:
            raise SealingError(str(error)) from None
    audit = audit_trail(config)
    inspector, local, _ = await asyncio.gather(
        asyncio.to_thread(inspector_from, config, spare=spare),
        _local(config),
        audit.prepare(),
    )
    return ClientParts(
        policy=config.policy,
        inspector=inspector,
        local=local,
        transport=ways.transport,
        mirror=ways.mirror,
        keys=KeyStore(
            expectations=expectations_from(config.policy),
            logs=LogHistory(LogHistoryFiles(_audit_directory(config))),
        ),
        audit=audit,
        absent=ways.absent,
        cover=cover_settings(config.policy),
        advice="\n".join(filter(None, (ways.advice, inspector.advice))) or None,
    )


def inspector_for(policy: Policy, *, spare: bool = False) -> Inspector:
    """Start the detectors; takes a few seconds."""
    return Inspector.start(policy, spare=spare)


def inspector_from(config: ClientConfig, *, spare: bool = False) -> CheckedInspector:
    """Start the detectors, which also ask whether the policy is signed."""
    return CheckedInspector(inspector_for(config.policy, spare=spare), config.currency)


def inspectors_from(config: ClientConfig) -> SideBySide:
    """Start the detectors for many queries at once, on every core."""
    return SideBySide(lambda: inspector_from(config), count=cores())


def audit_trail(config: ClientConfig) -> DiskAuditTrail:
    """Return the audit trail; touches no file yet."""
    # Not made where it is named: a volume that is not mounted is no log.
    return DiskAuditTrail(AuditLog(_audit_directory(config), make=config.audit is None))


def _audit_directory(config: ClientConfig) -> Path:
    if config.audit is not None:
        return Path(config.audit)
    return state_directory(os.environ, Path.home())


async def _local(config: ClientConfig) -> AnswersLocally:
    """Start the local model, or remember why there is none."""
    registry = Registry(data_directory(os.environ, Path.home()))
    try:
        model = LocalModel.open(
            config.model, sha256=config.model_sha256, registry=registry
        )
        await model.start()
    except LocalUnavailableError as error:
        return UnavailableLocal(str(error))
    return model


def cover_settings(policy: Policy) -> CoverSettings | None:
    """Return when to send cover requests, or None where the policy asks for none."""
    cover = policy.transport.cover
    if cover is None:
        return None
    return CoverSettings(delay_s=cover.delay_s, share=cover.share)


@dataclass(frozen=True, slots=True, kw_only=True)
class WaysOut:
    """The ways out of this machine, or why there are none.

    Attributes:
        transport: to the relay.
        mirror: to an independent copy of the key list.
        absent: why there is no ``transport``, where there is none.
        advice: what a person should know.
    """

    transport: RelayTransport | None = None
    mirror: MirrorTransport | None = None
    absent: FailureReason = FailureReason.NOT_CONFIGURED
    advice: str | None = None


def ways_out(config: ClientConfig) -> WaysOut:
    """Check addresses and files, and return the ways out; nothing is contacted.

    Raises:
        ConfigError: an address is not acceptable under the policy, two parties
            are one, or a file is not what it should be.
    """
    attestation, named = config.policy.attestation, config.policy.transport
    if config.relay is None:
        return WaysOut(absent=_absent(config.policy))
    development = attestation is not None and attestation.environment == "development"
    # Without TLS on this machine alone, and under a development policy alone: the
    # relay sees who asks, and so would whoever sits on the way to it.
    relay = RelayAddress.parse(config.relay, plain_loopback=development)
    mirror = named.mirror and MirrorAddress.parse(
        named.mirror, plain_loopback=development
    )
    # The policy's own addresses are known to be apart; this is the relay's turn.
    require_apart(
        development=development,
        relay=config.relay,
        mirror=named.mirror,
        gateway=named.gateway,
    )
    files = config.relay_access
    access = read_access(
        ca=files.ca,
        certificate=files.certificate,
        certificate_key=files.certificate_key,
        key=files.key,
    )
    if attestation is None:
        # No evidence could be believed, so no connection is made.
        return WaysOut(absent=_absent(config.policy))
    advice = None
    if access.readable_by_others is not None:
        advice = (
            f"{access.readable_by_others}: others on this machine can read it; "
            "chmod 600"
        )
    return WaysOut(
        transport=RelayTransport(relay, access=access),
        mirror=MirrorTransport(mirror) if mirror else None,
        advice=advice,
    )


def _absent(policy: Policy) -> FailureReason:
    if policy.attestation is None:
        return FailureReason.NO_ENCLAVE_NAMED
    return FailureReason.NOT_CONFIGURED
