"""What a connection beyond the cap gets: a constant answer, unread."""

import asyncio
from typing import Final, cast

from typing_extensions import override

from curtilage.enclave_server.gateway import UNAVAILABLE

SERVER_NAME: Final = "curtilage"


class TooMany(asyncio.Protocol):
    """Answers a connection beyond the cap, without reading it."""

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Say so, and close."""
        head = (
            f"HTTP/1.1 {UNAVAILABLE.status} Service Unavailable\r\n"
            f"Server: {SERVER_NAME}\r\nConnection: close\r\n"
            f"Content-Type: {UNAVAILABLE.content_type}\r\n"
            f"Content-Length: {len(UNAVAILABLE.content)}\r\n\r\n"
        )
        # asyncio hands every server connection a transport that can write.
        writable = cast("asyncio.WriteTransport", transport)
        writable.write(head.encode() + UNAVAILABLE.content)
        writable.close()
