"""The router's training data: provided sets, and this project's own sentences.

Only ``benchmarks/routing.py`` reads MT-bench's questions, to measure; its judgements,
RouterArena and PUPA are not read at all. Prompts in RouteLLM's lists of contaminated
ones are dropped, as its authors do.
"""

import csv
import json
import random
import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

from lab.training.router.battery import HARD_KINDS, ROUTINE_KINDS, requests, typos

SENTENCES = Path(__file__).with_name("intent_sentences.toml")
_ROUTELLM = "routing/routellm"
_WEAK = "mistralai/Mixtral-8x7B-Instruct-v0.1"
_STRONG = "gpt-4-1106-preview"
# The size of a local model; if there are two, their mean counts.
_ZERO_WEAK = ("gemma-2-2b-it", "Qwen2.5-3B-Instruct")
_ZERO_STRONG = "gpt-4o-2024-08-06"
_ZERO_INTENT = {"gsm": "reasoning", "math-l5": "reasoning", "crux": "code"}
_CODE_CLUSTER = re.compile(
    r"python|code|coding|\bc\+\+|sql|css|javascript|typescript|java\b|rust|php|kotlin"
    r"|react|django|laravel|symfony|flask|docker|kubernetes|regex|script|programming"
    r"|unit|gui|wpf|tkinter|linked list|sed/grep|vba|web scraping|api|pandas|pytorch"
    r"|nix|node\.js|hdl|shader|cuda|tailwind|tidyverse|shiny|streamlit|gradio|rnn in"
    r"|data structures|assembly|algorithm|serializers|automated testing|mocking",
    re.IGNORECASE,
)
_SUM_CLUSTER = re.compile(
    r"mathemat|algebra|probabil|geometry|calculations|puzzle|irrational|real analysis"
    r"|math problems|circular motion|speed problems|ball difference|step count|dice"
    r"|perfect number|continuity|sample size|commission",
    re.IGNORECASE,
)
_MOST_OF_A_SET = 300
# Weights relative to a row of Super-NaturalInstructions: exams and customers' questions
# are many and similar, and our own sentences come from few patterns.
_OWN_WEIGHT, _BATTERY_WEIGHT, _CHAT_WEIGHT, _OTHER_WEIGHT = 0.5, 1.5, 0.1, 0.1
_KINDS = {**ROUTINE_KINDS, **HARD_KINDS, "either": "generation"}
_FILLERS = 3
_ON_A_TEXT = frozenset({"classification", "extraction", "rewriting"})
_OBJECT = re.compile(r"([^:?]{8,90}\s?[:?]) (.{12,400})$", re.DOTALL)
_MIXED = 3


@dataclass(frozen=True, slots=True)
class Outcome:
    """One prompt that two models answered, right 1 or wrong 0, and its set."""

    text: str
    weak: float
    strong: float
    origin: str


@dataclass(frozen=True, slots=True)
class Task:
    """One prompt with its intent, the task that it comes from, and its weight."""

    text: str
    intent: str
    origin: str
    weight: float = 1.0


def routellm(data: Path, which: Literal["mmlu", "gsm8k"]) -> list[Outcome]:
    """Return Mixtral's and GPT-4's outcomes, without contaminated prompts."""
    folder = data / _ROUTELLM
    lines = (folder / f"contaminated_{which}.jsonl").read_text("utf-8").splitlines()
    dropped = {json.loads(line)["eval_prompt"] for line in lines}
    files = (
        sorted((folder / "mmlu").glob("*.csv"))
        if which == "mmlu"
        else [folder / "gsm8k_responses.csv"]
    )
    made: list[Outcome] = []
    for file in files:
        with file.open(encoding="utf-8", newline="") as lines_of:
            made += [
                Outcome(
                    row["prompt"], row[_WEAK] == "True", row[_STRONG] == "True", which
                )
                for row in csv.DictReader(lines_of)
                if row["prompt"] not in dropped
            ]
    return made


def zeroeval(data: Path) -> list[Outcome]:
    """Return outcomes of models of about local size, against GPT-4o."""
    lines = (data / "routing/zeroeval/labels_derived.jsonl").read_text("utf-8")
    made: list[Outcome] = []
    for line in lines.splitlines():
        row = json.loads(line)
        weak = [row["correct"][each] for each in _ZERO_WEAK if each in row["correct"]]
        made.append(
            Outcome(
                row["prompt"],
                sum(weak) / len(weak),
                row["correct"][_ZERO_STRONG],
                row["task"],
            )
        )
    return made


