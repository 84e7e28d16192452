"""The steps of a verification, in order, and a log of those that ran.

Knows the names and the numbers; what each step checks stands in ``verify``.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Self

from curtilage.attest.errors import RefusalCode, RefusedError


class Check(Enum):
    """Each step's number and the name that a person reads."""

    EXPECTATIONS = (1, "expectations")
    BUNDLE = (2, "bundle")
    EVIDENCE_KIND = (3, "kind of evidence")
    KEY_WINDOW = (4, "key window")
    LOG_CHECKPOINT = (5, "log checkpoint")
    RELEASE_PROOF = (6, "release proof")
    RELEASE_MANIFEST = (7, "release manifest")
    FRESHNESS = (8, "freshness")
    REPORT_LAYOUT = (9, "report layout")
    SIGNING_KEY = (10, "signing key")
    PINNED_ROOT = (11, "pinned root")
    CERTIFICATE_CHAIN = (12, "certificate chain")
    CERTIFICATE_DATES = (13, "certificate dates")
    REVOCATION = (14, "revocation list")
    REPORT_SIGNATURE = (15, "report signature")
    CHIP_IDENTITY = (16, "chip identity")
    TCB_ENDORSEMENT = (17, "TCB endorsement")
    GUEST_POLICY = (18, "guest policy")
    PRIVILEGE_LEVEL = (19, "privilege level")
    MINIMUM_TCB = (20, "minimum TCB")
    MEASUREMENT = (21, "measurement")
    REPORT_DATA = (22, "report data")
    TRANSPORT = (23, "transport parameters")

    @property
    def number(self) -> int:
        """The step's place, from 1."""
        return self.value[0]

    @property
    def label(self) -> str:
        """The step's name for people."""
        return self.value[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step that ran.

    Attributes:
        number: its place in the order, from 1.
        name: what was checked, in a few words.
        passed: False for the one step that refused.
        detail: what was seen; public.
    """

    number: int
    name: str
    passed: bool
    detail: str

    @classmethod
    def of(cls, check: Check, *, passed: bool, detail: str) -> Self:
        """Build the record of one check."""
        return cls(number=check.number, name=check.label, passed=passed, detail=detail)


class StepLog:
    """Collects the steps of one verification as they pass.

    A step that was begun but never passed is the one that refused, so a check
    that forgets to call ``passed`` cannot look as if it had held.
    """

    def __init__(self) -> None:
        self._steps: list[Step] = []
        self._current = Check.EXPECTATIONS

    def begin(self, check: Check) -> None:
        """Name the step that runs now."""
        self._current = check

    def passed(self, detail: str) -> None:
        """Record that the current step held."""
        self._steps.append(Step.of(self._current, passed=True, detail=detail))

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps that passed so far."""
        return tuple(self._steps)

    def refusal(self, code: RefusalCode, detail: str) -> RefusedError:
        """Return the error that ends this verification at the current step."""
        failed = Step.of(self._current, passed=False, detail=f"{code}: {detail}")
        return RefusedError(
            code, detail, step=failed.name, steps=(*self._steps, failed)
        )
