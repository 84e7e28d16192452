import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path

import pytest

from curtilage.relay.app import Relay
from curtilage.relay.config import RelayConfig, parse_config
from curtilage.relay.telemetry import Telemetry
from support.relay_parts import PATIENCE_S, FakeGateway, MakeRelay, Running

HERE = Path(__file__).parent
LONGEST_S = 3 * PATIENCE_S


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let no test here wait for ever: a broken relay is a failure, not a hang."""
    for item in items:
        if (
            isinstance(item, pytest.Function)
            and HERE in item.path.parents
            and inspect.iscoroutinefunction(item.obj)
        ):
            item.obj = _bounded(item.obj)


def _bounded(test: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    @functools.wraps(test)
    async def bounded(*arguments: object, **fixtures: object) -> None:
        async with asyncio.timeout(LONGEST_S):
            await test(*arguments, **fixtures)

    return bounded


@pytest.fixture
async def gateway() -> AsyncIterator[FakeGateway]:
    fake = FakeGateway()
    server = await asyncio.start_server(fake.serve, "127.0.0.1", 0)
    fake.port = server.sockets[0].getsockname()[1]
    yield fake
    server.close()


@pytest.fixture
async def make_relay(gateway: FakeGateway) -> AsyncIterator[MakeRelay]:
    running: list[Relay] = []

    async def make(
        *,
        telemetry: Telemetry | None = None,
        upstream: str | None = None,
        gateways: Mapping[str, object] | None = None,
        **settings: object,
    ) -> Running:
        target = upstream or f"http://127.0.0.1:{gateway.port}"
        tree: dict[str, object] = {
            "listen": "127.0.0.1:0",
            "environment": "development",
            "gateways": gateways or {"demo": target},
            # Every client of the tests has one address.
            "clients": {"connections": 0, "exchanges": 0, "requests_per_s": 0},
            **settings,
        }
        config: RelayConfig = parse_config("", tree)
        relay = Relay(config, telemetry=telemetry or Telemetry())
        running.append(relay)
        return Running(relay=relay, address=await relay.start())

    yield make
    hurry = asyncio.Event()
    hurry.set()  # what a test left open is not waited for
    async with asyncio.timeout(PATIENCE_S):
        for relay in running:
            await relay.stop(hurry)


@pytest.fixture
async def relay(make_relay: MakeRelay) -> Running:
    return await make_relay()
