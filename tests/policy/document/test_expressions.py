import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from curtilage.client.detection.detectors.patterns.re2 import LinearError, LinearPattern
from curtilage.policy.document.values import re2_pattern


def is_re2(pattern: str) -> bool:
    try:
        LinearPattern(pattern)
    except LinearError:
        return False
    return True


@pytest.mark.parametrize(
    "pattern",
    [
        r"TCK-[0-9]{6}",
        r"(?i)\bproject (?:blue|red)\b",
        r"(?P<name>a)b*?",
        r"(?<name>a)",
        r"[(?=)]+",
        r"[]x(]+",
        r"[^]x(]+",
        r"[[:alpha:](]+",
        r"\(\?=x",
        r"\Q(?=\1\E",
        r"\Q(?=",
        r"\\",
        r"a{2,1000}",
        r"\pN\p{Greek}",
        r"(?s-i:.)\z",
    ],
)
def test_re2_patterns_pass(pattern: str) -> None:
    re2_pattern(pattern)
    assert is_re2(pattern)


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        (r"a(?=b)", "no look-around, condition, atomic group, reference or comment"),
        (r"a(?!b)", "at character 2"),
        (r"(?<=a)b", "look-around"),
        (r"(?<!a)b", "look-around"),
        (r"(?>a)b", "atomic"),
        (r"(a)(?(1)b|c)", "condition"),
        (r"(?P<n>a)(?P=n)", "reference"),
        (r"(?#x)a", "comment"),
        (r"(a)\1", r"does not know '\1'"),
        (r"(a)\k<x>", r"does not know '\k'"),
        (r"a\Z", r"does not know '\Z'"),
        (r"a++", "possessive"),
        (r"a?+", "possessive"),
        (r"a{2}+", "possessive"),
        (r"a{1001}", "at most 1000 times"),
        (r"a{2,1001}", "at most 1000 times"),
        (r"(a", "a group does not end"),
        (r"a)(", "no group ends here, at character 2"),
        (r"[ab", "does not end"),
        ("ab\\", "does not end"),
    ],
)
def test_constructs_that_re2_lacks_are_refused(pattern: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        re2_pattern(pattern)
    assert not is_re2(pattern)


@settings(deadline=None)  # a busy machine is no finding
@given(st.text("()[]{}?*+\\<=!>:PQEZb1a,-^|.$#", max_size=12))
@example("{1001}")
@example("[[:alpha:]")
@example("[a-\\]]")
@example("(?i)(?-s:a)*?")
def test_constructs_that_re2_has_are_accepted(pattern: str) -> None:
    if is_re2(pattern):
        re2_pattern(pattern)
