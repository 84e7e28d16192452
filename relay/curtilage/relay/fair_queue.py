"""Whose turn it is at the gateways: the client's that holds the fewest places.

Places are few, a sealed request that holds one looks like any other, and its answer
may last for minutes. So one client has a share of them, a smaller one while few are
left, and who finds none waits in line for a while. A place that becomes free goes to
whoever holds the fewest and, among equals, came first: whoever does nothing but ask
comes before those who have been asking all along, however many requests of theirs
wait.

The line is no longer than the connections that stand in it, and what one of them
waits with was in memory before; so neither needs a bound of its own here.
"""

import asyncio

from curtilage.relay.admission import Door, Seat
from curtilage.relay.config import RelayConfig
from curtilage.relay.forward import Refusal, RefusedError


class Turns:
    """The places at all gateways, and the line of those who want one.

    Args:
        door: counts the places of each client.
        most: places.
        share: that one client may hold while many are left; 0: all.
        wait_s: how long one may stand in line.
    """

    def __init__(self, door: Door, *, most: int, share: int, wait_s: float) -> None:
        self._door = door
        self._most = most
        self._share = share
        self._wait_s = wait_s
        self._held: set[Seat] = set()
        self._line: dict[Seat, asyncio.Future[None]] = {}

    async def take(self, seat: Seat) -> None:
        """Take a place, at once or when its turn comes.

        Raises:
            RefusedError: its turn did not come in time.
        """
        if self._may(seat):
            self._give(seat)
            return
        turn = asyncio.get_running_loop().create_future()
        self._line[seat] = turn
        try:
            async with asyncio.timeout(self._wait_s):
                await turn
        except TimeoutError:
            # Its turn may have come in the very moment in which its time was over.
            if seat not in self._held:
                raise RefusedError(Refusal.BUSY) from None
        except BaseException:
            self.give_back(seat)
            raise
        finally:
            self._line.pop(seat, None)

    def give_back(self, seat: Seat) -> None:
        """Give a place to whoever is next; a second time changes nothing."""
        if seat not in self._held:
            return
        self._held.remove(seat)
        self._door.end_place(seat)
        # One place that is given back may allow several: shares grow with it.
        while waiting := [seat for seat in self._line if self._is_next(seat)]:
            first = min(waiting, key=self._door.places)
            self._line[first].set_result(None)
            self._give(first)

    def _is_next(self, seat: Seat) -> bool:
        return not self._line[seat].done() and self._may(seat)

    def _may(self, seat: Seat) -> bool:
        free = self._most - len(self._held)
        if free <= 0 or not self._share:
            return free > 0
        # A share of what is left, so that who comes later still finds some.
        share = min(self._share, free // self._share)
        return self._door.places(seat) < max(1, share)

    def _give(self, seat: Seat) -> None:
        self._held.add(seat)
        self._door.hold_place(seat)


def make_turns(config: RelayConfig, door: Door) -> Turns:
    """Return the line that a configuration asks for."""
    return Turns(
        door,
        most=config.limits.max_upstream,
        share=config.clients.exchanges,
        wait_s=config.limits.place_wait_s,
    )
