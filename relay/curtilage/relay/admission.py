"""Admission control: counts open connections, in total and for each client.

Holds open connections and their addresses, as the operating system does anyway; the
counts (``client_limits``) hold neither. When the secret of the counts is renewed,
every open connection is counted again, so that none goes uncounted.
"""

import time
from typing import Final

from curtilage.relay.client_limits import Client, ClientCaps
from curtilage.relay.config import RelayConfig, UnixAddress
from curtilage.relay.refusals import Refusal, RefusedError

UPLOAD_SHARES: Final = 4
"""The largest part of the upload places that one client may have."""


class ConnectionSlot:
    """The slot of one connection, from its first byte to its end.

    Args:
        address: its client's.

    Attributes:
        address: its client's.
        client: where it is counted; None where no client is counted.
        uploads: whether its request counts as one that is under way.
        place: whether it counts as one that holds a place at the gateways.
    """

    __slots__ = ("address", "client", "place", "uploads")

    def __init__(self, address: str) -> None:
        self.address = address
        self.client: Client | None = None
        self.uploads = False
        self.place = False


class AdmissionControl:
    """Counts every connection that is open, handshakes included.

    Args:
        most: connections at once.
        caps: of each client; None where all clients share one address, or where no
            cap is configured.
    """

    def __init__(self, *, most: int, caps: ClientCaps | None) -> None:
        self._most = most
        self._caps = caps
        self._slots: set[ConnectionSlot] = set()

    def admit(self, address: str) -> ConnectionSlot:
        """Count a connection.

        Raises:
            RefusedError: the limit is reached, in total or for this client.
        """
        # The total first: it protects the process, the other one protects its clients.
        if len(self._slots) >= self._most:
            raise RefusedError(Refusal.CONNECTIONS)
        slot = ConnectionSlot(address)
        if self._caps is not None:
            self._renew(self._caps)
            slot.client = self._caps.find(address)
            if not self._caps.connect(slot.client):
                raise RefusedError(Refusal.CLIENT_CONNECTIONS)
        self._slots.add(slot)
        return slot

    def release(self, slot: ConnectionSlot) -> None:
        """Stop counting a connection; a second call changes nothing."""
        # A cut handshake and the end of its protocol both come here.
        if slot not in self._slots:
            return
        self.end_upload(slot)
        self.end_place(slot)
        self._slots.remove(slot)
        if self._caps is not None and slot.client is not None:
            self._caps.disconnect(slot.client)

    def may_ask(self, slot: ConnectionSlot) -> bool:
        """Charge this client for one request; False when its rate is used up."""
        if self._caps is None or slot.client is None:
            return True
        # Before each count, not by a timer: an idle relay forgets at the next request.
        self._renew(self._caps)
        return self._caps.request(slot.client)

    def charge(self, slot: ConnectionSlot, requests: float) -> None:
        """Charge this client for more: its request cost so much."""
        if self._caps is not None and slot.client is not None:
            self._renew(self._caps)
            self._caps.charge(slot.client, requests)

    def begin_upload(self, slot: ConnectionSlot) -> bool:
        """Count an upload; False when this client has its share."""
        # If its connection has ended meanwhile, nothing would ever end the count.
        if self._caps is None or slot.client is None or slot not in self._slots:
            return True
        self._renew(self._caps)
        if slot.uploads or not self._caps.upload(slot.client):
            return False
        slot.uploads = True
        return True

    def end_upload(self, slot: ConnectionSlot) -> None:
        """Stop counting an upload; a second call changes nothing."""
        if slot.uploads and self._caps is not None and slot.client is not None:
            self._caps.end_upload(slot.client)
        slot.uploads = False

    def places(self, slot: ConnectionSlot) -> int:
        """Return how many places at the gateways this slot's client holds."""
        if self._caps is None or slot.client is None:
            return 0
        self._renew(self._caps)
        return self._caps.places(slot.client)

    def hold_place(self, slot: ConnectionSlot) -> None:
        """Count a place at the gateways, until its end or the connection's."""
        # As for an upload: its connection may have ended while it waited in the queue.
        if self._caps is None or slot.client is None or slot not in self._slots:
            return
        self._renew(self._caps)
        self._caps.hold_place(slot.client)
        slot.place = True

    def end_place(self, slot: ConnectionSlot) -> None:
        """Stop counting a place; a second call changes nothing."""
        if slot.place and self._caps is not None and slot.client is not None:
            self._caps.end_place(slot.client)
        slot.place = False

    def _renew(self, caps: ClientCaps) -> None:
        # A new secret makes all counts new and empty (``client_limits``). Without
        # counting open connections again, each renewal would allow a client twice its
        # share.
        if not caps.renew():
            return
        for slot in self._slots:
            slot.client = caps.find(slot.address)
            caps.hold(slot.client)
            if slot.uploads:
                caps.hold_upload(slot.client)
            if slot.place:
                caps.hold_place(slot.client)


def make_admission_control(config: RelayConfig) -> AdmissionControl:
    """Return the admission control that a configuration asks for.

    The caps of each client are off behind a UNIX socket, where all clients share one
    address.
    """
    limits, most = config.clients, config.limits.max_connections
    wanted = (limits.connections, limits.exchanges, limits.requests_per_s)
    if isinstance(config.listen, UnixAddress) or not any(wanted):
        return AdmissionControl(most=most, caps=None)
    share = max(1, config.limits.max_uploads // UPLOAD_SHARES)
    caps = ClientCaps(limits, uploads=share, clock=time.monotonic)
    return AdmissionControl(most=most, caps=caps)
