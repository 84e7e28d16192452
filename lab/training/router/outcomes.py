"""The file of outcomes: the questions that models of the catalogue answer correctly.

    python -m lab.training.router.outcomes questions --out Q
    curtilage route answer --model M --temperature 0 --max-tokens 300 --data Q --out A
    python -m lab.training.router.outcomes add --model NAME --answers A

Messages to a bank, requests to an assistant and spoken requests in many languages are
to be sorted among four topics, in five wordings; sums have a number as their answer.
The last command grades the answers again. It records which questions were answered
correctly, each under the start of its SHA-256: the questions and answers belong to
others, and stay where they were written. ``measure.py`` ranks these questions with what
was learned without their set.
"""

import argparse
import csv
import hashlib
import json
import os
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from lab.training.router.drafts import SETS, Message, choices
from lab.training.router.sources import Outcome

from curtilage.lab.commands.answered_file import read_answered
from curtilage.lab.commands.grading import Expected

FILE: Final = Path(__file__).with_name("outcomes.json")
COUNTS: Final[Mapping[str, int]] = {
    "banking77": 100,
    "clinc150": 100,
    "xsid": 140,
    "gsm8k": 80,
}
SUMS: Final = "gsm8k"
_DIGITS: Final = 12  # hex digits of a question's SHA-256
_WORDINGS: Final = (
    "Message: {text}\n\nWhich category fits, {options}? Answer with one word.",
    "Classify this message as {options}. Answer with one word: {text}",
    "Is this message about {options}? Answer with one word.\n\n{text}",
    "Sort this message: {options}. Reply with the name only.\n{text}",
    "{text}\nWhat is this about, {options}? One word, please.",
)
_SUM: Final = "{text}\nEnd your answer with the result as a number."


@dataclass(frozen=True, slots=True)
class Asked:
    """A question with its set, the expected answer, and the strong model's outcome.

    The strong model is GPT-4 for sums (RouteLLM's record). The topics of messages are
    the sets' own labels, and a strong model is assumed to find each of them.
    """

    text: str
    origin: str
    expect: Mapping[str, str]
    strong: float

    @property
    def name(self) -> str:
        """The start of the question's SHA-256, in hex."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:_DIGITS]


def asked(data: Path) -> Iterator[Asked]:
    """Yield all questions, set by set; the same ones in each run."""
    for origin, messages in SETS.items():
        yield from sorting(messages(data), origin, COUNTS[origin])
    yield from sums(data, COUNTS[SUMS])


def sorting(messages: Iterator[Message], origin: str, count: int) -> Iterator[Asked]:
    """Yield messages in random order, each to be sorted among four topics."""
    draw = random.Random(1)
    rows = sorted({each for each in messages if len(each[0]) <= 200})
    names = sorted({about for _, about in rows})
    draw.shuffle(rows)
    for at, (text, about) in enumerate(rows[:count]):
        options = choices(draw, names, about)
        wording = _WORDINGS[at % len(_WORDINGS)]
        question = wording.format(options=options, text=" ".join(text.split()))
        yield Asked(question, origin, {"equals": about}, 1.0)


def sums(data: Path, count: int) -> Iterator[Asked]:
    """Yield sums that GPT-4 answered, with its outcome."""
    rows = map(json.loads, (data / "gsm8k/dev.jsonl").read_text("utf-8").splitlines())
    results = {_plain(row["question"]): row["answer"].split("#### ")[1] for row in rows}
    with (data / "routing/routellm/gsm8k_responses.csv").open(
        encoding="utf-8", newline=""
    ) as lines:
        read = list(csv.DictReader(lines))
    known = [row for row in read if _plain(row["prompt"]) in results]
    for row in known[:: max(1, len(known) // count)][:count]:
        result = results[_plain(row["prompt"])].strip().replace(",", "")
        yield Asked(
            _SUM.format(text=row["prompt"].strip()),
            SUMS,
            {"regex": last_number(result)},
            float(row["gpt-4-1106-preview"] == "True"),
        )


def last_number(result: str) -> str:
    """Return a pattern that matches a number only as the last one of a text."""
    whole, _, part = result.partition(".")
    digits = ",?".join(map(re.escape, whole))
    rest = rf"\.{re.escape(part)}0*" if part.strip("0") else r"(?:\.0+)?"
    return rf"(?<![\d.,]){digits}{rest}(?!\d)\D*\Z"


def _plain(text: str) -> str:
    return re.sub(r"\W+", "", text).casefold()


def right(answers: Path, questions: Sequence[Asked]) -> dict[str, dict[str, int]]:
    """Return by set which questions were answered right (1) or wrong (0).

    Raises:
        UsageError: a line is not an answer, or none of these questions was answered.
    """
    found: dict[str, dict[str, int]] = {}
    rows = {row.text: row for row in read_answered(answers)}
    for each in questions:
        if each.text in rows:
            ((kind, value),) = each.expect.items()
            text = "".join(delta.text for delta in rows[each.text].deltas)
            met = Expected(kind=kind, value=value).met_by(text)
            found.setdefault(each.origin, {})[each.name] = int(met)
    return found


def read_outcomes(
    questions: Sequence[Asked], file: Path = FILE
) -> dict[str, list[Outcome]]:
    """Return each model's outcomes on these questions, with the strong model's."""
    return {
        name: [
            Outcome(each.text, of[each.origin][each.name], each.strong, each.origin)
            for each in questions
            if each.name in of.get(each.origin, {})
        ]
        for name, of in json.loads(file.read_text("utf-8")).items()
    }


def main() -> None:
    """Write the questions, or add a model's outcomes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    actions = parser.add_subparsers(dest="action", required=True)
    ask = actions.add_parser("questions")
    ask.add_argument("--out", type=Path, required=True)
    add = actions.add_parser("add")
    add.add_argument("--model", required=True, help="its name in the catalogue")
    add.add_argument("--answers", type=Path, required=True)
    arguments = parser.parse_args()
    data = Path(os.environ.get("CURTILAGE_SHARED", "../shared")) / "data"
    questions = list(asked(data))
    if arguments.action == "questions":
        lines = [
            json.dumps({"text": each.text, "task": each.origin, "expect": each.expect})
            for each in questions
        ]
        arguments.out.write_text("\n".join(lines) + "\n", "utf-8")
        return
    kept: dict[str, Any] = json.loads(FILE.read_text()) if FILE.exists() else {}
    kept[arguments.model] = right(arguments.answers, questions)
    FILE.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", "utf-8")


if __name__ == "__main__":
    main()
