"""The sealed request that the transport takes to send.

This module has no access to queries, keys or evidence. So the transport, which takes
this and orders to fetch (``fetch_order``), can be reviewed without them.
"""

from typing import Final, NoReturn, final

from typing_extensions import override

from curtilage.wire.shaping import Shape, TransportParameters

SEAL_DOOR: Final = object()
"""Held by ``remote.seal`` alone, as a test checks: proof of who builds the exchange."""


@final
class SealedExchange:
    """One sealed request, to be sent once. It holds no plaintext.

    Only the functions ``seal…`` of ``remote.seal`` build it, each together with the
    reader of its answer.

    Attributes:
        node: id of the pool's node that it is for, used by the relay; empty: not a
            pool. With a wrong id it fails to open, nothing more.
        parameters: the shape of the answer, as the evidence promises it.
        request_bytes: length of the sealed request.
    """

    __slots__ = ("_body", "node", "parameters", "request_bytes")

    def __init__(
        self, door: object, body: bytes, parameters: TransportParameters
    ) -> None:
        # Unsealed bytes cannot be wrapped by mistake: the only constructor is in the
        # module that requires the decision and the evidence.
        if door is not SEAL_DOOR:
            raise TypeError("only the seal door builds a SealedExchange")
        self._body: bytes | None = body
        self.node = ""
        self.request_bytes = len(body)
        self.parameters = parameters

    @property
    def padded(self) -> bool:
        """Whether the answer's length and pace are hidden by padding."""
        return self.parameters.shape is Shape.PADDED

    def take_body(self) -> bytes:
        """Return the encapsulated request; a second call raises.

        Raises:
            RuntimeError: it was taken before.
        """
        # The same bytes twice are a replay: the gateway refuses them, and the relay
        # could see that two connections carry one query (RFC 9458, section 6.5).
        body, self._body = self._body, None
        if body is None:
            raise RuntimeError("a sealed request is sent once")
        return body

    @override
    def __reduce__(self) -> NoReturn:
        """Refuse to be copied or pickled: each copy could be sent once."""
        raise TypeError("a SealedExchange cannot be copied")
