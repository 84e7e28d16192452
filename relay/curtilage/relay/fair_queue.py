"""Whose turn it is at the gateways: the client's that holds the fewest places.

Places are few, a sealed request that holds one looks like any other, and its answer
may last for minutes. So one client has a share of them, a smaller one while few are
left, and who finds none waits in line for a while. A place that becomes free goes to
the client that holds the fewest and, among equals, came first: one that seldom asks
comes before those who have been asking all along, however many requests of theirs
wait.

The line is no longer than the connections that stand in it, and what one of them
waits with was in memory before; so neither needs a bound of its own here.
"""

import asyncio

from curtilage.relay.admission import AdmissionControl, ConnectionSlot
from curtilage.relay.config import RelayConfig
from curtilage.relay.refusals import Refusal, RefusedError


class FairQueue:
    """The places at all gateways, and the line of those who want one.

    Args:
        admission: counts the places of each client.
        most: places.
        share: that one client may hold while many are left; 0: all.
        wait_s: how long one may stand in line.
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
            RefusedError: its turn did not come in time.
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
            # Its turn may have come in the very moment in which its time was over.
            if slot not in self._held:
                raise RefusedError(Refusal.BUSY) from None
        except BaseException:
            # Its client left, perhaps just when it was given a place: that goes on.
            self.give_back(slot)
            raise
        finally:
            self._line.pop(slot, None)

    def give_back(self, slot: ConnectionSlot) -> None:
        """Give a place to the next in line; a second time changes nothing."""
        if slot not in self._held:
            return
        self._held.remove(slot)
        self._admission.end_place(slot)
        # One place that is given back may allow several: shares grow with it.
        while waiting := [
            slot
            for slot, turn in self._line.items()
            if not turn.done() and self._may(slot)
        ]:
            # The first of equals: the line keeps the order in which they came.
            first = min(waiting, key=self._admission.places)
            self._line[first].set_result(None)
            # Now, not when it wakes: in between, the place would be given away twice.
            self._give(first)

    def _may(self, slot: ConnectionSlot) -> bool:
        free = self._most - len(self._held)
        if free <= 0 or not self._share:
            return free > 0
        # A share of what is left, so that who comes later still finds some: of four,
        # all four while 16 are free, and one while fewer than eight are.
        share = min(self._share, free // self._share)
        return self._admission.places(slot) < max(1, share)

    def _give(self, slot: ConnectionSlot) -> None:
        self._held.add(slot)
        self._admission.hold_place(slot)


def make_fair_queue(config: RelayConfig, admission: AdmissionControl) -> FairQueue:
    """Return the line that a configuration asks for."""
    return FairQueue(
        admission,
        most=config.limits.max_upstream,
        share=config.clients.exchanges,
        wait_s=config.limits.place_wait_s,
    )
