"""Measures the shipped router and its recipe; prints JSON.

    python -m lab.training.router.measure --data DIR

It measures MMLU and GSM8K by the protocols of ``train_router``; intents of our own
held-out sentences, by language, and of MT-bench's questions, by their categories; and
how many decisions are unchanged when a prompt is phrased slightly differently. Then it
compares the score that decides with the rules alone and with length alone: on the
battery's held-out half, on short requests against hard ones from other sources, on
MT-bench's questions against what a third party measured for their categories, and on
outcomes of exams. ``--all`` adds intents of unseen tasks, and a learned gain on unseen
sets compared with seen ones; it takes minutes.
"""

import argparse
import csv
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from lab.training.router import battery
from lab.training.router.battery import Score, auroc
from lab.training.router.heads import Texts
from lab.training.router.outcomes import asked, read_outcomes
from lab.training.router.quality import difference, quality
from lab.training.router.sources import (
    Outcome,
    Task,
    arena_hard,
    own,
    routellm,
    zeroeval,
)
from lab.training.router.train import (
    CURVE_ONLY,
    exams,
    learn_gain,
    learn_intents,
    scored,
)
from lab.training.router.train_router import Row, measure

from curtilage.client.chat.query import single_query
from curtilage.client.local.registry.catalogue import catalogue
from curtilage.client.routing.estimate import Estimator
from curtilage.client.routing.estimators import open_estimator
from curtilage.client.routing.router import Router
from curtilage.policy.decision.tiers import Permitted, RoutingClass, TierKind
from curtilage.policy.document.load import PROFILES, load_profile

LANGUAGES = ("en", "de", "fr", "es", "it", "nl", "pt")
_LEAST_OF_EACH = 20  # the least number of right answers, and of wrong ones
_MOST_TOKENS = 512
_OF_A_SET = 100
_OF_A_SOURCE = 400
_OUTCOMES = 2000
_FOLDS = 5
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


# How much better GPT-4's answers were than Mixtral's, by MT-bench's category, as a
# third party measured it. Values of the gain were chosen by this order, so it is no
# longer held out.
_MT_BENCH_GAINS: Mapping[str, float] = {
    "coding": 2.35,
    "math": 2.00,
    "extraction": 1.50,
    "reasoning": 0.75,
    "stem": 0.33,
    "writing": 0.10,
    "humanities": 0.10,
    "roleplay": -0.03,
}


def _lines(file: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]


def routine_sets(data: Path) -> dict[str, list[str]]:
    """Return short requests from other sources, by set; none is learned."""
    with (data / "nlu-evaluation-data/fold1_train.csv").open(encoding="utf-8") as lines:
        said = [row["answer_from_user"] for row in csv.DictReader(lines, delimiter=";")]
    snips = [
        "".join(piece["text"] for piece in row["data"]).strip()
        for file in sorted((data / "snips-nlu-benchmark").glob("validate_*.json"))
        for rows in json.loads(file.read_text("utf-8")).values()
        for row in rows
    ]
    clinc = json.loads((data / "clinc150/data_dev.json").read_text("utf-8"))
    return {
        "clinc150": _some([text for rows in clinc.values() for text, _ in rows]),
        "nlu": _some(said),
        "snips": _some(snips),
        "xsid": _some(_of_languages(data / "xsid/data.jsonl")),
        "xquad": _some(_of_languages(data / "xquad-questions/data.jsonl")),
    }


def hard_sets(data: Path) -> dict[str, list[str]]:
    """Return sums, code and questions of experts, by set; only gsm8k is learned."""
    return {
        "mgsm": _some(_of_languages(data / "mgsm/data.jsonl")),
        "gsm8k (learned)": _some(
            [row["question"] for row in _lines(data / "gsm8k/dev.jsonl")]
        ),
        "code-prompts": _some(_of_languages(data / "code-prompts/data.jsonl")),
        "frenchmedmcqa": _some(_of_languages(data / "frenchmedmcqa/data.jsonl")),
        "medqa": _some(_of_languages(data / "medqa-vignettes/data.jsonl")),
        "mmlu-professional": _some(
            _of_languages(data / "mmlu-professional/data.jsonl")
        ),
        "mt-bench, math and coding": [
            row["turns"][0]
            for row in _mt_rows(data)
            if row["category"] in {"math", "coding"}
        ],
    }


def _of_languages(file: Path) -> list[str]:
    return [row["text"] for row in _lines(file) if row["lang"] in LANGUAGES]


