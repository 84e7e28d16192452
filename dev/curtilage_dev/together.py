"""The demonstration's last requests: two at the same time, and one for JSON."""

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
    "The printer on floor 3 jams every morning. Which device is it, and where?"
)
SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "device": {"type": "string", "maxLength": 24},
        "floor": {"type": "integer", "minimum": 0, "maximum": 99},
        "urgent": {"type": "boolean"},
    },
    "required": ["device", "floor", "urgent"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Together:
    """Times and results.

    Attributes:
        alone_s: of each question, one after the other.
        both_s: of both, asked at the same time.
        sent: how many questions the enclave was asked.
        answer: the JSON text.
    """

    alone_s: tuple[float, ...]
    both_s: float
    sent: int
    answer: str

    @property
    def as_expected(self) -> bool:
        """Whether the answer is JSON of the schema."""
        try:
            value: object = json.loads(self.answer)
        except ValueError:
            return False
        names = cast("dict[str, object]", value) if isinstance(value, dict) else {}
        return sorted(names) == sorted(SCHEMA["required"])


def ask_together(url: str) -> Together:
    """Ask two questions one after the other, then at the same time; then for JSON."""
    alone_s = tuple(_timed(url, text) for text in QUESTIONS)
    began = time.monotonic()
    with ThreadPoolExecutor(len(QUESTIONS)) as pool:
        asked = [pool.submit(_timed, url, text) for text in QUESTIONS]
    for each in asked:
        each.result()
    return Together(
        alone_s=alone_s,
        both_s=time.monotonic() - began,
        sent=2 * len(QUESTIONS),
        answer=_json_answer(url),
    )


def _timed(url: str, text: str) -> float:
    began = time.monotonic()
    more = {"curtilage": {"require": "enclave"}}
    with open_answer(url, text, max_tokens=MAX_TOKENS, more=more) as response:
        response.read()
    return time.monotonic() - began


def _json_answer(url: str) -> str:
    wanted = {"name": "ticket", "schema": SCHEMA, "strict": True}
    more = {
        "stream": False,
        "response_format": {"type": "json_schema", "json_schema": wanted},
        "curtilage": {"require": "local"},
    }
    with open_answer(url, TICKET, max_tokens=MAX_TOKENS * 2, more=more) as response:
        answer: str = json.load(response)["choices"][0]["message"]["content"]
        return answer
