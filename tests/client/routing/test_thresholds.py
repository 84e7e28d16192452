import json
from typing import Any

import pytest

from curtilage.client.errors import ConfigError
from curtilage.client.local.registry.catalogue import by_digest
from curtilage.client.routing.answer_features import FEATURES_SHA256
from curtilage.client.routing.estimate import ROUTINE_INTENTS, Intent
from curtilage.client.routing.estimators import shipped_thresholds
from curtilage.client.routing.thresholds import (
    MAX_BYTES,
    Shipped,
    Unfit,
    packed,
    read_shipped,
    read_thresholds,
)
from support.drafts import THRESHOLDS, thresholds

OWN = {
    "model_sha256": THRESHOLDS.model_sha256,
    "template_sha256": THRESHOLDS.template_sha256,
}


def changed(**changes: object) -> bytes:
    return json.dumps({**json.loads(packed(THRESHOLDS)), **changes}).encode()


def without(name: str) -> bytes:
    document: dict[str, Any] = json.loads(packed(THRESHOLDS))
    del document[name]
    return json.dumps(document).encode()


def test_what_is_written_is_read() -> None:
    assert read_thresholds(packed(THRESHOLDS)) == THRESHOLDS


def test_they_say_what_they_promise() -> None:
    assert THRESHOLDS.accepts == 0.5
    assert 0.04 < THRESHOLDS.upper <= THRESHOLDS.alpha
    assert THRESHOLDS.unfit(**OWN) is None
    upper = {name: digest.upper() for name, digest in OWN.items()}
    assert THRESHOLDS.unfit(**upper) is None


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"model_sha256": "11" * 32}, Unfit.MODEL),
        ({"template_sha256": "11" * 32}, Unfit.TEMPLATE),
        ({"features_sha256": "11" * 32}, Unfit.FEATURES),
    ],
)
def test_for_anything_else_they_are_refused(
    changes: dict[str, str], why: Unfit
) -> None:
    assert thresholds(**changes).unfit(**OWN) is why


@pytest.mark.parametrize(
    "changes",
    [
        {"errors": 60},
        {"alpha": 0.01},
        {"delta": 1e-9},
        {"accepted": 0, "errors": 0},
        {"accepted": 1001},
        {"bad": 19},
        {"share": 0.55},
        {"threshold": 1.5},
        {"threshold": -0.5},
        {"errors": 30, "grid": (0.5,) * 1000},
        {"grid": ()},
        {"heads": THRESHOLDS.heads[1:]},
    ],
)
def test_a_promise_that_the_counts_do_not_bear_out_is_refused(
    changes: dict[str, object],
) -> None:
    with pytest.raises(ConfigError, match="do not certify"):
        thresholds(**changes)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"[]",
        b"[" * 100_000,
        b'"' + b" " * MAX_BYTES + b'"',
        changed(version=2),
        changed(more=1),
        changed(alpha="0.1"),
        changed(alpha=True),
        changed(errors=1.0),
        changed(grid=[0.5, None]),
        changed(heads=[1]),
        changed(heads=[{"bias": 0}] * 4),
        changed(model_sha256=7),
        without("alpha"),
        without("heads"),
        packed(THRESHOLDS).replace(b'"threshold": 0.6', b'"threshold": NaN'),
    ],
)
def test_another_file_is_refused(data: bytes) -> None:
    with pytest.raises(ConfigError):
        read_thresholds(data)


def test_a_head_of_other_features_is_refused() -> None:
    document: dict[str, Any] = json.loads(packed(THRESHOLDS))
    document["heads"][0]["mean"].pop()
    with pytest.raises(ConfigError):
        read_thresholds(json.dumps(document).encode())


def test_a_whole_number_is_a_number() -> None:
    assert read_thresholds(changed(threshold=0.0)).threshold == 0


def shipped(**changes: object) -> bytes:
    """Return a file of thresholds that come with Curtilage: one, changed."""
    entry = {
        "intent": "classification",
        "set": "invented",
        "date": "2026-11-28",
        "accepted": THRESHOLDS.accepts,
        "upper": THRESHOLDS.upper,
        "thresholds": json.loads(packed(THRESHOLDS)),
    }
    return json.dumps({"version": 1, "drafts": [entry | changes]}).encode()


def test_what_comes_with_curtilage_is_read() -> None:
    (one,) = read_shipped(shipped())
    assert one == Shipped(
        intent=Intent.CLASSIFICATION,
        made_of="invented",
        date="2026-11-28",
        thresholds=THRESHOLDS,
    )


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b'{"version": 2, "drafts": []}',
        b'{"version": 1, "drafts": [7]}',
        shipped(intent="small talk"),
        shipped(accepted=0.6),
        shipped(upper=0.01),
        shipped(upper="small"),
        shipped(more=1),
        shipped(thresholds={}),
        shipped(thresholds={**json.loads(packed(THRESHOLDS)), "errors": 60}),
    ],
)
def test_what_says_more_than_was_counted_does_not_come(data: bytes) -> None:
    with pytest.raises(ConfigError, match="thresholds: "):
        read_shipped(data)


def test_those_that_come_with_curtilage_are_of_its_catalogue_and_of_routine() -> None:
    found = shipped_thresholds()
    kinds = [(each.thresholds.model_sha256, each.intent) for each in found]
    assert len(set(kinds)) == len(kinds)
    for each in found:
        assert by_digest(each.thresholds.model_sha256) is not None
        assert each.intent in ROUTINE_INTENTS
        assert each.thresholds.features_sha256 == FEATURES_SHA256


@pytest.mark.parametrize(
    ("changes", "warns"),
    [
        ({"accepted": 500, "bad": 300, "errors": 20}, True),
        ({"accepted": 900, "bad": 85, "errors": 60}, True),
        ({"accepted": 900, "bad": 84, "errors": 60}, False),
        ({"accepted": 1000, "bad": 20, "errors": 20}, False),
    ],
)
def test_a_warning_has_its_counts(changes: dict[str, int], *, warns: bool) -> None:
    assert thresholds(**changes).warns is warns
