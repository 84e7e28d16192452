"""In which form turns of a conversation may enter what leaves of it."""

from enum import StrEnum, unique


@unique
class History(StrEnum):
    """What may leave of earlier turns of one routing class, besides the question.

    ``NEVER``: nothing. ``REDACTED_EXTRACT``: words that are everybody's, the others
    masked. ``SAFE_SUMMARY``: the same, and they may enter a summary that the local
    model makes. There is no word for the turns as they are.
    """

    NEVER = "never"
    REDACTED_EXTRACT = "redacted_extract"
    SAFE_SUMMARY = "safe_summary"