def _some(texts: Sequence[str]) -> list[str]:
    return list(texts[:: max(1, len(texts) // _OF_A_SOURCE)])


def _mt_rows(data: Path) -> list[dict[str, Any]]:
    file = data / "mt-bench/fastchat__llm_judge__data__mt_bench__question.jsonl"
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]


def ranked(data: Path, score: Score) -> dict[str, dict[str, float]]:
    """Return how well a score ranks data that it was not learned from, and exams."""
    routine, hard = (
        {
            name: np.array([score(text) for text in texts])
            for name, texts in sets.items()
        }
        for sets in (routine_sets(data), hard_sets(data))
    )
    all_routine, all_hard = (
        np.concatenate(list(sets.values())) for sets in (routine, hard)
    )
    found = {
        "auroc, hard sets against short requests": {
            "all": round(auroc(all_hard, all_routine), 3)
        },
        "auroc, a hard set against all short requests": {
            name: round(auroc(each, all_routine), 3) for name, each in hard.items()
        },
        "auroc, all hard sets against short requests of": {
            name: round(auroc(all_hard, each), 3) for name, each in routine.items()
        },
    }
    rows = _mt_rows(data)
    scores = np.array([score(row["turns"][0]) for row in rows])
    gains = np.array([_MT_BENCH_GAINS[row["category"]] for row in rows])
    found["mt-bench, gain of the category"] = {
        "rank correlation": round(_rank_correlation(scores, gains), 3),
        "apgr": round(quality(scores, gains).apgr, 3),
    }
    outcomes = {
        "mmlu": routellm(data, "mmlu"),
        "gsm8k": routellm(data, "gsm8k"),
        "math-l5": [row for row in zeroeval(data) if row.origin == "math-l5"],
    }
    found["apgr within an exam"] = {
        name: round(
            quality(
                np.array([score(row.text) for row in some]),
                np.array([row.strong - row.weak for row in some]),
            ).apgr,
            3,
        )
        for name, whole in outcomes.items()
        for some in [whole[:: max(1, len(whole) // _OUTCOMES)]]
    }
    return found


def _rank_correlation(one: np.ndarray, other: np.ndarray) -> float:
    ranks: list[np.ndarray] = []
    for values in (one, other):
        _, place, times = np.unique(values, return_inverse=True, return_counts=True)
        ranks.append((np.cumsum(times) - (times - 1) / 2)[place])
    return float(np.corrcoef(*ranks)[0, 1])


def carried_over(
    rows: Sequence[Outcome], more: Sequence[Outcome], scores: Mapping[str, Score]
) -> dict[str, object]:
    """Return how well scores rank the answers of one model of the catalogue.

    A learned head is measured twice: on each set after learning without it, and on each
    fifth of all rows after learning from the others.

    Args:
        rows: the model's outcomes, of several sets.
        more: further outcomes to learn from.
        scores: the competing scores, by name.
    """
    every = [*rows, *more]
    texts = Texts([row.text for row in every])
    gains = np.array([row.strong - row.weak for row in every])
    sets = np.array([row.origin for row in every])
    own = np.arange(len(every)) < len(rows)
    folds = np.random.default_rng(0).permutation(len(every)) % _FOLDS
    unseen, within = np.zeros(len(every)), np.zeros(len(every))
    for name in np.unique(sets[own]):
        learned = np.flatnonzero(sets != name)
        here = own & (sets == name)
        unseen[here] = scored(texts, gains, learned)[here]
    for fold in range(_FOLDS):
        here = own & (folds == fold)
        learned = np.flatnonzero(own & (folds != fold))
        within[here] = scored(texts, gains, learned)[here]
    ranked_by = {
        "head, set not learned": unseen[own],
        "head, in distribution": within[own],
        **{
            name: np.array([score(row.text) for row in rows])
            for name, score in scores.items()
        },
    }
    found: dict[str, object] = {
        f"apgr, {name}": round(quality(each, gains[own]).apgr, 3)
        for name, each in ranked_by.items()
    }
    for rival in ("rules", "length"):
        for name in ("head, set not learned", "shipped"):
            low, high = difference(ranked_by[name], ranked_by[rival], gains[own])
            found[f"{name} - {rival}"] = [round(low, 3), round(high, 3)]
    return found


def chosen_locally(
    profile: str, quality: int, rows: Iterable[battery.Request]
) -> Counter[str]:
    """Count the requests that a profile answers locally.

    Args:
        profile: its name.
        quality: how many of a thousand ordinary questions the local model solves.
        rows: the requests, each of which may be sent.
    """
    policy = load_profile(profile)
    if policy.routing is None:
        raise ValueError(f"{profile} does not route")
    router = Router(
        policy.routing,
        open_estimator("ngram"),
        clock=lambda: 0.0,
        home_quality=lambda: quality,
    )
    every = Permitted(
        routing_class=RoutingClass.PUBLIC, tiers=policy.rulebook.tiering.tiers
    )
    local = Counter[str]()
    for row in rows:
        choice = router.route(every, single_query(row.text), conversation=b"").choice
        if choice.order[0].kind is TierKind.IN_PROCESS:
            local[row.side] += 1
    return local


def profiles(figures: dict[str, object]) -> None:
    """Add the choices of every profile, for each model of the catalogue."""
    for name, rows in (
        ("battery", list(battery.requests("held"))),
        ("blind", battery.blind()),
    ):
        of = Counter(row.side for row in rows)
        for model in catalogue():
            for profile in PROFILES:
                local = chosen_locally(profile, model.quality_permille, rows)
                sent = of["hard"] - local["hard"]
                figures[f"{name}, profile {profile}, {model.name}"] = {
                    "routine local": f"{local['routine']} of {of['routine']}",
                    "hard sent": f"{sent} of {of['hard']}",
                    "share local": round(local.total() / len(rows), 2),
                }


def blind_ranks(scores: Mapping[str, Score]) -> dict[str, float]:
    """Return how well scores rank hard over routine requests in the blind set."""
    rows = battery.blind()
    return {
        name: round(
            auroc(
                *(
                    np.array([score(row.text) for row in rows if row.side == side])
                    for side in ("hard", "routine")
                )
            ),
            3,
        )
        for name, score in scores.items()
    }


def answered_right(rows: Sequence[Outcome]) -> dict[str, str]:
    """Return by set how many questions a model answered correctly, and of how many."""
    sets = sorted({row.origin for row in rows})
    return {
        name: f"{sum(row.weak for row in rows if row.origin == name):.0f} of "
        f"{sum(row.origin == name for row in rows)}"
        for name in sets
    }


def mt_bench(data: Path) -> list[Task]:
    """Return the first turns; the category serves as the intent."""
    return [
        Task(row["turns"][0], _CATEGORIES[row["category"]], "mt-bench")
        for row in _mt_rows(data)
    ]


def share_right(estimator: Estimator, rows: Sequence[Task]) -> dict[str, float]:
    """Return the share of rows with a named intent, and how many of these are right."""
    intents = [estimator.estimate(row.text, _MOST_TOKENS).intent.value for row in rows]
    named = [
        said == row.intent
        for said, row in zip(intents, rows, strict=True)
        if said != "unknown"
    ]
    return {
        "rows": len(rows),
        "named": round(len(named) / len(rows), 3),
        "right where named": round(sum(named) / max(1, len(named)), 3),
    }


def steady(estimator: Estimator, texts: Sequence[str]) -> dict[str, float]:
    """Return for each edit the share of unchanged decisions.

    The decision is whether the gain reaches the median of all texts. With as many above
    as below, the most decisions can change.
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


def of_the_catalogue(
    data: Path, scores: Mapping[str, Score], figures: dict[str, object], *, whole: bool
) -> None:
    """Add the answers of models in the catalogue; if ``whole``, unseen sets too."""
    learned = exams(data) if whole else []
    for model, rows in read_outcomes(list(asked(data))).items():
        figures[f"{model}, answered right"] = answered_right(rows)
        right = sum(row.weak for row in rows)
        # A model that solves next to nothing cannot be used for ranking.
        if whole and min(right, len(rows) - right) >= _LEAST_OF_EACH:
            others = [row for row in learned if row.origin != CURVE_ONLY]
            figures[f"{model}, ranked"] = carried_over(rows, others, scores)
    if whole:
        learn_intents(data, figures)
        learn_gain(learned, Texts([row.text for row in learned]), figures)


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
    by_rules = open_estimator("rules")
    scores: dict[str, Score] = {
        "shipped": lambda text: estimator.estimate(text, _MOST_TOKENS).gain,
        "rules": lambda text: by_rules.estimate(text, _MOST_TOKENS).gain,
        "length": lambda text: float(len(text)),
    }
    routine = [row for row in battery.requests("held") if row.routine]
    for name, each in (("shipped", estimator), ("rules", by_rules)):
        intents = [each.estimate(row.text, _MOST_TOKENS).intent for row in routine]
        share = sum(intent.value in battery.ROUTINE_INTENTS for intent in intents)
        figures[f"battery, routine intent, {name}"] = {
            "named": share,
            "of": len(routine),
        }
    for name, score in scores.items():
        for part, found in battery.figures(score).items():
            figures[f"battery, {name}, {part}"] = found
        for part, each_set in ranked(read.data, score).items():
            figures[f"{name}, {part}"] = each_set
    figures["blind set, auroc, hard over routine"] = blind_ranks(scores)
    profiles(figures)
    of_the_catalogue(read.data, scores, figures, whole=read.all)
    print(json.dumps(figures, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
