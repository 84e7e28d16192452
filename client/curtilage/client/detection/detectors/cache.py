"""Findings for recently seen texts, without the texts.

A chat sends its history again with every turn, so most texts of a query were inspected
a moment ago. The key of an entry is the text's HMAC-SHA256 under a key that this
process draws and never discloses; the entry has classes, positions and scores.
"""

import hashlib
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from curtilage.client.detection.spans import Span

KEY_BYTES: Final = 32
MAX_SPANS: Final = 50_000  # over all texts, plus one for each text; about 8 MB


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The findings for one text.

    Attributes:
        first: by the detectors that always run.
        last: by those that run unless the route is already settled; None: they
            did not run.
    """

    first: tuple[Span, ...]
    last: tuple[Span, ...] | None = None

    @property
    def weight(self) -> int:
        """The entry's size, in spans."""
        return 1 + len(self.first) + len(self.last or ())


class FindingsCache:
    """The most recent texts, up to a limit; the oldest are dropped first."""

    def __init__(
        self,
        plan_digest: bytes,
        *,
        most: int = MAX_SPANS,
        random: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self._key = random(KEY_BYTES)
        self._plan_digest = plan_digest
        self._most = most
        self._held = 0
        self._found: OrderedDict[bytes, Found] = OrderedDict()

    def name_of(self, text: str, *, application: str = "") -> bytes:
        """Return the key of a text's entry, which only this process can compute."""
        # Includes the plan: under another one, other detectors would have run. And the
        # application: the time of an answer must not show what another one asked.
        content = text.encode("utf-8", "surrogatepass")
        whose = hashlib.sha256(application.encode()).digest() if application else b""
        named = self._plan_digest + whose + content
        return hmac.digest(self._key, named, hashlib.sha256)

    def recall(self, name: bytes) -> Found | None:
        """Return the findings for a text, if it was seen recently."""
        found = self._found.get(name)
        if found is not None:
            self._found.move_to_end(name)
        return found

    def keep(self, name: bytes, found: Found) -> None:
        """Store the findings for a text, and drop the oldest entries."""
        self._held += found.weight
        before = self._found.pop(name, None)
        self._held -= 0 if before is None else before.weight
        self._found[name] = found
        while self._held > self._most:
            _, oldest = self._found.popitem(last=False)
            self._held -= oldest.weight

    def __len__(self) -> int:
        """Return the number of texts."""
        return len(self._found)
