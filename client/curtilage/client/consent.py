"""What would leave, shown to a person; and a token that says that he agreed to it.

Pure. A token is for exactly these bytes and this release, once, and soon: whoever
holds it can repeat the request that it was given for, and nothing else.
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
    """What would be sealed, for whom.

    Attributes:
        payload: the chat request (JSON, UTF-8), as it would be sealed.
        payload_digest: its SHA-256, 32 bytes.
        routing_class: how much it may risk.
        tier: who would be asked, by the policy's name.
        release: name and version of what answers there, of verified evidence.
        verdict_id: that evidence.
        evidence: its kind; ``emulated-…``: no hardware stands behind it.
        deidentified: how many values of each class would leave as pseudonyms.
        boundary: how much of a conversation of which another part stays; else empty.
        token: what came with the request; see ``ConsentDesk``.
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
        """Return it for JSON; ``payload`` is the very text that would be sealed."""
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
    """Nothing of a query would leave.

    Attributes:
        rule: id of the rule that decided.
        reason: its reason.
        boundary: why no part of the conversation may leave, if that was tried.
    """

    rule: str
    reason: str
    boundary: str = ""


Consents = Callable[[Outbound], Awaitable[bool] | bool]
"""Asks whoever is to agree. What leaves is what was shown, or nothing."""


class ConsentDesk:
    """Gives tokens, and takes each once.

    Args:
        key: of this process, ``KEY_BYTES``.
        draw: randomness, so many bytes.
        now_ms: the time, in milliseconds of a clock that is not set back.
        most: used tokens that are remembered; where there are more, none is taken.
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
        """Agree if there is a token for it; a ``Consents``.

        Raises:
            ConsentRequiredError: there is none that holds; it has one to repeat with.
        """
        # For whom, too: what was agreed to is that this release reads it.
        said = (outbound.tier, outbound.routing_class, outbound.release)
        named = "\0".join((*said, outbound.evidence, outbound.boundary)).encode()
        about = sha256(outbound.payload_digest + named).digest()
        if outbound.token is None or not self.takes(outbound.token, about):
            raise ConsentRequiredError(self.token_for(about), outbound.payload_digest)
        return True

    def token_for(self, about: bytes) -> str:
        """Return a new token for what a digest names, 32 bytes."""
        body = _BODY.pack(self._draw(_ID_BYTES), self._now_ms() + LIFE_MS)
        return (body + self._mac(body, about)).hex()

    def takes(self, token: str, about: bytes) -> bool:
        """Take a token; it holds once, for what it was given for."""
        try:
            said = bytes.fromhex(token)
        except ValueError:
            return False
        body, mac = said[: _BODY.size], said[_BODY.size :]
        # The MAC first: what it does not hold for was made by somebody else.
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
        # Full: which were used is no longer known, so none is taken.
        if len(self._used) >= self._most:
            return False
        self._used[body] = not_after_ms
        return True

    def _mac(self, body: bytes, about: bytes) -> bytes:
        return hmac.digest(self._key, _LABEL + body + about, "sha256")
