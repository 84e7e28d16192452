"""What the door outward takes to send: one sealed request.

Nothing here knows a query, a key or a piece of evidence. So the door outward, which
takes this and orders to fetch (``fetch_order``), can be read without them.
"""

from typing import Final, NoReturn, final

from typing_extensions import override

from curtilage.wire.shaping import Shape, TransportParameters

SEAL_DOOR: Final = object()
"""Shows that the seal door builds. Only ``remote.seal`` names it; a test looks."""


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
