"""Parser of a TLS ClientHello, which is not encrypted."""

from dataclasses import dataclass

from curtilage.wire.cursor import Cursor

SERVER_NAME, ALPN, SESSION_TICKET, PRE_SHARED_KEY = 0, 16, 35, 41
HANDSHAKE, CLIENT_HELLO = 22, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientHello:
    """The fields of the message by which clients may differ (RFC 8446, 4.1.2).

    Attributes:
        suites: cipher suites, in order.
        extensions: types in order.
        contents: of each extension.
    """

    suites: bytes
    extensions: tuple[int, ...]
    contents: dict[int, bytes]

    @property
    def resumes(self) -> bool:
        """Whether it carries a ticket of an earlier connection."""
        return PRE_SHARED_KEY in self.contents or bool(
            self.contents.get(SESSION_TICKET)
        )

    @property
    def protocols(self) -> tuple[bytes, ...]:
        """The application protocols that it offers (RFC 7301)."""
        listed = Cursor(self.contents.get(ALPN, bytes(2)))
        listed.take(2)
        protocols: list[bytes] = []
        while listed.remaining:
            protocols.append(listed.take(listed.take_uint(1)))
        return tuple(protocols)


def read_client_hello(data: bytes) -> ClientHello:
    """Read the first message of a connection.

    Raises:
        AssertionError: it is no ClientHello.
    """
    record = Cursor(data)
    assert record.take_uint(1) == HANDSHAKE
    record.take(4)
    assert record.take_uint(1) == CLIENT_HELLO
    record.take(3 + 2 + 32)
    record.take(record.take_uint(1))
    suites = record.take(record.take_uint(2))
    record.take(record.take_uint(1))
    listed = Cursor(record.take(record.take_uint(2)))
    contents: dict[int, bytes] = {}
    while listed.remaining:
        kind = listed.take_uint(2)
        contents[kind] = listed.take(listed.take_uint(2))
    return ClientHello(suites=suites, extensions=tuple(contents), contents=contents)
