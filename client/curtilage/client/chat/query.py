"""One query: what is inspected is exactly what would be sent.

Every text that the user wrote is a leaf here, so the detectors see all of it; the bytes
to be sent are also built here, so that a decision can identify them by digest. It knows
nothing of detectors, policy rules or networks.

Numbers are no leaves: a random seed looks like a telephone number, and a part of one
like nothing. So a number is never sent as written: a seed is sent as a keyed digest,
and all others are rounded to one of a few values.
"""

import hmac
import json
import secrets
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, cast

from curtilage.client.chat.options import RoutingOptions
from curtilage.client.chat.payload import Payload
from curtilage.policy.decision.findings import Where

PROMPTS = frozenset({"system", "developer"})
ROLES = PROMPTS | {"user", "assistant", "tool"}
# Common values for the length of an answer: round numbers, powers of two and one and a
# half times these. Others are rounded down: an upper bound must remain one, though the
# enclave's tokens cannot be counted here.
MAX_TOKENS_SENT: Final = tuple(
    sorted(
        {
            *range(1, 11),
            *(
                number * 10**zeros
                for number in (10, 12, 15, 20, 25, 30, 40, 50, 60, 80)
                for zeros in range(4)
            ),
            *(2**power for power in range(4, 16)),
            *(3 * 2**power for power in range(2, 14)),
        }
    )
)
MESSAGE_TOKENS: Final = 8
"""Approximate number of tokens that a model's template adds to each message."""
_SENT_PLACES: Final = 2
_LEAST_TOP_P: Final = 0.01
_SEED_BYTES: Final = 4
# Discarded with the process, so the seed of a digest cannot be guessed, and two
# programs or runs with the same seed cannot be linked by it.
_SEED_KEY: Final = secrets.token_bytes(32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """One text of a query and its place."""

    where: Where
    text: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One turn: the speaker and the text.

    Attributes:
        role: one of ``ROLES``.
        content: the text.
        name: the speaker's name as the caller gave it, or None.
    """

    role: str
    content: str = field(repr=False)
    name: str | None = field(default=None, repr=False)

    def encoded(self) -> bytes:
        """Return a unique encoding of the turn, for a keyed digest."""
        parts = (self.role, self.name or "", self.content)
        # Lone surrogates have no UTF-8 form, and such a query is kept local anyway.
        encoded = [part.encode("utf-8", "surrogatepass") for part in parts]
        return b"".join(len(part).to_bytes(8, "big") + part for part in encoded)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Sampling settings and limits; the caller's numbers, already validated.

    Attributes:
        max_tokens: upper bound of the answer's length, at least 1.
        temperature: 0 (greedy) to 2.
        top_p: above 0, at most 1.
        seed: None: a random one.
        stop: strings that end the answer; content, so inspected too.
        logprobs: report the log-probability of each token.
    """

    max_tokens: int = 512
    temperature: float = 0.7
    top_p: float = 0.95
    seed: int | None = None
    stop: tuple[str, ...] = field(default=(), repr=False)
    logprobs: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A whole conversation, ready to be inspected and then answered.

    Attributes:
        messages: the turns, oldest first.
        settings: sampling and limits, as the caller gave them; used unchanged
            locally, while ``payload`` contains the values to be sent.
        stream: whether the caller wants the answer token by token.
        opaque: places of parts that are not text (images, audio, files);
            each becomes ``uncertain.attachment`` and keeps the query local.
        options: its routing options; never sent.
    """

    messages: tuple[Message, ...]
    settings: Settings = field(default_factory=Settings)
    stream: bool = False
    opaque: tuple[Where, ...] = ()
    options: RoutingOptions = field(default_factory=RoutingOptions)
    _payload: Payload | None = field(
        default=None, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        """Copy the turns: a list could change between two readings."""
        object.__setattr__(self, "messages", tuple(self.messages))
        object.__setattr__(self, "opaque", tuple(self.opaque))

    def leaves(self) -> Iterator[Leaf]:
        """Yield every text that the payload contains, with its place."""
        for index, message in enumerate(self.messages):
            yield _leaf(index, message.role, "content", message.content)
            if message.name is not None:
                yield _leaf(index, message.role, "name", message.name)
        last = max(len(self.messages) - 1, 0)
        for number, text in enumerate(self.settings.stop):
            yield _leaf(last, "user", f"stop[{number}]", text)

    @property
    def text_bytes(self) -> int:
        """Length of its turns in bytes, for code that must not read them."""
        texts = (
            each.content.encode("utf-8", "surrogatepass") for each in self.messages
        )
        return sum(map(len, texts))

    def payload(self) -> Payload:
        """Return the bytes to be sealed, encoded at the first call and cached.

        Within one process a query has one payload: the same query with the same
        seed can be repeated, and no other query has that seed.

        Raises:
            UnicodeEncodeError: a text has no UTF-8 form.
        """
        # Cached: what is inspected, decided upon and sealed is one value, not several
        # that should be equal.
        if self._payload is None:
            object.__setattr__(self, "_payload", Payload(self._body()))
        return cast("Payload", self._payload)

    def _body(self) -> bytes:
        """Encode the chat request (JSON, UTF-8)."""
        settings = self.settings
        rung = max(bisect_right(MAX_TOKENS_SENT, settings.max_tokens) - 1, 0)
        body: dict[str, object] = {
            "messages": [
                {"role": each.role}
                | ({} if each.name is None else {"name": each.name})
                | {"content": each.content}
                for each in self.messages
            ],
            "max_tokens": MAX_TOKENS_SENT[rung],
            "temperature": abs(round(float(settings.temperature), _SENT_PLACES)),
            "top_p": max(round(float(settings.top_p), _SENT_PLACES), _LEAST_TOP_P),
            "stream": self.stream,
        }
        if settings.stop:
            body["stop"] = list(settings.stop)
        if settings.logprobs:
            body["logprobs"] = True
        if settings.seed is not None:
            # Covers the rest as well: an application's constant seed would otherwise
            # link all its questions.
            said = f"{settings.seed}|".encode() + _encoded(body)
            digest = hmac.digest(_SEED_KEY, said, "sha256")
            body["seed"] = int.from_bytes(digest[:_SEED_BYTES], "big")
        return _encoded(body)

    def payload_digest(self) -> bytes:
        """Return SHA-256 of ``payload()``, 32 bytes; never to be published."""
        return self.payload().digest


def _encoded(body: dict[str, object]) -> bytes:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def _leaf(index: int, role: str, json_path: str, text: str) -> Leaf:
    return Leaf(where=Where(message=index, role=role, json_path=json_path), text=text)


def single_query(text: str) -> Query:
    """Return the query that asks one text."""
    return Query(messages=(Message(role="user", content=text),))
