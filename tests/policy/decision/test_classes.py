import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curtilage.policy.decision.classes import CLASSES, expand, is_class, is_uncertain


def test_every_class_is_a_leaf() -> None:
    inner = {name.rsplit(".", 1)[0] for name in CLASSES}
    assert inner.isdisjoint(CLASSES)


def test_is_class_knows_leaves_alone() -> None:
    assert is_class("financial.pan")
    assert not is_class("financial")
    assert not is_class("identifier.direct.gov_id")
    assert not is_class("financial.*")


def test_is_uncertain_recognises_the_branch() -> None:
    assert is_uncertain("uncertain.timeout")
    assert not is_uncertain("secret.token")


@settings(deadline=None)  # a busy machine is no finding
@given(st.sampled_from(sorted(CLASSES)))
def test_expand_of_a_class_is_that_class(name: str) -> None:
    assert expand(name) == {name}


@settings(deadline=None)  # a busy machine is no finding
@given(st.sampled_from(sorted(CLASSES)))
def test_expand_of_a_parent_holds_the_class(name: str) -> None:
    parent = name.rsplit(".", 1)[0]
    assert name in expand(parent + ".*")


def test_expand_of_a_tree_reaches_the_bottom() -> None:
    below = expand("identifier.*")
    assert "identifier.direct.gov_id.us_ssn" in below
    assert "identifier.quasi.zip" in below
    assert "financial.pan" not in below


def test_expand_of_alternatives_is_their_union() -> None:
    found = expand("identifier.direct.{gov_id.*, passport}")
    assert "identifier.direct.gov_id.uk_nino" in found
    assert "identifier.direct.passport" in found
    assert "identifier.direct.email" not in found


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("finance.pan", "unknown class 'finance.pan'"),
        ("finance.*", "nothing in the tree lies below it"),
        ("financial", "write 'financial.*'"),
        ("identifier.direct.gov_id", "write 'identifier.direct.gov_id.*'"),
        ("financial.pan.*", "nothing in the tree"),
        ("*", "not a class pattern"),
        (".*", "not a class pattern"),
        ("financial.*.pan", "not a class pattern"),
        ("financial.{pan,", "braces must be last"),
        ("financial{pan}", "braces must be last"),
        ("financial.{pan}.x", "braces must be last"),
        ("financial.{}", "not a class pattern"),
        ("financial.{pan,{iban}}", "not a class pattern"),
        ("financial.{pan,nothing}", "unknown class 'financial.nothing'"),
        ("FINANCIAL.PAN", "not a class pattern"),
        ("a" * 513, "at most 512 characters"),
        ("", "not a class pattern"),
    ],
)
def test_expand_refuses(pattern: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        expand(pattern)
