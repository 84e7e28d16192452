"""Limits for each client that do not identify it.

Stores neither addresses nor their hashes. A keyed hash of the address selects one
cell in each of a few rows, and the cells hold counts (a count-min sketch). The secret
and all counts are discarded when their time is over; open connections are then
counted again (``admission``). A client is refused when all of its cells are used up.
To block another client, an attacker would have to use up that client's cell in
*every* row without knowing which they are. The table never grows, however many
addresses there are.

One client is one IPv4 address or one IPv6 /56: what a provider assigns to one
customer, who may use any address in it.
"""

import hashlib
import ipaddress
import secrets
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

ROWS: Final = 4
CELLS: Final = 8192
"""In each row. With 500 busy clients, a quiet one shares all four of its cells
with busy ones in about one case of 70,000."""
IPV6_PREFIX_BYTES: Final = 7
DIGEST_BYTES: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientLimits:
    """The limits of one client; 0 turns a cap off.

    Attributes:
        connections: at once. Below the places at the gateway, so that no single
            address takes them all.
        exchanges: places at the gateways at once, while many are left; see
            ``fair_queue``.
        requests_per_s: in the long run.
        burst: requests at once, after a pause.
        rotate_s: age at which the secret and all counts are discarded.
    """

    connections: int = 32
    exchanges: int = 4
    requests_per_s: float = 50.0
    burst: int = 200
    rotate_s: float = 3600.0


@dataclass(frozen=True, slots=True)
class Client:
    """The cells of one client while one secret lasts.

    Attributes:
        cells: one in each row.
    """

    cells: tuple[int, ...]


class ClientCaps:
    """Counts connections and requests for each client.

    Args:
        limits: of one client.
        uploads: that one client may have in progress; 0 turns this cap off.
        clock: monotonic seconds.
        random: source of the secret.
    """

    def __init__(
        self,
        limits: ClientLimits,
        *,
        clock: Callable[[], float],
        uploads: int = 0,
        random: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self._limits = limits
        self._most_uploads = uploads
        self._clock = clock
        self._random = random
        self._forget()

    def renew(self) -> bool:
        """Discard secret and counts when their time is over; return whether it was.

        Results of ``find`` are then invalid: call ``find`` again for every client that
        is still connected, and ``hold`` it.
        """
        if self._clock() - self._began < self._limits.rotate_s:
            return False
        self._forget()
        return True

    def find(self, address: str) -> Client:
        """Return a client's cells for the lifetime of this secret."""
        # Keyed: from a plain hash, anyone with the table could try all of IPv4 in
        # seconds and learn the clients' addresses.
        digest = hashlib.blake2s(
            _customer(address), key=self._secret, digest_size=DIGEST_BYTES
        ).digest()
        step = DIGEST_BYTES // ROWS
        cells = (
            row * CELLS + int.from_bytes(digest[row * step : (row + 1) * step]) % CELLS
            for row in range(ROWS)
        )
        return Client(tuple(cells))

    def connect(self, client: Client) -> bool:
        """Count a connection; False when this client holds as many as it may."""
        # The smallest of its cells: the others may be filled by other clients.
        most = self._limits.connections
        if most and min(self._open[cell] for cell in client.cells) >= most:
            return False
        self.hold(client)
        return True

    def hold(self, client: Client) -> None:
        """Count a connection that is already open, over the cap or not."""
        for cell in client.cells:
            self._open[cell] += 1

    def disconnect(self, client: Client) -> None:
        """Count the end of a connection."""
        for cell in client.cells:
            self._open[cell] -= 1

    def upload(self, client: Client) -> bool:
        """Count an upload; False when this client has as many as it may."""
        most = self._most_uploads
        if most and min(self._uploads[cell] for cell in client.cells) >= most:
            return False
        self.hold_upload(client)
        return True

    def hold_upload(self, client: Client) -> None:
        """Count an upload that is already in progress, over the cap or not."""
        for cell in client.cells:
            self._uploads[cell] += 1

    def end_upload(self, client: Client) -> None:
        """Count the end of an upload."""
        for cell in client.cells:
            self._uploads[cell] -= 1

    def places(self, client: Client) -> int:
        """Return how many places at the gateways this client holds, or a few more."""
        return min(self._places[cell] for cell in client.cells)

    def hold_place(self, client: Client) -> None:
        """Count a place; ``fair_queue`` decides whether one is free."""
        for cell in client.cells:
            self._places[cell] += 1

    def end_place(self, client: Client) -> None:
        """Count a place that was given back."""
        for cell in client.cells:
            self._places[cell] -= 1

    def charge(self, client: Client, requests: float) -> None:
        """Charge what one request cost beyond the first."""
        now = self._clock() - self._began
        burst = float(self._limits.burst)
        # From all its cells, or the one that was spared would admit it again.
        for cell in client.cells:
            self._spent[cell] = min(self._used(cell, now) + requests, burst)
            self._seen[cell] = now

    def request(self, client: Client) -> bool:
        """Charge for one request; False when this client has none left."""
        rate = self._limits.requests_per_s
        if not rate:
            return True
        cells = client.cells
        now = self._clock() - self._began
        burst = float(self._limits.burst)
        # All are read before one is written: a refused client is not charged.
        spent = [self._used(cell, now) for cell in cells]
        if min(spent) + 1.0 > burst:
            return False
        for cell, used in zip(cells, spent, strict=True):
            # Never above full: a cell that is shared fills no further.
            self._spent[cell] = min(used + 1.0, burst)
            self._seen[cell] = now
        return True

    def _used(self, cell: int, now: float) -> float:
        earned = (now - self._seen[cell]) * self._limits.requests_per_s
        return max(0.0, self._spent[cell] - earned)

    def _forget(self) -> None:
        # Both at once: counts that outlived their secret would be read as other
        # clients', and a secret that was kept would reveal whose the old counts were.
        self._secret = self._random(32)
        self._began = self._clock()
        nothing = bytes(array("l").itemsize * ROWS * CELLS)
        self._open, self._uploads = array("l", nothing), array("l", nothing)
        self._places = array("l", nothing)
        self._spent = array("d", bytes(8 * ROWS * CELLS))
        self._seen = array("d", bytes(8 * ROWS * CELLS))


def _customer(address: str) -> bytes:
    """Return the key of one customer: an IPv4 address, or an IPv6 /56."""
    # Without the zone of a link-local address, which names an interface of ours. All
    # text that is not an address counts as one client.
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return b""
    if isinstance(parsed, ipaddress.IPv6Address):
        # A dual-stack socket maps IPv4 into one /56, which would be all of IPv4.
        if parsed.ipv4_mapped is None:
            return parsed.packed[:IPV6_PREFIX_BYTES]
        parsed = parsed.ipv4_mapped
    return parsed.packed
