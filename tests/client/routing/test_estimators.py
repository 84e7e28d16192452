"""Which estimator is opened."""

import sys

import pytest

from curtilage.client.routing.estimate import RouterModelError, RulesEstimator
from curtilage.client.routing.estimators import open_estimator
from curtilage.client.routing.ngram import NgramEstimator


def test_the_shipped_weights_are_opened() -> None:
    assert isinstance(open_estimator(), NgramEstimator)


def test_rules_are_opened_by_name() -> None:
    assert isinstance(open_estimator("rules"), RulesEstimator)


def test_without_numpy_there_are_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("ngram", "features"):
        monkeypatch.delitem(sys.modules, f"curtilage.client.routing.{module}")
    monkeypatch.setitem(sys.modules, "numpy", None)
    assert isinstance(open_estimator(), RulesEstimator)


def test_a_file_of_ones_own_must_have_the_digest_that_the_policy_gives() -> None:
    with pytest.raises(RouterModelError, match="expected digest"):
        open_estimator(data=b"PK", sha256="00" * 32)


def test_the_threshold_is_handed_on() -> None:
    result = open_estimator(threshold=1.1).estimate("Write a poem about the sea", 10)
    assert result.intent == "unknown"
