import json
from typing import Any

import pytest

from curtilage.client.errors import ConfigError
from curtilage.client.routing.thresholds import (
    MAX_BYTES,
    Unfit,
    packed,
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
    told: dict[str, Any] = json.loads(packed(THRESHOLDS))
    del told[name]
    return json.dumps(told).encode()


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
    told: dict[str, Any] = json.loads(packed(THRESHOLDS))
    told["heads"][0]["mean"].pop()
    with pytest.raises(ConfigError):
        read_thresholds(json.dumps(told).encode())


def test_a_whole_number_is_a_number() -> None:
    assert read_thresholds(changed(threshold=0.0)).threshold == 0
