"""How a pattern is written down: a class, a regular expression, a check.

Shared by the lists of patterns; runs nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass

# What stands between a label and its value: "is", "number", a colon.
IS = (
    r"(?:\s{0,3}(?:is|was|are|no|nr|num|number|id|code|of|to|"
    r"[:=#.\-]|->)){0,4}\s{0,3}[\"'(]?"
)
# A value that is no word: letters, dashes, and a digit somewhere.
CODE = r"(?=[A-Z0-9\-]{0,20}\d)[A-Z0-9](?:[A-Z0-9\-]{2,24})[A-Z0-9]"


@dataclass(frozen=True, slots=True, kw_only=True)
class PatternRule:
    """One pattern of one class.

    Attributes:
        id: the detector's name in findings.
        data_class: a name of the class tree.
        regex: for ``re``; letters match in either case unless ``cased``.
        score: without a check, or where the check fails and is no condition.
        group: the group that is the finding; 0 is the whole match.
        check: raises the score to 100 where it holds.
        required: a match whose check fails is dropped.
        gate: the text must hold one of these characters; ``0``: any digit.
        cased: capital letters matter.
    """

    id: str
    data_class: str
    regex: str
    score: int
    group: int = 0
    check: Callable[[str], bool] | None = None
    required: bool = False
    gate: str = ""
    cased: bool = False


def labelled(
    name: str, data_class: str, label: str, value: str = CODE, *, score: int = 75
) -> PatternRule:
    """Return a rule for a value that follows its label; the value has a digit."""
    return PatternRule(
        id=name,
        data_class=data_class,
        regex=rf"(?<!\w)(?:{label}){IS}({value})(?!\w)",
        score=score,
        group=1,
        gate="0",
    )
