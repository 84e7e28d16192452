"""From a configuration to the parts of a running client.

What cannot be had is left out in the safe direction: without a local model,
what must stay is refused; without a relay, everything stays.
"""

import asyncio
import os
from pathlib import Path

from curtilage.client.config import ClientConfig
from curtilage.client.enclaves import EnclaveBook
from curtilage.client.errors import FailureReason, LocalUnavailableError
from curtilage.client.inspection import Inspector
from curtilage.client.local import LocalModel
from curtilage.client.models import Registry, data_directory
from curtilage.client.session import AnswersLocally, ClientParts, UnavailableLocal
from curtilage.client.transport import RelayAddress, RelayTransport
from curtilage.policy.model import Attestation, Policy
from curtilage.policy.trust import expectations_from


async def assemble(config: ClientConfig) -> ClientParts:
    """Start the detectors and the local model, side by side.

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
    inspector, local = await asyncio.gather(
        asyncio.to_thread(inspector_for, config.policy), _local(config)
    )
    return ClientParts(
        policy=config.policy,
        inspector=inspector,
        local=local,
        transport=transport,
        book=EnclaveBook(expectations=expectations_from(config.policy)),
        absent=absent,
    )


def inspector_for(policy: Policy) -> Inspector:
    """Start the detectors; takes a few seconds."""
    return Inspector.start(policy)


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
