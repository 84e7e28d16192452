"""The demonstration's last requests: two at the same time, and JSON of each side."""

import json
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, cast

from curtilage_dev.asking import open_answer

QUESTIONS: Final = (
    "Explain in two sentences how a tide comes about.",
    "Explain in two sentences what compound interest is.",
)
MAX_TOKENS: Final = 32
TICKET: Final = (
    "The printer on floor 3 jams every morning. Which item is it, and where?"
)
SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "item": {"type": "string", "maxLength": 24},
        "floor": {"type": "integer", "minimum": 0, "maximum": 99},
        "urgent": {"type": "boolean"},
    },
    "required": ["item", "floor", "urgent"],
    "additionalProperties": False,
}
TYPES: Final = {"item": str, "floor": int, "urgent": bool}
"""Of the values, once they are read."""
SIDES: Final = ("local", "enclave")
"""Those that are asked for JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Together:
    """Times and results.

    Attributes:
        alone_s: of each question, one after the other.
        both_s: of both, asked at the same time.
        sent: how many questions the enclave was asked.
        answers: the JSON text by side.
    """

    alone_s: tuple[float, ...]
    both_s: float
    sent: int
    answers: Mapping[str, str]

    @property
    def as_expected(self) -> bool:
        """Whether both sides gave JSON of the schema."""
        return set(self.answers) == set(SIDES) and all(
            map(_is_ticket, self.answers.values())
        )


def _is_ticket(text: str) -> bool:
    try:
        value: object = json.loads(text)
    except ValueError:
        return False
    found = cast("dict[str, object]", value) if isinstance(value, dict) else {}
    # Exactly: for ``isinstance`` a bool is an int too.
    return {name: type(each) for name, each in found.items()} == TYPES


def ask_together(url: str) -> Together:
    """Ask two questions in turn, then at the same time; then each side for JSON."""
    alone_s = tuple(_timed(url, text) for text in QUESTIONS)
    began = time.monotonic()
    with ThreadPoolExecutor(len(QUESTIONS)) as pool:
        asked = [pool.submit(_timed, url, text) for text in QUESTIONS]
    for each in asked:
        each.result()
    return Together(
        alone_s=alone_s,
        both_s=time.monotonic() - began,
        sent=2 * len(QUESTIONS) + SIDES.count("enclave"),
        answers={side: _json_answer(url, side) for side in SIDES},
    )


def _timed(url: str, text: str) -> float:
    began = time.monotonic()
    more = {"curtilage": {"require": "enclave"}}
    with open_answer(url, text, max_tokens=MAX_TOKENS, more=more) as response:
        response.read()
    return time.monotonic() - began


def _json_answer(url: str, side: str) -> str:
    wanted = {"name": "ticket", "schema": SCHEMA, "strict": True}
    more = {
        "stream": False,
        "response_format": {"type": "json_schema", "json_schema": wanted},
        "curtilage": {"require": side},
    }
    with open_answer(url, TICKET, max_tokens=MAX_TOKENS * 2, more=more) as response:
        answer: str = json.load(response)["choices"][0]["message"]["content"]
        return answer
