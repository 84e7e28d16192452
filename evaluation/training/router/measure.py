"""Measure the shipped router and its recipe; print JSON.

    python -m evaluation.training.router.measure --data DIR

MMLU and GSM8K by the protocols of ``train_router``; intents of own sentences that were
not learned, by language, and of MT-bench's questions, by their categories; how many
decisions stay the same when a prompt is said a little differently. ``--all`` adds the
intents of tasks that were not learned, which takes minutes.
"""

import argparse
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
from evaluation.training.router.sources import Task, arena_hard, own, routellm
from evaluation.training.router.train import learn_intents
from evaluation.training.router.train_router import Row, measure

from curtilage.client.routing.estimate import Estimator
from curtilage.client.routing.estimators import open_estimator

LANGUAGES = ("en", "de", "fr", "es", "it", "nl", "pt")
_MOST_TOKENS = 512
_OF_A_SET = 100
_CATEGORIES: Mapping[str, str] = {
    "writing": "generation",
    "roleplay": "generation",
    "reasoning": "reasoning",
    "math": "reasoning",
    "coding": "code",
    "extraction": "extraction",
    "stem": "qa",
    "humanities": "qa",
}
_SYNONYMS: Mapping[str, str] = {
    "write": "compose",
    "find": "determine",
    "explain": "describe",
    "big": "large",
    "many": "several",
    "use": "employ",
    "show": "present",
    "buy": "purchase",
    "following": "next",
    "example": "instance",
    "give": "provide",
    "need": "require",
}
_SYNONYM = re.compile(rf"\b(?:{'|'.join(_SYNONYMS)})\b")


def _other_case(text: str) -> str:
    return text[:1].swapcase() + text[1:]


def _other_end(text: str) -> str:
    ended = text.rstrip()
    return ended[:-1] if ended[-1:] in ".?!" else ended + "."


def _polite(text: str) -> str:
    return f"Hello, could you help me with this? {text} Thank you."


def _other_words(text: str) -> str:
    return _SYNONYM.sub(lambda found: _SYNONYMS[found[0]], text)


WAYS: Mapping[str, Callable[[str], str]] = {
    "first letter": _other_case,
    "all small": str.lower,
    "last mark": _other_end,
    "politeness": _polite,
    "synonyms": _other_words,
}


def mt_bench(data: Path) -> list[Task]:
    """Return the first turns; a category is taken for an intent."""
    file = data / "mt-bench/fastchat__llm_judge__data__mt_bench__question.jsonl"
    return [
        Task(row["turns"][0], _CATEGORIES[row["category"]], "mt-bench")
        for row in map(json.loads, file.read_text("utf-8").splitlines())
    ]


def share_right(estimator: Estimator, rows: Sequence[Task]) -> dict[str, float]:
    """Return the share whose intent is named, and what part of these is right."""
    told = [estimator.estimate(row.text, _MOST_TOKENS).intent.value for row in rows]
    named = [
        said == row.intent
        for said, row in zip(told, rows, strict=True)
        if said != "unknown"
    ]
    return {
        "rows": len(rows),
        "named": round(len(named) / len(rows), 3),
        "right where named": round(sum(named) / max(1, len(named)), 3),
    }


def steady(estimator: Estimator, texts: Sequence[str]) -> dict[str, float]:
    """Return for each way of saying it otherwise the share of equal decisions.

    The decision is whether the gain reaches the median of all texts: where as many
    are above as below, most can change sides.
    """

    def gains(some: Sequence[str]) -> np.ndarray:
        return np.array([estimator.estimate(text, _MOST_TOKENS).gain for text in some])

    before = gains(texts)
    limit = np.median(before)
    shares = {
        name: float(
            (
                (gains([way(text) for text in texts]) >= limit) == (before >= limit)
            ).mean()
        )
        for name, way in WAYS.items()
    }
    shares["all ways"] = float(np.mean(list(shares.values())))
    return {name: round(share, 3) for name, share in shares.items()}


def main() -> int:
    """Measure, print, return 0."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--all", action="store_true")
    read = parser.parse_args()
    figures: dict[str, object] = {}
    sets = {name: routellm(read.data, name) for name in ("mmlu", "gsm8k")}
    for name, protocol, seeds in (("mmlu", "split:1531", 3), ("gsm8k", "5fold", 3)):
        rows = [Row(row.text, row.weak, row.strong) for row in sets[name]]
        found, low, high = map(asdict, measure(rows, protocol, seeds))
        figures[f"{name}, {protocol}"] = {
            key: [round(each[key], 3) for each in (found, low, high)] for key in found
        }
    estimator = open_estimator()
    for language in LANGUAGES:
        figures[f"intent, own, {language}"] = share_right(
            estimator, own("held", language)
        )
    figures["intent, mt-bench"] = share_right(estimator, mt_bench(read.data))
    figures["steady"] = steady(
        estimator,
        [
            *(row.text for row in mt_bench(read.data)),
            *(row.text for row in own("held", "en")),
            *(row.text for row in list(arena_hard(read.data))[::3]),
            *(row.text for row in sets["mmlu"][:: len(sets["mmlu"]) // _OF_A_SET]),
            *(row.text for row in sets["gsm8k"][:: len(sets["gsm8k"]) // _OF_A_SET]),
        ],
    )
    if read.all:
        learn_intents(read.data, figures)
    print(json.dumps(figures, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
