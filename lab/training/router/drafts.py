"""Thresholds for drafts of a model in the catalogue: the questions, and the file.

    python -m lab.training.router.drafts questions --set banking77 --out Q
    curtilage route answer --model GGUF --max-tokens 16 --data Q --out A
    curtilage route certify --data A --out T
    python -m lab.training.router.drafts add --of "banking77, ..." --thresholds T

The third command certifies or refuses. The last one puts its result into the shipped
file, replacing an earlier certificate for the same model and intent. A certificate for
one set and one wording does not hold for others (ADR 0063), so mix them, as with the
questions of ``outcomes.py``. The questions and answers belong to others, and stay where
they were written; the file only has numbers.
"""

import argparse
import csv
import json
import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from itertools import islice
from pathlib import Path
from typing import Final

from curtilage.client.errors import ConfigError
from curtilage.client.routing.estimate import Intent
from curtilage.client.routing.estimators import DRAFTS, FOLDER, open_estimator
from curtilage.client.routing.thresholds import VERSION, read_shipped, read_thresholds

INTENT: Final = Intent.CLASSIFICATION
"""The intent of the questions in all sets; a question read otherwise is dropped."""
SHIPPED: Final = (
    Path(__file__).parents[3] / "client/curtilage/client/routing" / FOLDER / DRAFTS
)
COUNT: Final = 760
_CHOICES: Final = 4
_MAX_CHARS: Final = 120
# With this wording, the 1.5B model sorted 31 of 35 messages to a bank correctly; with
# four other wordings, 46 of 72 (2026-11-28). The certificate is for this wording only.
_WORDING: Final = (
    "Message: {text}\n\n"
    "Which category fits this message: {options}? Answer with one word."
)
# For messages about two of these, such as a transfer by card, both answers are right.
_BANK: Final = {
    "card": (
        "card_arrival",
        "card_linking",
        "card_not_working",
        "lost_or_stolen_card",
        "card_delivery_estimate",
        "getting_virtual_card",
        "card_about_to_expire",
        "activate_my_card",
        "card_swallowed",
        "getting_spare_card",
        "order_physical_card",
        "compromised_card",
    ),
    "transfer": (
        "cancel_transfer",
        "transfer_not_received_by_recipient",
        "declined_transfer",
        "pending_transfer",
        "transfer_timing",
        "transfer_fee_charged",
        "failed_transfer",
        "transfer_into_account",
    ),
    "exchange": ("exchange_rate", "exchange_via_app", "exchange_charge"),
    "identity": (
        "why_verify_identity",
        "unable_to_verify_identity",
        "verify_my_identity",
    ),
}
_DOMAINS: Final = {
    "kitchen_and_dining": "food",
    "auto_and_commute": "car",
    "travel": "travel",
    "banking": "banking",
    "work": "work",
    "home": "home",
}
_REQUESTS: Final = {
    "GetWeather": "weather",
    "PlayMusic": "music",
    "BookRestaurant": "restaurant",
    "RateBook": "rating",
    "SearchScreeningEvent": "cinema",
}

Message = tuple[str, str]
"""A text and its topic."""


def bank(data: Path) -> Iterator[Message]:
    """Yield messages to a bank, of one of four topics."""
    topics = {each: topic for topic, labels in _BANK.items() for each in labels}
    with (data / "banking77/train.csv").open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            if row["category"] in topics:
                yield row["text"], topics[row["category"]]


def assistant(data: Path) -> Iterator[Message]:
    """Yield requests to an assistant, of one of six domains."""
    domains = json.loads((data / "clinc150/domains.json").read_text("utf-8"))
    of = {each: _DOMAINS[name] for name in _DOMAINS for each in domains[name]}
    for text, label in json.loads((data / "clinc150/data_dev.json").read_text())["val"]:
        if label in of:
            yield text, of[label]


def spoken(data: Path) -> Iterator[Message]:
    """Yield spoken requests in many languages, of one of five kinds."""
    for line in (data / "xsid/data.jsonl").read_text("utf-8").splitlines():
        row = json.loads(line)
        if row["intent"] in _REQUESTS:
            yield row["text"], _REQUESTS[row["intent"]]


SETS: Final[Mapping[str, Callable[[Path], Iterator[Message]]]] = {
    "banking77": bank,
    "clinc150": assistant,
    "xsid": spoken,
}


def questions(
    messages: Iterator[Message], seed: int = 0
) -> Iterator[dict[str, object]]:
    """Yield messages in random order, as graded questions with four choices."""
    draw = random.Random(seed)
    rows = sorted({each for each in messages if len(each[0]) <= _MAX_CHARS})
    names = sorted({about for _, about in rows})
    draw.shuffle(rows)
    estimator = open_estimator()
    for text, about in rows:
        options = choices(draw, names, about)
        asked = _WORDING.format(options=options, text=" ".join(text.split()))
        if estimator.estimate(asked, 16).intent is INTENT:
            yield {"text": asked, "task": INTENT.value, "expect": {"equals": about}}


def choices(draw: random.Random, names: Sequence[str], about: str) -> str:
    """Return four topics in random order, as text: the right one and three others."""
    others = [each for each in names if each != about]
    options = [about, *draw.sample(others, _CHOICES - 1)]
    draw.shuffle(options)
    return ", ".join(options[:-1]) + f" or {options[-1]}"


def added(shipped: bytes, thresholds: bytes, of: str, on: date) -> bytes:
    """Return the shipped file with one more set of thresholds.

    Args:
        shipped: the current file.
        thresholds: the file from ``curtilage route certify``.
        of: the name of the questions' set.
        on: the day on which they were answered.

    Raises:
        ConfigError: the thresholds do not justify what they promise.
    """
    made = read_thresholds(thresholds)
    kept = [
        each
        for each in json.loads(shipped)["drafts"]
        if (each["thresholds"]["model_sha256"], each["intent"])
        != (made.model_sha256, INTENT.value)
    ]
    entry = {
        "intent": INTENT.value,
        "set": of,
        "date": on.isoformat(),
        "accepted": round(made.accepts, 4),
        "upper": round(made.upper, 4),
        "thresholds": json.loads(thresholds),
    }
    fields = {"version": VERSION, "drafts": [*kept, entry]}
    file = json.dumps(fields, indent=1, sort_keys=True).encode() + b"\n"
    read_shipped(file)  # an unreadable file is not written
    return file


def main() -> None:
    """Write the questions of a set, or add certified thresholds."""
    parser = argparse.ArgumentParser(description=__doc__)
    actions = parser.add_subparsers(dest="action", required=True)
    ask = actions.add_parser("questions")
    ask.add_argument("--out", type=Path, required=True)
    ask.add_argument("--count", type=int, default=COUNT)
    add = actions.add_parser("add")
    add.add_argument("--thresholds", type=Path, required=True)
    ask.add_argument("--set", choices=SETS, required=True)
    add.add_argument("--of", required=True, help="the sets that the questions are of")
    arguments = parser.parse_args()
    if arguments.action == "questions":
        data = Path(os.environ.get("CURTILAGE_SHARED", "../shared")) / "data"
        rows = islice(questions(SETS[arguments.set](data)), arguments.count)
        lines = [json.dumps(each) for each in rows]
        arguments.out.write_text("\n".join(lines) + "\n", "utf-8")
        return
    try:
        file = added(
            SHIPPED.read_bytes(),
            arguments.thresholds.read_bytes(),
            arguments.of,
            date.today(),  # noqa: DTZ011 - a day is enough
        )
    except ConfigError as error:
        raise SystemExit(str(error)) from None
    SHIPPED.write_bytes(file)


if __name__ == "__main__":
    main()
