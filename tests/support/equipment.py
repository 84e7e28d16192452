"""Our own detectors, compiled once for all tests of a process: they keep nothing."""

from functools import cache
from typing import Final

from curtilage.client.detection.detectors.all import own_equipment
from curtilage.client.detection.detectors.patterns.catalog import PATTERNS
from curtilage.client.detection.detectors.patterns.matcher import PatternSet
from curtilage.client.detection.detectors.patterns.secrets import SECRETS
from curtilage.client.detection.detectors.readings import Reading
from curtilage.client.detection.detectors.scanner import Equipment
from curtilage.policy.decision.findings import Normalization

OWN_IDS: Final = (
    *("undecodable", "obfuscation", "invisible", "language", "number-run"),
    *("told-number", "patterns", "opaque", "lexicon", "household", "mixed"),
    *("picture", "person-marker", "name"),
)
"""Each detector's id, in order, for tests that try them one by one."""


@cache
def own() -> Equipment:
    equipment = own_equipment()
    assert tuple(detector.id for detector, _ in equipment) == OWN_IDS
    return equipment


@cache
def every_pattern() -> PatternSet:
    return PatternSet((*PATTERNS, *SECRETS))


def as_written(text: str) -> Reading:
    return Reading(normalization=Normalization.RAW, text=text)
