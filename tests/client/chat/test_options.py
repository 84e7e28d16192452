import pytest

from curtilage.client.chat.options import (
    PRESETS,
    Mode,
    Require,
    RoutingOptions,
    options_from,
)
from curtilage.client.errors import UsageError
from curtilage.policy.decision.tiers import RoutingClass, TierKind


def test_nothing_said_asks_for_nothing() -> None:
    assert options_from({}) == RoutingOptions()


def test_what_is_null_is_as_what_is_absent() -> None:
    absent: dict[str, object] = {
        "slo_ms": None,
        "slo_hard": None,
        "max_cost": None,
        "floor": None,
        "mode": None,
        "preset": None,
        "require": None,
        "defer": None,
    }
    assert options_from(absent) == RoutingOptions()


def test_every_field_is_read() -> None:
    read = options_from(
        {
            "slo_ms": {"ttft": 300, "total": 9000},
            "slo_hard": True,
            "max_cost": 0,
            "floor": "confidential",
            "mode": "enclave_if_allowed",
            "require": "on_premises",
            "defer": True,
        }
    )
    assert read == RoutingOptions(
        ttft_ms=300,
        total_ms=9000,
        slo_hard=True,
        max_cost_microusd=0,
        floor=RoutingClass.CONFIDENTIAL,
        mode=Mode.ENCLAVE_IF_ALLOWED,
        require=Require.ON_PREMISES,
        defer=True,
    )


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_sets_its_times(preset: str) -> None:
    assert options_from({"preset": preset}) == PRESETS[preset]


def test_explicit_options_override_a_preset() -> None:
    read = options_from({"preset": "voice", "slo_ms": {"ttft": 400}, "slo_hard": True})
    assert (read.ttft_ms, read.total_ms) == (400, PRESETS["voice"].total_ms)
    assert read.slo_hard


def test_no_preset_touches_privacy() -> None:
    assert all(each.floor is RoutingClass.PUBLIC for each in PRESETS.values())
    assert all(each.mode is Mode.AUTO for each in PRESETS.values())


SECRET = "Dr Adalbert Quux"


@pytest.mark.parametrize(
    ("said", "field", "possible"),
    [
        ({SECRET: 1}, "curtilage", "max_cost, mode, preset"),
        ({"slo_ms": 300}, "slo_ms", "an object"),
        ({"defer": 1}, "defer", "true or false"),
        ({"slo_ms": {SECRET: 300}}, "slo_ms", "total, ttft"),
        ({"slo_ms": {"ttft": SECRET}}, "slo_ms.ttft", "1 to 3600000"),
        ({"slo_ms": {"ttft": 0}}, "slo_ms.ttft", "1 to 3600000"),
        ({"slo_ms": {"total": 1.5}}, "slo_ms.total", "an integer"),
        ({"slo_ms": {"total": True}}, "slo_ms.total", "an integer"),
        ({"slo_ms": {"total": 3_600_001}}, "slo_ms.total", "1 to 3600000"),
        ({"slo_hard": 1}, "slo_hard", "true or false"),
        ({"slo_hard": True}, "slo_hard", "slo_ms or a preset"),
        ({"max_cost": -1}, "max_cost", "millionths of a US dollar"),
        ({"max_cost": 0.05}, "max_cost", "millionths of a US dollar"),
        ({"floor": SECRET}, "floor", "restricted, confidential, internal or public"),
        ({"floor": "PUBLIC"}, "floor", "internal or public"),
        ({"floor": ["public"]}, "floor", "internal or public"),
        ({"mode": SECRET}, "mode", "auto, home or enclave_if_allowed"),
        ({"mode": {}}, "mode", "auto, home or enclave_if_allowed"),
        ({"require": "in_process"}, "require", "enclave, on_premises or local"),
        ({"require": "enclave", "mode": "home"}, "require", "exclude each other"),
        ({"preset": SECRET}, "preset", "voice, chat or batch"),
        ({"preset": ["voice"]}, "preset", "voice, chat or batch"),
    ],
)
def test_what_is_wrong_is_named_with_what_is_possible_and_never_repeated(
    said: dict[str, object], field: str, possible: str
) -> None:
    with pytest.raises(UsageError) as caught:
        options_from(said)
    assert caught.value.param == field
    assert possible in str(caught.value)
    assert SECRET not in str(caught.value)


def test_what_may_be_required_are_the_kinds_of_tiers() -> None:
    assert {each.kind for each in Require} == set(TierKind)


def test_the_old_name_of_an_on_premises_server_still_works() -> None:
    assert options_from({"require": "house"}).require is Require.ON_PREMISES
