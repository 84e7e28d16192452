"""The labels of the guard model: entity labels for words, topics for texts."""

from typing import Final

TYPES: Final = (
    "PERSON",
    "LOCATION",
    "ORGANIZATION",
    "ADDRESS",
    "AGE",
    "DATE",
    "NRP",
)
LABELS: Final = ("O", *(f"{mark}-{name}" for name in TYPES for mark in "BI"))
LABEL_IDS: Final = {label: number for number, label in enumerate(LABELS)}
TOPICS: Final = ("health", "special", "finance", "legal", "hr")
MAX_PIECES: Final = 128
IGNORED: Final = "IGNORED"  # a span of unknown type: no loss inside
