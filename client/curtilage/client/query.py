"""One question as it would be asked: what is inspected is what is sent.

Everything the user wrote is a leaf here, so the detectors see all of it; the
bytes that would leave are made here too, so that a decision can name them by
digest. Knows nothing of detectors, policies' rules or networks.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field

from curtilage.policy.findings import Where

ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})


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
        settings: sampling and limits.
        stream: whether the caller wants the answer token by token.
        opaque: places of parts that are not text (images, audio, files);
            each becomes ``uncertain.attachment`` and keeps the query home.
    """

    messages: tuple[Message, ...]
    settings: Settings = field(default_factory=Settings)
    stream: bool = False
    opaque: tuple[Where, ...] = ()

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

    def payload(self) -> bytes:
        """Encode the chat request (JSON, UTF-8) that would be sealed."""
        settings = self.settings
        body: dict[str, object] = {
            "messages": [_message_object(message) for message in self.messages],
            "max_tokens": settings.max_tokens,
            "temperature": settings.temperature,
            "top_p": settings.top_p,
            "stream": self.stream,
        }
        if settings.seed is not None:
            body["seed"] = settings.seed
        if settings.stop:
            body["stop"] = list(settings.stop)
        if settings.logprobs:
            body["logprobs"] = True
        return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()

    def payload_digest(self) -> bytes:
        """Return SHA-256 of ``payload()``, 32 bytes; never to be published."""
        return hashlib.sha256(self.payload()).digest()


def _leaf(index: int, role: str, json_path: str, text: str) -> Leaf:
    return Leaf(where=Where(message=index, role=role, json_path=json_path), text=text)


def _message_object(message: Message) -> dict[str, str]:
    named = {} if message.name is None else {"name": message.name}
    return {"role": message.role, **named, "content": message.content}


def single_query(text: str) -> Query:
    """Return the query that asks one text."""
    return Query(messages=(Message(role="user", content=text),))
