"""The rest of a text at the boundary of a conversation, and what it discloses.

PUPA (``CURTILAGE_SHARED``, ``data/pupa``): questions of real users, each with the units
of personal data that people marked in it. Nothing of it was read to make the list of
words. No detector and no model is used: this is the worst case, in which all texts had
to be kept local and all are treated as turns that were sent.
"""

import csv
import json
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Final

from benchmarks.report import Table, quantile
from curtilage.client.chat.answer import Rung
from curtilage.client.chat.query import Message, Query
from curtilage.client.conversation.excerpt import narrowed
from curtilage.client.conversation.redaction import redacted, vocabulary
from curtilage.lab.evaluation.statistics import Estimate, share
from curtilage.policy.decision.conversation import History
from curtilage.policy.decision.tiers import RoutingClass

SHARED: Final = Path(
    os.environ.get("CURTILAGE_SHARED", Path(__file__).resolve().parents[2] / "shared")
)
FILES: Final = ("PUPA_TNB.csv", "PUPA_New.csv")
_WORD: Final = re.compile(r"\w+")
_LETTERS: Final = re.compile(r"[^\W\d_]+")
_LEAST_CHARS: Final = 3
# They disclose nothing of a unit such as "the bank of Ghana".
_FILL: Final = frozenset("the and for from with not del des der von van".split())  # noqa: SIM905
_CSV_FIELD: Final = 10_000_000


@dataclass(frozen=True, slots=True)
class Row:
    """A question, what was marked in it, and a model's redaction of it."""

    text: str
    units: frozenset[str]
    model: str


def measure_boundary(folder: Path = SHARED / "data" / "pupa") -> list[Table]:
    """Measure what leaks and what is kept; nothing, where the set is not there."""
    rows = list(_rows(folder))
    if not rows:
        note = "not measured: point CURTILAGE_SHARED at the data sets"
        empty = Table(title="Boundary", columns=("text",), rows=(), note=note)
        return [empty, measure_follow_ups()]
    vocabulary()  # read once, outside the times
    ways: dict[str, Callable[[Row], str]] = {
        "as it is": lambda row: row.text,
        "capitals and numbers masked": lambda row: _without_capitals(row.text),
        "redacted by a large model (PUPA's own)": lambda row: row.model,
        "boundary": lambda row: redacted(row.text) or "",
    }
    table = Table(
        title=f"Boundary: {len(rows)} questions of PUPA, no detector, no model",
        columns=(
            *("way", "units", "hard leaks %", "95 %", "soft leaks %", "95 %"),
            *("texts without hard %", "texts left %", "their words kept %"),
            "all words kept %",
        ),
        rows=tuple(_measured(name, way, rows) for name, way in ways.items()),
        note=(
            "hard: what is left contains a whole marked unit; soft: one of its words "
            "does. Kept: of the words that are in no unit"
        ),
    )
    return [table, _times(rows), measure_follow_ups()]


def measure_follow_ups() -> Table:
    """Measure which questions after a kept turn are sent alone; no detector."""
    shown: Counter[tuple[str, str]] = Counter()
    every: Counter[tuple[str, str]] = Counter()
    for row in _follow_ups():
        language = "English" if row["lang"] == "en" else "six other languages"
        for kind in ("fresh", "back"):
            every[language, kind] += len(row[kind])
            shown[language, kind] += sum(
                _is_sent_alone(row["text"], each) for each in row[kind]
            )
    return Table(
        title="Boundary: questions after a kept turn that are sent alone, no detector",
        columns=("language", "another subject", "sent", "continue or hint", "sent"),
        rows=tuple(
            (
                *(language, every[language, "fresh"], shown[language, "fresh"]),
                *(every[language, "back"], shown[language, "back"]),
            )
            for language in dict.fromkeys(each for each, _ in every)
        ),
        note="lab/curtilage/lab/evaluation/texts/follow_ups.jsonl",
    )


def _follow_ups() -> Iterator[dict[str, Any]]:
    file = resources.files("curtilage.lab.evaluation").joinpath(
        "texts", "follow_ups.jsonl"
    )
    yield from map(json.loads, file.read_text("utf-8").splitlines())


def _is_sent_alone(kept: str, asked: str) -> bool:
    texts = (("user", kept), ("assistant", "Understood."), ("user", asked))
    query = Query(messages=tuple(Message(role=r, content=c) for r, c in texts))
    classes = (RoutingClass.RESTRICTED, RoutingClass.RESTRICTED, RoutingClass.PUBLIC)
    history = {RoutingClass.RESTRICTED: History.NEVER}
    return isinstance(narrowed(query, classes, Rung.CURRENT, history=history), Query)


def _measured(
    name: str, way: Callable[[Row], str], rows: list[Row]
) -> tuple[str | float, ...]:
    units = hard = soft = clean = words = kept = words_left = texts_left = 0
    for row in rows:
        left = way(row)
        flat, found = _flat(left), 0
        for unit in row.units:
            whole = _flat(unit) in flat
            parts = (f" {each} " for each in _WORD.findall(unit) if _discloses(each))
            found += whole
            soft += whole or any(part in flat for part in parts)
        units, hard, clean = units + len(row.units), hard + found, clean + (found == 0)
        marked = set(_WORD.findall(" ".join(row.units)))
        own = Counter(
            each for each in _LETTERS.findall(row.text.casefold()) if each not in marked
        )
        here = (own & Counter(_LETTERS.findall(left.casefold()))).total()
        words, kept = words + own.total(), kept + here
        if left:
            texts_left, words_left = texts_left + 1, words_left + own.total()
    leaks, disclosed = share(hard, units), share(soft, units)
    return (
        *(name, units, 100 * leaks.value, _interval(leaks)),
        *(100 * disclosed.value, _interval(disclosed)),
        *(100 * clean / len(rows), 100 * texts_left / len(rows)),
        *(100 * kept / max(words_left, 1), 100 * kept / max(words, 1)),
    )


def _times(rows: list[Row]) -> Table:
    times: list[float] = []
    for row in rows:
        begun = time.process_time()
        redacted(row.text)
        times.append((time.process_time() - begun) * 1000)
    return Table(
        title="Boundary: processor time of one text",
        columns=("characters, p50", "p50 ms", "p99 ms"),
        rows=(
            (
                quantile([len(row.text) for row in rows], 0.5),
                *(quantile(times, each) for each in (0.5, 0.99)),
            ),
        ),
    )


def _rows(folder: Path) -> Iterator[Row]:
    csv.field_size_limit(_CSV_FIELD)
    for name in FILES:
        if not (folder / name).is_file():
            continue
        with (folder / name).open(encoding="utf-8", newline="") as lines:
            for each in csv.DictReader(lines):
                units = {unit.casefold() for unit in each["pii_units"].split("||")}
                yield Row(
                    text=each["user_query"],
                    units=frozenset(unit for unit in units if _WORD.search(unit)),
                    model=each["redacted_query"],
                )


def _without_capitals(text: str) -> str:
    return re.sub(r"\S*[A-Z\d@]\S*", "", text)


def _flat(text: str) -> str:
    return f" {' '.join(_WORD.findall(text.casefold()))} "


def _discloses(word: str) -> bool:
    return len(word) >= _LEAST_CHARS and word not in _FILL


def _interval(estimate: Estimate) -> str:
    return f"{100 * estimate.low:.1f} to {100 * estimate.high:.1f}"
