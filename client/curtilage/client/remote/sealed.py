"""What the door outward takes: one sealed request to send, one order to fetch.

Nothing here knows a query, a key or a piece of evidence. So the door outward, which
takes these two and nothing else, can be read without them.
"""

from typing import Final, NoReturn, final

from typing_extensions import override

from curtilage.wire.shaping import Shape, TransportParameters

SEAL_DOOR: Final = object()
"""Shows that the seal door builds. Only ``remote.seal`` names it; a test looks."""

FETCH_DOOR: Final = object()
"""Shows that ``remote.keys`` builds, which alone redeems permits to fetch."""

RELAY: Final = "relay"
MIRROR: Final = "mirror"


@final
class SealedExchange:
    """One sealed request, to be sent once. It holds no plaintext.

    Only the functions ``seal…`` of ``remote.seal`` build it, each together with the
    reader of its answer.

    Attributes:
        node: id of the pool's node that it is for, by which the relay finds it; empty:
            the gateway is no pool. A wrong one makes it fail to open, and no more.
        parameters: the shape of the answer, as the evidence promises it.
        request_bytes: length of the sealed request.
    """

    __slots__ = ("_body", "node", "parameters", "request_bytes")

    def __init__(
        self, door: object, body: bytes, parameters: TransportParameters
    ) -> None:
        # Bytes that were not sealed cannot be wrapped by mistake: who wants to send
        # has to come through the door that asks for the decision and the evidence.
        if door is not SEAL_DOOR:
            raise TypeError("only the seal door builds a SealedExchange")
        self._body: bytes | None = body
        self.node = ""
        self.request_bytes = len(body)
        self.parameters = parameters

    @property
    def padded(self) -> bool:
        """Whether the answer's length and pace are the same as others'."""
        return self.parameters.shape is Shape.PADDED

    def take_body(self) -> bytes:
        """Hand out the encapsulated request; a second call raises.

        Raises:
            RuntimeError: it was taken before.
        """
        # The same bytes twice are a replay: the gateway refuses them, and the relay
        # could tell that two connections carry one query (RFC 9458, section 6.5).
        body, self._body = self._body, None
        if body is None:
            raise RuntimeError("a sealed request is sent once")
        return body

    @override
    def __reduce__(self) -> NoReturn:
        """Refuse to be copied or pickled: each copy could be sent once."""
        raise TypeError("a SealedExchange cannot be copied")


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
        """Spend the order; a second call, or one by another party's way, raises.

        Raises:
            RuntimeError: it was taken before, or is for another party.
        """
        # A fetch in a loop would show a client to the relay, and load it.
        taken, self._taken = self._taken, True
        if taken or party != self.party:
            raise RuntimeError("an order to fetch is for one party, once")

    @override
    def __reduce__(self) -> NoReturn:
        """Refuse to be copied or pickled: each copy could be taken once."""
        raise TypeError("a FetchOrder cannot be copied")
