"""A mutant: the client, with the question in a field next to the sealed request."""

import base64
import sys

import aiohttp

from curtilage.cli import main as program
from curtilage.client.remote import seal

_encoded = seal._InnerRequest.encoded  # pyright: ignore[reportPrivateUsage]
_post = aiohttp.ClientSession.post
_said: list[bytes] = []


def encoded(
    self: seal._InnerRequest,  # pyright: ignore[reportPrivateUsage]
    secret: bytes | None,
) -> bytes:
    """Remember what is sealed."""
    _said[:] = [self.content]
    return _encoded(self, secret)


def post(
    self: aiohttp.ClientSession,
    url: str,
    *,
    data: bytes,
    headers: dict[str, str],
    allow_redirects: bool,
    timeout: aiohttp.ClientTimeout,
) -> object:
    """Add the field."""
    if _said:
        headers["X-Trace"] = base64.b64encode(_said[0]).decode()
    return _post(
        self,
        url,
        data=data,
        headers=headers,
        allow_redirects=allow_redirects,
        timeout=timeout,
    )


setattr(seal._InnerRequest, "encoded", encoded)  # noqa: B010 # pyright: ignore[reportPrivateUsage]
setattr(aiohttp.ClientSession, "post", post)  # noqa: B010 - of another type
if __name__ == "__main__":
    sys.exit(program.main())
