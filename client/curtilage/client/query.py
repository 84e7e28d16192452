"""One question as it would be asked: what is inspected is what would be sent.

Every text the user wrote is a leaf here, so the detectors see all of it; the
bytes that would leave are made here too, so that a decision can name them by
digest. Knows nothing of detectors, policies' rules or networks.

A number is no leaf: a drawn seed looks like a telephone number, and a share of
one like nothing. So a number does not leave as it was written, whatever it was:
a seed leaves as a keyed digest, and all others as the nearest of few.
"""

import hmac
import json
import secrets
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, cast

from curtilage.client.options import RoutingOptions
from curtilage.client.payload import Payload
from curtilage.policy.decision.findings import Where

ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})
# The answer's length as programs usually write it: round numbers, powers of two
# and half as much again. What lies between is cut down to one of these, and not
# up: an upper bound stays one, though nobody here can count the enclave's tokens.
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
"""What a model's template adds to each message, about."""
_SENT_PLACES: Final = 2
_LEAST_TOP_P: Final = 0.01
_SEED_BYTES: Final = 4
# Dies with the process, so it cannot be tried which seed a digest was made of, and
# no two programs or runs that use one seed can be told to be one by it.
_SEED_KEY: Final = secrets.token_bytes(32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """One text of a query and its place."""

    where: Where
    text: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One turn: who speaks, and what.

    Attributes:
        role: one of ``ROLES``.
        content: the text.
        name: the speaker's name as the caller gave it, or None.
    """

    role: str
    content: str = field(repr=False)
    name: str | None = field(default=None, repr=False)

    def encoded(self) -> bytes:
        """Return the turn as bytes that no other turn has, for a keyed digest."""
        parts = (self.role, self.name or "", self.content)
        # Lone surrogates have no UTF-8 form, and such a query stays home anyway.
        encoded = [part.encode("utf-8", "surrogatepass") for part in parts]
        return b"".join(len(part).to_bytes(8, "big") + part for part in encoded)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How to answer; the caller's numbers, already validated.

    Attributes:
        max_tokens: upper bound of the answer's length, at least 1.
        temperature: 0 (greedy) to 2.
        top_p: above 0, at most 1.
        seed: None draws one at random.
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
        settings: sampling and limits, as the caller gave them; what answers here
            keeps to them, and ``payload`` says what leaves of them.
        stream: whether the caller wants the answer token by token.
        opaque: places of parts that are not text (images, audio, files);
            each becomes ``uncertain.attachment`` and keeps the query home.
        options: how it is to be routed; stays here.
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
        """Hold the turns still: a list could change between two readings."""
        object.__setattr__(self, "messages", tuple(self.messages))
        object.__setattr__(self, "opaque", tuple(self.opaque))

    def leaves(self) -> Iterator[Leaf]:
        """Yield every text that the payload holds, with its place."""
        for index, message in enumerate(self.messages):
            yield _leaf(index, message.role, "content", message.content)
            if message.name is not None:
                yield _leaf(index, message.role, "name", message.name)
        last = max(len(self.messages) - 1, 0)
        for number, text in enumerate(self.settings.stop):
            yield _leaf(last, "user", f"stop[{number}]", text)

    @property
    def octets(self) -> int:
        """How many bytes its turns have: all that those need who must not read them."""
        texts = (
            each.content.encode("utf-8", "surrogatepass") for each in self.messages
        )
        return sum(map(len, texts))

    def payload(self) -> Payload:
        """Return what would be sealed, encoded at the first call and kept.

        Within one process a query has one payload: the same query with the same
        seed can be answered alike again, and no other query has that seed.

        Raises:
            UnicodeEncodeError: a text has no UTF-8 form.
        """
        # Once: what is inspected, decided and sealed is one value, and not several
        # that ought to be equal.
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
            # Over all the rest as well: a seed that one application always uses
            # would join all its questions.
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
