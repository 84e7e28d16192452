"""A real question through a balancer before relays, and one before enclaves."""

from pathlib import Path

import pytest
from end_to_end.conftest import OpenSession

from curtilage.client.chat.answer import Answerer
from curtilage.client.chat.query import Message, Query, Settings
from curtilage_dev.stack import GATEWAY, Stack
from support.balancer_processes import ABSENT, PLACES, BalancerProcess, Program
from support.relay_processes import RelayProcess

QUERY = Query(
    messages=(Message(role="user", content="What is a heliotrope?"),),
    settings=Settings(max_tokens=16, temperature=0, seed=1),
    stream=True,
)
NAME = "127.0.0.1"
"""What Host says on both hops of this machine."""


@pytest.mark.parametrize("program", ["nginx", "envoy"])
async def test_questions_are_answered_also_when_a_relay_dies(
    program: Program, stack: Stack, open_session: OpenSession, tmp_path: Path
) -> None:
    if PLACES[program] is None:
        pytest.skip(ABSENT[program])

    def folder(name: str) -> Path:
        (tmp_path / name).mkdir()
        return tmp_path / name

    def balancer(name: str, **tree: object) -> BalancerProcess:
        whole = {"environment": "development", **tree}
        return BalancerProcess(program, whole, folder(name))

    enclaves = balancer("enclaves", enclaves={NAME: f"http://{stack.enclave_address}"})
    tree = {
        "environment": "development",
        "gateways": {GATEWAY: f"http://{NAME}:{enclaves.port}"},
    }
    relays = [RelayProcess("built-in", tree, folder(name)) for name in ("one", "two")]
    addresses = [f"http://{NAME}:{relay.port}" for relay in relays]
    front = balancer("relays", relays={NAME: addresses})
    try:
        async with open_session(
            relay=f"http://{NAME}:{front.port}/{GATEWAY}"
        ) as session:
            for _ in range(3):
                answer = await session.ask(QUERY)
                assert answer.route is Answerer.ENCLAVE
            relays[0].process.kill()
            relays[0].stop()
            for _ in range(3):
                answer = await session.ask(QUERY)
                assert answer.route is Answerer.ENCLAVE
            # Its master alone would leave workers behind, who go on.
            enclaves.stop()
            # No other enclave has the key it was sealed to: it is answered locally.
            answer = await session.ask(QUERY)
            assert answer.route is Answerer.LOCAL
    finally:
        for process in (front, enclaves, *relays):
            process.stop()
