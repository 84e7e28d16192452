"""The challenge: asks for evidence that is made now, over a nonce of the client's.

A client sends it before a question of the strictest classes. It names the base
of the bundle that it verified, since a key outlives the evidence over it. Pure;
no model takes part.
"""

import re
from dataclasses import dataclass
from typing import Final

from curtilage.enclave_server.chat import json_object
from curtilage.enclave_server.errors import ChatError

_HEX: Final = {
    "nonce": re.compile(r"[0-9a-f]{64}"),
    "b0": re.compile(r"[0-9a-f]{128}"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChallengeRequest:
    """What evidence is asked for.

    Attributes:
        nonce: 32 bytes, the client's.
        base: B0 of the bundle that the client holds, 64 bytes; empty for the
            newest of the key that the request was sealed to.
    """

    nonce: bytes
    base: bytes = b""


def parse_challenge_request(content: bytes) -> ChallengeRequest:
    """Parse ``{"nonce": 64 hex digits}``, with ``"b0": 128 hex digits`` or not.

    Raises:
        ChatError: status 400.
    """
    body = json_object(content)
    if body.keys() - _HEX.keys():
        raise ChatError(400, "unsupported_parameter")
    base = _octets(body, "b0") if "b0" in body else b""
    return ChallengeRequest(nonce=_octets(body, "nonce"), base=base)


def _octets(body: dict[str, object], name: str) -> bytes:
    value = body.get(name)
    if not isinstance(value, str) or _HEX[name].fullmatch(value) is None:
        raise ChatError(400, "invalid_value", param=name)
    return bytes.fromhex(value)
