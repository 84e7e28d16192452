"""Write the tables of docs/openai-api.md from those that the endpoint reads by.

``tests/test_openai_api.py`` fails where the document and the code differ.
"""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from curtilage.client.chat.openai_fields import (
    DOCUMENT,
    DROPPED,
    DROPPED_IN_MESSAGES,
    DROPPED_IN_PARTS,
    MESSAGE_FIELDS,
    NEUTRAL,
    OTHERS,
    PARTS,
    REFUSALS,
    ROUTES,
    USED,
)

PATH: Final = Path(__file__).resolve().parents[1] / DOCUMENT
_TABLE: Final = re.compile(r"(<!-- table: ([a-z]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def tables() -> dict[str, str]:
    """Return each table of the document by its name."""
    return {
        "routes": _table(
            ("request", "answer"),
            [
                *((f"`{route}`", note) for route, note in ROUTES.items()),
                (", ".join(f"`{path}`" for path in OTHERS), "404, `not_found`"),
            ],
        ),
        "used": _table(
            ("field", "values"), ((f"`{name}`", note) for name, note in USED.items())
        ),
        "neutral": _table(
            ("field", "accepted where it is"),
            ((f"`{name}`", _values(values)) for name, values in NEUTRAL.items()),
        ),
        "dropped": _table(
            ("of", "fields"),
            [
                ("the request", _names(DROPPED)),
                ("a message", _names(DROPPED_IN_MESSAGES)),
                ("a part of a message", _names(DROPPED_IN_PARTS)),
            ],
        ),
        "content": _table(
            ("of a message", "is refused as"),
            [*_refused("field", MESSAGE_FIELDS), *_refused("part of type", PARTS)],
        ),
        "refusals": _table(
            ("status", "`code`", "when"),
            ((str(status), f"`{code}`", w) for (status, code), w in REFUSALS.items()),
        ),
    }


def written(text: str) -> str:
    """Return the document with the tables as they are to be.

    Raises:
        KeyError: it names an unknown table.
    """
    made = tables()
    return _TABLE.sub(lambda found: found[1] + made[found[2]] + found[3], text)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    first, *others = (f"| {' | '.join(row)} |\n" for row in (head, *rows))
    return f"{first}|{'---|' * len(head)}\n{''.join(others)}"


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))


def _values(values: tuple[object, ...]) -> str:
    return " or ".join(f"`{json.dumps(value)}`" for value in (*values, None))


def _refused(what: str, words: Mapping[str, str]) -> Iterable[tuple[str, str]]:
    return ((f"{what} `{name}`", kind) for name, kind in words.items())


if __name__ == "__main__":
    PATH.write_text(written(PATH.read_text("utf-8")), "utf-8")
