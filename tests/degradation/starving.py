"""Asks one question of each kind with few resources; prints the results.

Of its own process: what is taken from it, memory or every network, is taken for good.
"""

import argparse
import asyncio
import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from degradation.conftest import Kind, Seen, ask, patient
from end_to_end.conftest import patient_profile

from curtilage.client.assemble import local_model, router_for
from curtilage.client.config import ClientConfig
from curtilage.client.local import model as model_module
from curtilage.client.parts import ClientParts
from curtilage.client.queue.deferred_store import KEY_BYTES, DeferredStore
from curtilage.client.remote.access import read_access
from curtilage.client.remote.addresses import RelayAddress
from curtilage.client.remote.transport import RelayTransport
from curtilage.client.session import Session
from curtilage.inference.process import starting
from curtilage.policy.document.load import load_policy
from support.client_parts import MemoryTrail, WordInspector
from support.fakes import returns
from support.memory_enclave import Clock, MemoryEnclave, key_store

FOUND = {"Smith": "identifier.direct.person", "4111": "financial.pan"}


def outcome_of(seen: Seen) -> dict[str, object]:
    """Return the visible result as JSON data."""
    if seen.error is not None:
        return {"refusal": str(seen.error)}
    fallback = seen.fallback
    return {"route": seen.route, "fallback": fallback}


TAKEN = """
import curtilage.inference.engine
print(open("/proc/self/statm").read().split()[0])
"""
LIMITED = """
import resource
resource.setrlimit(resource.RLIMIT_AS, ({most}, {most}))
from curtilage.inference.process.__main__ import main
main()
"""


def limit_memory(spare_mib: int) -> None:
    """Leave the engine's process so much memory, besides what its libraries take."""
    said = subprocess.run(
        (sys.executable, "-c", TAKEN), stdout=subprocess.PIPE, check=True
    )
    most = int(said.stdout) * resource.getpagesize() + (spare_mib << 20)
    code = LIMITED.format(most=most)
    # Addresses that are only reserved, for threads, would be most of the limit.
    command = ("env", "MALLOC_ARENA_MAX=1", sys.executable, "-B", "-P", "-c", code)
    patch = pytest.MonkeyPatch()
    patch.setattr(starting, "command_of", returns(command))
    patch.setattr(model_module, "available_memory", returns(spare_mib << 20))


async def main(model: Path, sha256: str, spare_mib: int, relay: str) -> None:
    """Remove the resource, and ask."""
    queue = "\nrouting:\n  queue: {store: memory}\n"
    policy = load_policy(patient_profile().replace("\nrouting:\n", queue))
    config = ClientConfig(
        policy=policy, policy_source="", model=str(model), model_sha256=sha256
    )
    transport: RelayTransport | MemoryEnclave
    if relay:
        address = RelayAddress.parse(relay, plain_loopback=True)
        transport = RelayTransport(address, access=read_access(), connect_s=1)
    else:
        transport = MemoryEnclave()
    if spare_mib:
        limit_memory(spare_mib)
    local = await local_model(config)
    outcome: dict[str, object] = {}
    async with Session(
        ClientParts(
            policy=policy,
            inspector=WordInspector(FOUND),
            local=local,
            transport=transport,
            keys=key_store(policy=policy),
            audit=MemoryTrail(),
            router=router_for(policy, local),
            clock=Clock(),
            queue=DeferredStore(None, bytes(KEY_BYTES), max_items=1, max_bytes=100_000),
        )
    ) as session:
        for kind in (Kind.C, Kind.A, Kind.B):
            asked = kind.abroad if relay else kind.at_home
            outcome[kind.name] = outcome_of(await ask(session, asked))
        outcome["C, with time"] = outcome_of(await ask(session, patient(Kind.C)))
        outcome["context_tokens"] = local.context_tokens
    json.dump(outcome, sys.stdout)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--sha256", required=True)
    parser.add_argument("--spare-mib", type=int, default=0)
    parser.add_argument("--relay", default="")
    given = parser.parse_args()
    asyncio.run(main(given.model, given.sha256, given.spare_mib, given.relay))
