# ruff: noqa: ANN401 - fields of every type are changed by name

from dataclasses import replace
from typing import Any, cast

import pytest

from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.expectations import (
    AnchorKind,
    Expectations,
    TrustAnchor,
    validate_expectations,
)


def _refusal(expectations: Expectations) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        validate_expectations(expectations)
    return caught.value


def test_expectations_of_a_deployment_are_valid(expectations: Expectations) -> None:
    validate_expectations(expectations)


def _nested(expectations: Expectations, part: str, **changes: Any) -> Expectations:
    inner = replace(getattr(expectations, part), **changes)
    changed: dict[str, Any] = {part: inner}
    return replace(expectations, **changed)


@pytest.mark.parametrize(
    ("part", "name", "said"),
    [
        ("", "roots", "no trust anchors"),
        ("", "required_cpu_tees", "no required CPU TEEs"),
        ("", "release_names", "no release names"),
        ("", "transport", "no transport parameters"),
        ("log", "witnesses", "no log witnesses"),
        ("snp", "vmpl", "no privilege levels"),
        ("snp", "min_tcb", "no minimum TCBs"),
        ("snp", "host_data", "no host data"),
    ],
)
def test_empty_set_permits_nothing(
    expectations: Expectations, part: str, name: str, said: str
) -> None:
    changes = cast("dict[str, Any]", {name: {}})
    empty = (
        _nested(expectations, part, **changes)
        if part
        else replace(expectations, **changes)
    )
    error = _refusal(empty)
    assert error.code is RefusalCode.POLICY_INVALID
    assert said in error.detail


@pytest.mark.parametrize(
    ("part", "changes"),
    [
        ("log", {"public_key": bytes(31)}),
        ("log", {"witnesses": {"a": bytes(33)}}),
        ("log", {"quorum": 0}),
        ("log", {"quorum": 2}),
        ("log", {"max_checkpoint_age_s": 0}),
        ("snp", {"min_version": 1}),
        ("snp", {"max_crl_age_s": 0}),
        ("freshness", {"max_key_lifetime_s": 0}),
        ("freshness", {"max_evidence_age_s": -1}),
        ("freshness", {"clock_skew_s": -1}),
    ],
    ids=str,
)
def test_senseless_number_is_refused(
    expectations: Expectations, part: str, changes: dict[str, Any]
) -> None:
    error = _refusal(_nested(expectations, part, **changes))
    assert error.code is RefusalCode.POLICY_INVALID


def test_no_clock_skew_is_fine(expectations: Expectations) -> None:
    validate_expectations(_nested(expectations, "freshness", clock_skew_s=0))


@pytest.mark.parametrize("twin", ["witness", "log"])
def test_no_key_counts_twice(expectations: Expectations, twin: str) -> None:
    known = expectations.log.witnesses
    (key,) = known.values()
    second = key if twin == "witness" else expectations.log.public_key
    log = {"witnesses": {**known, "second": second}, "quorum": 2}
    error = _refusal(_nested(expectations, "log", **log))
    assert error.code is RefusalCode.POLICY_INVALID


def test_only_amds_own_roots_pass_for_amds(expectations: Expectations) -> None:
    posing = TrustAnchor(
        kind=AnchorKind.AMD,
        product="Genoa",
        certificate_der=expectations.roots[0].certificate_der,
    )
    error = _refusal(replace(expectations, roots=(posing,)))
    assert error.code is RefusalCode.POLICY_INVALID
    unknown = replace(posing, product="Rome")
    error = _refusal(replace(expectations, roots=(unknown,)))
    assert error.code is RefusalCode.POLICY_INVALID


@pytest.mark.parametrize(("part", "name"), [("log", "witnesses"), ("snp", "min_tcb")])
def test_expectations_cannot_be_changed(
    expectations: Expectations, part: str, name: str
) -> None:
    mapping = cast("dict[str, Any]", getattr(getattr(expectations, part), name))
    with pytest.raises(TypeError):
        mapping["x"] = b""
