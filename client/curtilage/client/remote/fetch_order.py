"""The order that the transport takes to fetch public bytes; it carries no data."""

from typing import Final, NoReturn, final

from typing_extensions import override

FETCH_DOOR: Final = object()
"""Held by ``remote.keys``, which alone redeems permits to fetch."""

RELAY: Final = "relay"
MIRROR: Final = "mirror"


@final
class FetchOrder:
    """The order to fetch public bytes from one party, once. It holds no bytes.

    Only ``fetch_order`` of ``remote.keys`` builds it, for a permit that it redeemed.

    Attributes:
        party: ``RELAY`` or ``MIRROR``.
    """

    __slots__ = ("_taken", "party")

    def __init__(self, door: object, party: str) -> None:
        if door is not FETCH_DOOR:
            raise TypeError("only fetch_order() builds a FetchOrder")
        self._taken = False
        self.party = party

    def take(self, party: str) -> None:
        """Spend the order; a second call, or one for another party, raises.

        Raises:
            RuntimeError: it was taken before, or is for another party.
        """
        # A loop of fetches would make a client recognisable to the relay, and load it.
        taken, self._taken = self._taken, True
        if taken or party != self.party:
            raise RuntimeError("an order to fetch is for one party, once")

    @override
    def __reduce__(self) -> NoReturn:
        """Refuse to be copied or pickled: each copy could be taken once."""
        raise TypeError("a FetchOrder cannot be copied")


def take_order(order: FetchOrder, party: str) -> None:
    """Spend an order to fetch; as in ``send``, the last check before the network."""
    if not isinstance(order, FetchOrder):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError("only a FetchOrder may be fetched")
    order.take(party)
