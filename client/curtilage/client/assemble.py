"""From a configuration to the parts of a running client.

What cannot be had is left out in the safe direction: without a local model,
what must stay is refused; without a relay, or without an audit trail that can
be written, everything stays.
"""

import asyncio
import os
from pathlib import Path

from curtilage.client.audit import AuditLog, AuditTrail
from curtilage.client.audit_files import state_directory
from curtilage.client.config import ClientConfig
from curtilage.client.currency import CheckedInspector
from curtilage.client.enclaves import EnclaveBook
from curtilage.client.errors import FailureReason, LocalUnavailableError
from curtilage.client.inspection import Inspector
from curtilage.client.local import LocalModel
from curtilage.client.models import Registry, data_directory
from curtilage.client.session import AnswersLocally, ClientParts, UnavailableLocal
from curtilage.client.transport import RelayAddress, RelayTransport
from curtilage.policy.model import Attestation, Policy
from curtilage.policy.trust import expectations_from


async def assemble(config: ClientConfig, *, spare: bool = True) -> ClientParts:
    """Start the detectors, the local model and the audit trail, side by side.

    Args:
        config: what the client is told.
        spare: keep a second worker of the detectors warm; not worth it for one
            question.

    Raises:
        ConfigError: the relay's address is not acceptable under the policy.
    """
    attestation = config.policy.attestation
    transport, absent = None, FailureReason.NOT_CONFIGURED
    address = None if config.relay is None else _address(attestation, config.relay)
    if attestation is None:
        # Nobody could be believed, so nobody is contacted.
        absent = FailureReason.NO_ENCLAVE_NAMED
    elif address is not None:
        transport = RelayTransport(address)
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
        transport=transport,
        book=EnclaveBook(expectations=expectations_from(config.policy)),
        audit=audit,
        absent=absent,
    )


def inspector_for(policy: Policy, *, spare: bool = False) -> Inspector:
    """Start the detectors; takes a few seconds."""
    return Inspector.start(policy, spare=spare)


def inspector_from(config: ClientConfig, *, spare: bool = False) -> CheckedInspector:
    """Start the detectors, which also ask whether the policy is signed."""
    return CheckedInspector(inspector_for(config.policy, spare=spare), config.currency)


def audit_trail(config: ClientConfig) -> AuditTrail:
    """Return the audit trail; touches no file yet."""
    if config.audit is not None:
        # Not made here: a volume that is not mounted must not pass for a log.
        return AuditTrail(AuditLog(Path(config.audit)))
    return AuditTrail(AuditLog(state_directory(os.environ, Path.home()), make=True))


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


def _address(attestation: Attestation | None, relay: str) -> RelayAddress:
    development = attestation is not None and attestation.environment == "development"
    return RelayAddress.parse(relay, plain_loopback=development)
