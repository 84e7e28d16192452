"""Why a policy was not accepted: every problem, each with its line.

::

    PolicyError     the text is no acceptable policy; the author can mend it

A message holds the names of keys, classes and rules, and lengths.
"""

from dataclasses import dataclass

from typing_extensions import override


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Problem:
    """One thing to mend.

    Attributes:
        line: from 1; where a key is missing, the line of what should hold it.
        path: such as ``rules[3].when``; empty for the document as a whole.
        message: what is wrong and, where it can be said, what is right.
    """

    line: int
    path: str
    message: str

    @override
    def __str__(self) -> str:
        """Return ``line 12: rules[3].when: message``."""
        where = f"{self.path}: " if self.path else ""
        return f"line {self.line}: {where}{self.message}"


class PolicyError(Exception):
    """A text is not a policy; nothing of it may be used.

    Attributes:
        source: what the caller calls the text, such as a file name.
        problems: all of them, by line; never empty.
    """

    def __init__(self, problems: tuple[Problem, ...], *, source: str) -> None:
        super().__init__("\n".join(f"{source}: {problem}" for problem in problems))
        self.source = source
        self.problems = problems
