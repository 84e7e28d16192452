"""Who may come in: connections, in all and of each client, counted while they last.

Knows open connections and their addresses, which the system keeps as long; the
counts themselves (``clients``) hold neither. When the secret of the counts is
renewed, whoever is inside is counted anew: no connection ever counts nowhere.
"""

import time
from typing import Final

from curtilage.relay.client_limits import Client, ClientCaps
from curtilage.relay.config import RelayConfig, UnixAddress
from curtilage.relay.forward import Refusal, RefusedError

UPLOAD_SHARES: Final = 4
"""No client has more than this part of the places for uploads."""


class Seat:
    """One connection's place, from its first octet to its end.

    Args:
        address: its client's.

    Attributes:
        address: its client's.
        client: where it is counted; None where nobody is.
        uploads: whether its request counts as one that is under way.
        place: whether it counts as one that holds a place at the gateways.
    """

    __slots__ = ("address", "client", "place", "uploads")

    def __init__(self, address: str) -> None:
        self.address = address
        self.client: Client | None = None
        self.uploads = False
        self.place = False


class Door:
    """Counts every connection that is open, handshakes included.

    Args:
        most: connections at once.
        caps: of each client; None where everybody is one neighbour, or no cap
            is wanted.
    """

    def __init__(self, *, most: int, caps: ClientCaps | None) -> None:
        self._most = most
        self._caps = caps
        self._seats: set[Seat] = set()

    def enter(self, address: str) -> Seat:
        """Count a connection.

        Raises:
            RefusedError: there are enough, in all or of this client.
        """
        if len(self._seats) >= self._most:
            raise RefusedError(Refusal.CONNECTIONS)
        seat = Seat(address)
        if self._caps is not None:
            self._renew(self._caps)
            seat.client = self._caps.find(address)
            if not self._caps.connect(seat.client):
                raise RefusedError(Refusal.CLIENT_CONNECTIONS)
        self._seats.add(seat)
        return seat

    def leave(self, seat: Seat) -> None:
        """Count a connection no more; a second time changes nothing."""
        if seat not in self._seats:
            return
        self.end_upload(seat)
        self.end_place(seat)
        self._seats.remove(seat)
        if self._caps is not None and seat.client is not None:
            self._caps.disconnect(seat.client)

    def may_ask(self, seat: Seat) -> bool:
        """Take one request's worth from what this client may ask."""
        if self._caps is None or seat.client is None:
            return True
        self._renew(self._caps)
        return self._caps.request(seat.client)

    def charge(self, seat: Seat, requests: float) -> None:
        """Take more from what this client may ask: its request cost so much."""
        if self._caps is not None and seat.client is not None:
            self._renew(self._caps)
            self._caps.charge(seat.client, requests)

    def begin_upload(self, seat: Seat) -> bool:
        """Count an upload; False when this client has its share."""
        if self._caps is None or seat.client is None or seat not in self._seats:
            return True
        self._renew(self._caps)
        if seat.uploads or not self._caps.upload(seat.client):
            return False
        seat.uploads = True
        return True

    def end_upload(self, seat: Seat) -> None:
        """Count an upload no more; a second time changes nothing."""
        if seat.uploads and self._caps is not None and seat.client is not None:
            self._caps.end_upload(seat.client)
        seat.uploads = False

    def places(self, seat: Seat) -> int:
        """Return how many places at the gateways this seat's client holds."""
        if self._caps is None or seat.client is None:
            return 0
        self._renew(self._caps)
        return self._caps.places(seat.client)

    def hold_place(self, seat: Seat) -> None:
        """Count a place at the gateways, until its end or the connection's."""
        if self._caps is None or seat.client is None or seat not in self._seats:
            return
        self._renew(self._caps)
        self._caps.hold_place(seat.client)
        seat.place = True

    def end_place(self, seat: Seat) -> None:
        """Count a place no more; a second time changes nothing."""
        if seat.place and self._caps is not None and seat.client is not None:
            self._caps.end_place(seat.client)
        seat.place = False

    def _renew(self, caps: ClientCaps) -> None:
        if not caps.renew():
            return
        for seat in self._seats:
            seat.client = caps.find(seat.address)
            caps.hold(seat.client)
            if seat.uploads:
                caps.hold_upload(seat.client)
            if seat.place:
                caps.hold_place(seat.client)


def make_door(config: RelayConfig) -> Door:
    """Return the door that a configuration asks for.

    Each client's caps are off behind a UNIX socket: there everybody is the same
    neighbour.
    """
    limits, most = config.clients, config.limits.max_connections
    wanted = (limits.connections, limits.exchanges, limits.requests_per_s)
    if isinstance(config.listen, UnixAddress) or not any(wanted):
        return Door(most=most, caps=None)
    share = max(1, config.limits.max_uploads // UPLOAD_SHARES)
    caps = ClientCaps(limits, uploads=share, clock=time.monotonic)
    return Door(most=most, caps=caps)
