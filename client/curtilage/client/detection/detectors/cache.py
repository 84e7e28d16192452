"""What was found in texts seen before, without the texts.

A chat sends its history again with every turn, so that most texts of a query
were looked at a moment ago. A text is known by HMAC-SHA256 under a key that
this process draws and tells nobody; kept are classes, places and scores.
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
MAX_SPANS: Final = 50_000  # over all texts, one for each text more; about 8 MB


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What was found in one text.

    Attributes:
        first: by the detectors that always run.
        last: by those that run if nothing has settled the route; None: they
            did not run.
    """

    first: tuple[Span, ...]
    last: tuple[Span, ...] | None = None

    @property
    def weight(self) -> int:
        """How much room it takes."""
        return 1 + len(self.first) + len(self.last or ())


class FindingsCache:
    """The texts seen last, bounded; the oldest are forgotten first."""

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

    def name_of(self, text: str) -> bytes:
        """Return what stands for a text here; it cannot be guessed outside."""
        # With the plan: under another, other detectors would have looked.
        content = text.encode("utf-8", "surrogatepass")
        named = self._plan_digest + content
        return hmac.digest(self._key, named, hashlib.sha256)

    def recall(self, name: bytes) -> Found | None:
        """Return what was found in a text, if it was seen lately."""
        found = self._found.get(name)
        if found is not None:
            self._found.move_to_end(name)
        return found

    def keep(self, name: bytes, found: Found) -> None:
        """Remember what was found in a text, and forget the oldest."""
        self._held += found.weight
        before = self._found.pop(name, None)
        self._held -= 0 if before is None else before.weight
        self._found[name] = found
        while self._held > self._most:
            _, oldest = self._found.popitem(last=False)
            self._held -= oldest.weight

    def __len__(self) -> int:
        """Return how many texts are known."""
        return len(self._found)
