"""The script that makes the thresholds that come with Curtilage."""

import json
from datetime import date
from typing import Any

import pytest
from lab.training.router.drafts import SHIPPED, added, questions

from curtilage.client.errors import ConfigError
from curtilage.client.routing.estimate import Intent
from curtilage.client.routing.estimators import open_estimator
from curtilage.client.routing.thresholds import packed, read_shipped
from curtilage.lab.commands.grading import Expected
from support.drafts import THRESHOLDS, thresholds

MESSAGES = [
    (f"I ask about number {number} of the {topic}, please.", topic)
    for number in range(6)
    for topic in ("kettle", "ladder", "carpet", "lamp", "table")
]
DAY = date(2026, 11, 28)
EMPTY = b'{"version": 1, "drafts": []}'


def test_a_question_has_four_choices_and_one_of_them_is_right() -> None:
    rows: list[dict[str, Any]] = list(questions(iter(MESSAGES)))
    assert len(rows) > len(MESSAGES) / 2
    estimator = open_estimator()
    topics = {topic for _, topic in MESSAGES}
    for row in rows:
        (message,) = [each for each in MESSAGES if each[0] in row["text"]]
        asked = row["text"].replace(message[0], "")
        assert len([each for each in topics if each in asked]) == 4
        assert message[1] in asked
        assert Expected(kind="equals", value=row["expect"]["equals"]).met_by(
            message[1].title() + "."
        )
        assert estimator.estimate(row["text"], 16).intent is Intent.CLASSIFICATION
    assert rows == list(questions(iter(reversed(MESSAGES)))), "whatever the order"


def test_what_was_certified_takes_the_place_of_what_was_before() -> None:
    first = added(EMPTY, packed(THRESHOLDS), "invented", DAY)
    other = packed(thresholds(model_sha256="11" * 32))
    both = added(first, other, "invented", DAY)
    assert len(read_shipped(both)) == 2
    better = thresholds(accepted=600, errors=25)
    again = added(both, packed(better), "another", DAY)
    kept, new = read_shipped(again)
    assert kept.thresholds.model_sha256 == "11" * 32
    assert (new.thresholds, new.made_of, new.date) == (better, "another", "2026-11-28")


def test_what_is_not_certified_is_not_added() -> None:
    document = json.loads(packed(THRESHOLDS)) | {"errors": 60}
    with pytest.raises(ConfigError):
        added(EMPTY, json.dumps(document).encode(), "invented", DAY)


def test_the_shipped_file_is_the_one_that_is_read() -> None:
    assert read_shipped(SHIPPED.read_bytes()) is not None
