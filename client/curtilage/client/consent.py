"""Consent: the data to be sent, as shown to the user, and tokens that prove consent.

Pure. A token is valid for exactly these bytes and this release, once, and for a short
time: its holder can repeat the request that it was issued for, and nothing else.
"""

import hmac
import struct
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

from curtilage.client.errors import ConsentRequiredError
from curtilage.policy.decision.tiers import RoutingClass

KEY_BYTES: Final = 32
LIFE_MS: Final = 600_000
MAX_USED: Final = 4096
_ID_BYTES: Final = 16
_MAC_BYTES: Final = 32
_BODY: Final = struct.Struct(f">{_ID_BYTES}sQ")
_LABEL: Final = b"curtilage/consent/v1\0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outbound:
    """The data that would be sealed, and its recipient.

    Attributes:
        payload: the chat request (JSON, UTF-8), as it would be sealed.
        payload_digest: its SHA-256, 32 bytes.
        routing_class: its class.
        tier: the recipient, by the policy's name.
        release: name and version of the software there, from verified evidence.
        verdict_id: identifies that evidence.
        evidence: its kind; ``emulated-…``: without hardware.
        deidentified: how many values of each class would be sent as pseudonyms.
        boundary: how much of a conversation, if another part is kept local; else empty.
        token: as received with the request; see ``ConsentDesk``.
    """

    payload: bytes = field(repr=False)
    payload_digest: bytes = field(repr=False)
    routing_class: RoutingClass
    tier: str
    release: str
    verdict_id: str
    evidence: str
    deidentified: tuple[tuple[str, int], ...] = ()
    boundary: str = ""
    token: str | None = field(default=None, repr=False)

    def value(self) -> dict[str, object]:
        """Return it for JSON; ``payload`` is the exact text that would be sealed."""
        return {
            "leaves": True,
            "tier": self.tier,
            "class": self.routing_class.value,
            "release": self.release,
            "verdict": self.verdict_id,
            "evidence": self.evidence,
            "deidentified": dict(self.deidentified),
            "boundary": self.boundary or None,
            "sha256": self.payload_digest.hex(),
            "payload": self.payload.decode(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Stays:
    """Nothing of a query would be sent.

    Attributes:
        rule: id of the rule that decided.
        reason: its reason.
        boundary: why no part of the conversation may be sent, if that was tried.
    """

    rule: str
    reason: str
    boundary: str = ""


Consents = Callable[[Outbound], Awaitable[bool] | bool]
"""Asks for consent. Exactly what was shown is sent, or nothing."""


class ConsentDesk:
    """Issues tokens, and accepts each once.

    Args:
        key: of this process, ``KEY_BYTES``.
        draw: returns this many random bytes.
        now_ms: the time, in milliseconds of a clock that is not set back.
        most: number of used tokens to remember; beyond it, no token is accepted.
    """

    def __init__(
        self,
        key: bytes,
        draw: Callable[[int], bytes],
        now_ms: Callable[[], int],
        *,
        most: int = MAX_USED,
    ) -> None:
        self._key = key
        self._draw = draw
        self._now_ms = now_ms
        self._most = most
        self._used: OrderedDict[bytes, int] = OrderedDict()

    def __call__(self, outbound: Outbound) -> bool:
        """Consent if there is a token for it; a ``Consents``.

        Raises:
            ConsentRequiredError: there is no valid one; contains one for repeating.
        """
        # Also for the recipient: consent is given for this release.
        said = (outbound.tier, outbound.routing_class, outbound.release)
        named = "\0".join((*said, outbound.evidence, outbound.boundary)).encode()
        about = sha256(outbound.payload_digest + named).digest()
        if outbound.token is None or not self.takes(outbound.token, about):
            raise ConsentRequiredError(self.token_for(about), outbound.payload_digest)
        return True

    def token_for(self, about: bytes) -> str:
        """Return a new token for the data with this digest, 32 bytes."""
        body = _BODY.pack(self._draw(_ID_BYTES), self._now_ms() + LIFE_MS)
        return (body + self._mac(body, about)).hex()

    def takes(self, token: str, about: bytes) -> bool:
        """Accept a token; it is valid once, for the data it was issued for."""
        try:
            said = bytes.fromhex(token)
        except ValueError:
            return False
        body, mac = said[: _BODY.size], said[_BODY.size :]
        # The MAC first: with a wrong one, the token is not ours.
        if len(mac) != _MAC_BYTES or not hmac.compare_digest(
            mac, self._mac(body, about)
        ):
            return False
        _, not_after_ms = _BODY.unpack(body)
        now_ms = self._now_ms()
        for used, until_ms in tuple(self._used.items()):
            if until_ms < now_ms:
                del self._used[used]
        if not now_ms <= not_after_ms <= now_ms + LIFE_MS or body in self._used:
            return False
        # Full: it is unknown which ones were used, so none is accepted.
        if len(self._used) >= self._most:
            return False
        self._used[body] = not_after_ms
        return True

    def _mac(self, body: bytes, about: bytes) -> bytes:
        return hmac.digest(self._key, _LABEL + body + about, "sha256")
