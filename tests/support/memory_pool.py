"""A pool of enclaves behind one relay, in memory."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from curtilage.client.errors import EnclaveError
from curtilage.client.remote.fetch_order import RELAY, FetchOrder
from curtilage.client.remote.reasons import EnclaveFailure
from curtilage.client.remote.sealed import SealedExchange
from curtilage.relay.forward import node_list
from support.memory_enclave import MemoryEnclave

IDS = "abcdefgh"


def enclave_of(number: int) -> MemoryEnclave:
    """Make one with key ids of its own."""
    return MemoryEnclave(key_id=number + 1)


class MemoryPool:
    """The way to several enclaves.

    ``dead``: nodes that the relay cannot reach. ``unlisted``: nodes whose bundle it
    does not get. ``served``: what it serves in place of the list. ``asked``: ids of
    the nodes that requests were sent to. ``breaks_off``: raised once a body has ended.
    """

    def __init__(
        self, count: int, make: Callable[[int], MemoryEnclave] | None = None
    ) -> None:
        self.enclaves = {
            IDS[number]: (make or enclave_of)(number) for number in range(count)
        }
        self.dead: dict[str, EnclaveError] = {}
        self.breaks_off: dict[str, EnclaveError] = {}
        self.unlisted: set[str] = set()
        self.served: bytes | None = None
        self.asked: list[str] = []
        self.fetched = 0
        self.closed = False

    def kill(self, *nodes: str) -> None:
        """Have the relay not reach these."""
        self.unlisted |= set(nodes)
        for node in nodes:
            self.dead[node] = EnclaveError(EnclaveFailure.ENCLAVE_UNREACHABLE)

    def restart(self, node: str, key_id: int) -> None:
        """Start one again, with new keys."""
        self.unlisted.discard(node)
        self.dead.pop(node, None)
        self.enclaves[node].rotate(key_id)

    def bundles(self) -> bytes:
        return node_list(
            {
                node: b"" if node in self.unlisted else enclave.bundle
                for node, enclave in self.enclaves.items()
            }
        )

    def key_lists(self) -> bytes:
        """What a mirror of the pool serves."""
        return node_list(
            {node: each.key_configs for node, each in self.enclaves.items()}
        )

    @property
    def sealed(self) -> list[bytes]:
        return [body for each in self.enclaves.values() for body in each.sealed]

    async def fetch_bundle(self, order: FetchOrder) -> bytes:
        order.take(RELAY)
        self.fetched += 1
        return self.bundles() if self.served is None else self.served

    async def send(self, exchange: SealedExchange) -> AsyncGenerator[bytes]:
        self.asked.append(exchange.node)
        if exchange.node in self.dead:
            exchange.take_body()
            raise self.dead[exchange.node].alone()
        async with aclosing(self.enclaves[exchange.node].send(exchange)) as body:
            async for data in body:
                yield data
        if exchange.node in self.breaks_off:
            raise self.breaks_off[exchange.node].alone()

    async def close(self) -> None:
        self.closed = True
