"""Where a relay may differ from the suite: one table, each entry with its reason.

A test that carries ``@differs("name")`` must fail for the relay that the table
names, and pass for the other; so no entry outlives its need.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from support.relay_processes import Kind

_Test = TypeVar("_Test", bound=Callable[..., None])
_NAMES: Final = "__relay_differences__"


@dataclass(frozen=True, slots=True)
class Difference:
    """One relay's difference, and why it is allowed."""

    relay: Kind
    reason: str


DIFFERENCES: Final = {
    "unknown-answer-fields": Difference("nginx", "hides fields by name only"),
    "answer-kind": Difference(
        "nginx", "cannot refuse an answer by its type; it takes the type away"
    ),
    "answer-size": Difference("nginx", "has no bound on an answer's length"),
    "unframed-answers": Difference("nginx", "cannot refuse an answer by its framing"),
    "reason-phrase": Difference(
        "nginx", "keeps a status line that it does not replace"
    ),
    "no-http": Difference("nginx", "takes what is not HTTP/1 for HTTP/0.9"),
    "answer-framing": Difference("nginx", "1.22 is lax about an answer's lengths"),
    "informational": Difference("nginx", "1.22 knows no 1xx from a gateway"),
    "gateway-errors": Difference(
        "nginx", "cannot look at an error's type before it decides to replace it"
    ),
    "unasked-streaming": Difference("nginx", "cannot buffer some answers only"),
    "request-streaming": Difference("nginx", "cannot buffer some requests only"),
    "slow-content": Difference("nginx", "knows the longest silence, no least rate"),
    "client-connections": Difference("nginx", "counts running requests only"),
    "turns": Difference("nginx", "refuses at once; there is no queue"),
    "connection-cap": Difference("nginx", "does not accept beyond its cap"),
    "draining": Difference(
        "nginx", "stops listening as soon as it gets the quit signal"
    ),
    "lax-heads": Difference("nginx", "takes LF, no colon, and any count of fields"),
    "continue": Difference("nginx", "says 100 before any refusal, and 417 after"),
    "repeated-fields": Difference("nginx", "sees the first of repeated fields"),
    "first-line": Difference("nginx", "its own page where no request was understood"),
    "server-field": Difference("nginx", "cannot name itself otherwise"),
}
"""``addresses`` of the generated text has no test: memory is not on the wire."""


def differs(name: str) -> Callable[[_Test], _Test]:
    """Mark a test that the relay of this difference is known to fail."""

    def mark(test: _Test) -> _Test:
        setattr(test, _NAMES, (*getattr(test, _NAMES, ()), name))
        return test

    return mark


def allowed(test: object, relay: Kind) -> list[str]:
    """Return the differences of this test that this relay may have."""
    names: tuple[str, ...] = getattr(test, _NAMES, ())
    return [name for name in names if DIFFERENCES[name].relay == relay]
