"""A fair queue for places at the gateways: the client with the fewest is next.

Places are few, a sealed request that holds one looks like any other, and its answer
may take minutes. So each client has a share of them, which shrinks while few are left,
and a request that finds none waits for a limited time. A place that becomes free is
given to the client that holds the fewest and, among equals, to the one that came
first: a client that seldom sends requests precedes one that sends them all the time,
however many of the latter's requests wait.

The queue is no longer than the number of waiting connections, and their data was in
memory before; so neither needs a bound of its own here.
"""

import asyncio

from curtilage.relay.admission import AdmissionControl, ConnectionSlot
from curtilage.relay.config import RelayConfig
from curtilage.relay.refusals import Refusal, RefusedError


class FairQueue:
    """The places at all gateways, and the queue for them.

    Args:
        admission: counts the places of each client.
        most: places.
        share: that one client may hold while many are left; 0: all.
        wait_s: how long a request may wait in the queue.
    """

    def __init__(
        self, admission: AdmissionControl, *, most: int, share: int, wait_s: float
    ) -> None:
        self._admission = admission
        self._most = most
        self._share = share
        self._wait_s = wait_s
        self._held: set[ConnectionSlot] = set()
        self._line: dict[ConnectionSlot, asyncio.Future[None]] = {}

    async def take(self, slot: ConnectionSlot) -> None:
        """Take a place, at once or when its turn comes.

        Raises:
            RefusedError: no place became free in time.
        """
        if self._may(slot):
            self._give(slot)
            return
        turn = asyncio.get_running_loop().create_future()
        self._line[slot] = turn
        try:
            async with asyncio.timeout(self._wait_s):
                await turn
        except TimeoutError:
            # The place may have been given at the very moment of the timeout.
            if slot not in self._held:
                raise RefusedError(Refusal.BUSY) from None
        except BaseException:
            # The client disconnected, perhaps just when it got a place: pass it on.
            self.give_back(slot)
            raise
        finally:
            self._line.pop(slot, None)

    def give_back(self, slot: ConnectionSlot) -> None:
        """Give a place to the next in the queue; a second call changes nothing."""
        if slot not in self._held:
            return
        self._held.remove(slot)
        self._admission.end_place(slot)
        # One place that is returned may admit several: shares grow with it.
        while waiting := [
            slot
            for slot, turn in self._line.items()
            if not turn.done() and self._may(slot)
        ]:
            # The first of equals: the queue keeps the order of arrival.
            first = min(waiting, key=self._admission.places)
            self._line[first].set_result(None)
            # Now, not when it wakes: in between, the place would be given away twice.
            self._give(first)

    def _may(self, slot: ConnectionSlot) -> bool:
        free = self._most - len(self._held)
        if free <= 0 or not self._share:
            return free > 0
        # A share of what is left, so that later clients still find some: of four, all
        # four while 16 are free, and one while fewer than eight are.
        share = min(self._share, free // self._share)
        return self._admission.places(slot) < max(1, share)

    def _give(self, slot: ConnectionSlot) -> None:
        self._held.add(slot)
        self._admission.hold_place(slot)


def make_fair_queue(config: RelayConfig, admission: AdmissionControl) -> FairQueue:
    """Return the queue that a configuration asks for."""
    return FairQueue(
        admission,
        most=config.limits.max_upstream,
        share=config.clients.exchanges,
        wait_s=config.limits.place_wait_s,
    )
