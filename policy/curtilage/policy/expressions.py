"""What RE2 does not know: patterns that need it are refused before they run.

Detectors run in linear time, so a policy's patterns are RE2. Whether one is
valid in full only that library knows; the worker compiles it, and where it
cannot, nothing leaves. What is told here is told to the author, at once.
"""

import re
from typing import Final

MAX_REPEAT: Final = 1000  # RE2's own limit

# One construct after the other, so that what an escape or a class holds is
# not taken for a construct.
_CONSTRUCT = re.compile(
    r"""
    \\(?P<escape>Q.*?(?:\\E|\Z)|[1-7][0-7]{1,2}|.)  # the second: an octal number
    | (?P<klass>\[\^?\]?(?:\\.|\[:\^?\w+:\]|[^\]\\])*\])
    | (?P<group>\((?:\?(?:<[=!]|[=!>(]|P=|\#))?)
    | (?P<end>\))
    | \{(?P<least>\d+)(?:,(?P<most>\d*))?\}(?P<possessive>\+?)
    | [*+?](?P<again>\+)
    | .
    """,
    re.VERBOSE | re.DOTALL,
)


def refuse_what_re2_lacks(pattern: str) -> None:
    """Refuse look-around, references back, and other things RE2 lacks.

    Raises:
        ValueError: says what, and at which character, counted from 1.
    """
    depth = 0
    for match in _CONSTRUCT.finditer(pattern):
        complaint = _complaint(match)
        if complaint:
            raise ValueError(f"{complaint}, at character {match.start() + 1}")
        depth += (match["group"] is not None) - (match["end"] is not None)
        if depth < 0:
            raise ValueError(f"no group ends here, at character {match.start() + 1}")
    if depth:
        raise ValueError("a group does not end")


def _complaint(match: re.Match[str]) -> str:
    if match["group"] not in {None, "("}:
        return "RE2 knows no look-around, condition, atomic group, reference or comment"
    if match["escape"] is not None and match["escape"] in "123456789kGKXRZ":
        return f"RE2 does not know '\\{match['escape']}'"
    if match["again"] or match["possessive"]:
        return "RE2 knows no possessive repetition"
    counts = [int(each) for each in (match["least"], match["most"]) if each]
    if any(count > MAX_REPEAT for count in counts):
        return f"RE2 repeats at most {MAX_REPEAT} times"
    if match[0] in {"[", "\\"}:
        return "a class or an escape does not end"
    return ""
