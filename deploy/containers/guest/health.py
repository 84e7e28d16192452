"""Asks a program of this container for its health; exit 0 if it answers 200.

``unix:/path``, ``http://127.0.0.1:PORT`` or ``https://127.0.0.1:PORT``: the certificate
is not verified, as the connection does not leave the container. ``file:/path`` asks
whether a socket accepts connections, for programs that do not speak HTTP, and
``folder:/path`` whether there is a file in it.
"""

import os
import socket
import sys
from typing import Final

TIMEOUT_S: Final = 3.0
REQUEST: Final = (
    b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
)
HEALTHY: Final = b"HTTP/1.1 200 "
HERE: Final = frozenset({"127.0.0.1", "localhost"})


def main(arguments: list[str]) -> int:
    """Return 0 if the program at this address is healthy, 1 if not, 2 for wrong use."""
    if len(arguments) != 1:
        return 2
    try:
        return 0 if is_healthy(arguments[0]) else 1
    except OSError:
        return 1
    except ValueError:
        return 2


def is_healthy(address: str) -> bool:
    """Return whether a program answers.

    Raises:
        OSError: it cannot be reached.
        ValueError: an address in another form, or on another machine.
    """
    scheme, _, path = address.partition(":")
    if scheme == "folder" and path.startswith("/"):
        with os.scandir(path) as entries:
            return any(entries)
    if scheme in {"unix", "file"} and path.startswith("/"):
        with socket.socket(socket.AF_UNIX) as plain:
            plain.settimeout(TIMEOUT_S)
            plain.connect(path)
            return scheme == "file" or _answers(plain)
    host, _, port = path.removeprefix("//").rpartition(":")
    if scheme not in {"http", "https"} or host not in HERE or not port.isdecimal():
        raise ValueError(address)
    with socket.create_connection((host, int(port)), TIMEOUT_S) as tcp:
        if scheme == "http":
            return _answers(tcp)
        import ssl  # noqa: PLC0415 - half of the time of a check without TLS

        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        with context.wrap_socket(tcp) as secured:
            return _answers(secured)


def _answers(connection: socket.socket) -> bool:
    connection.sendall(REQUEST)
    answer = b""
    while len(answer) < len(HEALTHY) and (data := connection.recv(4096)):
        answer += data
    return answer.startswith(HEALTHY)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
