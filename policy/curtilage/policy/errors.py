"""Errors of policies and audit logs: what is wrong, and where.

::

    PolicyError         the text is not a valid policy; the author can correct it
    AuditRefusedError   an audit log is not what was written; names the record

A message holds the names of keys, classes and rules, numbers and lengths.
"""

from dataclasses import dataclass
from enum import Enum

from typing_extensions import override


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Problem:
    """One thing to correct.

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
    """A text is not a valid policy; no part of it may be used.

    Attributes:
        source: what the caller calls the text, such as a file name.
        problems: all of them, by line; never empty.
    """

    def __init__(self, problems: tuple[Problem, ...], *, source: str) -> None:
        super().__init__("\n".join(f"{source}: {problem}" for problem in problems))
        self.source = source
        self.problems = problems


class AuditStep(Enum):
    """The steps of an audit log's verification, in order."""

    KEY = (1, "key")
    SEGMENTS = (2, "segments")
    FORM = (3, "form")
    NUMBERS = (4, "numbers")
    CHAIN = (5, "chain")
    BINDING = (6, "binding")
    CHECKPOINTS = (7, "checkpoints")
    END = (8, "end")

    @property
    def number(self) -> int:
        """The step's number, from 1."""
        return self.value[0]

    @property
    def title(self) -> str:
        """The step's name in a word."""
        return self.value[1]


class AuditRefusedError(Exception):
    """An audit log, a checkpoint or a proof is not what its writer wrote.

    Attributes:
        step: which check failed.
        detail: what is wrong, without content.
        record: the number of the first record that is wrong, or None where
            no record is.
    """

    def __init__(
        self, step: AuditStep, detail: str, *, record: int | None = None
    ) -> None:
        where = "" if record is None else f"record {record}: "
        super().__init__(f"step {step.number}, {step.title}: {where}{detail}")
        self.step = step
        self.detail = detail
        self.record = record
