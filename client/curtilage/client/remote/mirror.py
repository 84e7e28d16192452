"""The connection to the mirror of the key list: a separate party.

The mirror learns only that a client requests the list.
"""

from curtilage.client.remote.addresses import MirrorAddress
from curtilage.client.remote.fetch_order import MIRROR, FetchOrder, take_order
from curtilage.client.remote.transport import KEY_TYPES, Connections
from curtilage.client.system.tls import tls_context


class MirrorTransport:
    """A mirror of the key list over aiohttp, with connections of its own.

    Args:
        address: the mirror's.
        connect_s: how long to wait for a connection.
        fetch_s: how long the whole fetch may take.
    """

    def __init__(
        self, address: MirrorAddress, *, connect_s: float = 5.0, fetch_s: float = 15.0
    ) -> None:
        self._address = address
        self._fetch_s = fetch_s
        self._connections = Connections(tls_context(), connect_s=connect_s)

    async def fetch_key_configs(self, order: FetchOrder) -> bytes:
        """Fetch the list, bounded.

        Raises:
            EnclaveError: unreachable, or the answer is not a key list.
            RuntimeError: the order is spent, or for another party.
        """
        take_order(order, MIRROR)
        return await self._connections.fetch(
            self._address.url,
            {},
            KEY_TYPES,
            whole_s=self._fetch_s,
        )

    async def close(self) -> None:
        """Close every connection."""
        await self._connections.close()