def tasks(data: Path) -> list[Task]:
    """Return Super-NaturalInstructions; the task is the origin."""
    lines = (data / "routing/niv2_intents/niv2_intents.jsonl").read_text("utf-8")
    return [
        Task(row["text"], row["label"], row["group"])
        for row in map(json.loads, lines.splitlines())
    ]


def other_tasks(data: Path) -> list[Task]:
    """Return exams, customers' questions and chat that intents are learned from."""
    made = [
        Task(row.text, _ZERO_INTENT[row.origin], row.origin, _OTHER_WEIGHT)
        for which in _ZERO_INTENT
        for row in islice(
            (row for row in zeroeval(data) if row.origin == which), _MOST_OF_A_SET
        )
    ]
    mmlu = routellm(data, "mmlu")
    made += [
        Task(row.text, "qa", "mmlu", _OTHER_WEIGHT)
        for row in mmlu[:: len(mmlu) // _MOST_OF_A_SET]
    ]
    with (data / "banking77/train.csv").open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    made += [
        Task(row["text"], "qa", "banking77", _OTHER_WEIGHT)
        for row in rows[:: len(rows) // _MOST_OF_A_SET]
    ]
    made += arena_hard(data)
    return made


def arena_hard(data: Path) -> Iterator[Task]:
    """Yield the prompts whose cluster's name indicates code or sums."""
    file = data / "arena-hard/data__arena-hard-v0.1__question.jsonl"
    for row in map(json.loads, file.read_text("utf-8").splitlines()):
        if _CODE_CLUSTER.search(row["cluster"]):
            yield Task(row["prompt"], "code", "arena-hard", _CHAT_WEIGHT)
        elif _SUM_CLUSTER.search(row["cluster"]):
            yield Task(row["prompt"], "reasoning", "arena-hard", _CHAT_WEIGHT)


def own(part: Literal["learn", "held"], language: str = "") -> list[Task]:
    """Return this project's own requests, in one language or in all."""
    made: list[Task] = []
    for code, read in tomllib.loads(SENTENCES.read_text("utf-8")).items():
        if language not in {"", code}:
            continue
        for intent, templates in read[part].items():
            for at, template in enumerate(templates):
                filled = _filled(template, read["texts"], read["subjects"], at)
                origin = f"own-{code}-{intent}-{at}"
                made += [Task(text, intent, origin, _OWN_WEIGHT) for text in filled]
    return made


def office() -> list[Task]:
    """Return the battery without its held-out part: unchanged, with typos, and mixed.

    Mixed: with the subject of another request in the same language, after it or before
    it, so that the instruction is learned and not its object. Greetings, wrappers, line
    breaks and case are removed before features are computed, so these need no rows.
    """
    rows = [*requests("developed"), *requests("learned")]
    draw = random.Random(0)
    objects: dict[str, list[str]] = {}
    for row in rows:
        if row.kind in _ON_A_TEXT and (parted := _OBJECT.match(row.text)):
            objects.setdefault(row.language, []).append(parted[2])
    made: list[Task] = []
    for at, row in enumerate(rows):
        texts = [row.text, typos(row.text)]
        if row.kind in _ON_A_TEXT and (parted := _OBJECT.match(row.text)):
            for _ in range(_MIXED):
                about = draw.choice(objects[row.language])
                texts.append(f"{parted[1]} {about}")
            texts.append(f"{about}\n\n{parted[1]}")
        if intent := _KINDS[row.kind]:
            origin, weight = f"office-{at}", _BATTERY_WEIGHT / len(texts)
            made += [Task(text, intent, origin, weight) for text in texts]
    return made


def _filled(
    template: str, texts: Sequence[str], subjects: Sequence[str], at: int
) -> list[str]:
    fillers = [
        template.replace("{t}", texts[(at + n) % len(texts)]).replace(
            "{s}", subjects[(at + n) % len(subjects)]
        )
        for n in range(_FILLERS)
    ]
    return list(dict.fromkeys(fillers))
