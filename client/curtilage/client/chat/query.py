"""One query: what is inspected is exactly what would be sent.

Every text that the user wrote is a leaf here, so the detectors see all of it; the bytes
to be sent are also built here, so that a decision can identify them by digest. It knows
nothing of detectors, policy rules or networks.

Numbers are no leaves: a random seed looks like a telephone number, and a part of one
like nothing. So a number is never sent as written: a seed is sent as a keyed digest,
and all others are rounded to one of a few values. A number inside JSON is read like a
text. The id of a tool call is not sent: its position in the conversation replaces it.
"""

import hmac
import json
import re
import secrets
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, cast

from curtilage.client.chat.document import Document
from curtilage.client.chat.options import RoutingOptions
from curtilage.client.chat.payload import Payload
from curtilage.client.chat.turns import (
    MESSAGE_TOKENS,
    PROMPTS,
    ROLES,
    Message,
    Request,
    Settings,
    ToolCall,
)
from curtilage.policy.decision.findings import Where

__all__ = [
    "MESSAGE_TOKENS",
    "PROMPTS",
    "ROLES",
    "Leaf",
    "Message",
    "Query",
    "Settings",
    "ToolCall",
    "single_query",
]

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
# Values that are words of OpenAI's API, or the position of a call.
_FIXED: Final = re.compile(
    r"role=(system|developer|user|assistant|tool)|[^=]*\.type=function|"
    r"tool_choice=(none|required)|([^=]*\.id|tool_call_id)=call_[0-9]{1,4}"
)
_SENT_PLACES: Final = 2
_PENALTY_PLACES: Final = 1
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
    document: Document | None = None  # from which the text is read


@dataclass(frozen=True, slots=True, kw_only=True)
class Query(Request):
    """A whole request, ready to be inspected and then answered.

    Its settings are used unchanged locally, while ``payload`` contains the values to be
    sent.

    Attributes:
        opaque: places of parts that are not text (images, audio, files);
            each becomes ``uncertain.attachment`` and keeps the query local.
        options: its routing options; never sent.
    """

    opaque: tuple[Where, ...] = ()
    options: RoutingOptions = field(default_factory=RoutingOptions)
    _payload: Payload | None = field(
        default=None, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        """Copy the turns: a list could change between two readings."""
        object.__setattr__(self, "messages", tuple(self.messages))
        object.__setattr__(self, "tools", tuple(self.tools))
        object.__setattr__(self, "opaque", tuple(self.opaque))

    def leaves(self) -> Iterator[Leaf]:
        """Yield every text that the payload contains, with its place."""
        last = max(len(self.messages) - 1, 0)
        for name, held in self.conversation().items():
            if name != "messages":
                role = "user" if name == "stop" else "system"
                for path, said in _said(held, name):
                    yield _leaf(last, role, path, said)
                continue
            for index, turn in enumerate(cast("list[object]", held)):
                for path, said in _said(turn, ""):
                    yield _leaf(index, self.messages[index].role, path, said)

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
            **self.conversation(),
            "max_tokens": MAX_TOKENS_SENT[rung],
            "temperature": abs(round(float(settings.temperature), _SENT_PLACES)),
            "top_p": max(round(float(settings.top_p), _SENT_PLACES), _LEAST_TOP_P),
            "stream": self.stream,
        }
        if settings.logprobs:
            body["logprobs"] = True
        coarse = {
            "top_logprobs": settings.top_logprobs,
            "deterministic": settings.deterministic,
            "n": settings.n if settings.n > 1 else 0,
            "presence_penalty": round(settings.presence_penalty, _PENALTY_PLACES),
            "frequency_penalty": round(settings.frequency_penalty, _PENALTY_PLACES),
        }
        body |= {name: number for name, number in coarse.items() if number}
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


def _said(held: object, path: str) -> Iterator[tuple[str, str | Document]]:
    """Yield every text in a part of a request, with its path."""
    if isinstance(held, dict):
        for key, each in cast("dict[str, object]", held).items():
            yield from _said(each, f"{path}.{key}" if path else key)
    elif isinstance(held, list):
        for number, each in enumerate(cast("list[object]", held)):
            yield from _said(each, f"{path}[{number}]")
    elif isinstance(held, Document) or (
        isinstance(held, str) and not _FIXED.fullmatch(f"{path}={held}")
    ):
        yield path, held


def _encoded(body: dict[str, object]) -> bytes:
    return json.dumps(
        body, ensure_ascii=False, separators=(",", ":"), default=Document.plain
    ).encode()


def _leaf(index: int, role: str, json_path: str, said: str | Document) -> Leaf:
    where = Where(message=index, role=role, json_path=json_path)
    if isinstance(said, str):
        return Leaf(where=where, text=said)
    return Leaf(where=where, text=said.text(), document=said)


def single_query(text: str) -> Query:
    """Return the query that asks one text."""
    return Query(messages=(Message(role="user", content=text),))
